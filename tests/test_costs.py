"""Costs: what they take, what they refuse by name, and that they are frozen."""

import copy
import pickle
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from conftest import assert_read_only
from hypothesis import given
from hypothesis import strategies as st

import pipesched as ps

NUMERIC = (
    "forward",
    "backward",
    "backward_input",
    "backward_weight",
    "overlap",
    "transfer",
    "transfer_backward",
    "microbatch_scale",
    "activation",
    "activation_kept",
    "static",
)


def with_one(name, value):
    """Costs with one argument given, and its other half where it has one."""
    other = {"backward_input": "backward_weight", "backward_weight": "backward_input"}.get(name)
    return ps.Costs(**{name: value}, **({other: 1.0} if other else {}))


def test_the_defaults():
    costs = ps.Costs()
    assert (costs.forward, costs.backward) == (1.0, 2.0)
    assert (costs.backward_input, costs.backward_weight) == (1.0, 1.0)
    assert costs.overlap is costs.microbatch_scale is costs.batch is None
    assert (costs.transfer, costs.transfer_backward) == (0.0, 0.0)
    assert (costs.activation, costs.activation_kept, costs.static) == (1.0, 1.0, 0.0)
    assert costs.link == "free"


def test_what_follows_from_what():
    assert ps.Costs(3).backward == 6
    assert ps.Costs([1, 2]).backward.tolist() == [2, 4]
    assert ps.Costs(backward=5).backward_input == 2.5
    parts = ps.Costs(backward_input=[1, 2], backward_weight=3)
    assert parts.backward.tolist() == [4, 5]
    batched = ps.Costs(backward_input=[1, 2], backward_weight=[[1], [2]])
    assert batched.backward.tolist() == [[2, 3], [3, 4]]
    assert ps.Costs(transfer=[1, 2]).transfer_backward.tolist() == [1, 2]
    assert ps.Costs(activation=7).activation_kept == 7


@pytest.mark.parametrize("name", NUMERIC)
@pytest.mark.parametrize("bad", [-1.0, -1e-300, float("nan"), float("inf"), -float("inf")])
def test_a_number_out_of_bounds_is_named(name, bad):
    for value, where in (
        (bad, ""),
        ([1.0, bad], " at index 1"),
        ([[1.0], [bad]], " at index 1, 0"),
    ):
        if name == "microbatch_scale" and not where:
            continue
        with pytest.raises(ValueError, match=rf"^{name} must be finite and not negative, got .*"):
            with_one(name, value)
        with pytest.raises(ValueError, match=rf"{where}$"):
            with_one(name, value)


@pytest.mark.parametrize("name", NUMERIC)
@pytest.mark.parametrize(
    "bad",
    ["1", b"1", ["1"], [None], [1, "2"], True, [True], 1j, [1j], object(), {1: 2}, [[1], [2, 3]],
     np.datetime64("2020-01-01"), np.array(["1"], object), np.array([Decimal(1)], object)],
    ids=repr,
)  # fmt: skip
def test_what_is_no_number_is_named(name, bad):
    with pytest.raises(TypeError, match=rf"^{name} must be a number or an array of numbers, got"):
        with_one(name, bad)


@pytest.mark.parametrize("name", NUMERIC)
def test_too_many_axes_and_too_large(name):
    with pytest.raises(ValueError, match=rf"^{name} must be a number, a 1-D .* got 3 dimensions"):
        with_one(name, np.ones((1, 1, 1)))
    for huge in (10**400, [10**400]):
        with pytest.raises(ValueError, match=rf"^{name} must fit a 64-bit float"):
            with_one(name, huge)


def test_arguments_that_do_not_go_together():
    with pytest.raises(ValueError, match="backward_input is given without backward_weight"):
        ps.Costs(backward_input=1)
    with pytest.raises(ValueError, match="backward_weight is given without backward_input"):
        ps.Costs(backward_weight=1)
    with pytest.raises(ValueError, match="backward is given together with"):
        ps.Costs(backward=1, backward_input=1, backward_weight=1)
    with pytest.raises(ValueError, match=r"one length, got shapes \(2,\) and \(3,\)"):
        ps.Costs(backward_input=[1, 2], backward_weight=[1, 2, 3])
    with pytest.raises(ValueError, match=r"batch axes .* got forward 2, transfer 3"):
        ps.Costs(forward=[[1], [2]], backward=1, transfer=[[1], [2], [3]], transfer_backward=0)
    with pytest.raises(ValueError, match=r"batch axes .* got forward 2, .*static 1$"):
        ps.Costs(forward=[[1], [2]], static=[[1]])
    with pytest.raises(ValueError, match="microbatch_scale must have one value a micro-batch"):
        ps.Costs(microbatch_scale=2.0)
    with pytest.raises(ValueError, match="'free' or 'serial', got 'slow'"):
        ps.Costs(link="slow")
    with pytest.raises(TypeError, match="'free' or 'serial', got bool"):
        ps.Costs(link=True)
    with pytest.raises(ValueError, match=r"backward \(2 \* forward\) is infinite"):
        ps.Costs(forward=1e308)
    with pytest.raises(ValueError, match=r"backward_input \+ backward_weight is infinite"):
        ps.Costs(backward_input=1e308, backward_weight=1e308)


@pytest.mark.parametrize(
    "value",
    [2, np.int8(2), np.float32(2), Fraction(2), np.array(2), np.uint64(2)],
    ids=lambda value: type(value).__name__,
)
def test_every_kind_of_number(value):
    assert ps.Costs(value).forward == 2.0
    assert type(ps.Costs(value).forward) is float
    assert ps.Costs([value, value]).forward.tolist() == [2.0, 2.0]
    assert ps.Costs((value,) * 2).forward.dtype == np.float64


def test_nothing_given_is_shared_and_nothing_can_be_changed():
    given_array = np.array([1.0, 2.0])
    costs = ps.Costs(given_array, transfer=given_array)
    given_array[:] = -5
    assert costs.forward.tolist() == costs.transfer.tolist() == [1.0, 2.0]
    for name in (*NUMERIC, "link", "batch"):
        with pytest.raises(AttributeError, match="frozen"):
            setattr(costs, name, 1.0)
        with pytest.raises(AttributeError, match="frozen"):
            delattr(costs, name)
        value = getattr(costs, name)
        if isinstance(value, np.ndarray):
            assert_read_only(value)
    with pytest.raises(AttributeError):
        costs.other = 1


def test_negative_zero_is_zero():
    assert str(ps.Costs(-0.0).forward) == "0.0"


VALUES = st.floats(0, 1e300) | st.lists(st.floats(0, 1e300), min_size=1, max_size=3)


@given(
    st.dictionaries(
        st.sampled_from([n for n in NUMERIC if n not in ("microbatch_scale", "backward_input")]),
        VALUES,
    ),
    st.sampled_from(["free", "serial"]),
)
def test_pickles_copies_equality_and_repr(arguments, link):
    if "backward_weight" in arguments:
        arguments.pop("backward", None)
        arguments["backward_input"] = arguments["backward_weight"]
    costs = ps.Costs(**arguments, link=link)
    for again in (pickle.loads(pickle.dumps(costs)), copy.deepcopy(costs), copy.copy(costs)):
        assert again == costs
        assert hash(again) == hash(costs)
        assert repr(again) == repr(costs)
    evaluated = eval(repr(costs), {"Costs": ps.Costs})
    assert np.allclose(evaluated.backward, costs.backward, rtol=1e-6)
    assert evaluated.link == link
    assert costs != ps.Costs(forward=[0.5] * 7)
    assert costs != 1


def test_a_batch_and_one_of_it():
    costs = ps.Costs(
        forward=[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]],
        transfer=[[0.1], [0.2], [0.3]],
        transfer_backward=7,
        microbatch_scale=[[1], [2], [3]],
        static=[8, 9],
        link="serial",
    )
    assert costs.batch == 3
    one = costs[1]
    assert one.batch is None
    assert one == ps.Costs(
        [3, 4],
        transfer=0.2,
        transfer_backward=7,
        microbatch_scale=[2],
        static=[8, 9],
        link="serial",
    )
    assert costs[-1] == costs[2]
    for wrong in (3, -4):
        with pytest.raises(IndexError, match="batch of 3"):
            costs[wrong]
    with pytest.raises(TypeError):
        costs["1"]
    with pytest.raises(TypeError, match="not a batch"):
        ps.Costs()[0]


def test_the_tables():
    tables = ps.Costs([1, 2], overlap=3, transfer=4, activation=5, activation_kept=6).tables(2, 3)
    assert tables["times"].tolist() == [[1, 2], [2, 4], [1, 2], [1, 2]]
    assert tables["overlap"].tolist() == [3, 3]
    assert tables["transfers"].tolist() == [[4, 0], [4, 0]]
    assert tables["scale"] is None
    assert tables["memory"].tolist() == [[5, 5], [6, 6], [0, 0]]
    batched = ps.Costs([[1], [2]], microbatch_scale=[1, 2, 3]).tables(2, 3)
    assert batched["times"].shape == (2, 4, 2)
    assert batched["scale"].tolist() == [[1, 2, 3]] * 2
    single = ps.Costs(transfer=[]).tables(1, 1)
    assert single["transfers"].tolist() == [[0], [0]]
    for tables in (batched, single):
        assert all(x is None or x.flags.c_contiguous for x in tables.values())
