"""From a seed: schedules of no family, legal, with transfers anywhere, damaged; and costs."""

import random

from reference import COMMS, COMPUTE


def random_schedule(seed, max_ranks=4, max_stages=6, max_microbatches=5):
    """(rows, stages, micro-batches) of a legal schedule that no family makes.

    Every stage stands on one or two ranks, each micro-batch of it on one of these; backwards are
    whole or split; ops are taken in a random order among those that are ready; now and then a
    forward and a backward that are both ready are taken as an overlapped pair.
    """
    draw = random.Random(seed)
    p = draw.randint(1, max_ranks)
    num_stages = draw.randint(1, max_stages)
    m = draw.randint(1, max_microbatches)
    trains, pairs = draw.random() < 0.9, draw.random() < 0.5
    homes = [draw.sample(range(p), draw.randint(1, min(2, p))) for _ in range(num_stages)]
    rank_of, needs = {}, {}
    for j in range(m):
        for stage in range(num_stages):
            rank = draw.choice(homes[stage])
            needs["F", stage, j] = {("F", stage - 1, j)} if stage else set()
            rank_of["F", stage, j] = rank
        for stage in reversed(range(num_stages)) if trains else ():
            kind = draw.choice("BI")
            needs[kind, stage, j] = {("F", stage, j)}
            needs[kind, stage, j] |= {(k, stage + 1, j) for k in "BI"} & set(needs)
            rank_of[kind, stage, j] = rank_of["F", stage, j]
            if kind == "I":
                needs["W", stage, j] = {("I", stage, j)}
                rank_of["W", stage, j] = rank_of["F", stage, j]
    rows = [[] for _ in range(p)]
    done = set()
    while len(done) < len(needs):
        ready = sorted(op for op in needs if op not in done and needs[op] <= done)
        op = draw.choice(ready)
        others = [
            other
            for other in ready
            if rank_of[other] == rank_of[op] and {op[0], other[0]} in ({"F", "B"}, {"F", "I"})
        ]
        row = rows[rank_of[op]]
        if pairs and others and draw.random() < 0.5:
            other = draw.choice(others)
            row += [(*op, 1), (*other, 0)]
            done |= {op, other}
        else:
            row.append((*op, 0))
            done.add(op)
    return rows, num_stages, m


def with_comms(rows, num_stages, seed):
    """The rows with a send somewhere after each op whose result leaves its rank and a receive
    somewhere before the op that uses it; with buffered sends it may or may not come to its end.
    """
    draw = random.Random(seed)
    home = {op[:3]: rank for rank, row in enumerate(rows) for op in row}
    result = []
    for rank, row in enumerate(rows):
        made, late = [], []
        position = 0
        while position < len(row):
            unit = row[position : position + 2 if row[position][3] else position + 1]
            position += len(unit)
            before, after = [], []
            for kind, stage, j, _ in unit:
                if kind == "W":
                    continue
                way, step = ("F", 1) if kind == "F" else ("B", -1)
                if home.get(("F", stage - step, j), rank) != rank:
                    before.append((f"RECV_{way}", stage, j, 0))
                if home.get(("F", stage + step, j), rank) != rank:
                    after.append((f"SEND_{way}", stage, j, 0))
            draw.shuffle(before)
            made += before + unit
            late += after
            draw.shuffle(late)
            while late and draw.random() < 0.8:
                made.append(late.pop())
        result.append(made + late)
    return result


def damaged(rows, seed):
    """The rows with one to three ops dropped, doubled, swapped, moved or made another op."""
    draw = random.Random(seed)
    rows = [list(row) for row in rows]
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        rank = draw.choice([r for r, row in enumerate(rows) if row] or [0])
        row = rows[rank]
        if not row:
            break
        at = draw.randrange(len(row))
        kind, stage, j, fuse = row[at]
        what = draw.randrange(7)
        if what == 0:
            del row[at]
        elif what == 1:
            other = draw.choice(rows)
            other.insert(draw.randint(0, len(other)), row[at])
        elif what == 2:
            there = draw.randrange(len(row))
            row[at], row[there] = row[there], row[at]
        elif what == 3:
            other = draw.choice(rows)
            other.insert(draw.randint(0, len(other) - (other is row)), row.pop(at))
        elif what == 4:
            row[at] = (draw.choice(COMPUTE + COMMS), stage, j, fuse)
        elif what == 5:
            stage, j = draw.choice(((stage + 1, j), (stage, j + 1), (stage - 1, j), (stage, j - 1)))
            row[at] = (kind, stage, j, fuse)
        else:
            row[at] = (kind, stage, j, 1 - fuse)
    return rows


def random_costs(seed, num_stages, num_microbatches):
    """Keyword arguments that Costs and the twin both take; whole numbers, halves exact."""
    draw = random.Random(seed)

    def times(count, low=0):
        if draw.random() < 0.4:
            return 2 * draw.randint(low, 6)
        return [2 * draw.randint(low, 6) for _ in range(count)]

    costs = {"forward": times(num_stages)}
    parts = draw.randrange(3)
    if parts == 1:
        costs["backward"] = times(num_stages)
    elif parts == 2:
        costs["backward_input"] = times(num_stages)
        costs["backward_weight"] = times(num_stages)
    if draw.random() < 0.4:
        costs["overlap"] = times(num_stages)
    if draw.random() < 0.7:
        costs["transfer"] = times(num_stages - 1)
    if draw.random() < 0.4:
        costs["transfer_backward"] = times(num_stages - 1)
    if draw.random() < 0.4:
        costs["microbatch_scale"] = [draw.randint(0, 4) for _ in range(num_microbatches)]
    costs["activation"] = times(num_stages)
    if draw.random() < 0.5:
        costs["activation_kept"] = times(num_stages)
    if draw.random() < 0.5:
        costs["static"] = times(num_stages)
    costs["link"] = draw.choice(["free", "serial"])
    return costs
