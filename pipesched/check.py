"""Is a schedule complete, legal and free of deadlock?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipesched.schedule import Schedule

__all__ = ["Fault", "ScheduleError", "check"]


@dataclass(frozen=True)
class Fault:
    """What is wrong with a schedule, and where.

    Attributes
    ----------
    code : str
        `"range"`, `"repeated"`, `"missing"`, `"place"`, `"order"`, `"split"`, `"pair"`,
        `"transfer"` or `"deadlock"`.
    text : str
        The fault in words, as `ScheduleError` prints it.
    rank, position : int
        The rank of the op at fault and its index in that rank's ops; -1 where it is missing.
    op : str
        The op at fault, in torch's grammar.
    other_rank, other_position, other : int, int, str
        The other op concerned, where there is one; otherwise -1, -1 and `""`.
    cycle : tuple of (int, int, str)
        For a deadlock, (rank, position, op) of each op that waits; each waits for an op of the
        next one's rank, the last for one of the first's.
    """

    code: str
    text: str
    rank: int
    position: int
    op: str
    other_rank: int = -1
    other_position: int = -1
    other: str = ""
    cycle: tuple[tuple[int, int, str], ...] = ()


class ScheduleError(ValueError):
    """A schedule is illegal; `.fault` says where and why."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault)
        self.fault = fault

    def __str__(self) -> str:
        return self.fault.text


def check(schedule: Schedule, blocking: bool = False) -> Schedule:
    """Return `schedule` if it is legal, else raise `ScheduleError`; see `Schedule.check`."""
    raise NotImplementedError
