"""Costs on a schedule: one cost vector gives a Timeline, a batch of them Timelines."""

from __future__ import annotations

import operator
import os
from typing import TYPE_CHECKING

import numpy as np

from pipesched import _core
from pipesched.costs import Costs
from pipesched.timeline import Timeline, Timelines

if TYPE_CHECKING:
    from pipesched.schedule import Schedule

__all__ = ["look_back", "simulate"]


def simulate(
    schedule: Schedule, costs: Costs | None = None, threads: int | None = None
) -> Timeline | Timelines:
    """Time a schedule; see :meth:`Schedule.simulate`."""
    if costs is None:
        costs = Costs()
    if not isinstance(costs, Costs):
        raise TypeError(f"costs must be a pipesched.Costs, got {type(costs).__name__}")
    if threads is not None:
        threads = _count_threads(threads)
    schedule.check()  # first: tables are no larger than a legal schedule
    tables = _tables(schedule, costs)
    serial = costs.link == "serial"
    if costs.batch is None:
        return Timeline._make(schedule, costs, *_core.simulate(schedule, tables, serial))

    sums = np.empty((5, costs.batch, schedule.p))

    def run(begin: int, stop: int) -> np.ndarray:
        return _core.simulate_batch(schedule, tables, serial, begin, stop, sums)

    threads = min(threads or os.cpu_count() or 1, costs.batch)
    if threads <= 1:
        peak_activations = run(0, costs.batch)
    else:
        from concurrent.futures import ThreadPoolExecutor  # slow to load, and only used here

        bounds = [costs.batch * i // threads for i in range(threads + 1)]
        with ThreadPoolExecutor(threads) as pool:
            peak_activations, *_ = pool.map(run, bounds[:-1], bounds[1:])
    return Timelines._make(schedule, costs, sums, peak_activations)


def look_back(schedule: Schedule, costs: Costs, end: np.ndarray, cause: bool) -> np.ndarray:
    """From the ends of all ops their starts, or what fixed these; see `Timeline.cause`."""
    return _core.look_back(schedule, _tables(schedule, costs), costs.link == "serial", end, cause)


def _tables(schedule: Schedule, costs: Costs) -> tuple[np.ndarray | None, ...]:
    tables = costs.tables(schedule.num_stages, schedule.num_microbatches)
    return tuple(tables[name] for name in ("times", "overlap", "transfers", "scale", "memory"))


def _count_threads(threads: int) -> int:
    try:
        number = operator.index(threads)
    except TypeError:
        raise TypeError(f"threads must be an int or None, got {type(threads).__name__}") from None
    if number < 1:
        raise ValueError(f"threads must be at least 1, got {number}")
    return number
