"""Slow twins of the schedule generators: plain Python, one function a family.

Written from the rules alone, for clarity; nothing here is shared with the C core. An op is a
tuple ``(kind, stage, microbatch, fuse)``; ``fuse`` is 1 on the first half of an overlapped pair.
A schedule is a list with one list of ops for each rank.
"""


def F(stage, microbatch):
    return ("F", stage, microbatch, 0)


def B(stage, microbatch):
    return ("B", stage, microbatch, 0)


def I(stage, microbatch):  # noqa: E743 - the field's own letter
    return ("I", stage, microbatch, 0)


def W(stage, microbatch):
    return ("W", stage, microbatch, 0)


# One stage a rank ---------------------------------------------------------------------------


def naive(p, m):
    return [[op for j in range(m) for op in (F(r, j), B(r, j))] for r in range(p)]


def forward(p, m):
    return [[F(r, j) for j in range(m)] for r in range(p)]


def gpipe(p, m, reverse=False):
    backwards = list(reversed(range(m))) if reverse else list(range(m))
    return [[F(r, j) for j in range(m)] + [B(r, j) for j in backwards] for r in range(p)]


def one_forward_one_backward(forwards, backwards, warm_up):
    """Some forwards, then a forward and a backward by turns, then the backwards that are left."""
    forwards, backwards = list(forwards), list(backwards)
    row = [forwards.pop(0) for _ in range(min(warm_up, len(forwards)))]
    while forwards:
        row.append(forwards.pop(0))
        row.append(backwards.pop(0))
    return row + backwards


def plain_1f1b(p, m):
    return [
        one_forward_one_backward(
            [F(r, j) for j in range(m)], [B(r, j) for j in range(m)], warm_up=p - 1 - r
        )
        for r in range(p)
    ]


def eager_1f1b(p, m):
    return [
        one_forward_one_backward(
            [F(r, j) for j in range(m)], [B(r, j) for j in range(m)], warm_up=2 * (p - 1 - r)
        )
        for r in range(p)
    ]


def seq_1f1b(p, m, k):
    """Unit u of the row is split u mod k of micro-batch u div k."""
    rows = []
    for r in range(p):
        forwards = [F(r, j * k + split) for j in range(m) for split in range(k)]
        backwards = [B(r, j * k + split) for j in range(m) for split in reversed(range(k))]
        rows.append(one_forward_one_backward(forwards, backwards, warm_up=p - r - 2 + k))
    return rows


# Loops: stage s on rank s mod p -------------------------------------------------------------


def interleaved_table(m, v, group):
    """The (chunk, micro-batch) of every forward of a rank, in order."""
    table = []
    for first in range(0, m, group):
        for chunk in range(v):
            for j in range(first, min(first + group, m)):
                table.append((chunk, j))
    return table


def interleaved_1f1b(p, m, v, group):
    table = interleaved_table(m, v, group)
    rows = []
    for r in range(p):
        forwards = [F(chunk * p + r, j) for chunk, j in table]
        backwards = [B((v - 1 - chunk) * p + r, j) for chunk, j in table]
        warm_up = 2 * (p - 1 - r) + (v - 1) * group if v > 1 else p - 1 - r
        rows.append(one_forward_one_backward(forwards, backwards, warm_up))
    return rows


def looped_bfs(p, m, v):
    rows = []
    for r in range(p):
        stages = [chunk * p + r for chunk in range(v)]
        row = [F(s, j) for s in stages for j in range(m)]
        row += [B(s, j) for s in reversed(stages) for j in reversed(range(m))]
        rows.append(row)
    return rows


# Zero bubble --------------------------------------------------------------------------------


def split_backwards(row, first_w):
    """Write each B as I; the oldest W that waits follows I number first_w and each later one."""
    split, waiting = [], []
    for op in row:
        if op[0] == "F":
            split.append(op)
            continue
        _, stage, j, _ = op
        split.append(I(stage, j))
        waiting.append(W(stage, j))
        number_of_i = sum(1 for kind, *_ in split if kind == "I") - 1
        if number_of_i >= first_w:
            split.append(waiting.pop(0))
    return split + waiting


def zb_h1(p, m):
    return [split_backwards(row, first_w=r) for r, row in enumerate(plain_1f1b(p, m))]


def zb_1p(p, m, v, group):
    table = interleaved_table(m, v, group)
    rows = []
    for r in range(p):
        forwards = [F(chunk * p + r, j) for chunk, j in table]
        backwards = [B((v - 1 - chunk) * p + r, j) for chunk, j in table]
        row = one_forward_one_backward(forwards, backwards, (v - 1) * group + p - 1 - r)
        rows.append(split_backwards(row, first_w=r))
    return rows


def zb_h2(p, m):
    rows = []
    for r in range(p):
        forwards = [F(r, j) for j in range(m)]
        row = [forwards.pop(0) for _ in range(2 * (p - r) - 1)]
        waiting = []
        for k in range(m):
            row.append(I(r, k))
            waiting.append(W(r, k))
            if k >= 2 * r:
                row.append(waiting.pop(0))
            if forwards:
                row.append(forwards.pop(0))
        rows.append(row + waiting)
    return rows


class Chunk:
    """One of a rank's stages, with the number of the next micro-batch of each kind."""

    def __init__(self, stage, first=0):
        self.stage = stage
        self.next = dict.fromkeys("FBIW", first)
        self.first = first

    def take(self, kind):
        j = self.next[kind]
        self.next[kind] += 1
        if kind == "B":  # a full backward takes the place of an I and a W
            self.next["I"] += 1
            self.next["W"] += 1
        elif kind == "I":
            self.next["B"] += 1
        return (kind, self.stage, j, 0)


def zb_v(p, m):
    made_for = max(m, 2 * p - 1)
    rows = []
    for r in range(p):
        c0, c1 = Chunk(r), Chunk(2 * p - 1 - r)
        row = [c0.take("F") for _ in range(2 * (p - r) - 1)]
        for _ in range(r):
            row += [c1.take("F"), c0.take("F")]
        for _ in range(p - r):
            row += [c1.take("F"), c1.take("I"), c1.take("W")]
        while c1.next["F"] < made_for:
            if c0.next["F"] < made_for:
                row.append(c0.take("F"))
            row += [c0.take("I"), c0.take("W"), c1.take("F"), c1.take("I"), c1.take("W")]
        for _ in range(r):
            row += [c0.take("I"), c1.take("I")]
        for _ in range(p - r):
            row += [c0.take("I"), c0.take("W")]
        while c1.next["W"] < made_for:
            row.append(c1.take("W"))
        while c0.next["W"] < made_for:
            row.append(c0.take("W"))
        rows.append([op for op in row if op[2] < m])
    return rows


# Two directions -----------------------------------------------------------------------------


def pair(first, second):
    return [(*first[:3], 1), second]


def dual_steps(c0, c1, half, h, count, alone):
    """The eight steps of DualPipe on one rank. ``alone``: its first pair is not overlapped."""
    row = [c0.take("F") for _ in range(2 * (half - h - 1))]
    for _ in range(h + 1):
        row += [c0.take("F"), c1.take("F")]
    for _ in range(half - h - 1):
        row += [c1.take("I"), c1.take("W"), c1.take("F")]
    for i in range(count - 2 * half + h + 1):
        if i == 0 and alone:
            row += [c0.take("F"), c1.take("B")]
        else:
            row += pair(c0.take("F"), c1.take("B"))
        row += pair(c1.take("F"), c0.take("B"))
    for _ in range(half - h - 1):
        row += [c1.take("B"), *pair(c1.take("F"), c0.take("B"))]
    # Of the last (B1, B0) steps the second half is split, from the middle on: where h is odd
    # both of step i = (h+1)/2 are I, where it is even only B0 of step h/2 is.
    waiting = []
    for i in range(h + 1):
        for chunk, place in ((c1, 2 * i), (c0, 2 * i + 1)):
            split = place >= h + 1
            row.append(chunk.take("I" if split else "B"))
            if split:
                waiting.append(W(chunk.stage, row[-1][2]))
    for _ in range(half - h - 1):
        row.append(waiting.pop(0))
        row.append(c0.take("I"))
        waiting.append(W(c0.stage, row[-1][2]))
    return row + waiting


def dualpipe(p, m):
    rows = []
    for r in range(p):
        h = min(r, p - 1 - r)
        near, far = (0, m // 2) if r < p // 2 else (m // 2, 0)
        down, up = r, p - 1 - r  # the rank's stage in the two directions
        c0 = Chunk(down if r < p // 2 else up, near)
        c1 = Chunk(up if r < p // 2 else down, far)
        rows.append(dual_steps(c0, c1, p // 2, h, m // 2, alone=h == p // 2 - 1))
    return rows


def dualpipe_v(p, m):
    return [dual_steps(Chunk(r), Chunk(2 * p - 1 - r), p, r, m, alone=r == p - 1) for r in range(p)]


# List scheduling: no rule was published in words --------------------------------------------


def list_order(p, num_stages, m, rank_of, age=lambda j: j):
    """Every op takes one unit; a free rank takes a backward first, then the older micro-batch."""
    rows = [[] for _ in range(p)]
    end = {}
    to_do = {op(s, j) for op in (F, B) for s in range(num_stages) for j in range(m)}

    def needs(op):
        kind, stage, j, _ = op
        if kind == "F":
            return [F(stage - 1, j)] if stage else []
        return [F(stage, j)] + ([B(stage + 1, j)] if stage + 1 < num_stages else [])

    time = 0
    while to_do:
        ready = [op for op in to_do if all(end.get(need, time + 1) <= time for need in needs(op))]
        for rank in range(p):
            here = [op for op in ready if rank_of(op[1], op[2]) == rank]
            if here:
                op = min(here, key=lambda op: (op[0] == "F", age(op[2])))
                rows[rank].append(op)
                end[op] = time + 1
                to_do.remove(op)
        time += 1
    return rows


def chimera(p, m):
    """Two 1-stage-a-rank pipelines in opposite directions, half of the micro-batches each."""
    half = m // 2
    return list_order(
        p,
        p,
        m,
        rank_of=lambda s, j: s if j < half else p - 1 - s,
        age=lambda j: (j % half, j),
    )


def hanayo(p, m, waves):
    """A snake: the stages run down the ranks and back up, once a wave."""

    def rank_of(stage, _):
        chunk, place = divmod(stage, p)
        return place if chunk % 2 == 0 else p - 1 - place

    return list_order(p, 2 * waves * p, m, rank_of)
