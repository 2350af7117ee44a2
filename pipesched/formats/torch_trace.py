"""Read the profiler's traces of a torch pipeline back as a measured timeline.

torch's pipeline runtime wraps each action in a profiler range `PP:` + the action, so the Chrome
traces of the ranks tell when each op ran.  A range of an op begins when the rank comes to it, and
so holds the time that the op waited for its input; where the wait ended is told by the range of
the receive that the backend writes (`gloo:recv`), or else bounded by when the sender sent.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import re
import zlib
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pipesched._arrays import frozen
from pipesched.costs import Costs
from pipesched.measured import MeasuredTimeline, StageCost
from pipesched.schedule import Schedule

__all__ = ["read_torch_trace"]

_PREFIX = "PP:"
_ACTION = re.compile(
    r"(\d{1,9})(F|B|I|W|SEND_F|RECV_F|SEND_B|RECV_B|UNSHARD|RESHARD|REDUCE_GRAD)(\d{0,9})"
)
_PAIR = re.compile(r"\(([^;()]*);([^;()]*)\)OVERLAP_F_B")
_COMPUTE = ("F", "B", "I", "W")
_RECEIVE = re.compile(r"\w+:recv\b")

# Clocks are read to about a microsecond; what is earlier by less is not earlier.
_GRAIN = 1.0

# Later than any clock: some 10 million years in nanoseconds.
_LARGEST = 1e24

_Part = tuple[int, int, str]  # stage, micro-batch, kind


@dataclass
class _Range:
    """One profiler range of an action; times in microseconds of the rank's own clock."""

    word: str
    parts: tuple[_Part, ...]
    start: float
    end: float
    arrival: float | None = None  # when the input had been waited for, where the trace tells

    @property
    def computes(self) -> bool:
        return self.parts[0][2] in _COMPUTE


@dataclass
class _Trace:
    """What one rank's trace holds."""

    path: str
    rank: int | None
    host: str | None
    ranges: list[_Range]
    receives: list[tuple[float, float]]
    windows: list[float]  # where the profiler's own steps begin
    notes: list[str] = field(default_factory=list)


def read_torch_trace(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], step: int | None = None
) -> MeasuredTimeline:
    """Read the traces of all ranks of a pipeline, as ``torch.profiler`` exports them.

    Parameters
    ----------
    paths : path or iterable of paths
        One Chrome trace a rank (JSON, plain or gzip), in any order where they name their ranks, as
        torch's do; otherwise in the order of the ranks.
    step : int, optional
        Which of the complete steps in the traces; by default the one of median makespan.

    Returns
    -------
    MeasuredTimeline
        In seconds, with the schedule that ran, the times of its ops without their waiting, the
        waiting, and the costs.

    Raises
    ------
    ValueError
        A file is no such trace; ranges lie inside each other that cannot; no step is complete;
        ranks do not fit together; or the clocks cannot be aligned, since on any offset a receive
        would end before its send.

    Notes
    -----
    Traces of one host share its clock, which is taken as it is unless that would let a receive
    end before its send.  Between hosts the offsets are estimated: each transfer bounds the
    difference of two clocks from one side, and the middle between the bounds is taken.

    Times are those of the host's ranges.  On GPUs these are the times at which kernels were
    launched, not at which they ran; a note says so.

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
    >>> measured.makespan, measured.costs().forward, measured.costs().backward
    (0.0035, array([0.001]), array([0.002]))
    """
    several = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if not several:
        raise ValueError("paths must name at least one trace, got none")
    traces = _in_order([_read(path) for path in several])
    _no_rank_missing(traces)
    notes = [note for trace in traces for note in trace.notes]
    steps = _complete_steps(traces, notes)
    _find_arrivals(traces, steps)
    measured = [_Step(ranks, traces, index) for index, ranks in enumerate(steps)]
    samples: dict[tuple[int, str], list[float]] = defaultdict(list)
    for one in measured:
        one.sample(samples)
    stage_costs = _stage_costs(samples)
    costs = _costs(stage_costs, 1 + max(stage for stage, _ in samples))
    notes += dict.fromkeys(note for one in measured for note in one.notes)
    timelines: list[MeasuredTimeline] = []
    for index, one in enumerate(measured):
        timelines.append(one.timeline(costs, stage_costs, index, tuple(notes)))
    for timeline in timelines:
        timeline._put("steps", tuple(timelines))
    if step is None:
        by_makespan = sorted(range(len(timelines)), key=lambda i: timelines[i].makespan)
        step = by_makespan[(len(timelines) - 1) // 2]
    try:
        return timelines[range(len(timelines))[step]]
    except IndexError:
        raise ValueError(
            f"step must be in 0..{len(timelines) - 1}, the complete steps of the traces, got {step}"
        ) from None


# ---- one file ----------------------------------------------------------------------------------


def _read(path: str | os.PathLike[str]) -> _Trace:
    name = os.fspath(path)
    raw = Path(path).read_bytes()
    try:
        if raw[:2] == b"\x1f\x8b":
            raw = gzip.decompress(raw)
        document = json.loads(raw)
    except (OSError, EOFError, ValueError, RecursionError, zlib.error) as error:
        raise ValueError(f"{name} is no Chrome trace: {error}") from None
    events = document.get("traceEvents") if isinstance(document, dict) else document
    if not isinstance(events, list):
        raise ValueError(f"{name} is no Chrome trace: it has no list of traceEvents")
    info = document if isinstance(document, dict) else {}
    base = (_number(info.get("baseTimeNanoseconds")) or 0.0) / 1e3
    distributed = info.get("distributedInfo")
    rank = distributed.get("rank") if isinstance(distributed, dict) else None
    host = info.get("host_name")
    trace = _Trace(
        name,
        rank if isinstance(rank, int) and not isinstance(rank, bool) else None,
        host if isinstance(host, str) else None,
        [],
        [],
        [],
    )
    unknown: set[str] = set()
    for event in events:
        if not isinstance(event, dict) or event.get("ph") != "X":
            continue
        word = event.get("name")
        if not isinstance(word, str):
            continue
        if event.get("cat") == "gpu_user_annotation":
            if word.startswith(_PREFIX) and not trace.notes:
                trace.notes.append(
                    f"{name} holds ranges of a GPU; the times taken are those of the host, which "
                    "are launches"
                )
            continue
        if word.startswith(_PREFIX):
            parts = _parse(word[len(_PREFIX) :])
            if parts is None:
                unknown.add(word)
            else:
                start, end = _times(event, name, base)
                trace.ranges.append(_Range(word[len(_PREFIX) :], parts, start, end))
        elif word.startswith("ProfilerStep#"):
            trace.windows.append(_times(event, name, base)[0])
        elif _RECEIVE.match(word):
            trace.receives.append(_times(event, name, base))
    if unknown:
        trace.notes.append(f"{name}: ranges that are no action are left out: {sorted(unknown)}")
    if not any(one.computes for one in trace.ranges):
        raise ValueError(
            f"{name} has no range of an action, such as PP:0F0; torch writes them where a "
            "schedule runs on its pipeline runtime, as pipesched.torch.build makes it"
        )
    trace.ranges.sort(key=lambda one: (one.start, -one.end))
    trace.receives.sort()
    trace.windows.sort()
    _without_nested(trace)
    return trace


def _parse(text: str) -> tuple[_Part, ...] | None:
    pair = _PAIR.fullmatch(text)
    words = pair.groups() if pair else (text,)
    parts = []
    for word in words:
        match = _ACTION.fullmatch(word.strip())
        if match is None or (match[3] == "") != (match[2] in ("UNSHARD", "RESHARD", "REDUCE_GRAD")):
            return None
        parts.append((int(match[1]), int(match[3] or -1), match[2]))
    return tuple(parts)


def _number(value: object) -> float | None:
    """A finite number as a float; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if abs(number) < _LARGEST else None


def _times(event: dict[str, Any], path: str, base: float) -> tuple[float, float]:
    start, length = _number(event.get("ts")), _number(event.get("dur", 0))
    for key, value in (("ts", start), ("dur", length)):
        if value is None:
            raise ValueError(
                f"{path}: {event['name']} has no number of microseconds in {key!r}, "
                f"but {event.get(key)!r}"
            )
    assert start is not None
    assert length is not None
    if length < 0:
        raise ValueError(f"{path}: {event['name']} has a negative 'dur', {length!r}")
    return base + start, base + start + length


def _without_nested(trace: _Trace) -> None:
    """Drop the ranges that an overlapped pair holds of its own two ops; refuse other nesting."""
    kept: list[_Range] = []
    dropped = 0
    for one in trace.ranges:
        if kept and one.start < kept[-1].end - _GRAIN:
            outer = kept[-1]
            if len(outer.parts) == 2 and one.parts[0] in outer.parts and one.end <= outer.end:
                dropped += 1
                continue
            raise ValueError(
                f"{trace.path}: the range PP:{one.word} starts inside PP:{outer.word}; a rank "
                "does one action after the other, so these are not the ranges of one pipeline"
            )
        kept.append(one)
    if dropped:
        trace.notes.append(
            f"{trace.path}: {dropped} ranges inside the overlapped pairs that they are part of"
        )
    trace.ranges = kept


def _in_order(traces: list[_Trace]) -> list[_Trace]:
    """By the ranks that the files name; as given where one names none."""
    if any(trace.rank is None for trace in traces):
        return traces
    ranks = [trace.rank for trace in traces]
    for trace in traces:
        if ranks.count(trace.rank) > 1:
            same = [other.path for other in traces if other.rank == trace.rank]
            raise ValueError(f"these traces are all of rank {trace.rank}: {', '.join(same)}")
    return sorted(traces, key=lambda trace: trace.rank or 0)


def _no_rank_missing(traces: list[_Trace]) -> None:
    """Refuse traces that tell of transfers with stages that are in none of them."""
    stages = {
        part[0] for trace in traces for one in trace.ranges if one.computes for part in one.parts
    }
    for trace in traces:
        for one in trace.ranges:
            stage, _, kind = one.parts[0]
            other = stage + _OTHER_END.get(kind, 0)
            if other != stage and other not in stages:
                raise ValueError(
                    f"{trace.path}: PP:{one.word} is a transfer with stage {other}, which no "
                    "trace computes: give the traces of all ranks"
                )


#: From the stage of a transfer to the stage at its other end.
_OTHER_END = {"SEND_F": 1, "RECV_B": 1, "SEND_B": -1, "RECV_F": -1}


# ---- steps -------------------------------------------------------------------------------------


def _steps_of(trace: _Trace) -> list[list[_Range]]:
    """Cut the ranges of a rank into steps.

    A new step begins where the profiler's own step changes (`ProfilerStep#3`), where an action can
    only belong to a new step, and at an UNSHARD, with which torch begins its steps, once all that
    was begun is done.
    """
    steps: list[list[_Range]] = [[]]
    done: dict[tuple[int, int], set[str]] = defaultdict(set)
    begun = _begun_before(trace.ranges)
    reduces = any(one.parts[0][2] == "REDUCE_GRAD" for one in trace.ranges)
    unreduced: set[int] = set()
    window = 0
    for one in trace.ranges:
        here = bisect_left(trace.windows, one.start)
        stage, _, kind = one.parts[0]
        if (
            here != window
            or any(done[part[:2]] & _AFTER.get(part[2], frozenset()) for part in one.parts)
            or (kind == "UNSHARD" and done and not begun and not (reduces and unreduced))
        ) and done:
            steps.append([])
            done.clear()
            begun.clear()
            unreduced.clear()
        window = here
        steps[-1].append(one)
        if kind == "REDUCE_GRAD":
            unreduced.discard(stage)
        for stage, microbatch, kind in one.parts:
            if kind in _COMPUTE:
                done[stage, microbatch].add(kind)
                unreduced.add(stage)
                if kind in "FI":
                    begun.add((stage, microbatch))
                else:
                    begun.discard((stage, microbatch))
            elif microbatch >= 0:
                done[stage, microbatch].add(kind)
    return [step for step in steps if any(one.computes for one in step)]


def _begun_before(ranges: list[_Range]) -> set[tuple[int, int]]:
    """What had been begun before the trace: its first op there is no forward."""
    first: dict[tuple[int, int], str] = {}
    for one in ranges:
        for stage, microbatch, kind in one.parts:
            if kind in _COMPUTE:
                first.setdefault((stage, microbatch), kind)
    return {key for key, kind in first.items() if kind != "F"}


#: What cannot stand before an action in one step.
_AFTER = {
    "F": frozenset("FBIW"),
    "B": frozenset("BIW"),
    "I": frozenset("BIW"),
    "W": frozenset("BW"),
    "RECV_F": frozenset(["RECV_F", "F", "B", "I", "W"]),
    "RECV_B": frozenset(["RECV_B", "B", "I", "W"]),
    "SEND_F": frozenset(["SEND_F"]),
    "SEND_B": frozenset(["SEND_B"]),
}


def _complete_steps(traces: list[_Trace], notes: list[str]) -> list[list[list[_Range]]]:
    """The steps that are whole on every rank: for each, the ranges of each rank."""
    by_rank = [_steps_of(trace) for trace in traces]
    whole = [{one.word for step in steps for one in step if one.computes} for steps in by_rank]
    missing = [
        [sorted(words - {one.word for one in step}) for step in steps]
        for words, steps in zip(whole, by_rank, strict=True)
    ]
    complete = [
        [step for step, lack in zip(steps, lacks, strict=True) if not lack]
        for steps, lacks in zip(by_rank, missing, strict=True)
    ]
    for rank, lacks in enumerate(missing):
        for index, lack in enumerate(lacks):
            if lack:
                more = f" and {len(lack) - 3} more" if len(lack) > 3 else ""
                notes.append(
                    f"rank {rank}, step {index} of {len(lacks)} in {traces[rank].path} is left "
                    f"out: it has no range of {', '.join(lack[:3])}{more}"
                )
    counts = {len(steps) for steps in complete}
    if len(counts) == 1:
        chosen = complete
    elif len({len(steps) for steps in by_rank}) == 1:
        good = [
            index for index in range(len(by_rank[0])) if not any(lacks[index] for lacks in missing)
        ]
        chosen = [[steps[index] for index in good] for steps in by_rank]
    else:
        found = ", ".join(f"{len(steps)} on rank {rank}" for rank, steps in enumerate(complete))
        raise ValueError(
            f"the ranks have different numbers of complete steps ({found}): start and stop the "
            "profiler between steps, on all ranks"
        )
    if not chosen[0]:
        raise ValueError("no step is complete on all ranks: " + "; ".join(notes))
    return [list(ranks) for ranks in zip(*chosen, strict=True)]


def _find_arrivals(traces: list[_Trace], steps: list[list[list[_Range]]]) -> None:
    """Set `arrival` where the backend's own range of the receive lies in that of the action."""
    for rank, trace in enumerate(traces):
        begins = [begin for begin, _ in trace.receives]
        for step in steps:
            got: dict[tuple[int, int, str], float] = {}
            for one in step[rank]:
                if one.parts[0][2] in ("RECV_F", "RECV_B"):
                    low, high = bisect_left(begins, one.start), bisect_left(begins, one.end)
                    if low < high:
                        got[one.parts[0]] = max(end for _, end in trace.receives[low:high])
                    continue
                arrivals = [
                    got[stage, microbatch, need]
                    for stage, microbatch, kind in one.parts
                    if (need := _NEEDS.get(kind, "")) and (stage, microbatch, need) in got
                ]
                if one.computes and arrivals and max(arrivals) <= one.end:
                    one.arrival = max(one.start, *arrivals)


_NEEDS = {"F": "RECV_F", "B": "RECV_B", "I": "RECV_B"}


# ---- one step of all ranks ---------------------------------------------------------------------


@dataclass(frozen=True)
class _Message:
    """A transfer: not before `sent` on the sender's clock, not after `got` on the receiver's."""

    source: int
    target: int
    sent: float
    got: float
    seen: bool  # whether the trace tells `got`; otherwise it is a bound
    producer: _Part
    consumer: _Part
    made: float  # end of the op that made the value, on the sender's clock


class _Step:
    """One step: its schedule, its clocks, and the times of its ops, in microseconds."""

    def __init__(self, ranks: list[list[_Range]], traces: list[_Trace], index: int) -> None:
        self.notes: list[str] = []
        self.ranks = [[one for one in row if one.computes] for row in ranks]
        rows = [[one.word for one in row] for row in self.ranks]
        self.schedule = Schedule.from_rows(rows, "measured")
        try:
            self.schedule.check()
        except ValueError as error:
            raise ValueError(
                f"the traces do not hold a whole step (step {index}): {error}"
            ) from None
        self.messages = list(self._messages(ranks))
        self.offsets = self._align(traces)
        self._place()

    def _messages(self, ranks: list[list[_Range]]) -> Iterator[_Message]:
        posted: dict[_Part, float] = {}
        made: dict[_Part, tuple[int, _Range]] = {}
        shortest: dict[tuple[int, str], float] = {}
        for rank, row in enumerate(ranks):
            for one in row:
                for part in one.parts:
                    if part[2] in ("SEND_F", "SEND_B"):
                        posted[part] = one.start
                    elif part[2] in _COMPUTE:
                        made[part] = rank, one
                        key = part[0], one.word if len(one.parts) > 1 else part[2]
                        shortest[key] = min(shortest.get(key, math.inf), one.end - one.start)
        for part, (rank, one) in made.items():
            stage, microbatch, kind = part
            source = self._source(part, made)
            if source is None or made[source][0] == rank:
                continue
            send = "SEND_F" if kind == "F" else "SEND_B"
            sender, producer = made[source]
            got = one.arrival
            if got is None:
                key = stage, one.word if len(one.parts) > 1 else kind
                got = one.end - shortest[key]
            sent = posted.get((source[0], microbatch, send), producer.end)
            seen = one.arrival is not None
            yield _Message(sender, rank, sent, got, seen, source, part, producer.end)

    @staticmethod
    def _source(part: _Part, made: dict[_Part, tuple[int, _Range]]) -> _Part | None:
        stage, microbatch, kind = part
        candidates = {
            "F": [(stage - 1, microbatch, "F")],
            "B": [(stage + 1, microbatch, "B"), (stage + 1, microbatch, "I")],
            "I": [(stage + 1, microbatch, "B"), (stage + 1, microbatch, "I")],
        }.get(kind, [])
        return next((one for one in candidates if one in made), None)

    def _align(self, traces: list[_Trace]) -> np.ndarray:
        """What to add to each rank's clock so that no receive ends before its send."""
        p = len(traces)
        closest: dict[tuple[int, int], _Message] = {}
        for message in self.messages:
            pair = message.source, message.target
            best = closest.get(pair)
            if best is None or message.got - message.sent < best.got - best.sent:
                closest[pair] = message
        # far[a, b]: how much further than b's clock a's can be moved on, at most.
        far = np.full((p, p), np.inf)
        np.fill_diagonal(far, 0.0)
        for (a, b), message in closest.items():
            far[a, b] = message.got - message.sent + _GRAIN
        hosts = {trace.host for trace in traces}
        one_clock = len(hosts) == 1 and None not in hosts
        if one_clock and (far >= 0).all():
            return np.zeros(p)
        for via in range(p):
            far = np.minimum(far, far[:, via, None] + far[None, via, :])
        if (np.diagonal(far) < 0).any():
            raise ValueError(_contradiction(closest, far))
        ahead, behind = far[:, 0], far[0, :]
        if np.isfinite(ahead).all() and np.isfinite(behind).all():
            offsets = (ahead - behind) / 2
            how = "midway between the bounds that the transfers of both directions give"
        elif np.isfinite(behind).all() or np.isfinite(ahead).all():
            offsets = -behind if np.isfinite(behind).all() else ahead
            how = "as if the fastest transfer took no time, as there are transfers one way only"
        else:
            lost = int(np.flatnonzero(np.isinf(ahead) & np.isinf(behind))[0])
            raise ValueError(
                f"the clock of rank {lost} cannot be aligned with that of rank 0: no transfers "
                f"link them ({traces[lost].path})"
            )
        self.notes.append(f"the ranks' clocks were aligned {how}")
        if one_clock:
            self.notes.append("the traces name one host, but its clock lets receives end too early")
        return offsets

    def _place(self) -> None:
        """The start and end of every op, and how long it waited."""
        bound: dict[_Part, float] = {}
        for message in self.messages:
            bound[message.consumer] = message.sent + self.offsets[message.source]
        times = []
        for rank, row in enumerate(self.ranks):
            shift = self.offsets[rank]
            for one in row:
                come, end = one.start + shift, one.end + shift
                if one.arrival is not None:
                    start = one.arrival + shift
                else:
                    start = max(come, *(bound.get(part, come) for part in one.parts))
                    start = min(start, end)
                times += [(come, start, end)] * len(one.parts)
        come, start, end = np.array(times).T
        zero = start.min()
        # The wait of what starts first counts from the step's own start.
        wait = start - np.maximum(come, zero)
        paired = np.zeros(len(wait), dtype=bool)
        paired[1:] = self.schedule.ops["fuse"][:-1] != 0
        wait[paired] = 0.0
        self.start, self.end, self.wait = start - zero, end - zero, wait

    def sample(self, samples: dict[tuple[int, str], list[float]]) -> None:
        """Add the step's times to the samples by stage and kind, in seconds."""
        index = 0
        for row in self.ranks:
            for one in row:
                length = float(self.end[index] - self.start[index]) / 1e6
                stage, _, kind = one.parts[0]
                if len(one.parts) == 2:
                    kind = "OVERLAP_F_B"
                    stage = next((s for s, _, k in one.parts if k == "F"), stage)
                samples[stage, kind].append(length)
                index += len(one.parts)
        # A transfer may lie there long before it is taken. The fastest of a step is one that was
        # waited for, such as the first into an empty pipeline.
        fastest: dict[tuple[int, str], float] = {}
        for message in self.messages:
            if message.seen:
                gap = self.offsets[message.target] - self.offsets[message.source]
                took = max(0.0, message.got + gap - message.made) / 1e6
                key = message.producer[0], "SEND_F" if message.consumer[2] == "F" else "SEND_B"
                fastest[key] = min(took, fastest.get(key, math.inf))
        for key, took in fastest.items():
            samples[key].append(took)

    def timeline(
        self,
        costs: Costs,
        stage_costs: tuple[StageCost, ...],
        index: int,
        notes: tuple[str, ...],
    ) -> MeasuredTimeline:
        offsets = frozen(self.offsets / 1e6)
        return MeasuredTimeline._measured(
            self.schedule,
            costs,
            self.start / 1e6,
            self.end / 1e6,
            self.wait / 1e6,
            stage_costs=stage_costs,
            clock_offsets=offsets,
            step=index,
            notes=notes,
        )


def _contradiction(closest: dict[tuple[int, int], _Message], far: np.ndarray) -> str:
    """Say which transfers cannot both be true."""
    for (a, b), message in closest.items():
        back = closest.get((b, a))
        if back is not None and message.got - message.sent + back.got - back.sent < -2 * _GRAIN:
            first, second = (
                f"{stage}{kind}{microbatch}"
                for stage, microbatch, kind in (message.consumer, back.consumer)
            )
            early = -(message.got - message.sent + back.got - back.sent)
            return (
                f"the traces contradict each other: whatever the clocks of ranks {a} and {b}, the "
                f"input of {first} on rank {b} or that of {second} on rank {a} would be received "
                f"{early / 2e3:.3f} ms before it was sent; are they traces of one run?"
            )
    ranks = np.flatnonzero(np.diagonal(far) < 0).tolist()
    return (
        f"the traces contradict each other: whatever the clocks, in a circle over ranks {ranks} a "
        "receive would end before its send; are they traces of one run?"
    )


# ---- costs -------------------------------------------------------------------------------------


def _stage_costs(samples: dict[tuple[int, str], list[float]]) -> tuple[StageCost, ...]:
    result = []
    for (stage, kind), values in sorted(samples.items()):
        low, middle, high = np.percentile(values, [25, 50, 75])
        result.append(StageCost(stage, kind, len(values), float(middle), float(high - low)))
    return tuple(result)


def _costs(stage_costs: Sequence[StageCost], num_stages: int) -> Costs:
    """Costs from the medians."""
    median: dict[str, dict[int, float]] = defaultdict(dict)
    for cost in stage_costs:
        median[cost.kind][cost.stage] = cost.median
    stages = range(num_stages)
    forward = np.array([median["F"].get(s, 0.0) for s in stages])
    full, into, weight = (median[kind] for kind in ("B", "I", "W"))
    parts: dict[str, Any] = {}
    if into:
        # A stage with whole backwards only is cut in halves, as Costs does.
        halves = [full.get(s, 0.0) / 2 for s in stages]
        parts["backward_input"] = np.array([into.get(s, halves[s]) for s in stages])
        parts["backward_weight"] = np.array([weight.get(s, halves[s]) for s in stages])
        backward = parts["backward_input"] + parts["backward_weight"]
    else:
        backward = np.array([full.get(s, 0.0) for s in stages])
        parts["backward"] = backward
    pairs = median["OVERLAP_F_B"]
    if pairs:
        parts["overlap"] = np.array([pairs.get(s, forward[s] + backward[s]) for s in stages])
    transfer = np.array([median["SEND_F"].get(s, 0.0) for s in range(num_stages - 1)])
    back = np.array([median["SEND_B"].get(s + 1, 0.0) for s in range(num_stages - 1)])
    if num_stages > 1:
        parts["transfer"], parts["transfer_backward"] = transfer, back
    return Costs(forward, **parts)
