"""Every closed form equals the simulated schedule wherever it says it holds."""

import itertools
from decimal import Decimal
from fractions import Fraction
from math import ceil

import hypothesis.strategies as st
import numpy as np
import pytest
import reference
from hypothesis import assume, given
from strategies import to_rows

import pipesched as ps
from pipesched import formulas
from pipesched.formulas import FORMULAS

# Costs (forward, input, weight, transfer) on both sides of every condition of a domain.
COSTS = [
    *((1, 1, 1, 0), (2, 2, 2, 0), (1, 2, 1, 0), (2, 1, 1, 0), (1, 1, 0, 0), (3, 3, 2, 0)),
    *((2, 3, 1, 0), (1, 1, 2, 0), (1, 3, 2, 0), (2, 1, 2, 0), (4, 1, 1, 0), (1, 0, 1, 0)),
    *((1, 1, 1, 1), (2, 3, 1, 2), (1, 1, 0, 5), (0, 1, 1, 1), (2, 1, 1, 2)),
]
OPTIONS = {
    "interleaved-1f1b": [
        {},
        {"v": 1},
        {"v": 3},
        *({"v": v, "group": group} for v, group in ((2, 2), (2, 4), (2, 6), (3, 3), (3, 5))),
    ],
    "looped-bfs": [{}, {"v": 1}, {"v": 3}],
    "zb-1p": [{}, {"v": 1}, {"v": 3}],
    "seq-1f1b": [{}, {"splits": 1}, {"splits": 3}],
    "hanayo": [{}, {"waves": 2}],
}


def made(name, p, m, options):
    """The schedule's rows for the twin; None where the definition refuses."""
    try:
        schedule = ps.generate(name, p, m, **options)
    except ValueError:
        return None
    return to_rows(schedule)


def value(question, *args, **kwargs):
    """A closed form's value; None outside its domain."""
    try:
        return question(*args, **kwargs)
    except ValueError:
        return None


def cases(name, ps_=range(1, 7), ms=range(1, 16)):
    for options, p, m in itertools.product(OPTIONS.get(name, [{}]), ps_, ms):
        rows = made(name, p, m, options)
        if rows is not None:
            yield p, m, options, rows


def test_every_family_has_its_forms():
    assert set(FORMULAS) == set(ps.SCHEDULES)


@pytest.mark.parametrize("name", FORMULAS)
def test_times(name):
    held = 0
    for p, m, options, rows in cases(name, ps_=range(1, 6), ms=(1, 2, 3, 4, 5, 7, 8, 10, 13)):
        for f, b, w, c in COSTS:
            costs = {"forward": f, "backward_input": b, "backward_weight": w, "transfer": c}
            times = {
                basis: value(formulas.bubble_time, name, p, m, basis=basis, **costs, **options)
                for basis in formulas.BASES
            }
            assert times["total"] == times["ideal"]
            if times["total"] is None and times["span"] is None:
                continue
            held += 1
            timeline = reference.simulate(rows, **costs)
            ideal = max(timeline.busy)
            if ideal == 0:
                continue
            where = (name, p, m, options, costs)
            if times["span"] is not None:
                assert timeline.span - ideal == times["span"], where
                share = formulas.bubble(name, p, m, basis="span", **costs, **options)
                assert share == float(timeline.span_bubble), where
            if times["total"] is not None:
                assert timeline.makespan - ideal == times["total"], where
                assert formulas.makespan(name, p, m, **costs, **options) == timeline.makespan
                share = formulas.bubble(name, p, m, **costs, **options)
                assert share == float(timeline.bubble_fraction), where
                share = formulas.bubble(name, p, m, basis="ideal", **costs, **options)
                assert share == float(timeline.bubble_ratio), where
    assert held > 0 or FORMULAS[name].bubble is None


@pytest.mark.parametrize("name", [name for name in FORMULAS if FORMULAS[name].peak])
def test_peaks(name):
    held = 0
    for p, m, options, rows in cases(name):
        peaks = [reference.peak_chunks(row, trains=name != "forward") for row in rows]
        most = value(formulas.peak, name, p, m, **options)
        if most is None:
            continue
        held += 1
        assert most == max(peaks), (p, m, options)
        if FORMULAS[name].peak.by_rank:
            by_rank = [formulas.peak(name, p, m, rank=r, **options) for r in range(p)]
            assert by_rank == peaks, (p, m, options)
    assert held > 10 or name == "chimera"


@pytest.mark.parametrize("name", [name for name in FORMULAS if FORMULAS[name].warmup])
def test_warmups(name):
    for p, m, options, rows in cases(name):
        first = [
            next((i for i, (kind, *_) in enumerate(row) if kind != "F"), len(row)) for row in rows
        ]
        if value(formulas.warmup, name, p, m, **options) is not None:
            by_rank = [formulas.warmup(name, p, m, rank=r, **options) for r in range(p)]
            assert by_rank == first, (p, m, options)


def test_weights():
    """Copies of 1/p of the model: stages that the rank holds, in that unit; more for PipeDream,
    which keeps a version for each micro-batch under way."""
    for name in FORMULAS:
        p, m = 4, 8
        schedule = ps.generate(name, p, m)
        held = [Fraction(len(stages) * p, schedule.num_stages) for stages in schedule.placement]
        if name == "pipedream":
            held = [
                len(stages) * n for stages, n in zip(schedule.placement, (4, 3, 2, 1), strict=True)
            ]
        assert [formulas.weights(name, p, m, rank=r) for r in range(p)] == held
        assert formulas.weights(name, p, m) == max(held)


@given(
    name=st.sampled_from(
        [
            "1f1b",
            "gpipe",
            "eager-1f1b",
            "interleaved-1f1b",
            "looped-bfs",
            "zb-h1",
            "zb-1p",
            "zb-v",
            "zb-h2",
        ]
    ),
    p=st.integers(1, 9),
    m=st.integers(1, 40),
    costs=st.fixed_dictionaries(
        {
            "forward": st.integers(0, 50),
            "backward_input": st.integers(0, 50),
            "backward_weight": st.integers(0, 50),
            "transfer": st.sampled_from([0, 0, 1, 7, 40]),
        }
    ),
)
def test_any_costs(name, p, m, costs):
    expected = {
        basis: value(formulas.bubble_time, name, p, m, basis=basis, **costs)
        for basis in ("total", "span")
    }
    assume(expected["total"] is not None or expected["span"] is not None)
    timeline = reference.simulate(made(name, p, m, {}), **costs)
    ideal = max(timeline.busy)
    assert expected["total"] in (None, timeline.makespan - ideal)
    assert expected["span"] in (None, timeline.span - ideal)


@pytest.mark.parametrize("name", FORMULAS)
def test_at_the_size_of_real_jobs(name):
    for p, m in ((8, 64), (16, 16), (32, 100), (16, 9)):
        schedule = value(ps.generate, name, p, m)
        for f, b, w, c in ((1, 1, 1, 0), (20, 22, 11, 1)):
            costs = {"forward": f, "backward_input": b, "backward_weight": w, "transfer": c}
            time = value(formulas.makespan, name, p, m, **costs)
            if schedule is not None and time is not None:
                timeline = schedule.simulate(ps.Costs(**costs))
                assert timeline.makespan == time, (p, m, costs)
                assert timeline.bubble_fraction == pytest.approx(
                    formulas.bubble(name, p, m, **costs), rel=1e-12
                )
        most = value(formulas.peak, name, p, m)
        if schedule is not None and most is not None:
            assert schedule.simulate().peak_activations.max() == most, (p, m)


# As reported, as published --------------------------------------------------------------------


def test_shares_as_reported():
    assert formulas.bubble("gpipe", 16, 8, backward=1) == pytest.approx(0.6522, abs=5e-5)
    assert formulas.bubble("gpipe", 16, 8, backward=1, basis="ideal") == 1.875
    assert formulas.bubble("interleaved-1f1b", 8, 32, v=2) == pytest.approx(0.0986, abs=5e-5)
    assert formulas.bubble("1f1b", 12, 12) == pytest.approx(0.478, abs=5e-4)
    assert formulas.bubble("1f1b", 12, 24) == pytest.approx(0.314, abs=5e-4)
    assert formulas.bubble("1f1b", 8, 8) == pytest.approx(0.4667, abs=5e-5)
    assert formulas.bubble("1f1b", 8, 16) == pytest.approx(0.3043, abs=5e-5)
    assert formulas.bubble("1f1b", 4, 8) == pytest.approx(0.2727, abs=5e-5)
    assert formulas.bubble("interleaved-1f1b", 4, 12, v=2) == pytest.approx(3 / 27)
    assert formulas.bubble("forward", 3, 2) == ps.bubble_formula(3, 2) == 0.5


def test_times_as_reported():
    # B with W in it, or without: the same number
    assert formulas.bubble_time("zb-h1", 8, 20, forward=1, backward=2) == 7 == 7 * (1 + 2 - 2 * 1)
    assert formulas.makespan("1f1b", 4, 4, backward=1) == 2 * (4 + 4 - 1) == 14
    assert formulas.makespan("1f1b", 8, 32, backward=1) == 78
    one, two = (formulas.makespan("1f1b", 12, m) for m in (1, 2))
    assert Fraction(two, one) == Fraction(13, 12)
    # a measured share of 0 where 1F1B of F = I = W takes 213 and ZB-H1 199
    plain, zero_bubble = (formulas.makespan(name, 8, 64) for name in ("1f1b", "zb-h1"))
    assert (plain, zero_bubble) == (213, 199)


def test_the_global_batch():
    assert formulas.microbatches_of(192, microbatch_size=2, data_parallel=8) == 12
    assert formulas.microbatches_of(384, microbatch_size=2, data_parallel=8) == 24
    with pytest.raises(ValueError, match=r"multiple of .* = 16, got 200; the nearest: 192, 208"):
        formulas.microbatches_of(200, 2, 8)
    with pytest.raises(ValueError, match=r"got 3; the nearest: 16"):
        formulas.microbatches_of(3, 2, 8)
    with pytest.raises(ValueError, match="data_parallel must be at least 1, got 0"):
        formulas.microbatches_of(3, 2, 0)


@pytest.mark.parametrize(("p", "chunks"), [(4, 5), (8, 4), (16, 4)])
def test_when_interleaving_beats_dualpipe(p, chunks):
    """F = W and B = 2F: from v > 3(p-1)/(p-2) on."""
    m = 4 * p
    dualpipe = formulas.bubble_time("dualpipe", p, m)

    def interleaved(v):
        return Fraction(formulas.bubble_time("interleaved-1f1b", p, m, v=v)) / v

    assert interleaved(chunks) < dualpipe <= interleaved(chunks - 1)
    assert chunks == 3 * (p - 1) // (p - 2) + 1
    factor = formulas.activation_factor("interleaved-1f1b", p, m, v=chunks)
    assert factor == pytest.approx(1 + (p - 1) / (p * chunks))
    assert formulas.activation_factor("dualpipe", p, m) == pytest.approx(1 + 1 / p)


def test_memory_as_reported():
    peaks = [formulas.peak("1f1b", 4, 8, rank=r) for r in range(4)]
    assert peaks == [4, 3, 2, 1]
    assert [max(2, peak) for peak in peaks] == [4, 3, 2, 2]
    assert formulas.peak("interleaved-1f1b", 16, 64, v=2) / 2 == 23.5
    # PP = 8 stages: on 8 ranks, or on 4 in a V
    assert formulas.peak("dualpipe", 8, 20) == formulas.peak("dualpipe-v", 4, 10) == 9
    assert formulas.weights("dualpipe", 8, 20) == 2 * formulas.weights("dualpipe-v", 8, 20)
    assert [formulas.warmup("interleaved-1f1b", 4, 8, r, v=2) - 1 for r in range(4)] == [
        10,
        8,
        6,
        4,
    ]
    assert [formulas.weights("pipedream", 4, 8, r) for r in range(4)] == [4, 3, 2, 1]


def test_1f1b_waits_for_more_transfers_than_the_literature_says():
    """(p-1)T + 2(p-1)c holds for m <= 2 only, and gives too little in the published tables."""
    costs = {"forward": 18522, "backward_input": 18086, "backward_weight": 9337, "transfer": 601}
    whole = 18522 + 18086 + 9337
    assert round(formulas.bubble("1f1b", 8, 24, basis="span", **costs), 4) == 0.2431
    assert formulas.bubble_time("1f1b", 8, 2, **costs) == 7 * (whole + 2 * 601)
    assert formulas.bubble_time("1f1b", 8, 3, **costs) == 7 * (whole + 2 * 601) + 2 * 601


def test_what_interleaving_pays_in_transfers():
    """2(pv-1)c, not the 2(pv-1)c - pc from which a published column follows; and Megatron's
    warm-up is what hides the rest."""
    costs = {"forward": 4, "backward": 8, "transfer": 1}
    assert formulas.bubble_time("interleaved-1f1b", 4, 8, v=2, **costs) == 3 * 12 + 2 * 7
    half = formulas.makespan("interleaved-1f1b", 4, 8, v=2, transfer=0.5)
    assert half == 64


# How many micro-batches -----------------------------------------------------------------------


def test_microbatches_for_five_percent():
    assert ps.microbatches_for(bubble=0.05, p=8, v=1, basis="total") == 133
    assert ps.microbatches_for(bubble=0.05, p=8, v=1, basis="ideal") == 140
    assert ps.microbatches_for(bubble=0.05, p=8, strict=True) == 134
    assert ps.microbatches_for(bubble=0.05, p=8, basis="ideal", strict=True) == 141
    for written in (0.05, "0.05", Decimal("0.05"), Fraction(1, 20), np.float32(0.05)):
        if not isinstance(written, str):
            assert ps.microbatches_for(written, 8) == 133


@given(
    bubble=st.fractions(Fraction(1, 60), Fraction(3)),
    p=st.integers(1, 7),
    v=st.integers(1, 4),
    basis=st.sampled_from(formulas.BASES),
    strict=st.booleans(),
)
def test_microbatches_for_is_the_fewest(bubble, p, v, basis, strict):
    m = ps.microbatches_for(bubble, p, v, basis, strict=strict)

    def is_enough(m):
        idle = Fraction(formulas.bubble_time("interleaved-1f1b", p, m, v=v, basis=basis))
        share = idle / (3 * m * v + (0 if basis == "ideal" else idle))
        return share < bubble if strict else share <= bubble

    assert is_enough(m)
    assert m == 1 or not is_enough(m - 1)


def test_microbatches_for_every_percent():
    """No rounding: n percent of 8 ranks, as the decimal that was written."""
    for percent in range(1, 100):
        exact = Fraction(7 * (100 - percent), percent)
        assert ps.microbatches_for(percent / 100, 8) == max(1, ceil(exact))


def test_the_default_group_is_found_at_once():
    """The smallest of p or more that leaves no remainder below p, however large the numbers."""
    for p, m in itertools.product(range(1, 30), range(1, 200)):
        case = formulas.Case(p=p, m=m)
        simple = next(n for n in range(min(p, m), m + 1) if m < p or m % n == 0 or m % n >= p)
        assert case.n == simple
    big = 2**31 - 1
    assert formulas.peak("interleaved-1f1b", big // 2 + 1, big, v=2) == 2 * big


# What is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: formulas.bubble("gpip", 2, 2), ValueError, "did you mean 'gpipe'"),
        (lambda: formulas.bubble(1, 2, 2), TypeError, "name must be a string"),
        (lambda: formulas.bubble("1f1b", 0, 2), ValueError, "p must be at least 1, got 0"),
        (lambda: formulas.bubble("1f1b", 2, 2**31), OverflowError, "m must be at most 2147483647"),
        (lambda: formulas.bubble("1f1b", 2, -(1 << 20000)), ValueError, "m must be at least 1"),
        (lambda: formulas.bubble("1f1b", 2.0, 2), TypeError, "p must be an integer, got float"),
        (lambda: formulas.bubble("1f1b", 2, 2, basis="all"), ValueError, "'total', 'ideal'"),
        (lambda: formulas.bubble("1f1b", 2, 2, v=2), TypeError, r"no option 'v' \(options: none"),
        (lambda: formulas.bubble("zb-1p", 2, 2, w=2), TypeError, r"no option 'w' \(options: v"),
        (lambda: formulas.bubble("zb-1p", 2, 2, v=0), ValueError, "v must be at least 1"),
        (lambda: formulas.bubble("1f1b", 2, 2, forward=-1), ValueError, "forward must not be neg"),
        (lambda: formulas.bubble("1f1b", 2, 2, forward=float("nan")), ValueError, "be finite"),
        (lambda: formulas.bubble("1f1b", 2, 2, transfer=float("inf")), ValueError, "be finite"),
        (lambda: formulas.bubble("1f1b", 2, 2, forward="1"), TypeError, "must be a number"),
        (lambda: formulas.bubble("1f1b", 2, 2, forward=0), ValueError, "there is none"),
        (lambda: formulas.bubble("1f1b", 2, 2, backward_input=1), ValueError, "together"),
        (
            lambda: formulas.bubble("zb-h2", 4, 3),
            ValueError,
            r"holds for .*m >= 2p-1; got p=4, m=3",
        ),
        (lambda: formulas.peak("1f1b", 2, 2, rank=2), ValueError, "rank must be below p=2, got 2"),
        (lambda: formulas.peak("1f1b", 2, 2, rank=-1), ValueError, "rank must be at least 0"),
        (lambda: formulas.peak("v-min", 2, 2, rank=0), ValueError, "the fullest rank only"),
        (lambda: ps.microbatches_for(0, 8), ValueError, "bubble must be above 0, got 0"),
        (lambda: ps.microbatches_for(float("nan"), 8), ValueError, "bubble must be finite"),
        (lambda: ps.microbatches_for("5 %", 8), TypeError, "bubble must be a number, got str"),
        (lambda: ps.microbatches_for(0.05, 8, basis="x"), ValueError, "basis must be one of"),
        (lambda: ps.microbatches_for(0.05, 8, v=1.5), TypeError, "v must be an integer"),
    ],
)
def test_refusals(call, error, text):
    with pytest.raises(error, match=text):
        call()


ANYTHING = st.one_of(
    st.integers(), st.integers(-2, 9), st.floats(), st.text(max_size=4), st.none(), st.booleans()
)


@given(
    question=st.sampled_from(
        [formulas.bubble, formulas.bubble_time, formulas.makespan, formulas.peak, formulas.weights]
    ),
    name=st.one_of(st.sampled_from(sorted(FORMULAS)), st.text(max_size=4)),
    p=ANYTHING,
    m=ANYTHING,
    options=st.dictionaries(
        st.sampled_from(["v", "group", "splits", "forward", "transfer", "basis", "rank"]),
        ANYTHING,
        max_size=2,
    ),
)
def test_nothing_but_the_documented_errors(question, name, p, m, options):
    try:
        answer = question(name, p, m, **options)
    except (TypeError, ValueError, OverflowError) as error:
        words = str(error)
        assert words
    else:
        assert isinstance(answer, (int, float, Fraction))
