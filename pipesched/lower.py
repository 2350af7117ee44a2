"""Sends and receives for a schedule, and its table in unit time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipesched import _core

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from pipesched.schedule import Schedule

__all__ = ["lower", "table"]


def lower(schedule: Schedule) -> Schedule:
    """Put in the sends and receives; see `Schedule.lower`."""
    bare = schedule.without_comms().check()
    ops, offsets = _core.lower(bare)
    return bare._wrap(ops, offsets, bare.num_stages, bare.num_microbatches, bare.name)


def table(schedule: Schedule) -> npt.NDArray[np.int64]:
    """Make the slot table in unit time; see `Schedule.table`."""
    slots: npt.NDArray[np.int64] = _core.slot_table(schedule.without_comms().check())
    return slots
