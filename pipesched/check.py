"""Is a schedule complete, legal and free of deadlock?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipesched import _core

if TYPE_CHECKING:
    from pipesched.schedule import Schedule

__all__ = ["KINDS", "Fault", "ScheduleError", "check"]


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

    Examples
    --------
    >>> import pipesched as ps
    >>> try:
    ...     ps.Schedule.from_rows(["0F0 0B0", "1B0 1F0"]).check()
    ... except ps.ScheduleError as error:
    ...     error.fault.code, error.fault.rank, error.fault.position, error.fault.op
    ('order', 1, 0, '1B0')
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


#: The words for `kind`, by number; the first four take time on a rank.
KINDS = (
    "F",
    "B",
    "I",
    "W",
    "SEND_F",
    "RECV_F",
    "SEND_B",
    "RECV_B",
    "UNSHARD",
    "RESHARD",
    "REDUCE_GRAD",
)

_Op = tuple[int, int, int, int]  # stage, microbatch, kind, fuse

# ps_status of ps_base.h, by what it is for people.
_CODES = {
    -40: "range",
    -41: "repeated",
    -42: "missing",
    -43: "place",
    -44: "order",
    -45: "split",
    -46: "pair",
    -47: "transfer",
    -48: "deadlock",
}


def check(schedule: Schedule, blocking: bool = False) -> Schedule:
    """Return `schedule` if it is legal, else raise `ScheduleError`; see `Schedule.check`."""
    found = _core.check(schedule, blocking)
    if found is not None:
        raise ScheduleError(describe(schedule, *found))
    return schedule


def check_form(schedule: Schedule) -> Schedule:
    """Return `schedule` if every op is in range and every overlapped pair has two members.

    That much every `Schedule` promises; whether it is legal is what `check` tells.
    """
    found = _core.check_form(schedule)
    if found is not None:
        raise ScheduleError(describe(schedule, *found))
    return schedule


def check_unique(schedule: Schedule) -> Fault | None:
    """The fault of a well-formed schedule in which an op stands twice."""
    found = _core.check_unique(schedule)
    return None if found is None else describe(schedule, *found)


def word(op: _Op) -> str:
    """An op in torch's grammar, or its fields where its kind has no word."""
    stage, microbatch, kind, _ = op
    if not 0 <= kind < len(KINDS):
        return f"(stage {stage}, micro-batch {microbatch}, kind {kind})"
    return f"{stage}{KINDS[kind]}{'' if kind >= 8 and microbatch == -1 else microbatch}"


def describe(
    schedule: Schedule,
    status: int,
    rank: int,
    position: int,
    op: _Op,
    other_rank: int,
    other_position: int,
    other: _Op,
    waits: tuple[tuple[int, int, _Op, int, _Op], ...] = (),
) -> Fault:
    """Make a `Fault` of what the core found."""
    code = _CODES[status]
    this, that = word(op), word(other) if other_position >= 0 else ""
    where = f"rank {rank}, op {position}: " if position >= 0 else ""
    there = f"rank {other_rank}, op {other_position}"
    if code == "range":
        text = _range_text(schedule, op)
    elif code == "repeated":
        text = f"{this} stands already at {there}"
    elif code == "missing":
        text = f"{this} is missing" + (f": its forward {that} is at {there}" if that else "")
    elif code == "place":
        text = f"{this} is not on the rank of its forward {that} ({there})"
    elif code == "order":
        text = f"{this} before its {_role(op, other)} {that} (op {other_position})"
    elif code == "split":
        part = f"{op[0]}{'I' if KINDS[op[2]] == 'W' else 'W'}{op[1]}"
        text = f"{this} beside {that} ({there})" if that else f"{this} without its {part}"
    elif code == "pair":
        text = _pair_text(op, other, this, that)
    elif code == "transfer":
        text = _transfer_text(op, position, rank, other_rank, this, that, there)
    else:
        text = _deadlock_text(waits)
        where = ""
    cycle = tuple((r, at, word(waiting)) for r, at, waiting, _, _ in waits)
    return Fault(code, where + text, rank, position, this, other_rank, other_position, that, cycle)


def _role(op: _Op, other: _Op) -> str:
    if op[0] != other[0]:
        return "input"
    return "forward" if KINDS[other[2]] == "F" else "input gradient"


def _range_text(schedule: Schedule, op: _Op) -> str:
    stage, microbatch, kind, fuse = op
    if not 0 <= kind < len(KINDS):
        return f"kind must be in 0..{len(KINDS) - 1}, got {kind}"
    if not 0 <= stage < schedule.num_stages:
        return f"{word(op)}: stage must be in 0..{schedule.num_stages - 1}, got {stage}"
    if fuse not in (0, 1):
        return f"{word(op)}: fuse must be 0 or 1, got {fuse}"
    if kind >= 8:
        return f"{word(op)}: micro-batch must be -1 for a whole stage, got {microbatch}"
    top = schedule.num_microbatches - 1
    return f"{word(op)}: micro-batch must be in 0..{top}, got {microbatch}"


def _pair_text(op: _Op, other: _Op, this: str, that: str) -> str:
    if not that:
        return f"{this} opens an overlapped pair that does not have two members"
    if op[:2] == other[:2] and {op[2], other[2]} in ({0, 1}, {0, 2}):
        return f"({this};{that})OVERLAP_F_B depends on itself: {that} needs {this}"
    return f"({this};{that})OVERLAP_F_B must be one F and one B or I"


def _transfer_text(
    op: _Op, position: int, rank: int, other_rank: int, this: str, that: str, there: str
) -> str:
    is_send = KINDS[op[2]].startswith("SEND")
    if position < 0:
        use = "whose result another rank needs" if is_send else "which needs it"
        return f"{this} is missing on rank {rank}, for {that} ({there}), {use}"
    if not that:
        return f"{this} carries nothing from one rank to another"
    if rank != other_rank:
        return f"{this} is not on the rank of {that} ({there})"
    return f"{this} {'before' if is_send else 'after'} {that} ({there})"


def _deadlock_text(waits: tuple[tuple[int, int, _Op, int, _Op], ...]) -> str:
    parts = []
    for i, (rank, position, op, awaited_position, awaited) in enumerate(waits):
        next_rank = waits[(i + 1) % len(waits)][0]
        parts.append(
            f"rank {rank}, op {position}: {word(op)} waits for {word(awaited)} "
            f"(rank {next_rank}, op {awaited_position})"
        )
    return "deadlock: the ranks wait for each other in a circle: " + "; ".join(parts)
