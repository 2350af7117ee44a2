"""Will torch's pipeline runtime load and run a schedule?  Told without torch.

The rules are those of torch 2.13.0: here those of its validator (`_validate_schedule`), in
`torch_model` those of its lowering and of its runtime.  The tests hold every one to torch itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from pipesched.check import KINDS
from pipesched.formats.torch_model import Action, Stall, execute, lowered

if TYPE_CHECKING:
    import numpy as np

    from pipesched.schedule import Schedule

__all__ = ["TorchReason", "TorchReport", "torch_report"]

FORWARD, FULL, INPUT, WEIGHT = range(4)
_FIRST_STAGE_WIDE, _REDUCE_GRAD = 8, 10

#: As many reasons as are told; a file can have one for every op.
_MOST = 100

#: An op with its place: (rank, position in the rank's ops, stage, micro-batch, kind).
_Op = tuple[int, int, int, int, int]


@dataclass(frozen=True)
class TorchReason:
    """One reason why torch does not load or does not run a schedule.

    Attributes
    ----------
    code : str
        Of the loading: ``"idle-rank"``, ``"two-ranks"``, ``"bookkeeping"``,
        ``"forward-only"``, ``"missing-forward"``, ``"missing-backward"``, ``"two-backwards"``,
        ``"unpaired-split"``, ``"order"``, ``"stall"``.  Of the run: ``"repeated"``, ``"transfer"``,
        ``"transfer-order"``, ``"loss-order"``, ``"reduce-grad"``, ``"order"``, ``"stall"``.
    text : str
        The reason in words.
    phase : str
        ``"load"``: torch refuses the file; ``"run"``: it loads, and then fails or computes wrong
        gradients.
    rank, position : int
        The rank of the op and its index in that rank's ops; -1 where there is no such op.
    op : str
        The op in torch's words; the one that is missing where one is missing.
    """

    code: str
    text: str
    phase: str
    rank: int = -1
    position: int = -1
    op: str = ""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class TorchReport:
    """Whether torch's pipeline runtime loads and runs a schedule, and why not.

    True in a condition where it does; ``print`` shows all of it.

    Attributes
    ----------
    format : str
        ``"compute_only"`` or, where the schedule holds transfers, ``"compute_comms"``: the format
        that the answer is for, as torch's loader names it.
    reasons : tuple of TorchReason
        Empty where torch loads and runs it; the first hundred where there are more.
    notes : tuple of str
        What torch does otherwise than the schedule says, without being wrong.

    Examples
    --------
    >>> import pipesched as ps
    >>> report = ps.Schedule.from_rows(["0F0 0F1", "1F0 1F1"]).torch_report()
    >>> bool(report), report.reasons[0].code, report.reasons[0].op
    (False, 'forward-only', '0B0')
    """

    format: str
    reasons: tuple[TorchReason, ...]
    notes: tuple[str, ...]

    @property
    def loads(self) -> bool:
        """Whether torch's loader takes the file, be it only to fail in the run."""
        return all(reason.phase == "run" for reason in self.reasons)

    @property
    def runs(self) -> bool:
        """Whether torch loads it and a step gives the right gradients."""
        return not self.reasons

    def __bool__(self) -> bool:
        return self.runs

    def __str__(self) -> str:
        if self.runs:
            verdict = f"torch loads and runs this schedule (format {self.format})"
        elif self.loads:
            verdict = f"torch loads this schedule (format {self.format}), and its run fails:"
        else:
            verdict = f"torch does not load this schedule (format {self.format}):"
        lines = [verdict, *(f"  {reason}" for reason in self.reasons)]
        return "\n".join(lines + [f"  note: {note}" for note in self.notes])


def torch_report(schedule: Schedule) -> TorchReport:
    """Tell whether torch's runtime loads and runs ``schedule``; see `Schedule.torch_report`."""
    comms = schedule.has_comms
    reasons = list(islice(_refused(schedule, comms), _MOST))
    if not reasons:
        reasons += _run(schedule, comms)
    return TorchReport(
        "compute_comms" if comms else "compute_only", tuple(reasons), tuple(_notes(schedule, comms))
    )


def _word(stage: int, microbatch: int, kind: int) -> str:
    return f"{stage}{KINDS[kind]}{'' if kind >= _FIRST_STAGE_WIDE else microbatch}"


def _ops(schedule: Schedule) -> Iterator[_Op]:
    for rank, ops in enumerate(schedule):
        for position, (stage, microbatch, kind, _) in enumerate(ops.tolist()):
            yield rank, position, stage, microbatch, kind


def _at(code: str, phase: str, op: _Op, text: str) -> TorchReason:
    rank, position, *parts = op
    word = _word(*parts)
    text = f"rank {rank}, op {position}: {word} {text}"
    return TorchReason(code, text, phase, rank, position, word)


def _refused(schedule: Schedule, comms: bool) -> Iterator[TorchReason]:
    """What torch's loader looks at: places, order on the rank, and counts by stage."""
    for rank, ops in enumerate(schedule):
        if not len(ops):
            yield TorchReason(
                "idle-rank", f"rank {rank} has no op; each rank needs a stage", "load", rank
            )
    home: dict[int, int] = {}
    split: set[int] = set()
    bookkept = False
    done: dict[int, tuple[set[int], ...]] = defaultdict(lambda: (set(), set(), set(), set()))
    for op in _ops(schedule):
        rank, _, stage, microbatch, kind = op
        if home.setdefault(stage, rank) != rank and stage not in split:
            split.add(stage)
            yield _at(
                "two-ranks",
                "load",
                op,
                f"puts stage {stage} on a second rank (it is on rank {home[stage]} already); "
                "torch wants each stage on one rank",
            )
        if kind >= _FIRST_STAGE_WIDE and not comms and not bookkept:
            bookkept = True
            yield _at(
                "bookkeeping",
                "load",
                op,
                "stands in a schedule without transfers, where torch wants compute only; it puts "
                "in its own",
            )
        if kind > WEIGHT:
            continue
        if kind in (FULL, INPUT) and microbatch not in done[stage][FORWARD]:
            yield _at("order", "load", op, f"stands before {stage}F{microbatch} on its rank")
        if kind == WEIGHT and microbatch not in done[stage][INPUT]:
            yield _at("order", "load", op, f"stands before {stage}I{microbatch} on its rank")
        done[stage][kind].add(microbatch)
    m = schedule.num_microbatches
    if not any(done[stage][kind] for stage in done for kind in (FULL, INPUT, WEIGHT)):
        rank = home.get(0, -1)
        yield TorchReason(
            "forward-only",
            "the schedule has no backward (the first that is missing is 0B0); torch's runtime "
            "loads schedules that train, pipesched.torch.build runs this one for inference",
            "load",
            rank,
            op="0B0",
        )
        return
    for stage in range(schedule.num_stages):
        forward, full, into, weight = done[stage]
        rank = home.get(stage, -1)
        yield from _counted("missing-forward", rank, stage, FORWARD, m, forward)
        if len(into) != len(weight):
            j = min(into ^ weight)
            missing = _word(stage, j, WEIGHT if j in into else INPUT)
            yield TorchReason(
                "unpaired-split",
                f"stage {stage} has {len(into)} I and {len(weight)} W; {missing} is missing",
                "load",
                rank,
                op=missing,
            )
        elif len(full) + len(into) > m:
            word = _word(stage, min(full & into), FULL)
            text = f"stage {stage} has both {word} and {word.replace('B', 'I')}"
            yield TorchReason("two-backwards", text, "load", rank, op=word)
        elif len(full) + len(into) < m:
            yield from _counted("missing-backward", rank, stage, FULL, m, full | into)


def _counted(
    code: str, rank: int, stage: int, kind: int, m: int, found: set[int]
) -> Iterator[TorchReason]:
    if len(found) == m:
        return
    missing = _word(stage, next((j for j in range(m) if j not in found), 0), kind)
    what = "forwards" if kind == FORWARD else "backwards"
    yield TorchReason(
        code,
        f"stage {stage} has {what} of {len(found)} of the {m} micro-batches; {missing} is missing",
        "load",
        rank,
        op=missing,
    )


def _run(schedule: Schedule, comms: bool) -> Iterator[TorchReason]:
    """What the validator lets pass: the lowering stalls, or the run fails or goes wrong."""
    home = {stage: rank for rank, stages in enumerate(schedule.placement) for stage in stages}
    last = schedule.num_stages - 1
    rows = [_cells(ops) for ops in schedule]
    if comms:
        placed = [[action for cell in row for action in cell] for row in rows]
    else:
        made = lowered(rows, home, last)
        if isinstance(made, Stall):
            yield _at(
                "stall",
                "load",
                (made.rank, made.action.position, *made.action[:3]),
                f"waits for {made.need}, which never comes (Schedule.check prints the waiting "
                "circle); torch's lowering stalls there",
            )
            return
        placed = made
    trip = execute(placed, home, last)
    if trip is not None:
        where = f"rank {trip.rank}, op {trip.action.position}: {trip.action}"
        yield TorchReason(
            trip.code,
            f"{where} {trip.text}",
            "run",
            trip.rank,
            trip.action.position,
            str(trip.action),
        )
    if comms and schedule.num_microbatches > 1:
        yield from _unreduced(schedule)


def _cells(ops: np.ndarray) -> list[tuple[Action, ...]]:
    """A rank's actions, an overlapped pair as one cell."""
    cells: list[tuple[Action, ...]] = []
    pair: tuple[Action, ...] = ()
    for position, (stage, microbatch, kind, fuse) in enumerate(ops.tolist()):
        pair = (*pair, Action(stage, microbatch, kind, position))
        if not fuse:
            cells.append(pair)
            pair = ()
    return cells


def _unreduced(schedule: Schedule) -> Iterator[TorchReason]:
    """REDUCE_GRAD divides the gradients: once a stage, after the last of its backwards."""
    reduced: dict[int, _Op] = {}
    for op in _ops(schedule):
        stage, kind = op[2], op[4]
        if kind == _REDUCE_GRAD and stage in reduced:
            yield _at("reduce-grad", "run", op, "divides the gradients of the stage a second time")
        elif kind == _REDUCE_GRAD:
            reduced[stage] = op
        elif kind in (FULL, WEIGHT) and stage in reduced:
            yield _at("reduce-grad", "run", reduced.pop(stage), "comes before the last backward")
            return
    if reduced and len(reduced) < schedule.num_stages:
        stage = next(s for s in range(schedule.num_stages) if s not in reduced)
        yield TorchReason(
            "reduce-grad",
            f"{stage}REDUCE_GRAD is missing, where other stages have theirs: only those are "
            "divided by the number of micro-batches",
            "run",
            op=f"{stage}REDUCE_GRAD",
        )


def _notes(schedule: Schedule, comms: bool) -> Iterator[str]:
    kinds = schedule.ops["kind"]
    pairs = int(schedule.ops["fuse"].sum())
    if pairs:
        yield (
            f"{pairs} overlapped pair{'s' if pairs > 1 else ''}: torch runs the two one after the "
            "other, unless a function for OVERLAP_F_B is registered"
        )
    if ((kinds == INPUT) & (schedule.ops["stage"] == 0)).any():
        yield "in stage 0 torch does nothing in I and the whole backward in W"
    if comms and schedule.num_microbatches > 1 and not (kinds == _REDUCE_GRAD).any():
        yield (
            "there is no REDUCE_GRAD, so torch does not divide the gradients by the number of "
            "micro-batches (pipesched.torch.build adds it)"
        )
