"""The slow twin of partitioning, in plain Python: the oracle for what the C computes.

Imports nothing from pipesched. Layers are lists of numbers, a graph is a list of
edges (source, target) with source < target.
"""

import math
from itertools import combinations, pairwise

# ---- balanced ------------------------------------------------------------------------------


def part_cost(costs, i, j, first=0.0, last=0.0):
    """The cost of layers i .. j-1 by running sums, as pipesched defines it."""
    total = [0.0]
    for cost in costs:
        total.append(total[-1] + cost)
    value = total[j] - total[i]
    if i == 0:
        value += first
    if j == len(costs):
        value += last
    return value


def balanced(costs, k, first=0.0, last=0.0):
    """The smallest possible largest part: dynamic programme over (parts, layers)."""
    n = len(costs)
    total = [0.0]
    for cost in costs:
        total.append(total[-1] + cost)

    def part(i, j):
        value = total[j] - total[i]
        if i == 0:
            value += first
        if j == n:
            value += last
        return value

    best = [math.inf] + [part(0, j) for j in range(1, n + 1)]
    for t in range(2, k + 1):
        best = [
            min((max(best[i], part(i, j)) for i in range(t - 1, j)), default=math.inf)
            for j in range(n + 1)
        ]
    return best[n]


def all_cuts(n, k):
    """Every way to cut n layers into k parts that are not empty."""
    for inner in combinations(range(1, n), k - 1):
        yield (0, *inner, n)


def best_cuts(costs, k, first=0.0, last=0.0, cut_bytes=None):
    """The cuts that pipesched promises: by load, then bytes, then lexicographically."""

    def key(cuts):
        parts = [part_cost(costs, a, b, first, last) for a, b in pairwise(cuts)]
        crossing = sum(cut_bytes[c - 1] for c in reversed(cuts[1:-1])) if cut_bytes else 0.0
        return max(parts), crossing, cuts

    return min(key(cuts) for cuts in all_cuts(len(costs), k))


def best_chunk_load(costs, k, v, first=0.0, last=0.0):
    """The smallest possible largest load of a rank with v parts each."""
    best = math.inf
    for cuts in all_cuts(len(costs), k * v):
        load = [0.0] * k
        for s, (a, b) in enumerate(pairwise(cuts)):
            load[s % k] += part_cost(costs, a, b, first, last)
        best = min(best, max(load))
    return best


# ---- the default model ---------------------------------------------------------------------


def prefixes(n, edges):
    """Every set of layers that holds the predecessors of its members."""
    before = [frozenset(a for a, b in edges if b == i) for i in range(n)]
    found = {frozenset()}
    todo = [frozenset()]
    while todo:
        state = todo.pop()
        for i in range(n):
            if i not in state and before[i] <= state:
                wider = state | {i}
                if wider not in found:
                    found.add(wider)
                    todo.append(wider)
    return found


def crossing(layers, edges, state):
    """Bytes of the outputs of a prefix that are needed outside."""
    return sum(layers[a][1] for a in {a for a, b in edges if a in state and b not in state})


def link(counts, bandwidth, low, high):
    """The slowest link on the way between two workers."""
    size, slowest = 1, math.inf
    for count, speed in zip(counts, bandwidth, strict=True):
        size *= count
        slowest = min(slowest, speed)
        if low // size == high // size:
            break
    return slowest


def plan_value(layers, edges, counts, bandwidth, stages, overlap, optimizer):
    """(time, largest memory) of stages [(prefix before, prefix after, q, r)]."""
    times, memories = [], []
    for s, (a, b, q, r) in enumerate(stages):
        inside = b - a
        compute = sum(layers[i][0] for i in inside) / r
        held = sum(layers[i][1] for i in inside) + crossing(layers, edges, a)
        weights = sum(layers[i][2] for i in inside)
        traffic = 2 * (r - 1) / r * weights / link(counts, bandwidth, q, q + r - 1) / r
        if s > 0:
            _, _, q0, _ = stages[s - 1]
            traffic += 2 * crossing(layers, edges, a) / link(counts, bandwidth, q0, q + r - 1) / r
        if s + 1 < len(stages):
            _, _, q1, r1 = stages[s + 1]
            traffic += 2 * crossing(layers, edges, b) / link(counts, bandwidth, q, q1 + r1 - 1) / r
        times.append(max(compute, traffic) if overlap else compute + traffic)
        busy = sum(stage[3] for stage in stages[s:])
        memories.append(math.ceil(busy / r) * (weights + held) + optimizer * weights)
    return max(times), max(memories)


def all_plans(n, edges, workers, most=None):
    """Every list of stages: prefixes that grow, ranges of workers with gaps between."""
    states = sorted(prefixes(n, edges), key=len)
    whole = frozenset(range(n))

    def extend(state, start):
        for wider in states:
            if not state < wider:
                continue
            for q in range(start, workers):
                for r in range(1, min(workers - q, most or workers) + 1):
                    if wider == whole:
                        yield [(state, wider, q, r)]
                    else:
                        for rest in extend(wider, q + r):
                            yield [(state, wider, q, r), *rest]

    yield from extend(frozenset(), 0)


def best_plan(
    layers,
    edges,
    counts,
    bandwidth,
    memory=math.inf,
    overlap=True,
    optimizer=1.0,
    stages=None,
    most=None,
):
    """The smallest time of all plans that fit (infinite: none does), the smallest largest
    memory of all plans, and the fewest stages of a plan with that time."""
    time = least = math.inf
    fewest = 0
    for plan in all_plans(len(layers), edges, math.prod(counts), most):
        if stages is not None and len(plan) != stages:
            continue
        value, bytes_needed = plan_value(layers, edges, counts, bandwidth, plan, overlap, optimizer)
        least = min(least, bytes_needed)
        if bytes_needed <= memory:
            if value < time * (1 - 1e-12) or (fewest == 0 and value <= time):
                fewest = len(plan)
            elif value <= time * (1 + 1e-12):
                fewest = min(fewest, len(plan))
            time = min(time, value)
    return time, least, fewest


# ---- PipeDream's published program ---------------------------------------------------------


class Missing(Exception):
    """The program would compare a number with None."""


def antichains(n, edges):
    """(predecessors and self, augmented antichain) of each state, in topological order."""
    feeds = [[b for a, b in edges if a == i] for i in range(n)]
    before = [set() for _ in range(n)]
    for i in range(n):
        for a, b in edges:
            if b == i:
                before[i] |= {a} | before[a]
    after = [{j for j in range(n) if i in before[j]} for i in range(n)]

    def augment(antichain):
        wide = set(antichain)
        for member in antichain:
            for i in before[member]:
                if any(t not in before[member] and t != member for t in feeds[i]):
                    wide.add(i)
        return frozenset(wide)

    first = frozenset({0})
    found, todo = {first}, [first]
    while todo:
        antichain = todo.pop()
        wide = augment(antichain)
        for old in wide:
            for new in feeds[old]:
                if new in antichain or after[new] & wide:
                    continue
                members = (wide - {old}) | {new}
                kept = frozenset(x for x in members if not any(x in before[y] for y in members))
                if kept not in found:
                    found.add(kept)
                    todo.append(kept)
    states = [
        (frozenset(state.union(*(before[x] for x in state))), augment(state)) for state in found
    ]
    return sorted(states, key=lambda state: len(state[0]))


def published(
    layers, edges, counts, bandwidth, straight=False, fewer=False, memory=None, ratio=None
):
    """The published program's objective; None where it finds no partition."""
    states = antichains(len(layers), edges)
    count = len(states)
    total = [[sum(layers[i][part] for i in s) for s, _ in states] for part in range(3)]
    out = [sum(layers[i][1] for i in wide) for _, wide in states]
    ancestors = [[k for k in range(count) if states[k][0] < states[j][0]] for j in range(count)]

    def span(part, i, j):
        return total[part][j] - (total[part][i] if i >= 0 else 0.0)

    def inside(i, j):
        return i < 0 or i in ancestors[j]

    cost = {(i, j): span(0, i, j) for i in range(-1, count) for j in range(count) if inside(i, j)}
    inner = 1
    for N, B in zip(counts, bandwidth, strict=True):
        best = {}
        for i in range(-1, count):
            for j in range(count):
                if not inside(i, j):
                    continue
                for n in range(1, N + 1):
                    best[i, j, n] = None
                    if straight and n > 1:
                        continue
                    stash = math.ceil((N - n) / n) * (span(1, i, j) + span(2, i, j))
                    if memory is not None and stash > memory:
                        continue
                    if cost[i, j] is None:
                        continue
                    reduce = 4 * (n - 1) * span(2, i, j) / (B * n) / inner
                    best[i, j, n] = (cost[i, j] + reduce) / n
        for i in range(-1, count):
            for n in range(2, N + 1):
                for j in range(count):
                    if not inside(i, j) or j == i + 1:
                        continue
                    value = best[i, j, n]
                    if fewer:
                        less = best[i, j, n - 1]
                        if value is not None and less is None:
                            raise Missing
                        if value is None or less < value:
                            value = less
                    for k in ancestors[j]:
                        if not inside(i, k) or cost[k, j] is None:
                            continue
                        for r in range(1, 2 if straight else n):
                            before = best[i, k, n - r]
                            stash = math.ceil((N - n) / r) * (span(1, k, j) + span(2, k, j))
                            if before is None or (memory is not None and stash > memory):
                                continue
                            own = (cost[k, j] + 4 * (r - 1) * span(2, k, j) / (B * r)) / r
                            time = max(before, own)
                            if ratio is not None:
                                time = max(time, 2 * out[k] / (B * r) / ratio)
                                if j != count - 1:
                                    time = max(time, 2 * out[j] / (B * r) / ratio)
                            if value is None or time < value:
                                value = time
                    best[i, j, n] = value
        inner = N
        cost = {pair: best[(*pair, N)] for pair in cost}
    return cost[-1, count - 1]
