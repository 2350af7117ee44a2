"""Chrome's trace event format: what Perfetto and chrome://tracing open.

One track a rank with a slice per op, flow arrows along the dependencies between ranks,
a counter of the bytes held by each rank. Format: "Trace Event Format", Google, 2016.
"""

from __future__ import annotations

import json
from os import PathLike
from typing import TYPE_CHECKING, TextIO

import numpy as np

from ..check import KINDS
from .streams import writing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..timeline import Timeline

#: Microseconds (the format's unit) in each unit that a timeline's costs may be in.
UNITS = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}

_BLOCK = 1 << 14  # ops turned into text at a time: bounds the memory
_LETTERS = KINDS[:4]  # of the kinds that take time of a rank
_CATEGORIES = ("forward", "backward", "backward-input", "backward-weight")
_F, _B, _I = 0, 1, 2


def write(timeline: Timeline, path: str | PathLike[str] | TextIO, unit: str = "ms") -> None:
    """Write the trace to a path or an open text stream.

    Linear time in the number of ops; the text is made in blocks, so memory beyond the
    timeline is a few arrays of one entry per op.
    """
    if unit not in UNITS:
        raise ValueError(f"unit must be one of {', '.join(UNITS)}, got {unit!r}")
    with writing(path) as stream:
        _write_events(timeline, stream, UNITS[unit])


def _write_events(timeline: Timeline, stream: TextIO, scale: float) -> None:
    stream.write('{"displayTimeUnit":"ms","traceEvents":[\n')
    stream.write(_metadata(timeline))
    for block in _slices(timeline, scale):
        stream.write(block)
    for block in _flows(timeline, scale):
        stream.write(block)
    for block in _memory(timeline, scale):
        stream.write(block)
    stream.write("\n]}\n")


def _process(timeline: Timeline) -> int:
    """The process number: not 0, which Perfetto takes for the idle process of the system, and not
    that of a thread, which Perfetto would take for the main one and show before all others.
    """
    return timeline.schedule.p


def _metadata(timeline: Timeline) -> str:
    name, pid = json.dumps(timeline.schedule.name), _process(timeline)
    lines = [f'{{"ph":"M","pid":{pid},"tid":0,"name":"process_name","args":{{"name":{name}}}}}']
    for rank in range(timeline.schedule.p):
        lines.append(
            f'{{"ph":"M","pid":{pid},"tid":{rank},"name":"thread_name",'
            f'"args":{{"name":"rank {rank}"}}}}'
        )
        lines.append(
            f'{{"ph":"M","pid":{pid},"tid":{rank},"name":"thread_sort_index",'
            f'"args":{{"sort_index":{rank}}}}}'
        )
    return ",\n".join(lines)


def _ranks(timeline: Timeline) -> np.ndarray:
    counts = np.diff(timeline.schedule.offsets)
    return np.repeat(np.arange(timeline.schedule.p, dtype=np.int32), counts)


def _numbers(values: np.ndarray) -> list[int] | list[float]:
    """To be written; whole ones as int, which is shorter and faster."""
    if (values == np.rint(values)).all() and np.abs(values).max(initial=0.0) < 2.0**53:
        return values.astype(np.int64).tolist()
    return values.tolist()


# What events have in common is put together once a rank, not once an event: it is most of the text.


def _slices(timeline: Timeline, scale: float) -> Iterator[str]:
    """A complete event ("X") per compute op; an overlapped pair is one slice."""
    ops, ranks, pid = timeline.schedule.ops, _ranks(timeline), _process(timeline)
    second = np.zeros(len(ops), dtype=bool)
    second[1:] = ops["fuse"][:-1] != 0
    wanted = np.flatnonzero((ops["kind"] < len(_LETTERS)) & ~second)
    begins = [f',\n{{"ph":"X","pid":{pid},"tid":{r},"ts":' for r in range(timeline.schedule.p)]
    for at in range(0, len(wanted), _BLOCK):
        index = wanted[at : at + _BLOCK]
        start = timeline.start[index] * scale
        length = timeline.end[index] * scale - start
        lines = []
        for (s, j, k, fuse), i, r, t, d in zip(
            ops[index].tolist(),
            index.tolist(),
            ranks[index].tolist(),
            _numbers(start),
            _numbers(length),
            strict=True,
        ):
            name, category = f"{s}{_LETTERS[k]}{j}", _CATEGORIES[k]
            if fuse:
                s2, j2, k2, _ = ops[i + 1].item()
                name, category = f"{name} & {s2}{_LETTERS[k2]}{j2}", "overlap"
            lines.append(f'{begins[r]}{t!r},"dur":{d!r},"name":"{name}","cat":"{category}"}}')
        yield "".join(lines)


def _producers(timeline: Timeline) -> tuple[np.ndarray, np.ndarray]:
    """(producer, consumer) op indices of the dependencies that cross ranks."""
    schedule = timeline.schedule
    ops, m = schedule.ops, schedule.num_microbatches
    stage = ops["stage"].astype(np.int64)
    cell = stage * m + ops["microbatch"]
    forward = np.flatnonzero(ops["kind"] == _F)
    backward = np.flatnonzero((ops["kind"] == _B) | (ops["kind"] == _I))
    pairs = []
    for index, step in ((forward, -1), (backward, 1)):
        position = np.full(schedule.num_stages * m, -1, dtype=np.int64)
        position[cell[index]] = index
        ahead = stage[index] + step
        index = index[(ahead >= 0) & (ahead < schedule.num_stages)]
        pairs.append((position[cell[index] + step * m], index))
    producer = np.concatenate([a for a, _ in pairs])
    consumer = np.concatenate([b for _, b in pairs])
    ranks = _ranks(timeline)
    crossing = (producer >= 0) & (ranks[producer] != ranks[consumer])
    return producer[crossing], consumer[crossing]


def _flows(timeline: Timeline, scale: float) -> Iterator[str]:
    """An arrow (an "s" and an "f" event) from the end of each producer to its consumer."""
    producer, consumer = _producers(timeline)
    ranks, pid = _ranks(timeline), _process(timeline)
    start, end = timeline.start, timeline.end
    rest = f'"name":"dep","cat":"dep","pid":{pid},"tid":'
    leaves = [f',\n{{"ph":"s",{rest}{r},"ts":' for r in range(timeline.schedule.p)]
    enters = [f',\n{{"ph":"f","bp":"e",{rest}{r},"ts":' for r in range(timeline.schedule.p)]
    for at in range(0, len(producer), _BLOCK):
        a, b = producer[at : at + _BLOCK], consumer[at : at + _BLOCK]
        # Inside the producer's slice: at its very end the next slice has begun.
        leave = (end[a] - (end[a] - start[a]) * 1e-3) * scale
        lines = [
            f'{leaves[ra]}{ta!r},"id":{n}}}{enters[rb]}{tb!r},"id":{n}}}'
            for n, ra, ta, rb, tb in zip(
                range(at, at + len(a)),
                ranks[a].tolist(),
                _numbers(leave),
                ranks[b].tolist(),
                _numbers(start[b] * scale),
                strict=True,
            )
        ]
        yield "".join(lines)


def _memory(timeline: Timeline, scale: float) -> Iterator[str]:
    """A counter event ("C") wherever the bytes that a rank holds change."""
    pid = _process(timeline)
    for rank in range(timeline.schedule.p):
        times, held = timeline.memory_profile(rank)
        begin = f',\n{{"ph":"C","pid":{pid},"tid":{rank},"name":"bytes held, rank {rank}","ts":'
        for at in range(0, len(times), _BLOCK):
            yield "".join(
                [
                    f'{begin}{t!r},"args":{{"bytes":{b!r}}}}}'
                    for t, b in zip(
                        _numbers(times[at : at + _BLOCK] * scale),
                        _numbers(held[at : at + _BLOCK]),
                        strict=True,
                    )
                ]
            )
