"""Sends and receives that cannot deadlock, and the table in unit time."""

import numpy as np
import pytest
import reference
from hypothesis import given
from strategies import legal_comms, legal_rows, to_rows, to_schedule
from twins import random_costs

import pipesched as ps

SIZES = [(1, 1), (1, 4), (2, 1), (2, 4), (3, 2), (4, 8), (4, 16), (6, 13)]


def lower_and_look(schedule):
    """Lower, and hold the result to all that is promised of it."""
    lowered = schedule.lower()
    assert lowered.check() is lowered
    assert lowered.check(blocking=True) is lowered
    assert lowered.without_comms() == schedule
    assert lowered.name == schedule.name
    assert lowered.lower() == lowered
    sizes = schedule.num_stages, schedule.num_microbatches
    assert reference.check(to_rows(lowered), *sizes, blocking=True) is None
    plain = reference.simulate(to_rows(schedule), *sizes)
    assert reference.simulate(to_rows(lowered), *sizes).makespan == plain.makespan
    for seed in range(3):  # the compute ops run when they would without communications
        costs = ps.Costs(**random_costs(seed, *sizes))
        timeline = lowered.simulate(costs)
        compute = lowered.ops["kind"] < 4
        bare = schedule.ops["kind"] < 4
        expected = schedule.simulate(costs)
        assert np.array_equal(timeline.start[compute], expected.start[bare])
        assert np.array_equal(timeline.end[compute], expected.end[bare])
    return lowered


def is_legal(rows, num_stages, m):
    return reference.check(rows, num_stages, m) is None


@given(legal_rows())
def test_any_legal_schedule(case):
    if is_legal(*case):  # the overlapped pairs that were drawn may wait in a circle
        schedule = to_schedule(*case)
        lowered = lower_and_look(schedule)
        assert lowered.has_comms == (len(lowered) > len(schedule))


@given(legal_comms())
def test_sends_and_receives_that_are_there_are_replaced(case):
    schedule = to_schedule(*case)
    bare = schedule.without_comms()
    assert not bare.has_comms
    if is_legal(to_rows(bare), *case[1:]):
        assert schedule.lower() == bare.lower() == lower_and_look(bare)


@pytest.mark.parametrize("family", list(ps.SCHEDULES))
def test_every_family(family):
    for p, m in SIZES:
        try:
            schedule = ps.generate(family, p, m)
        except ValueError:
            continue  # the family's definition forbids it, which its own tests look at
        lowered = lower_and_look(schedule)
        assert lowered.has_comms == (p > 1)


def test_1f1b_drawn():
    """The receive of the next micro-batch stands before the send of the last gradient."""
    assert [" ".join(row) for row in ps.generate("1f1b", 2, 3).lower().rows()] == [
        "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0F2 0SEND_F2 0RECV_B1 0B1 0RECV_B2 0B2",
        "1RECV_F0 1F0 1B0 1RECV_F1 1SEND_B0 1F1 1B1 1RECV_F2 1SEND_B1 1F2 1B2 1SEND_B2",
    ]


def test_pairs_stay_together():
    rows = ["0F0 0F1 (0F2;0B0)OVERLAP_F_B 0B1 0B2", "1F0 1B0 1F1 1B1 1F2 1B2"]
    lowered = lower_and_look(ps.Schedule.from_rows(rows))
    assert lowered.rows()[0] == [
        *["0F0", "0SEND_F0", "0F1", "0SEND_F1"],
        *["0RECV_B0", "(0F2;0B0)OVERLAP_F_B", "0SEND_F2"],
        *["0RECV_B1", "0B1", "0RECV_B2", "0B2"],
    ]


def test_bookkeeping_stays_where_it_is():
    rows = ["0UNSHARD 0F0 0RESHARD 0B0 0REDUCE_GRAD", "1F0 1B0"]
    lowered = lower_and_look(ps.Schedule.from_rows(rows))
    assert lowered.rows()[0] == [
        *["0UNSHARD", "0F0", "0SEND_F0", "0RESHARD"],
        *["0RECV_B0", "0B0", "0REDUCE_GRAD"],
    ]


def test_one_rank_has_nothing_to_send():
    schedule = ps.Schedule.from_rows(["0F0 1F0 1B0 0B0"])
    assert schedule.lower() == schedule
    assert schedule.without_comms() is schedule


def test_torch_example_becomes_safe(data_dir):
    """pytorch/pytorch#172668: lowered anew, it is safe where sends block."""
    text = (data_dir / "torch_csv" / "example_interleaved_2ranks_4mb_comms.csv").read_text()
    lower_and_look(ps.Schedule.from_rows(text.splitlines()).without_comms())


@pytest.mark.parametrize("method", ["lower", "table"])
def test_illegal_schedules_are_refused(method):
    for rows in (["0F0 0B0", "1B0 1F0"], ["0F0 0B0 0F1 0B1", "1F1 1B1 1F0 1B0"]):
        with pytest.raises(ps.ScheduleError):
            getattr(ps.Schedule.from_rows(rows), method)()


@pytest.mark.parametrize("method", ["lower", "table", "without_comms"])
def test_a_send_in_a_pair_is_refused(method):
    schedule = ps.Schedule.from_rows(["0F0 (0SEND_F0;0B0)OVERLAP_F_B", "1RECV_F0 1F0 1B0 1SEND_B0"])
    with pytest.raises(ps.ScheduleError, match="must be one F and one B or I"):
        getattr(schedule, method)()


# The table -----------------------------------------------------------------------------------


def slow_table(rows, num_stages):
    """The table in unit time, by looking again and again at what can run."""
    standing = {op[:3] for row in rows for op in row}
    end, clock = {}, [0] * len(rows)
    cells = [[] for _ in rows]
    left = [reference.units(row) for row in rows]
    while any(left):
        for rank, row in enumerate(rows):
            ops = [row[position] for position in left[rank][0]] if left[rank] else []
            needs = [n for op in ops for n in reference.needs_of(op, standing, num_stages)]
            if not ops or any(need not in end for need in needs):
                continue
            left[rank].pop(0)
            ops = [op for op in ops if op[0] in reference.COMPUTE]
            start = max([clock[rank], *(end[need] for need in needs)])
            cells[rank] += [-1] * (start - clock[rank] if ops else 0) + [op[2] for op in ops]
            clock[rank] = len(cells[rank])
            end.update((op[:3], clock[rank]) for op in ops)
    slots = max(clock)
    return np.array([row + [-1] * (slots - len(row)) for row in cells])


@given(legal_rows())
def test_table_of_any_legal_schedule(case):
    if is_legal(*case):
        rows, num_stages, _ = case
        schedule = to_schedule(*case)
        table = schedule.table()
        assert table.dtype == np.int64
        np.testing.assert_array_equal(table, slow_table(rows, num_stages))
        np.testing.assert_array_equal(schedule.lower().table(), table)


@pytest.mark.parametrize(("p", "m"), SIZES)
def test_table_of_forwards_is_the_exercise(p, m):
    schedule = ps.generate("forward", p, m)
    np.testing.assert_array_equal(schedule.table(), ps.gpipe_forward_schedule(p, m))
    np.testing.assert_array_equal(np.asarray(schedule), ps.gpipe_forward_schedule(p, m))
    assert ps.bubble_fraction(schedule) == ps.bubble_formula(p, m)


def test_table_of_a_pair_takes_two_slots_and_ends_as_one():
    schedule = ps.Schedule.from_rows(["0F0 (0F1;0B0)OVERLAP_F_B 0B1", "1F0 1B0 1F1 1B1"])
    assert schedule.table().tolist() == [
        [0, -1, -1, 1, 0, -1, -1, 1],
        [-1, 0, 0, -1, -1, 1, 1, -1],
    ]


def test_array_protocol():
    schedule = ps.generate("1f1b", 2, 2)
    assert np.array(schedule).shape == (2, 6)
    assert np.asarray(schedule, dtype=np.float32).dtype == np.float32
    with pytest.raises(ValueError, match="always a copy"):
        schedule.__array__(copy=False)
