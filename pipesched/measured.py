"""A timeline that was measured, and its comparison with one that was predicted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pipesched._arrays import frozen
from pipesched.check import KINDS
from pipesched.timeline import Timeline

if TYPE_CHECKING:
    from pipesched.costs import Costs
    from pipesched.schedule import Schedule

__all__ = ["MeasuredTimeline", "StageCost", "TimelineComparison", "compare_timelines"]


@dataclass(frozen=True)
class StageCost:
    """The measured times of one kind of op of one stage.

    Attributes
    ----------
    stage : int
        The stage; of an overlapped pair that of its forward; of a transfer the sender's.
    kind : str
        ``"F"``, ``"B"``, ``"I"``, ``"W"``, ``"OVERLAP_F_B"``, ``"SEND_F"`` or ``"SEND_B"``.  Of
        transfers the fastest of each step counts: one that lies there until its receiver comes
        shows no end.
    count : int
        How many were measured, over all steps.
    median : float
        Seconds.
    spread : float
        Seconds between the first and the third quartile.
    """

    stage: int
    kind: str
    count: int
    median: float
    spread: float


class MeasuredTimeline(Timeline):
    """What really happened in one step; made by `read_torch_trace`, frozen.

    It is a `Timeline`: its bubbles, on each basis, are those of the run.  ``costs()`` are the
    medians of what was measured, so that ``measured.schedule.simulate(measured.costs())`` is the
    prediction from the run's own costs.  Peaks of activations and memory follow from the order.

    Attributes
    ----------
    wait : ndarray
        Seconds that each op waited for its input, after its rank had come to it.
    waited : ndarray
        The sum of `wait` by rank.
    stage_costs : tuple of StageCost
        Median and spread by stage and kind, over all complete steps.
    clock_offsets : ndarray
        Seconds that were added to each rank's clock.
    steps : tuple of MeasuredTimeline
        All complete steps, this one among them.
    step : int
        Which of them this one is.
    notes : tuple of str
        What is to be known of the traces: incomplete steps, nested ranges, how the clocks were
        aligned.

    Examples
    --------
    >>> import json, os, tempfile, pipesched as ps
    >>> ranges = [("PP:0F0", 0, 1000), ("PP:0B0", 1500, 2000)]  # microseconds
    >>> events = [{"ph": "X", "name": n, "ts": ts, "dur": dur} for n, ts, dur in ranges]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "rank0.json")
    ...     with open(path, "w") as file:
    ...         json.dump({"traceEvents": events}, file)
    ...     measured = ps.read_torch_trace(path)
    >>> measured
    <MeasuredTimeline of 'measured', step 0 of 1: makespan 0.0035 s, bubble_fraction 0.1429, \
waited 0 s>
    >>> [(cost.kind, cost.median) for cost in measured.stage_costs]
    [('B', 0.002), ('F', 0.001)]
    """

    __slots__ = ("clock_offsets", "notes", "stage_costs", "step", "steps", "wait", "waited")

    wait: np.ndarray
    waited: np.ndarray
    stage_costs: tuple[StageCost, ...]
    clock_offsets: np.ndarray
    steps: tuple[MeasuredTimeline, ...]
    step: int
    notes: tuple[str, ...]

    @classmethod
    def _measured(
        cls,
        schedule: Schedule,
        costs: Costs,
        start: np.ndarray,
        end: np.ndarray,
        wait: np.ndarray,
        **facts: object,
    ) -> MeasuredTimeline:
        """From the times of every op, both ops of a pair having the pair's."""
        simulated = schedule.simulate(costs)
        length = np.where(_second_of_pair(schedule.ops["fuse"]), 0.0, end - start)
        rank = np.repeat(np.arange(schedule.p), np.diff(schedule.offsets))
        busy = np.bincount(rank, weights=length, minlength=schedule.p)
        waited = np.bincount(rank, weights=wait, minlength=schedule.p)
        first, last = np.full(schedule.p, np.inf), np.full(schedule.p, -np.inf)
        np.minimum.at(first, rank, start)
        np.maximum.at(last, rank, end)
        sums = np.stack([busy, first, last, simulated._fixed, simulated.peak_memory])
        peak_activations = np.array(simulated.peak_activations)
        self = cls._make(schedule, costs, end, sums, peak_activations, start)
        assert isinstance(self, MeasuredTimeline)
        self._put("wait", frozen(wait))
        self._put("waited", frozen(waited))
        for name, value in facts.items():
            self._put(name, value)
        return self

    @property
    def cause(self) -> np.ndarray:
        """For each op, the index of the op that ended last of those that it had to wait for.

        That is the op before it on its rank, or the one whose result it takes; -1 for none.
        """
        found = self._cause
        if found is None:
            found = frozen(_latest_need(self.schedule, self.end))
            self._put("_cause", found)
        return found

    def __repr__(self) -> str:
        return (
            f"<MeasuredTimeline of {self.schedule.name!r}, step {self.step} of {len(self.steps)}: "
            f"makespan {self.makespan:.6g} s, bubble_fraction {self.bubble_fraction:.4f}, "
            f"waited {self.waited.sum():.6g} s>"
        )


def _second_of_pair(fuse: np.ndarray) -> np.ndarray:
    second = np.zeros(len(fuse), dtype=bool)
    second[1:] = fuse[:-1] != 0
    return second


def _latest_need(schedule: Schedule, end: np.ndarray) -> np.ndarray:
    """For each op the one, of those it needs, that ended last."""
    where = {
        (stage, microbatch, KINDS[kind]): index
        for index, (stage, microbatch, kind, _) in enumerate(schedule.ops.tolist())
    }
    result = np.full(len(schedule), -1, dtype=np.int64)
    paired = _second_of_pair(schedule.ops["fuse"])
    starts = set(schedule.offsets[:-1].tolist())
    for (stage, microbatch, kind), index in where.items():
        first = index - int(paired[index])
        needs = [] if first in starts else [first - 1]
        if kind == "F":
            needs.append(where.get((stage - 1, microbatch, "F"), -1))
        elif kind in ("B", "I"):
            above = where.get((stage + 1, microbatch, "B"), -1)
            needs.append(where.get((stage + 1, microbatch, "I"), above))
            needs.append(where.get((stage, microbatch, "F"), -1))
        elif kind == "W":
            needs.append(where.get((stage, microbatch, "I"), -1))
        needs = [
            need for need in needs if need not in (-1, index, index - 1 + 2 * (first == index))
        ]
        if needs:
            result[index] = max(needs, key=lambda need: end[need])
    return result


@dataclass(frozen=True)
class TimelineComparison:
    """Two timelines side by side; ``print`` shows the table.

    Attributes
    ----------
    rows : tuple of (str, float, float)
        What is compared, predicted, measured.  Times are in the timelines' unit (seconds, where
        one is measured).
    reasons : tuple of str
        Where the makespans differ by more than a tenth, what the difference is made of.
    """

    rows: tuple[tuple[str, float, float], ...]
    reasons: tuple[str, ...]

    @property
    def error(self) -> float:
        """Predicted makespan over measured makespan, minus 1."""
        _, predicted, measured = self.rows[0]
        return predicted / measured - 1

    def to_dict(self) -> dict[str, dict[str, float]]:
        """The rows by name, for a data frame or a file."""
        return {name: {"predicted": p, "measured": m} for name, p, m in self.rows}

    def __str__(self) -> str:
        width = max(len(name) for name, _, _ in self.rows)
        lines = [f"{'':<{width}}{'predicted':>13}{'measured':>13}{'difference':>13}"]
        for name, predicted, measured in self.rows:
            if "bubble" in name:
                change = f"{100 * (predicted - measured):+.1f} points"
                cells = f"{100 * predicted:>12.1f}%{100 * measured:>12.1f}%"
            else:
                change = f"{100 * (predicted / measured - 1):+.1f} %" if measured else ""
                cells = f"{predicted:>13.6g}{measured:>13.6g}"
            lines.append(f"{name:<{width}}{cells}{change:>13}")
        return "\n".join([*lines, *self.reasons])


def compare_timelines(predicted: Timeline, measured: Timeline) -> TimelineComparison:
    """Put a predicted and a measured timeline side by side.

    Parameters
    ----------
    predicted, measured : Timeline
        For instance ``schedule.simulate(costs)`` and ``read_torch_trace(paths)``, in one unit of
        time and with the same number of ranks.

    Returns
    -------
    TimelineComparison
        Makespan, the three bubbles, work and idle time by rank; and where the makespans are
        more than a tenth apart, what the difference is made of.

    Examples
    --------
    >>> import pipesched as ps
    >>> s = ps.generate("1f1b", 2, 4)
    >>> print(ps.compare_timelines(s.simulate(), s.simulate(ps.Costs(transfer=0.25))))
                       predicted     measured   difference
    makespan                  15           16       -6.2 %
    bubble_fraction        20.0%        25.0%  -5.0 points
    bubble_ratio           25.0%        33.3%  -8.3 points
    span_bubble            20.0%        25.0%  -5.0 points
    busy, rank 0              12           12       +0.0 %
    busy, rank 1              12           12       +0.0 %
    idle, rank 0               3            4      -25.0 %
    idle, rank 1               3            4      -25.0 %
    """
    for name, timeline in (("predicted", predicted), ("measured", measured)):
        if not isinstance(timeline, Timeline):
            raise TypeError(f"{name} must be a Timeline, got {type(timeline).__name__}")
    p = measured.schedule.p
    if predicted.schedule.p != p:
        raise ValueError(
            f"the timelines must have the same ranks, got {predicted.schedule.p} predicted "
            f"and {p} measured"
        )
    for name, timeline in (("predicted", predicted), ("measured", measured)):
        if not timeline.busy.sum() > 0:
            raise ValueError(f"{name} has no op that takes time: there is nothing to compare")
    rows = [("makespan", predicted.makespan, measured.makespan)]
    for basis in ("bubble_fraction", "bubble_ratio", "span_bubble"):
        rows.append((basis, getattr(predicted, basis), getattr(measured, basis)))
    for what in ("busy", "idle"):
        both = zip(getattr(predicted, what), getattr(measured, what), strict=True)
        rows += [(f"{what}, rank {r}", float(a), float(b)) for r, (a, b) in enumerate(both)]
    return TimelineComparison(tuple(rows), tuple(_reasons(predicted, measured)))


def _reasons(predicted: Timeline, measured: Timeline) -> Sequence[str]:
    if abs(predicted.makespan / measured.makespan - 1) <= 0.1:
        return []
    reasons = []
    work = measured.busy.sum() / predicted.busy.sum() - 1
    if abs(work) > 0.05:
        reasons.append(
            f"the ops took {_change(work)} than their predicted costs: "
            + (
                "ranks that share cores or memory slow each other"
                if work > 0
                else "the costs were taken while the machine was slower, so profile again"
            )
        )
    # Slower work alone makes the bubble longer in proportion; that is no reason of its own.
    explained = predicted.idle.sum() * (1 + work)
    rest = (measured.idle.sum() - explained) / measured.makespan / measured.schedule.p
    if abs(rest) > 0.02:
        more = "more" if rest > 0 else "less"
        reasons.append(
            f"idle time, in proportion to the work, made up {abs(100 * rest):.0f} % of the step "
            f"{more} than predicted: transfers, the time in which they are posted, or stages that "
            "are off by different amounts"
        )
    if predicted.schedule != measured.schedule:
        reasons.append("the two are not of the same schedule")
    return reasons


def _change(ratio: float) -> str:
    return f"{abs(100 * ratio):.0f} % {'more' if ratio > 0 else 'less'}"
