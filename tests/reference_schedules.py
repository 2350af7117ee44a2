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
    """Two 1-stage-a-rank pipelines in opposite directions; the odd micro-batch goes down."""
    down = m - m // 2
    return list_order(
        p,
        p,
        m,
        rank_of=lambda s, j: s if j < down else p - 1 - s,
        age=lambda j: (j, 0) if j < down else (j - down, 1),
    )


def hanayo(p, m, waves):
    """A snake: the stages run down the ranks and back up, once a wave."""

    def rank_of(stage, _):
        chunk, place = divmod(stage, p)
        return place if chunk % 2 == 0 else p - 1 - place

    return list_order(p, 2 * waves * p, m, rank_of)


# ZB-V as its authors' program orders it -----------------------------------------------------


def zb_v_by_costs(p, m, f, b, w, c):
    """ZB-V ordered by a greedy that knows the costs: f, b, w of a chunk's ops, c of a transfer.

    The published ZB-V figures are of such orders, not of the fixed rule of ``zb_v``: where a
    rank would wait, or its idle time would pass that of the worst rank, an outstanding W goes
    in between. Whether a W may go before the second chunk's I and before an F, both ways of
    each are tried, and each again with the idle time of the try before as the measure.
    """
    best = None
    for before_i in (True, False):
        for before_f in (True, False):
            greedy = GreedyV(p, m, f, b, w, c, before_i, before_f, [-1] * p)
            better = greedy
            while better is not None:
                greedy = better
                again = GreedyV(p, m, f, b, w, c, before_i, before_f, greedy.idle)
                better = again if max(again.idle) < max(greedy.idle) else None
            if best is None or max(greedy.idle) < max(best.idle):
                best = greedy
    return best.rows


class GreedyV:
    """One try of the greedy; all ranks are filled together. Chunks are 0 (way down) and 1 (up)."""

    def __init__(self, p, m, f, b, w, c, before_i, before_f, idle_before):
        self.p, self.m, self.transfer = p, m, c
        self.cost = {"F": f, "I": b, "W": w}
        self.idle_before = idle_before
        self.rows = [[] for _ in range(p)]
        self.clock, self.idle, self.held = [0] * p, [0] * p, [0] * p
        self.waiting = [[] for _ in range(p)]  # the chunks whose W is outstanding, oldest first
        self.count = {(kind, chunk, r): 0 for kind in "FIW" for chunk in (0, 1) for r in range(p)}
        self.end = {}
        self.warm_up()
        for _ in range(2 * m):
            self.one_backward_each(before_i)
            self.one_forward_each(before_f)
        for r in range(p):
            while self.waiting[r]:
                self.put_w(r)

    def source(self, kind, chunk, r):
        """The op on another rank that the next one of this kind on this chunk needs."""
        goes_down = (chunk == 0) == (kind == "F")
        other = r - 1 if goes_down else r + 1
        return (kind, chunk, other, self.count[kind, chunk, r]) if 0 <= other < self.p else None

    def put(self, kind, chunk, r):
        source = self.source(kind, chunk, r) if kind != "W" else None
        arrival = self.end[source] + self.transfer if source else 0
        start = max(self.clock[r], arrival)
        if self.count["F", 0, r] > 0:
            self.idle[r] += start - self.clock[r]
        j = self.count[kind, chunk, r]
        self.clock[r] = self.end[kind, chunk, r, j] = start + self.cost[kind]
        self.count[kind, chunk, r] += 1
        self.held[r] += {"F": 1, "I": 0, "W": -1}[kind]
        self.rows[r].append((kind, r if chunk == 0 else 2 * self.p - 1 - r, j, 0))
        if kind == "I":
            self.waiting[r].append(chunk)

    def put_w(self, r):
        self.put("W", self.waiting[r].pop(0), r)

    def fill_and_put(self, kind, chunk, r, may_wait):
        source = self.source(kind, chunk, r)
        if source:
            arrival = self.end[source] + self.transfer
            while self.waiting[r] and arrival >= self.clock[r] + self.cost["W"]:
                self.put_w(r)
            worst = max(*self.idle, max(self.idle_before) - self.idle_before[r])
            if self.waiting[r] and may_wait and arrival - self.clock[r] > worst - self.idle[r]:
                self.put_w(r)
        self.put(kind, chunk, r)

    def warm_up(self):
        p, m, count = self.p, self.m, self.count
        for r in range(p):
            self.put("F", 0, r)
        self.put("F", 1, p - 1)
        for r in reversed(range(p - 1)):
            until = self.end["F", 1, r + 1, 0] + self.transfer
            while (
                self.held[r] + 2 * (r + 1) <= 2 * p
                and self.clock[r] + self.cost["F"] <= until
                and count["F", 0, r] < m
            ):
                for above in range(r + 1):
                    self.put("F", 0, above)
            self.put("F", 1, r)

        def forwards(r):
            return count["F", 0, r] + count["F", 1, r]

        chunk = 0
        for r in range(1, p):
            while forwards(r) < forwards(r - 1) or count["F", 1, r] <= count["F", 1, r - 1] < m:
                for below in reversed(range(r, p)):
                    if count["F", chunk, below] < m:
                        self.put("F", chunk, below)
                chunk = 1 - chunk

    def one_backward_each(self, may_wait):
        count = self.count
        way_up, way_down = [], []  # backwards come down the ranks on chunk 1, go up on chunk 0
        for r in range(self.p):
            j = count["I", 0, r]
            there = r == self.p - 1 or ("I", 0, r + 1, j) in self.end
            if j < count["I", 1, r] and (there or count["I", 1, r] >= self.m):
                way_up.append(r)
            else:
                way_down.append(r)
        for r in reversed(way_up):
            self.fill_and_put("I", 0, r, may_wait=True)
        for r in way_down:
            self.fill_and_put("I", 1, r, may_wait)

    def one_forward_each(self, may_wait):
        count = self.count
        for r in range(self.p):
            first, second = count["F", 0, r], count["F", 1, r]
            if second >= self.m:
                continue
            if second < first and (r == self.p - 1 or ("F", 1, r + 1, second) in self.end):
                chunk = 1
            elif second >= first or (
                first < self.m and (r == 0 or ("F", 0, r - 1, first) in self.end)
            ):
                chunk = 0
            else:
                continue
            while self.held[r] >= 2 * self.p:
                self.put_w(r)
            self.fill_and_put("F", chunk, r, may_wait)


# By name ------------------------------------------------------------------------------------


def megatron_group(p, m):
    """The smallest group that Megatron's rule takes: p to m, remainder none or at least p."""
    return next((n for n in range(p, m) if m % n == 0 or m % n >= p), m)


def torch_group(p, m):
    return m // max(1, m // p)


def generate(name, p, m, **options):
    """The rows of a family, with the option names of ``pipesched.generate``."""
    if name == "gpipe":
        return gpipe(p, m, reverse=options.get("order") == "reversed")
    if name == "interleaved-1f1b":
        torch = options.get("rule") == "torch"
        group = torch_group(p, m) if torch else options.get("group") or megatron_group(p, m)
        return interleaved_1f1b(p, m, options.get("v", 2), group)
    if name == "looped-bfs":
        return looped_bfs(p, m, options.get("v", 2))
    if name == "zb-1p":
        return zb_1p(p, m, options.get("v", 2), megatron_group(p, m))
    if name == "seq-1f1b":
        return seq_1f1b(p, m, options.get("splits", 2))
    if name == "hanayo":
        return hanayo(p, m, options.get("waves", 1))
    assert not options
    return {
        "naive": naive,
        "forward": forward,
        "1f1b": plain_1f1b,
        "eager-1f1b": eager_1f1b,
        "zb-h1": zb_h1,
        "zb-h2": zb_h2,
        "zb-v": zb_v,
        "dualpipe": dualpipe,
        "dualpipe-v": dualpipe_v,
        "chimera": chimera,
        "pipedream": plain_1f1b,
    }[name](p, m)
