"""The slow twin: what the C core must compute, in plain Python. The oracle of the tests.

Imports nothing from pipesched nor NumPy, and favours clarity over speed. An op is a tuple
``(kind, stage, microbatch, fuse)`` with the kind as torch writes it ("F", "B", "I", "W",
"SEND_F", ...); a schedule is ``rows``, one list of ops for each rank. ``generate`` makes the
published schedules, ``check`` says what is wrong with one, ``simulate`` times it. Times stay
what they were given as: whole numbers and fractions give exact results.
"""

import itertools
import re
from fractions import Fraction
from types import SimpleNamespace

BACKWARDS = ("B", "I")  # the kinds that hand a gradient on to the stage before
COMPUTE = ("F", "B", "I", "W")
COMMS = ("SEND_F", "RECV_F", "SEND_B", "RECV_B")
WHOLE_STAGE = ("UNSHARD", "RESHARD", "REDUCE_GRAD")


# Words --------------------------------------------------------------------------------------

_WORD = re.compile(
    r"(\d+)(F|BW|B|I|W|SEND_F|RECV_F|SEND_B|RECV_B|UNSHARD|RESHARD|REDUCE_GRAD)(\d*)"
)


def op_from_word(word):
    stage, kind, microbatch = _WORD.fullmatch(word).groups()
    return (kind, int(stage), int(microbatch) if microbatch else -1, 0)


def words_of(row):
    """A row in torch's words; an overlapped pair is one word."""
    words = [f"{stage}{kind}{'' if j < 0 else j}" for kind, stage, j, _ in row]
    for position in reversed(range(len(row))):
        if row[position][3]:
            first, second = words[position : position + 2]
            words[position : position + 2] = [f"({first};{second})OVERLAP_F_B"]
    return words


def rows_from_text(text):
    """Rows from a schedule file in today's words or (B for I, BW for B) yesterday's."""
    rows = []
    for line in text.splitlines():
        row = []
        for cell in (cell.strip() for cell in line.split(",")):
            if cell.endswith("OVERLAP_F_B"):
                first, second = cell.removesuffix("OVERLAP_F_B").strip("()").split(";")
                row += [(*op_from_word(first)[:3], 1), op_from_word(second)]
            elif cell:
                row.append(op_from_word(cell))
        rows.append(row)
    kinds = {op[0] for row in rows for op in row}
    if "BW" in kinds or ("W" in kinds and "I" not in kinds):
        today = {"B": "I", "BW": "B"}
        rows = [[(today.get(op[0], op[0]), *op[1:]) for op in row] for row in rows]
    return rows


# Simulation ---------------------------------------------------------------------------------


def per_stage(value, count):
    """One value for each stage from a number or a list of them."""
    if isinstance(value, (list, tuple)):
        assert len(value) == count
        return list(value)
    return [value] * count


class CostTable:
    """What each op and each transfer takes, and what each op holds."""

    def __init__(
        self,
        num_stages,
        num_microbatches,
        forward=1,
        backward=None,
        backward_input=None,
        backward_weight=None,
        overlap=None,
        transfer=0,
        transfer_backward=None,
        microbatch_scale=None,
        activation=1,
        activation_kept=None,
        static=0,
        link="free",
    ):
        stages = range(num_stages)
        self.forward = per_stage(forward, num_stages)
        if backward_input is None:
            if backward is None:
                backward = [2 * f for f in self.forward]
            self.backward = per_stage(backward, num_stages)
            self.backward_input = [Fraction(b) / 2 for b in self.backward]
            self.backward_weight = list(self.backward_input)
        else:
            self.backward_input = per_stage(backward_input, num_stages)
            self.backward_weight = per_stage(backward_weight, num_stages)
            self.backward = [self.backward_input[s] + self.backward_weight[s] for s in stages]
        self.overlap = None if overlap is None else per_stage(overlap, num_stages)
        self.transfer = per_stage(transfer, num_stages - 1)
        if transfer_backward is None:
            transfer_backward = self.transfer
        self.transfer_backward = per_stage(transfer_backward, num_stages - 1)
        self.scale = per_stage(
            1 if microbatch_scale is None else microbatch_scale, num_microbatches
        )
        self.activation = per_stage(activation, num_stages)
        self.activation_kept = per_stage(
            self.activation if activation_kept is None else activation_kept, num_stages
        )
        self.static = per_stage(static, num_stages)
        self.serial = link == "serial"

    def of_op(self, op):
        kind, stage, microbatch, _ = op
        table = {
            "F": self.forward,
            "B": self.backward,
            "I": self.backward_input,
            "W": self.backward_weight,
        }
        return table[kind][stage] * self.scale[microbatch] if kind in table else 0

    def of_pair(self, first, second):
        if self.overlap is None:
            return self.of_op(first) + self.of_op(second)
        forward = first if first[0] == "F" else second
        return self.overlap[forward[1]] * max(self.scale[first[2]], self.scale[second[2]])

    def of_transfer(self, way, stage, microbatch):
        """From this stage onward to stage + 1 ("F") or back to stage - 1 ("B")."""
        time = self.transfer[stage] if way == "F" else self.transfer_backward[stage - 1]
        return time * self.scale[microbatch]


def units(row):
    """The row as a list of lists of positions that run together: one op, or an overlapped pair."""
    found, position = [], 0
    while position < len(row):
        width = 2 if row[position][3] else 1
        found.append(list(range(position, position + width)))
        position += width
    return found


def way_of(kind):
    """Which way an op hands its result on: "F" to the next stage, "B" to the one before."""
    return "F" if kind == "F" else "B"


def count_microbatches(rows):
    return 1 + max(op[2] for row in rows for op in row)


def count_stages(rows):
    return 1 + max(op[1] for row in rows for op in row)


def simulate(rows, num_stages=None, num_microbatches=None, **costs):
    """Times of every op and all that follows from them; None where the ranks wait in a circle."""
    num_stages = num_stages or count_stages(rows)
    num_microbatches = num_microbatches or count_microbatches(rows)
    cost = CostTable(num_stages, num_microbatches, **costs)
    has_comms = any(op[0] in COMMS for row in rows for op in row)

    home = {}  # (kind, stage, micro-batch) -> rank
    for rank, row in enumerate(rows):
        for op in row:
            home[op[:3]] = rank

    end = {}  # (kind, stage, micro-batch) -> time
    arrival = {}  # (way, stage, micro-batch) of the sending op -> when it is there
    link_free = {}  # (from rank, to rank) -> when the last transfer is over
    times = [[None] * len(row) for row in rows]
    clock = [0] * len(rows)
    busy = [0] * len(rows)

    def send(way, stage, microbatch, rank, now):
        """Start the transfer of an op's result, if its user is on another rank."""
        if way == "F":
            users = [("F", stage + 1, microbatch)]
        else:
            users = [(kind, stage - 1, microbatch) for kind in BACKWARDS]
        for user in users:
            if user in home and home[user] != rank:
                start = now
                if cost.serial:
                    start = max(start, link_free.get((rank, home[user]), 0))
                over = start + cost.of_transfer(way, stage, microbatch)
                link_free[rank, home[user]] = over
                arrival[way, stage, microbatch] = over

    def ready(op, rank):
        """When all that this op needs is there; None: not known yet."""
        kind, stage, microbatch, _ = op
        if kind not in COMPUTE:
            return 0  # a receive is posted; the op that needs what it brings is what waits
        needs = []
        if kind == "W":
            needs.append(("I", stage, microbatch))
        if kind in BACKWARDS:
            needs.append(("F", stage, microbatch))
            needs += [
                (other, stage + 1, microbatch)
                for other in BACKWARDS
                if (other, stage + 1, microbatch) in home
            ]
        if kind == "F" and stage > 0:
            needs.append(("F", stage - 1, microbatch))
        moments = [0]
        for need in needs:
            if home[need] == rank:
                moments.append(end.get(need))
            else:
                moments.append(arrival.get((way_of(need[0]), *need[1:])))
        return None if None in moments else max(moments)

    left = [units(row) for row in rows]
    moved = True
    while moved:
        moved = False
        for rank, row in enumerate(rows):
            while left[rank]:
                ops = [row[position] for position in left[rank][0]]
                moments = [ready(op, rank) for op in ops]
                if None in moments:
                    break
                start = max(clock[rank], *moments)
                length = cost.of_pair(*ops) if len(ops) == 2 else cost.of_op(ops[0])
                for position, op in zip(left[rank].pop(0), ops, strict=True):
                    times[rank][position] = (start, start + length)
                    end[op[:3]] = start + length
                    if op[0].startswith("SEND"):
                        send(op[0][-1], op[1], op[2], rank, start)
                    elif op[0] in ("F", "B", "I") and not has_comms:
                        send(way_of(op[0]), op[1], op[2], rank, start + length)
                clock[rank] = start + length
                busy[rank] += length
                moved = True
    if any(left):
        return None
    return summary(rows, num_stages, cost, times, busy)


def summary(rows, num_stages, cost, times, busy):
    """All that a timeline says, from the start and end of every op."""
    worked = [
        [time for op, time in zip(row, row_times, strict=True) if op[0] in COMPUTE]
        for row, row_times in zip(rows, times, strict=True)
    ]
    moments = [time for row in worked for time in row]
    trains = any(op[0] in BACKWARDS for row in rows for op in row)
    makespan = max(e for _, e in moments) - min(s for s, _ in moments)
    span = max((max(e for _, e in row) - min(s for s, _ in row)) for row in worked if row)
    ideal = max(busy)
    result = SimpleNamespace(
        start=[s for row in times for s, _ in row],
        end=[e for row in times for _, e in row],
        makespan=makespan,
        span=span,
        busy=busy,
        idle=[makespan - work for work in busy],
        peak_activations=[peak_chunks(row, trains) for row in rows],
        memory_profile=[
            memory_profile(row, row_times, num_stages, cost, trains)
            for row, row_times in zip(rows, times, strict=True)
        ],
    )
    result.peak_memory = [max(held for _, held in profile) for profile in result.memory_profile]
    if makespan:
        result.bubble_fraction = 1 - Fraction(sum(busy)) / (len(rows) * Fraction(makespan))
    if ideal:
        result.bubble_ratio = Fraction(makespan - ideal) / Fraction(ideal)
    if span:
        result.span_bubble = Fraction(span - ideal) / Fraction(span)
    return result


def peak_chunks(row, trains=True):
    """Most activations held: a forward's until its B or W. A pair takes before it gives back."""
    held = most = 0
    for positions in units(row):
        kinds = [row[position][0] for position in positions]
        held += kinds.count("F")
        most = max(most, held)
        held -= kinds.count("B") + kinds.count("W")
        if not trains:
            held = 0
    return most


def memory_profile(row, times, num_stages, cost, trains):
    """(time, bytes held from then on), in the order of the row. Inference holds during F only."""
    stages = {op[1] for op in row}
    held = sum(cost.static[stage] for stage in range(num_stages) if stage in stages)
    profile = [(0, held)]
    for positions in units(row):
        for position in positions:
            kind, stage, microbatch, _ = row[position]
            if kind == "F":
                held += cost.activation[stage] * cost.scale[microbatch]
                profile.append((times[position][0], held))
        for position in positions:
            kind, stage, microbatch, _ = row[position]
            whole = cost.activation[stage]
            kept = cost.activation_kept[stage]
            given_back = {"B": whole, "I": whole - kept, "W": kept}
            if not trains:
                given_back["F"] = whole
            if kind in given_back:
                held -= given_back[kind] * cost.scale[microbatch]
                profile.append((times[position][1], held))
    return profile


# Checking -----------------------------------------------------------------------------------


def needs_of(op, standing, num_stages):
    """The ops whose results this one uses, of those that stand in the schedule."""
    kind, stage, microbatch = op[:3]
    needs = []
    if kind == "F" and stage > 0:
        needs.append(("F", stage - 1, microbatch))
    if kind in BACKWARDS:
        needs.append(("F", stage, microbatch))
        if stage + 1 < num_stages:
            needs += [(other, stage + 1, microbatch) for other in BACKWARDS]
    if kind == "W":
        needs.append(("I", stage, microbatch))
    return [need for need in needs if need in standing]


def partner(op):
    """The send of a receive, the receive of a send."""
    kind, stage, microbatch = op[:3]
    if kind in ("SEND_F", "RECV_B"):
        return ({"SEND_F": "RECV_F", "RECV_B": "SEND_B"}[kind], stage + 1, microbatch)
    return ({"RECV_F": "SEND_F", "SEND_B": "RECV_B"}[kind], stage - 1, microbatch)


def faults(rows, num_stages, num_microbatches, blocking=False):
    """Every fault as (code, rank, position), position -1 for what is missing.

    Where the ops themselves are in order, the deadlock is looked for too: it has one entry for
    each rank that cannot go on, at the op (or the two of the pair) where it stands.
    """
    found = []
    standing = {}  # (kind, stage, micro-batch) -> (rank, position) of the first of its name
    for rank, row in enumerate(rows):
        for position, op in enumerate(row):
            kind, stage, microbatch, fuse = op
            whole = kind in WHOLE_STAGE
            if (
                kind not in COMPUTE + COMMS + WHOLE_STAGE
                or not 0 <= stage < num_stages
                or (microbatch != -1 if whole else not 0 <= microbatch < num_microbatches)
                or fuse not in (0, 1)
            ):
                found.append(("range", rank, position))
                continue
            if fuse and (position + 1 == len(row) or row[position + 1][3]):
                # no second member, or one that would be the first of another pair
                found += [("pair", rank, position), ("pair", rank, position + 1)]
    if found:
        return found  # not well-formed: it says nothing about what is meant

    for rank, row in enumerate(rows):
        for position, op in enumerate(row):
            if op[0] not in WHOLE_STAGE and op[:3] in standing:
                found.append(("repeated", rank, position))
            standing.setdefault(op[:3], (rank, position))
    if found:
        return found

    trains = any(op[0] in ("B", "I", "W") for op in standing)
    for stage in range(num_stages):
        for j in range(num_microbatches):
            here = [kind for kind in COMPUTE if (kind, stage, j) in standing]
            forward = standing.get(("F", stage, j))
            if forward is None:
                found.append(("missing", None, -1))
            backward = [kind for kind in here if kind != "F"]
            if trains and not backward:
                found.append(("missing", None, -1))
            elif trains and backward not in (["B"], ["I", "W"]):
                found += [("split", *standing[kind, stage, j]) for kind in backward]
            if forward is not None:
                for kind in backward:
                    if standing[kind, stage, j][0] != forward[0]:
                        found.append(("place", *standing[kind, stage, j]))

    for op, (rank, position) in standing.items():
        for need in needs_of(op, standing, num_stages):
            if standing[need][0] == rank and standing[need][1] > position:
                found.append(("order", rank, position))

    for rank, row in enumerate(rows):
        for position, op in enumerate(row):
            if not op[3]:
                continue
            after = row[position + 1]
            fits = {op[0], after[0]} in ({"F", "B"}, {"F", "I"})
            if not fits or op[:3] in needs_of(after, standing, num_stages):
                found.append(("pair", rank, position))

    found += transfer_faults(standing, num_stages)
    if found:
        return found
    return [("deadlock", rank, at) for rank, at in stuck(rows, standing, num_stages, blocking)]


def transfer_faults(standing, num_stages):
    """Where there are sends and receives: one of each for every result that changes its rank."""
    if not any(kind in COMMS for kind, *_ in standing):
        return []
    found = []
    wanted = {}  # comm -> its rank
    for op, (rank, position) in standing.items():
        for need in needs_of(op, standing, num_stages):
            from_rank, from_position = standing[need]
            if from_rank == rank:
                continue
            way = way_of(need[0])
            send = (f"SEND_{way}", *need[1:])
            receive = (f"RECV_{way}", *op[1:3])
            wanted[send], wanted[receive] = from_rank, rank
            for comm in (send, receive):
                if comm not in standing:
                    found.append(("transfer", None, -1))
            if send in standing and standing[send] < (from_rank, from_position):
                found.append(("transfer", *standing[send]))
            if receive in standing and standing[receive] > (rank, position):
                found.append(("transfer", *standing[receive]))
    for op, place in standing.items():
        if op[0] in COMMS and wanted.get(op) != place[0]:
            found.append(("transfer", *place))
    return found


def stuck(rows, standing, num_stages, blocking):
    """(rank, position) of the ops where ranks stop for good; [] where all come to their end."""
    has_comms = any(kind in COMMS for kind, *_ in standing)
    left = [units(row) for row in rows]
    done = set()

    def head(rank):
        return [rows[rank][position][:3] for position in left[rank][0]] if left[rank] else []

    def may_run(rank, op):
        if op[0].startswith("RECV"):
            return not blocking and partner(op) in done
        if op[0].startswith("SEND"):
            return not blocking
        return all(
            need in done or (has_comms and standing[need][0] != rank)
            for need in needs_of(op, standing, num_stages)
        )

    moved = True
    while moved:
        moved = False
        for rank in range(len(rows)):
            while head(rank) and all(may_run(rank, op) for op in head(rank)):
                done.update(head(rank))
                left[rank].pop(0)
                moved = True
            if blocking and head(rank) and head(rank)[0][0] in COMMS:
                meet = partner(head(rank)[0])
                other = standing[meet][0]
                if head(other) == [meet]:  # both are there: the transfer happens
                    left[rank].pop(0)
                    left[other].pop(0)
                    moved = True
    return [(rank, at) for rank, ahead in enumerate(left) if ahead for at in ahead[0]]


def check(rows, num_stages, num_microbatches, blocking=False):
    """None where the schedule is legal, else its first fault as (code, rank, position)."""
    return next(iter(faults(rows, num_stages, num_microbatches, blocking)), None)


# The best there is, by trying everything ------------------------------------------------------


def every_row(cells, pairs):
    """Every order in which one rank can do all ops of its (stage, micro-batch) cells.

    Backwards are whole or split; with ``pairs`` also every forward and backward that stand next
    to each other as an overlapped pair.
    """
    follow = {"": ["F"], "F": ["B", "I"], "I": ["W"], "B": [], "W": []}

    def extend(row, last):
        choices = [(kind, cell) for cell in cells for kind in follow[last[cell]]]
        if not choices:
            yield row
        for kind, cell in choices:
            yield from extend([*row, (kind, *cell, 0)], {**last, cell: kind})
        if not pairs:
            return
        for kind, cell in choices:
            for other_kind, other in choices:
                if kind == "F" and other_kind in BACKWARDS:
                    pair = [(kind, *cell, 1), (other_kind, *other, 0)]
                    yield from extend(row + pair, {**last, cell: kind, other: other_kind})

    return list(extend([], dict.fromkeys(cells, "")))


def shortest_makespan(rows, num_stages, num_microbatches, **costs):
    """The least makespan of any schedule that has each stage and micro-batch where rows has it."""
    cells = [[op[1:3] for op in row if op[0] == "F"] for row in rows]
    all_rows = [every_row(here, pairs="overlap" in costs) for here in cells]
    best = None
    for chosen in itertools.product(*all_rows):
        timeline = simulate(chosen, num_stages, num_microbatches, **costs)
        if timeline is not None and (best is None or timeline.makespan < best):
            best = timeline.makespan
    return best
