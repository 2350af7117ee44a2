"""What every picture draws: the boxes of a timeline, one per op or overlapped pair."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .palette import KIND_LETTERS

if TYPE_CHECKING:
    from ..schedule import Schedule
    from ..timeline import Timeline


@dataclass(frozen=True)
class Scene:
    """Boxes in the order of the schedule's ops; one entry per box in each array.

    `op` is the index of the box's op in ``schedule.ops``, and `partner` that of the
    second op of an overlapped pair, -1 elsewhere. `chunk` (`partner_chunk`) is the
    place of the op's (its partner's) stage among the `chunks` stages of the rank.
    Communication and bookkeeping ops take no time of a rank and have no box.
    """

    op: np.ndarray
    partner: np.ndarray
    rank: np.ndarray
    start: np.ndarray
    end: np.ndarray
    chunk: np.ndarray
    partner_chunk: np.ndarray
    chunks: np.ndarray
    origin: float

    def __len__(self) -> int:
        return len(self.op)

    def typical(self) -> float:
        """How long a short box is: all but a tenth of those that take time are no shorter.

        0.0 where none takes time. What fits into it fits into nearly all boxes.
        """
        lengths = np.sort(self.end - self.start)
        lengths = lengths[np.searchsorted(lengths, 0.0, side="right") :]
        return float(lengths[len(lengths) // 10]) if len(lengths) else 0.0


def build(timeline: Timeline) -> Scene:
    """The boxes of a timeline. Linear in the number of ops."""
    schedule = timeline.schedule
    ops = schedule.ops
    rank_of = np.repeat(np.arange(schedule.p), np.diff(schedule.offsets))
    second = np.zeros(len(ops), dtype=bool)
    second[1:] = ops["fuse"][:-1] != 0
    boxes = np.flatnonzero((ops["kind"] < len(KIND_LETTERS)) & ~second)
    paired = ops["fuse"][boxes] != 0
    rank = rank_of[boxes]

    chunk_of = np.zeros((schedule.p, schedule.num_stages), dtype=np.int32)
    chunks = np.ones(schedule.p, dtype=np.int32)
    for r, stages in enumerate(schedule.placement):
        chunk_of[r, list(stages)] = np.arange(len(stages))
        chunks[r] = max(len(stages), 1)
    partner = np.where(paired, boxes + 1, -1)
    return Scene(
        op=boxes,
        partner=partner,
        rank=rank,
        start=timeline.start[boxes],
        end=timeline.end[boxes],
        chunk=chunk_of[rank, ops["stage"][boxes]],
        partner_chunk=chunk_of[rank, ops["stage"][partner]],
        chunks=chunks[rank],
        origin=float(timeline.start[boxes].min()) if len(boxes) else 0.0,
    )


def number(value: float) -> str:
    """A time or a size for people: up to four significant digits, whole where it is whole."""
    if float(value).is_integer() and abs(value) < 1e7:
        return str(int(value))
    return f"{value:.4g}"


def amount(count: float) -> str:
    """Bytes for people: ``"1.5 GB"``, ``"64 bytes"``."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= 10 * scale or (count >= scale and unit != "kB"):
            return f"{count / scale:.4g} {unit}"
    return f"{number(count)} bytes"


def round_step(least: float) -> float:
    """The smallest of 1, 2, 5 times a power of ten that is not below `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(f * power for f in (1, 2, 5, 10) if f * power >= least * (1 - 1e-9))


def extent(schedule: Schedule) -> str:
    """How large a schedule is: ``"4 ranks, 4 stages, 1 micro-batch"``."""
    parts = [
        f"{schedule.p} rank{'s' * (schedule.p != 1)}",
        f"{schedule.num_stages} stage{'s' * (schedule.num_stages != 1)}",
        f"{schedule.num_microbatches} micro-batch{'es' * (schedule.num_microbatches != 1)}",
    ]
    return ", ".join(parts)


def summary(timeline: Timeline) -> str:
    """The line under every picture: makespan, the bubble on each basis, the peak."""
    peak = timeline.peak_activations
    parts = [
        f"makespan {number(timeline.makespan)}",
        f"bubble_fraction {timeline.bubble_fraction:.4f} (idle/total)",
        f"bubble_ratio {timeline.bubble_ratio:.4f} (idle/ideal)",
    ]
    if len(peak):
        worst = int(np.argmax(peak))
        held = int(peak[worst])
        whole = all(len(stages) <= 1 for stages in timeline.schedule.placement)
        unit = (
            ("micro-batch", "micro-batches")
            if whole
            else ("micro-batch chunk", "micro-batch chunks")
        )
        parts.append(f"peak {held} {unit[held != 1]} held (rank {worst})")
        memory = timeline.peak_memory
        worst = int(np.argmax(memory))
        if memory[worst] != held:
            parts.append(f"{amount(memory[worst])} (rank {worst})")
    return ", ".join(parts)
