"""Is a schedule complete, legal and free of deadlock? Each fault, its place and its words."""

import pickle
import tracemalloc

import numpy as np
import pytest
import reference
import reference_schedules
from hypothesis import given
from hypothesis import strategies as st
from strategies import broken_rows, legal_comms, legal_rows, to_rows, to_schedule, with_comms

import pipesched as ps


def fault_of(rows, blocking=False):
    with pytest.raises(ps.ScheduleError) as caught:
        ps.Schedule.from_rows(rows).check(blocking)
    return caught.value.fault


@pytest.mark.parametrize(
    ("rows", "code", "text"),
    [
        (
            ["0F0 0F1", "1F0"],
            "missing",
            "1F1 is missing",
        ),
        (
            ["0F0 0F1 0B0", "1F0 1F1 1B1 1B0"],
            "missing",
            "0B1 is missing: its forward 0F1 is at rank 0, op 1",
        ),
        (
            ["0F0 0F1 0F0"],
            "repeated",
            "rank 0, op 2: 0F0 stands already at rank 0, op 0",
        ),
        (
            ["0F0 0B0", "0B0"],
            "repeated",
            "rank 1, op 0: 0B0 stands already at rank 0, op 1",
        ),
        (
            ["0F0 0I0"],
            "split",
            "rank 0, op 1: 0I0 without its 0W0",
        ),
        (
            ["0F0 0W0"],
            "split",
            "rank 0, op 1: 0W0 without its 0I0",
        ),
        (
            ["0F0 0B0 0W0"],
            "split",
            "rank 0, op 2: 0W0 beside 0B0 (rank 0, op 1)",
        ),
        (
            ["0F0 0B0 0I0"],
            "split",
            "rank 0, op 2: 0I0 beside 0B0 (rank 0, op 1)",
        ),
        (
            ["0F0 1B0", "1F0 0B0"],
            "place",
            "rank 1, op 1: 0B0 is not on the rank of its forward 0F0 (rank 0, op 0)",
        ),
        (
            ["0F0 0I0", "0W0"],
            "place",
            "rank 1, op 0: 0W0 is not on the rank of its forward 0F0 (rank 0, op 0)",
        ),
        (
            ["0F0 0B0", "1B0 1F0"],
            "order",
            "rank 1, op 0: 1B0 before its forward 1F0 (op 1)",
        ),
        (
            ["0F0 0W0 0I0"],
            "order",
            "rank 0, op 1: 0W0 before its input gradient 0I0 (op 2)",
        ),
        (
            ["1F0 0F0"],
            "order",
            "rank 0, op 0: 1F0 before its input 0F0 (op 1)",
        ),
        (
            ["0F0 (0F1;0F2)OVERLAP_F_B"],
            "pair",
            "rank 0, op 1: (0F1;0F2)OVERLAP_F_B must be one F and one B or I",
        ),
        (
            ["0F0 (0F1;0B1)OVERLAP_F_B 0B0"],
            "pair",
            "rank 0, op 1: (0F1;0B1)OVERLAP_F_B depends on itself: 0B1 needs 0F1",
        ),
        (
            ["0F0 (0SEND_F0;0B0)OVERLAP_F_B", "1RECV_F0 1F0 1B0"],
            "pair",
            "rank 0, op 1: (0SEND_F0;0B0)OVERLAP_F_B must be one F and one B or I",
        ),
        (
            ["0F0", "1RECV_F0 1F0"],
            "transfer",
            "0SEND_F0 is missing on rank 0, for 0F0 (rank 0, op 0), whose result another rank "
            "needs",
        ),
        (
            ["0F0 0SEND_F0", "1F0"],
            "transfer",
            "1RECV_F0 is missing on rank 1, for 1F0 (rank 1, op 0), which needs it",
        ),
        (
            ["0SEND_F0 0F0", "1RECV_F0 1F0"],
            "transfer",
            "rank 0, op 0: 0SEND_F0 before 0F0 (rank 0, op 1)",
        ),
        (
            ["0F0 0SEND_F0", "1F0 1RECV_F0"],
            "transfer",
            "rank 1, op 1: 1RECV_F0 after 1F0 (rank 1, op 0)",
        ),
        (
            ["0F0 1RECV_F0", "1F0 0SEND_F0"],
            "transfer",
            "rank 0, op 1: 1RECV_F0 is not on the rank of 1F0 (rank 1, op 0)",
        ),
        (
            ["0F0 0SEND_F0 1RECV_F0 1F0"],
            "transfer",
            "rank 0, op 1: 0SEND_F0 carries nothing from one rank to another",
        ),
        (
            ["0F0", "1F0 1SEND_F0"],
            "transfer",
            "0SEND_F0 is missing on rank 0, for 0F0 (rank 0, op 0), whose result another rank "
            "needs",
        ),
        (
            ["0F0 0SEND_B0"],
            "transfer",
            "rank 0, op 1: 0SEND_B0 carries nothing from one rank to another",
        ),
    ],
)
def test_faults(rows, code, text):
    fault = fault_of(rows)
    assert (fault.code, fault.text) == (code, text)
    assert str(ps.ScheduleError(fault)) == text
    assert fault.cycle == ()


def test_fault_fields():
    fault = fault_of(["0F0 0B0", "1B0 1F0"])
    assert (fault.rank, fault.position, fault.op) == (1, 0, "1B0")
    assert (fault.other_rank, fault.other_position, fault.other) == (1, 1, "1F0")
    error = pickle.loads(pickle.dumps(ps.ScheduleError(fault)))
    assert isinstance(error, ValueError)
    assert error.fault == fault


def test_deadlock_names_the_whole_cycle():
    fault = fault_of(["0F0 0B0 0F1 0B1", "1F1 1B1 1F0 1B0"])
    assert fault.code == "deadlock"
    assert fault.cycle == ((0, 1, "0B0"), (1, 0, "1F1"))
    assert fault.text == (
        "deadlock: the ranks wait for each other in a circle: "
        "rank 0, op 1: 0B0 waits for 1B0 (rank 1, op 3); "
        "rank 1, op 0: 1F1 waits for 0F1 (rank 0, op 2)"
    )
    assert (fault.rank, fault.position, fault.op) == (0, 1, "0B0")
    assert (fault.other_rank, fault.other_position, fault.other) == (1, 3, "1B0")


def test_deadlock_of_a_pair_names_the_member_that_waits():
    # The pair's backward needs the pair's own forward, by way of the other rank.
    fault = fault_of(["0F0 (0F1;0B0)OVERLAP_F_B 0B1", "1F0 1F1 1B0 1B1"])
    assert fault.code == "deadlock"
    assert fault.cycle == ((0, 2, "0B0"), (1, 1, "1F1"))


@pytest.mark.parametrize(
    "rows",
    [
        ["0F0 0F1 0F2", "1F0 1F1 1F2"],
        ["0F0", ""],
        ["0F0 0B0"],
        ["0UNSHARD 0UNSHARD 0F0 0RESHARD 0I0 0W0 0REDUCE_GRAD"],
        ["0F0 1F1 0B0 1B1", "0F1 1F0 1B0 0B1"],
        ["0F0 3F0 3B0 0B0", "1F0 2F0 2B0 1B0"],
        ["0F0 0F1 (0F2;0B0)OVERLAP_F_B 0B1 0B2", "1F0 1B0 1F1 1B1 1F2 1B2"],
    ],
)
def test_legal(rows):
    schedule = ps.Schedule.from_rows(rows)
    assert schedule.check() is schedule
    assert schedule.check(blocking=True) is schedule


def compare(rows, num_stages, m, blocking):
    """The core finds a fault exactly where the twin does, and one that the twin finds too."""
    found = reference.faults(rows, num_stages, m, blocking)
    try:
        to_schedule(rows, num_stages, m).check(blocking)
    except ps.ScheduleError as error:
        fault = error.fault
        if fault.position < 0:
            assert (fault.code, None, -1) in found
            return fault
        starts = [fault.position]
        if fault.code == "deadlock":  # the twin names a pair by its first member
            starts.append(fault.position - 1)
            assert len(fault.cycle) >= 2
            assert fault.cycle[0] == (fault.rank, fault.position, fault.op)
            assert len({rank for rank, _, _ in fault.cycle}) == len(fault.cycle)
        assert any((fault.code, fault.rank, start) in found for start in starts)
        return fault
    assert found == []
    return None


@given(legal_rows(), st.booleans())
def test_legal_schedules_are_accepted(case, blocking):
    compare(*case, blocking)


@given(broken_rows(legal_rows()), st.booleans())
def test_broken_schedules_are_refused_as_the_twin_does(case, blocking):
    compare(*case, blocking)


@given(legal_comms(), st.booleans())
def test_transfers_as_the_twin_runs_them(case, blocking):
    compare(*case, blocking)


@given(broken_rows(legal_comms()), st.booleans())
def test_broken_transfers_are_refused_as_the_twin_does(case, blocking):
    compare(*case, blocking)


@pytest.mark.parametrize("family", list(ps.SCHEDULES))
def test_every_family_is_legal(family):
    for p, m in [(1, 1), (2, 8), (4, 8), (4, 16)]:
        try:
            schedule = ps.generate(family, p, m)
        except ValueError:
            continue  # the family's definition forbids it, which its own tests look at
        assert schedule.check() is schedule
        rows = to_rows(schedule)
        assert reference.check(rows, schedule.num_stages, schedule.num_microbatches) is None


def test_huge_numbers_take_no_memory():
    ops = np.array([(2**31 - 2, 2**31 - 2, 0, 0)], ps.OP_DTYPE)
    schedule = ps.Schedule.from_arrays(ops, [0, 1], 2**31 - 1, 2**31 - 1)
    tracemalloc.start()
    for use in (schedule.check, schedule.simulate, schedule.table, schedule.lower):
        with pytest.raises(ps.ScheduleError, match="0F0 is missing"):
            use()
    assert schedule.placement == ((2**31 - 2,),)
    assert "0F0 is missing" in str(schedule)
    assert "0F0 is missing" in schedule._repr_html_()
    assert tracemalloc.get_traced_memory()[1] < 10**7
    tracemalloc.stop()


# Reported elsewhere --------------------------------------------------------------------------


def test_interleaving_in_groups_smaller_than_the_ranks_is_a_cycle():
    """NVIDIA/Megatron-LM#1829: p=4 v=2 m=8 with groups of 2, in the strict order."""
    rows = reference_schedules.interleaved_1f1b(4, 8, 2, 2)
    fault = compare(rows, 8, 8, False)
    assert fault.code == "deadlock"
    assert [op for rank, _, op in fault.cycle if rank == 0] == ["4F3"]  # chunk 1, micro-batch 3
    for group in (4, 8):
        assert compare(reference_schedules.interleaved_1f1b(4, 8, 2, group), 8, 8, False) is None


@pytest.mark.parametrize(("p", "m"), [(8, 1), (4, 2), (2, 1), (1, 1), (5, 3)])
def test_fewer_microbatches_than_ranks_are_legal(p, m):
    """pytorch/torchtitan#775, huggingface/nanotron#347, HPDL-Group/Merak#4."""
    ps.generate("1f1b", p, m).check()


def test_interleaving_on_two_ranks_is_legal():
    """NVIDIA/Megatron-LM#750."""
    ps.generate("interleaved-1f1b", 2, 4, v=2).check()


def test_torch_interleaved_with_blocking_sends(data_dir):
    """pytorch/pytorch#172668: both ranks sit in a send, at the first micro-batches already."""
    text = (data_dir / "torch_csv" / "example_interleaved_2ranks_4mb_comms.csv").read_text()
    schedule = ps.Schedule.from_rows(text.splitlines())
    assert schedule.check() is schedule
    with pytest.raises(ps.ScheduleError) as caught:
        schedule.check(blocking=True)
    fault = caught.value.fault
    assert fault.code == "deadlock"
    assert [(rank, op) for rank, _, op in fault.cycle] == [(0, "0SEND_F1"), (1, "1SEND_F0")]


EXCHANGE = ["0F0 0SEND_F0 1RECV_F1 1F1", "0F1 0SEND_F1 1RECV_F0 1F0"]


def test_two_ranks_that_send_first():
    """NVIDIA/nccl#479: each rank sends, then receives."""
    fault = fault_of(EXCHANGE, blocking=True)
    assert fault.cycle == ((0, 1, "0SEND_F0"), (1, 1, "0SEND_F1"))
    ps.Schedule.from_rows(EXCHANGE).check()


def test_a_chain_that_sends_first():
    """NVIDIA/Megatron-LM#5100: the same along four ranks, forwards against backwards."""
    for p in (2, 4):
        rows = with_comms(to_rows(ps.generate("1f1b", p, 4)))
        fault = compare(rows, p, 4, True)
        assert fault.code == "deadlock"
        assert len(fault.cycle) == 2
        assert compare(rows, p, 4, False) is None


def test_three_ranks_in_a_circle():
    """Rank 0 sends to 2 first, 2 receives from 1 first, 1 waits for 0."""
    sends = "0F0 0F1 0SEND_F1 0SEND_F0"
    others = ["1RECV_F0 1F0 1SEND_F0", "2RECV_F0 1RECV_F1 2F0 1F1 2F1"]
    fault = fault_of([sends, *others], blocking=True)
    assert fault.cycle == ((0, 2, "0SEND_F1"), (2, 0, "2RECV_F0"), (1, 0, "1RECV_F0"))
    ps.Schedule.from_rows([sends, *others]).check()
    ps.Schedule.from_rows(["0F0 0F1 0SEND_F0 0SEND_F1", *others]).check(blocking=True)
