"""The exercise: the table, the bubble counted, the bubble by formula."""

import inspect
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pipesched as ps
from pipesched import _core

INT64_MAX = 2**63 - 1
SIGNED = ["i1", "i2", "i4", "i8"]


def table_of(p, m):
    """The definition: rank r does micro-batch j in slot r + j."""
    table = np.full((p, m + p - 1), -1)
    for rank in range(p):
        for j in range(m):
            table[rank, rank + j] = j
    return table


@pytest.fixture(params=sorted(_core._table_kernels()))
def kernels(request):
    """Every way in which this CPU can run the loops, one after the other."""
    before = _core._table_kernels()[0]
    assert _core._table_kernels(request.param)[0] == request.param
    yield request.param
    _core._table_kernels(before)


class Index:
    """What has __index__ and nothing else."""

    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


# ---- the table -----------------------------------------------------------------


def test_the_exercise_itself():
    table = ps.gpipe_forward_schedule(3, 2)
    assert table.tolist() == [[0, 1, -1, -1], [-1, 0, 1, -1], [-1, -1, 0, 1]]
    assert ps.bubble_fraction(table) == ps.bubble_formula(3, 2) == 0.5


def test_every_small_size(kernels):
    for p in range(1, 65):
        for m in range(1, 65):
            table = ps.gpipe_forward_schedule(p, m)
            assert np.array_equal(table, table_of(p, m)), (p, m)
            assert ps.bubble_fraction(table) == ps.bubble_formula(p, m), (p, m)


@given(st.integers(1, 300), st.integers(1, 300))
def test_the_bubble_counted_is_the_bubble_by_formula(p, m):
    table = ps.gpipe_forward_schedule(p, m)
    assert np.array_equal(table, table_of(p, m))
    assert ps.bubble_fraction(table) == ps.bubble_formula(p, m)


def test_the_table_is_a_new_plain_array():
    one, two = ps.gpipe_forward_schedule(4, 8), ps.gpipe_forward_schedule(4, 8)
    assert type(one) is np.ndarray
    assert one.dtype == np.int64
    assert one.shape == (4, 11)
    assert one.flags.c_contiguous
    assert one.flags.writeable
    assert one.flags.owndata
    assert not np.shares_memory(one, two)
    one[:] = 7
    assert two[0, 0] == 0


@pytest.mark.parametrize(("p", "m"), [(1, 1), (1, 9), (9, 1), (7, 3)])
def test_few_ranks_or_micro_batches(p, m):
    assert np.array_equal(ps.gpipe_forward_schedule(p, m), table_of(p, m))


@pytest.mark.parametrize(
    "three", [3, np.int8(3), np.uint64(3), np.array(3), Index(3)], ids=lambda x: type(x).__name__
)
def test_anything_with_index_is_a_number(three):
    assert np.array_equal(ps.gpipe_forward_schedule(three, three), table_of(3, 3))
    assert ps.bubble_formula(three, three) == 0.4


def test_true_is_one_as_everywhere_in_python():
    assert ps.gpipe_forward_schedule(True, 2).shape == (1, 2)


@pytest.mark.parametrize("call", [ps.gpipe_forward_schedule, ps.bubble_formula])
class TestCounts:
    """p and m of the two functions that take them."""

    def test_signature_and_names(self, call):
        assert str(inspect.signature(call)) == "(p, m)"
        assert np.array_equal(call(m=2, p=3), call(3, 2))
        assert np.array_equal(call(3, m=2), call(3, 2))

    @pytest.mark.parametrize("bad", [0, -1, -(2**63), Index(0), np.int64(-5), False])
    def test_less_than_one(self, call, bad):
        value = int(bad.__index__())
        with pytest.raises(ValueError, match=rf"^p must be at least 1, got {value}$"):
            call(bad, 2)
        with pytest.raises(ValueError, match=rf"^m must be at least 1, got {value}$"):
            call(2, bad)

    @pytest.mark.parametrize("bad", [-(2**63) - 1, -(10**5000)], ids=["just", "far"])
    def test_less_than_any_int64(self, call, bad):
        with pytest.raises(ValueError, match="p must be at least 1"):
            call(bad, 2)
        with pytest.raises(ValueError, match="m must be at least 1"):
            call(2, bad)

    @pytest.mark.parametrize(
        "bad",
        [2.0, 2.5, "2", None, [2], 2j, np.float64(2), np.array([2]), np.array(2.0)],
        ids=lambda x: type(x).__name__,
    )
    def test_not_a_number(self, call, bad):
        with pytest.raises(TypeError, match="p must be an integer, got"):
            call(bad, 2)
        with pytest.raises(TypeError, match="m must be an integer, got"):
            call(2, bad)

    def test_an_index_that_fails(self, call):
        class Fails:
            def __index__(self):
                raise RuntimeError("not today")

        with pytest.raises(RuntimeError, match="not today"):
            call(2, Fails())

    def test_wrong_calls(self, call):
        name = call.__name__
        with pytest.raises(TypeError, match=rf"{name}\(\) missing required argument 'm'"):
            call(2)
        with pytest.raises(TypeError, match="missing required argument 'p'"):
            call(m=2)
        with pytest.raises(TypeError, match="takes 2 positional arguments but 3 were given"):
            call(2, 3, 4)
        with pytest.raises(TypeError, match="unexpected keyword argument 'n'"):
            call(2, n=3)
        with pytest.raises(TypeError, match="multiple values for argument 'p'"):
            call(2, p=3)


def largest_m(p, cells):
    """The largest m for which p * (m + p - 1) stays within cells."""
    return cells // p - p + 1


ADDRESSABLE = INT64_MAX // 8  # cells of 8 bytes


@pytest.mark.parametrize(
    ("p", "m"),
    [
        (INT64_MAX, INT64_MAX),  # m + p - 1 overflows
        (2, INT64_MAX),  # by one
        (INT64_MAX, 2),
        (INT64_MAX, 1),  # p * p does
        (2**32, 2**32),
        (3037000500, 1),  # p * p just does
        (1, INT64_MAX),  # only the bytes do
        (1, ADDRESSABLE + 1),  # by one cell
        (3, largest_m(3, ADDRESSABLE) + 1),
        (2**63, 1),  # not even an int64
        (1, 2**64 + 1),
        (10**4000, 10**4000),
    ],
    ids=lambda x: f"{x:.3g}" if x < 2**64 else "huge",
)
def test_a_table_that_cannot_be_addressed(p, m):
    with pytest.raises(OverflowError, match="cannot be addressed"):
        ps.gpipe_forward_schedule(p, m)


@pytest.mark.parametrize(("p", "m"), [(1, ADDRESSABLE), (3, largest_m(3, ADDRESSABLE)), (2**29, 1)])
def test_a_table_larger_than_any_machine(p, m):
    with pytest.raises(MemoryError):
        ps.gpipe_forward_schedule(p, m)


# ---- the bubble counted ------------------------------------------------------------


def test_fraction_signature():
    assert str(inspect.signature(ps.bubble_fraction)) == "(schedule)"
    assert ps.bubble_fraction(schedule=[[0, -1]]) == 0.5
    assert type(ps.bubble_fraction([[0, -1]])) is float


def fraction_of(array):
    return int((np.asarray(array) == -1).sum()) / array.size


def layouts(array):
    """The same table, and parts of it, in every layout NumPy has."""
    yield array
    yield array.T
    yield np.asfortranarray(array)
    yield array[::-1]
    yield array[:, ::-1]
    yield array[::-1, ::-1].T
    yield array[::2, ::3]
    yield array[1:, 1:]
    yield array[:, :1]
    yield array[:1]
    yield array[-1:, -1:]
    yield np.broadcast_to(array[0], array.shape)
    yield np.broadcast_to(array[:, :1], array.shape)
    yield np.broadcast_to(array[0, 0], array.shape)
    spaced = np.zeros(array.shape, [("pad", "i1"), ("cell", array.dtype)])  # unaligned
    spaced["cell"] = array
    yield spaced["cell"]


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("width", SIGNED)
def test_every_layout_and_width(kernels, width, order):
    rng = np.random.default_rng(7)
    for shape in [(2, 3), (5, 8), (16, 67), (67, 131)]:
        array = rng.integers(-3, 3, shape).astype(order + width)
        for view in layouts(array):
            assert ps.bubble_fraction(view) == fraction_of(view), (shape, view.strides)


@pytest.mark.parametrize("width", SIGNED)
def test_numbers_that_are_nearly_minus_one(kernels, width):
    info = np.iinfo(width)
    bits = 8 * np.dtype(width).itemsize
    flipped = [-1 ^ (1 << bit) for bit in range(bits - 1)]
    row = np.array([info.min, info.max, 0, 1, -2, *flipped], width)
    assert ps.bubble_fraction(np.tile(row, (3, 7))) == 0.0
    assert ps.bubble_fraction(np.full((3, 77), -1, width)) == 1.0


@pytest.mark.parametrize("width", ["u1", "u2", "u4", "u8"])
def test_unsigned_cells_are_never_idle(width):
    assert ps.bubble_fraction(np.full((3, 5), np.iinfo(width).max, width)) == 0.0


@pytest.mark.parametrize("code", np.typecodes["AllInteger"])
def test_every_integer_type(code):
    array = np.ones((4, 5), code)
    if np.issubdtype(array.dtype, np.signedinteger):
        array[1, 2:] = -1
    assert ps.bubble_fraction(array) == fraction_of(array)


@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from(SIGNED), st.randoms())
def test_a_random_table(rows, columns, width, random):
    cells = [[random.randint(-2, 1) for _ in range(columns)] for _ in range(rows)]
    idle = sum(cell == -1 for row in cells for cell in row)
    assert ps.bubble_fraction(cells) == idle / (rows * columns)
    assert ps.bubble_fraction(np.array(cells, width)) == idle / (rows * columns)


def test_what_numpy_makes_an_array_of():
    class Table:
        def __array__(self, dtype=None, copy=None):
            return ps.gpipe_forward_schedule(3, 2)

    assert ps.bubble_fraction(Table()) == 0.5
    assert ps.bubble_fraction(((0, -1), (-1, 0))) == 0.5
    assert ps.bubble_fraction(memoryview(ps.gpipe_forward_schedule(3, 2))) == 0.5
    assert ps.bubble_fraction([np.array([0, -1]), [1, 2]]) == 0.25


def test_the_input_is_neither_changed_nor_copied():
    array = ps.gpipe_forward_schedule(64, 1024)
    before = array.copy()
    array.flags.writeable = False
    for view in (array, array.T, array[::2, ::-3], array.view(array.dtype.newbyteorder())):
        tracemalloc.start()
        ps.bubble_fraction(view)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2000
    assert np.array_equal(array, before)


def test_a_table_that_is_far_larger_than_memory():
    row = np.array([0, -1, -1, -1], np.int8)
    assert ps.bubble_fraction(np.broadcast_to(row, (2**60, 4))) == 0.75
    assert ps.bubble_fraction(np.broadcast_to(np.int8(-1), (2**30, 2**32))) == 1.0


@pytest.mark.parametrize(
    ("bad", "axes"),
    [([1, 2], "1 axis"), (3, "0 axes"), (np.zeros((2, 2, 2), int), "3 axes")],
    ids=["row", "number", "cube"],
)
def test_not_two_axes(bad, axes):
    with pytest.raises(ValueError, match=f"must have two axes, ranks and slots, got {axes}"):
        ps.bubble_fraction(bad)


@pytest.mark.parametrize(
    "bad", [[], [[]], [[], []], np.empty((0, 3), int), np.empty((3, 0), np.int8)], ids=repr
)
def test_empty(bad):
    with pytest.raises(ValueError, match="got an empty table"):
        ps.bubble_fraction(bad)


def test_rows_of_different_lengths():
    with pytest.raises(ValueError, match=r"schedule.*different lengths"):
        ps.bubble_fraction([[0, 1], [1]])


@pytest.mark.parametrize(
    "bad",
    [
        [[0.0, -1.0]],
        [[True, False]],
        [[0, None]],
        [["0", "-1"]],
        [[0, -1j]],
        [[2**64, -1]],
        [[0, np.timedelta64(1, "s")]],
        np.zeros((2, 2), [("a", int)]),
        "schedule",
        None,
        object(),
        {0: 1},
    ],
    ids=repr,
)
def test_not_integers(bad):
    with pytest.raises(TypeError, match="schedule must hold integers"):
        ps.bubble_fraction(bad)


def test_an_array_method_that_fails():
    class Fails:
        def __array__(self, dtype=None, copy=None):
            raise RuntimeError("not today")

    with pytest.raises(RuntimeError, match="not today"):
        ps.bubble_fraction(Fails())


def test_fraction_wrong_calls():
    with pytest.raises(TypeError, match="missing required argument 'schedule'"):
        ps.bubble_fraction()
    with pytest.raises(TypeError, match="takes 1 positional argument but 2 were given"):
        ps.bubble_fraction([[0]], [[0]])
    with pytest.raises(TypeError, match="unexpected keyword argument 'table'"):
        ps.bubble_fraction(table=[[0]])


# ---- the bubble by formula -----------------------------------------------------------


def rounded(p, m):
    return float(Fraction(p - 1, m + p - 1))


EDGES = sorted(
    {1, 2, 3} | {2**e + d for e in (31, 32, 52, 53, 54, 61, 62, 63, 64, 100) for d in (-1, 0, 1)}
)


@pytest.mark.parametrize("p", EDGES)
def test_formula_at_the_edges(p):
    for m in EDGES:
        assert ps.bubble_formula(p, m) == rounded(p, m), (p, m)


@given(st.integers(1, 2**70), st.integers(1, 2**70))
def test_formula_is_exact(p, m):
    assert ps.bubble_formula(p, m) == rounded(p, m)
    assert type(ps.bubble_formula(p, m)) is float


@given(st.integers(1, 2**2000), st.integers(1, 2**2000))
def test_formula_is_exact_for_any_integers(p, m):
    assert ps.bubble_formula(p, m) == rounded(p, m)


def test_formula_where_no_double_could_hold_the_numbers():
    assert ps.bubble_formula(10**5000, 10**5000) == 0.5
    assert ps.bubble_formula(1, 10**5000) == 0.0
    assert ps.bubble_formula(2, 10**5000) == 0.0
    assert ps.bubble_formula(10**5000, 1) == 1.0


def test_kernels():
    names = _core._table_kernels()
    assert "plain" in names
    assert len(set(names)) == len(names)
    with pytest.raises(ValueError, match="no kernels named 'mmx'"):
        _core._table_kernels("mmx")
