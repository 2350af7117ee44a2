"""Schedules for property tests: legal ones of any placement, and broken ones."""

import numpy as np
from hypothesis import strategies as st
from reference import BACKWARDS, COMPUTE, needs_of, units, way_of

import pipesched as ps

KIND = {word: number for number, word in enumerate(ps.KINDS)}


def to_arrays(rows):
    """The twin's rows, ops of (kind, stage, micro-batch, fuse), as ops and offsets."""
    flat = [(stage, j, KIND[kind], fuse) for row in rows for kind, stage, j, fuse in row]
    offsets = np.cumsum([0, *(len(row) for row in rows)])
    return np.array(flat, ps.OP_DTYPE), offsets


def to_schedule(rows, num_stages, num_microbatches):
    return ps.Schedule.from_arrays(*to_arrays(rows), num_stages, num_microbatches)


def to_rows(schedule):
    """A Schedule as the twin's rows."""
    return [
        [(ps.KINDS[kind], stage, j, fuse) for stage, j, kind, fuse in ops.tolist()]
        for ops in schedule
    ]


@st.composite
def legal_rows(draw, max_ranks=4, max_stages=6, max_microbatches=4):
    """(rows, num_stages, num_microbatches) of a legal schedule of any placement.

    Every cell may be on any rank, a backward whole or split; the order is that in which a
    random walk over the dependencies meets the ops; neighbours that may be overlapped may be.
    """
    p = draw(st.integers(1, max_ranks))
    num_stages = draw(st.integers(1, max_stages))
    m = draw(st.integers(1, max_microbatches))
    by_stage = draw(st.booleans())
    ranks = st.integers(0, p - 1)
    of_stage = [draw(ranks) for _ in range(num_stages)]
    trains = draw(st.booleans())
    ops, rank_of = [], {}
    for stage in range(num_stages):
        for j in range(m):
            rank = of_stage[stage] if by_stage else draw(ranks)
            kinds = ["F"]
            if trains:
                kinds += ["B"] if draw(st.booleans()) else ["I", "W"]
            for kind in kinds:
                ops.append((kind, stage, j))
                rank_of[kind, stage, j] = rank
    rows = [[] for _ in range(p)]
    standing, done = set(ops), set()
    while len(done) < len(ops):
        free = [
            op
            for op in ops
            if op not in done and all(need in done for need in needs_of(op, standing, num_stages))
        ]
        op = free[draw(st.integers(0, len(free) - 1))]
        done.add(op)
        rows[rank_of[op]].append((*op, 0))
    if trains and draw(st.booleans()):
        rows = [draw(overlapped(row)) for row in rows]
    return rows, num_stages, m


@st.composite
def overlapped(draw, row):
    """The row with some neighbours made overlapped pairs; it may deadlock with others."""
    row = list(row)
    for i in range(len(row) - 1):
        kinds = {row[i][0], row[i + 1][0]}
        fits = "F" in kinds and bool(kinds & set(BACKWARDS)) and row[i][1:3] != row[i + 1][1:3]
        if fits and not (i > 0 and row[i - 1][3]) and draw(st.booleans()):
            row[i] = (*row[i][:3], 1)
    return row


def with_comms(rows):
    """The rows with each send straight after its op, each receive straight before.

    Fine where sends are buffered; where they block, it may deadlock.
    """
    rank_of = {(way_of(op[0]), *op[1:3]): r for r, row in enumerate(rows) for op in row}

    def comm(word, op, rank, step):
        way = way_of(op[0])
        there = rank_of.get((way, op[1] + (step if way == "F" else -step), op[2]))
        crosses = op[0] != "W" and there not in (None, rank)
        return [(f"{word}_{way}", op[1], op[2], 0)] if crosses else []

    out = []
    for rank, row in enumerate(rows):
        new = []
        for unit in units(row):
            members = [row[position] for position in unit]
            for op in members:
                new += comm("RECV", op, rank, -1)
            new += members
            for op in members:
                new += comm("SEND", op, rank, +1)
        out.append(new)
    return out


@st.composite
def legal_comms(draw):
    rows, num_stages, m = draw(legal_rows(max_stages=4))
    return with_comms(rows), num_stages, m


@st.composite
def broken_rows(draw, base):
    """Rows with a few random changes, most of them illegal."""
    rows, num_stages, m = draw(base)
    rows = [list(row) for row in rows]
    for _ in range(draw(st.integers(1, 3))):
        row = rows[draw(st.integers(0, len(rows) - 1))]
        if not row:
            continue
        i = draw(st.integers(0, len(row) - 1))
        change = draw(st.sampled_from(["drop", "repeat", "move", "swap", "kind", "name", "fuse"]))
        kind, stage, j, fuse = row[i]
        if change == "drop":
            del row[i]
        elif change == "repeat":
            row.insert(draw(st.integers(0, len(row))), row[i])
        elif change == "move":
            rows[draw(st.integers(0, len(rows) - 1))].append(row.pop(i))
        elif change == "swap":
            k = draw(st.integers(0, len(row) - 1))
            row[i], row[k] = row[k], row[i]
        elif change == "kind" and kind in COMPUTE:
            row[i] = (draw(st.sampled_from(COMPUTE)), stage, j, fuse)
        elif change == "name" and j >= 0:
            stage = draw(st.integers(0, num_stages - 1))
            row[i] = (kind, stage, draw(st.integers(0, m - 1)), fuse)
        elif change == "fuse":
            row[i] = (kind, stage, j, 1 - fuse)
    return rows, num_stages, m
