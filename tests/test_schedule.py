"""The Schedule itself: made from rows and arrays, compared, kept, shown."""

import copy
import gc
import pickle
import sys

import numpy as np
import pytest
from conftest import assert_read_only
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from strategies import legal_rows, to_schedule

import pipesched as ps

ROWS = [["0F0", "0F1", "0B0", "0B1"], ["1F0", "(1F1;1B0)OVERLAP_F_B", "1B1"]]


def test_parts():
    schedule = ps.Schedule.from_rows(ROWS, name="mine")
    assert (schedule.p, schedule.num_stages, schedule.num_microbatches) == (2, 2, 2)
    assert schedule.name == "mine"
    assert schedule.placement == ((0,), (1,))
    assert len(schedule) == 8
    assert schedule.offsets.tolist() == [0, 4, 8]
    assert schedule.offsets.dtype == np.int64
    assert schedule.ops.dtype == ps.OP_DTYPE
    assert schedule.ops.tolist()[4:] == [(1, 0, 0, 0), (1, 1, 0, 1), (1, 0, 1, 0), (1, 1, 1, 0)]
    assert schedule[1].tolist() == schedule.ops[4:].tolist()
    assert schedule[-1].tolist() == schedule[1].tolist()
    assert [len(ops) for ops in schedule] == [4, 4]
    assert schedule.rows() == ROWS
    assert not schedule.has_comms
    assert schedule.lower().has_comms
    with pytest.raises(IndexError, match=r"rank must be in 0\.\.1, got 2"):
        schedule[2]
    with pytest.raises(TypeError):
        schedule["0"]


def test_placements():
    place = {
        ("1f1b", 3, 4): ((0,), (1,), (2,)),
        ("interleaved-1f1b", 2, 4): ((0, 2), (1, 3)),
        ("zb-v", 2, 4): ((0, 3), (1, 2)),
        ("chimera", 2, 2): ((0, 1), (0, 1)),
    }
    for (name, p, m), expected in place.items():
        assert ps.generate(name, p, m).placement == expected


def test_repr_is_one_line():
    assert repr(ps.Schedule.from_rows(ROWS)) == (
        "<Schedule 'custom': 2 ranks, 2 stages, 2 micro-batches, 8 ops>"
    )
    assert repr(ps.Schedule.from_rows(["0F0"], name="one")) == (
        "<Schedule 'one': 1 rank, 1 stage, 1 micro-batch, 1 op>"
    )


@pytest.mark.parametrize("name", [3, None, b"one"])
def test_a_name_is_a_str(name):
    with pytest.raises(TypeError, match="name must be a str, got"):
        ps.Schedule.from_rows(["0F0"], name=name)
    with pytest.raises(TypeError, match="name must be a str, got"):
        ps.Schedule.from_arrays(np.zeros(1, ps.OP_DTYPE), [0, 1], 1, 1, name=name)


def test_immutable():
    schedule = ps.Schedule.from_rows(ROWS)
    with pytest.raises(TypeError, match=r"pipesched\.generate"):
        ps.Schedule()
    for name in ("ops", "offsets", "p", "num_stages", "num_microbatches", "name", "other", "_ops"):
        with pytest.raises(AttributeError, match="immutable"):
            setattr(schedule, name, 1)
        with pytest.raises(AttributeError, match="immutable"):
            delattr(schedule, name)
    for array in (schedule.ops, schedule.offsets, schedule[0]):
        assert_read_only(array)


def test_equality_is_of_content():
    schedule = ps.Schedule.from_rows(ROWS)
    same = ps.Schedule.from_rows([",".join(row) for row in ROWS], name="other")
    assert schedule == same
    assert hash(schedule) == hash(same)
    assert len({schedule, same}) == 1
    others = [
        ps.Schedule.from_rows([*ROWS, []]),
        ps.Schedule.from_rows([[*ROWS[0], "0UNSHARD"], ROWS[1]]),
        ps.Schedule.from_rows([ROWS[0], ["1F0", "1F1", "1B0", "1B1"]]),
        ps.Schedule.from_rows([ROWS[1], ROWS[0]]),
        ps.Schedule.from_arrays(schedule.ops, schedule.offsets, 3, 2),
        ps.Schedule.from_arrays(schedule.ops, schedule.offsets, 2, 3),
    ]
    assert len({schedule, *others}) == 1 + len(others)
    assert all(schedule != other for other in others)
    assert schedule != ROWS
    assert schedule != 3


@given(legal_rows())
def test_rows_and_pickle_keep_everything(case):
    schedule = to_schedule(*case)
    assert ps.Schedule.from_rows(schedule.rows()) == schedule
    assert ps.Schedule.from_rows([" ".join(row) for row in schedule.rows()]) == schedule
    kept = pickle.loads(pickle.dumps(schedule))
    assert kept == schedule
    assert kept.name == schedule.name
    assert not kept.ops.flags.writeable
    assert copy.deepcopy(schedule) == schedule
    assert copy.copy(schedule) == schedule


def test_rows_of_every_kind():
    row = ["0UNSHARD", "0RECV_F0", "0F0", "0SEND_F0", "0RECV_B0", "0B0", "0SEND_B0", "1F10", "1I10"]
    row += ["1W10", "0REDUCE_GRAD", "12RESHARD", "(3F1;4B2)OVERLAP_F_B"]
    schedule = ps.Schedule.from_rows([row])
    assert schedule.rows() == [row]
    assert set(schedule.ops["kind"].tolist()) == set(range(len(ps.KINDS)))
    assert schedule.ops["microbatch"][0] == -1


@pytest.mark.parametrize(
    "rows",
    [
        ["0F0 0F1", "1F0 1F1"],
        ["0F0,0F1", "1F0,1F1"],
        [" 0F0 ,\t0F1, ", ",,1F0,,1F1"],
        [["0F0", None, "0F1"], ["", " 1F0 ", "1F1"]],
        [("0F0", "0F1"), iter(["1F0", "1F1"])],
        (row for row in ("0F0 0F1", "1F0 1F1")),
        [np.array(["0F0", "0F1"]), ["1F0", "1F1"]],
        ["00F0 0F01", "1F0 1F1"],
    ],
)
def test_ways_to_write_rows(rows):
    assert ps.Schedule.from_rows(rows).rows() == [["0F0", "0F1"], ["1F0", "1F1"]]


def test_spaces_in_a_pair():
    rows = ps.Schedule.from_rows(["0F0 ( 0F1 ; 0B0 ) OVERLAP_F_B".replace(") ", ")")]).rows()
    assert rows == [["0F0", "(0F1;0B0)OVERLAP_F_B"]]
    assert ps.Schedule.from_rows([["( 0F1 ; 0B0 ) OVERLAP_F_B"]]).rows() == [rows[0][1:]]


@pytest.mark.parametrize(
    ("rows", "error", "text"),
    [
        (["0F0", "1F0 1X0"], ValueError, "row 2 (rank 1), column 2: '1X0' is not an action"),
        ([["0F0", None, "F1"]], ValueError, "row 1 (rank 0), column 3: 'F1' is not an action"),
        (["0F"], ValueError, "'0F' is not an action"),
        (["0F1x"], ValueError, "'0F1x' is not an action"),
        (["0f1"], ValueError, "'0f1' is not an action"),
        (["-1F1"], ValueError, "'-1F1' is not an action"),
        (["0UNSHARD1"], ValueError, "'0UNSHARD1' is not an action"),
        (["0F\u0661"], ValueError, "is not an action"),
        (["(0F0;0B0)"], ValueError, "is not an action"),
        (["(0F0)OVERLAP_F_B"], ValueError, "is not an action"),
        (["(0F0;0B0;0F1)OVERLAP_F_B"], ValueError, "is not an action"),
        (["((0F0;0B0)OVERLAP_F_B;0F1)OVERLAP_F_B"], ValueError, "is not an action"),
        (["(0F0;0B0"], ValueError, "is not an action"),
        ([["\ud800"]], ValueError, "is not an action"),
        ([["0F0\0"]], ValueError, "is not an action"),
        ([["x" * 1000]], ValueError, "xxx...' is not an action"),
        ([["0F0", "0F1,0F2"]], ValueError, "column 2: '0F1,0F2' is not one action"),
        ([["0F0", "0F1\n0F2"]], ValueError, "column 2: '0F1\\n0F2' is not one action"),
        (["0F2147483647"], ValueError, "'0F2147483647' has a number above 2147483646"),
        (["9" * 50 + "F0"], ValueError, "has a number above 2147483646"),
        (["(0F0;0B9999999999)OVERLAP_F_B"], ValueError, "has a number above 2147483646"),
        (["0F0 0BW0"], ValueError, "column 2: '0BW0' is a word of files from before December"),
        ([], ValueError, "a schedule must have at least one op, got none"),
        ([[], [None, " "]], ValueError, "a schedule must have at least one op, got none"),
        ("0F0", TypeError, "rows must be one row for each rank, got one str"),
        (b"0F0", TypeError, "rows must be one row for each rank, got one bytes"),
        (7, TypeError, "one row for each rank, got one int"),
        (["0F0", 7], TypeError, "row 2 must be words or one str, got int"),
        ([b"0F0"], TypeError, "row 1 must be words or one str, got bytes"),
        ([["0F0", 7]], TypeError, "column 2: a word must be a str or None, got int"),
    ],
)
def test_bad_rows(rows, error, text):
    with pytest.raises(error) as caught:
        ps.Schedule.from_rows(rows)
    assert text in str(caught.value)


# Arrays --------------------------------------------------------------------------------------


def ops_of(*records):
    return np.array(list(records), ps.OP_DTYPE)


def test_arrays_are_copied():
    ops, offsets = ops_of((0, 0, 0, 0), (0, 1, 0, 0)), np.array([0, 2])
    schedule = ps.Schedule.from_arrays(ops, offsets, 1, 2, name="mine")
    ops["stage"] = 7
    offsets[1] = 1
    assert schedule.rows() == [["0F0", "0F1"]]
    assert schedule.name == "mine"
    assert ops.flags.writeable


def test_arrays_of_other_layouts():
    plain = ops_of((0, 0, 0, 0), (0, 1, 0, 0))
    expected = ps.Schedule.from_arrays(plain, [0, 2], 1, 2)
    wide = plain.astype([(name, "i8") for name in ps.OP_DTYPE.names])
    swapped = plain.astype([(name, ">u4") for name in ps.OP_DTYPE.names])
    strided = np.repeat(plain, 2)[::2]
    for ops in (wide, swapped, strided):
        for offsets in ([0, 2], np.array([0, 2], np.uint8), np.array([0, 0, 2, 2])[1:3]):
            assert ps.Schedule.from_arrays(ops, offsets, np.int8(1), 2) == expected


@pytest.mark.parametrize(
    ("record", "code", "text"),
    [
        ((0, 0, 11, 0), "range", "kind must be in 0..10, got 11"),
        ((0, 0, -1, 0), "range", "kind must be in 0..10, got -1"),
        ((2, 0, 0, 0), "range", "2F0: stage must be in 0..1, got 2"),
        ((-1, 0, 0, 0), "range", "-1F0: stage must be in 0..1, got -1"),
        ((0, 3, 1, 0), "range", "0B3: micro-batch must be in 0..2, got 3"),
        ((0, -1, 1, 0), "range", "0B-1: micro-batch must be in 0..2, got -1"),
        ((0, 0, 8, 0), "range", "0UNSHARD0: micro-batch must be -1 for a whole stage, got 0"),
        ((0, 0, 0, 2), "range", "0F0: fuse must be 0 or 1, got 2"),
        ((0, 0, 0, 1), "pair", "0F0 opens an overlapped pair that does not have two members"),
    ],
)
def test_ops_out_of_range(record, code, text):
    with pytest.raises(ps.ScheduleError) as caught:
        ps.Schedule.from_arrays(ops_of((0, 0, 0, 0), record), [0, 1, 2], 2, 3)
    fault = caught.value.fault
    assert (fault.code, fault.text) == (code, f"rank 1, op 0: {text}")
    assert (fault.rank, fault.position) == (1, 0)


def test_three_in_a_pair():
    with pytest.raises(ps.ScheduleError, match="rank 0, op 1: 0B0 opens an overlapped pair"):
        ps.Schedule.from_arrays(ops_of((0, 1, 0, 1), (0, 0, 1, 1), (0, 2, 0, 0)), [0, 3], 1, 3)


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"ops": [1, 2]}, TypeError, "ops must be a 1-D array with the fields stage, microbatch"),
        ({"ops": None}, TypeError, "ops must be a 1-D array with the fields"),
        ({"ops": np.zeros((2, 1), ps.OP_DTYPE)}, TypeError, "got 2-D"),
        (
            {"ops": np.zeros(2, [(name, "f8") for name in ps.OP_DTYPE.names])},
            TypeError,
            "ops['stage'] must be a 1-D array of int, got float64",
        ),
        (
            {"ops": np.full(2, 2**40, [(name, "i8") for name in ps.OP_DTYPE.names])},
            ValueError,
            "ops['stage'] must be in -2147483648..2147483647",
        ),
        ({"offsets": [0]}, ValueError, "offsets must have p + 1 entries for p >= 1 ranks, got 1"),
        ({"offsets": []}, TypeError, "offsets must be a 1-D array of int, got 1-D of float64"),
        ({"offsets": [0, 1]}, ValueError, "offsets must end at the number of ops, 2, got 1"),
        ({"offsets": [1, 2]}, ValueError, "offsets must start at 0 and must not fall"),
        ({"offsets": [0, 2, 1, 2]}, ValueError, "offsets must start at 0 and must not fall"),
        ({"offsets": [0.0, 2.0]}, TypeError, "offsets must be a 1-D array of int"),
        ({"offsets": [[0, 2]]}, TypeError, "offsets must be a 1-D array of int, got 2-D"),
        ({"offsets": np.array([0, 2**64 - 1], "u8")}, ValueError, "above 2**63 - 1"),
        ({"num_stages": 0}, ValueError, "num_stages must be in 1..2147483647, got 0"),
        ({"num_stages": 2**31}, ValueError, "num_stages must be in 1..2147483647"),
        ({"num_stages": 1.0}, TypeError, "num_stages must be an int, got float"),
        ({"num_microbatches": "2"}, TypeError, "num_microbatches must be an int, got str"),
        ({"name": 3}, TypeError, "name must be a str, got int"),
    ],
)
def test_bad_arrays(changes, error, text):
    good = {
        "ops": ops_of((0, 0, 0, 0), (0, 1, 0, 0)),
        "offsets": [0, 2],
        "num_stages": 1,
        "num_microbatches": 2,
    }
    with pytest.raises(error) as caught:
        ps.Schedule.from_arrays(**{**good, **changes})
    assert text in str(caught.value)


# Anything at all -------------------------------------------------------------------------------

small = st.one_of(st.integers(-2, 4), st.sampled_from([2**15 - 1, 2**31 - 1, -(2**31)]))


@given(
    st.lists(
        st.tuples(
            small,
            small,
            st.one_of(st.integers(-1, 11), st.sampled_from([2**15 - 1])),
            st.integers(-1, 2),
        ),
        max_size=12,
    ),
    st.lists(st.integers(-1, 12), max_size=5),
    st.integers(-1, 4),
    st.integers(-1, 4),
    st.booleans(),
)
def test_any_arrays(records, offsets, num_stages, num_microbatches, blocking):
    records = [(stage, microbatch, kind, fuse) for stage, microbatch, kind, fuse in records]
    try:
        schedule = ps.Schedule.from_arrays(
            np.array(records, ps.OP_DTYPE),
            np.array([0, *sorted(offsets), len(records)]),
            num_stages,
            num_microbatches,
        )
        schedule.check(blocking)
        schedule.lower().check(blocking=True)
        schedule.table()
    except ValueError:
        return
    assert schedule.num_stages * schedule.num_microbatches <= len(schedule)


@given(hnp.arrays(hnp.array_dtypes(), hnp.array_shapes(max_dims=2, max_side=3)))
def test_any_dtype(array):
    with pytest.raises((TypeError, ValueError)):
        ps.Schedule.from_arrays(array, [0, len(array)], 1, 1)


words = st.one_of(
    st.none(),
    st.from_regex(r"\(?[0-9]{0,2}[FBIW]?[0-9]{0,2}(;0B0\)OVERLAP_F_B)?", fullmatch=True),
    st.text(alphabet='0123456789FBIWSENDRCV_();, "\r\n', max_size=12),
    st.text(max_size=8),
)


@given(st.lists(st.one_of(st.lists(words, max_size=4), st.text(max_size=12)), max_size=4))
def test_any_rows(rows):
    try:
        schedule = ps.Schedule.from_rows(rows)
    except ValueError:
        return
    assert ps.Schedule.from_rows(schedule.rows()) == schedule
    assert schedule.p == len(rows)


class Impostor:
    """What is no Schedule, but has what the core reads of one."""

    def __init__(self, **changes):
        good = ps.Schedule.from_rows(ROWS)
        for name in ("ops", "offsets", "num_stages", "num_microbatches"):
            setattr(self, name, changes.get(name, getattr(good, name)))


@pytest.mark.parametrize(
    "changes",
    [
        {"ops": np.zeros(8, ps.OP_DTYPE)},
        {"ops": None},
        {"ops": np.zeros(8, "i4")},
        {"offsets": np.array([0, 8])},
        {"offsets": np.array([0, 4, 9])},
        {"offsets": np.array([0, 9, 8])},
        {"offsets": np.array([0], np.int64)},
        {"num_stages": 0},
        {"num_stages": 2**31},
        {"num_stages": 2**70},
        {"num_stages": "2"},
        {"num_microbatches": None},
    ],
)
def test_the_core_trusts_no_impostor(changes):
    from pipesched import _core

    for name in ("offsets",):
        if name in changes and changes[name].shape != (2,):
            changes[name].flags.writeable = False
    for function in (_core.check_form, _core.check_unique, _core.lower, _core.slot_table):
        with pytest.raises((TypeError, ValueError)):
            function(Impostor(**changes))
    with pytest.raises((TypeError, ValueError)):
        _core.check(Impostor(**changes), False)
    with pytest.raises((TypeError, ValueError)):
        _core.format_words(Impostor(**changes))
    with pytest.raises(AttributeError):
        _core.check_form(3)


def test_error_paths_leak_nothing():
    """Every way to fail, again and again: the memory in use does not grow."""
    missing = ps.Schedule.from_rows(["0F0 0F1", "1F0"])
    waiting = ps.Schedule.from_rows(["0F0 0B0 0F1 0B1", "1F1 1B1 1F0 1B0"])

    def fail():
        for call in (
            missing.check,
            missing.lower,
            missing.table,
            waiting.check,
            waiting.lower,
            lambda: ps.Schedule.from_rows(["0F0 0X0"]),
            lambda: ps.Schedule.from_rows([["0F0", "0F1,0F2"]]),
            lambda: ps.Schedule.from_arrays(ops_of((0, 0, 0, 1)), [0, 1], 1, 1),
            lambda: ps.Schedule.from_arrays(ops_of((0, 0, 0, 0)), [0, 2], 1, 1),
        ):
            with pytest.raises(ValueError):  # noqa: PT011 - each has its own test
                call()

    for _ in range(50):
        fail()
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(1000):
        fail()
    gc.collect()
    assert sys.getallocatedblocks() - before < 500  # a leak on one path is 1000 or more
