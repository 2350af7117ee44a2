"""Balanced cuts: always the optimum, with the promised tie, and as others split equally."""

import csv
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference_partition import balanced, best_chunk_load, best_cuts

import pipesched as ps

COSTS = st.lists(
    st.one_of(st.integers(0, 9).map(float), st.floats(0, 10, allow_subnormal=False)),
    min_size=1,
    max_size=9,
)


@given(COSTS, st.data())
def test_value_and_cuts_are_the_twin_s(costs, data):
    k = data.draw(st.integers(1, len(costs)))
    first = data.draw(st.sampled_from([0.0, 1.0, 4.0]))
    last = data.draw(st.sampled_from([0.0, 2.0, 5.0]))
    made = ps.partition_balanced(costs, k, first, last)
    largest, _, cuts = best_cuts(costs, k, first, last)
    assert made.largest == largest == balanced(costs, k, first, last)
    assert made.cuts == cuts
    assert made.proven


@given(COSTS, st.data())
def test_ties_go_to_the_fewest_bytes(costs, data):
    k = data.draw(st.integers(1, len(costs)))
    sizes = st.lists(st.integers(0, 3).map(float), min_size=len(costs) - 1, max_size=len(costs) - 1)
    cut_bytes = data.draw(sizes)
    made = ps.partition_balanced(costs, k, cut_bytes=cut_bytes)
    assert made.cuts == best_cuts(costs, k, cut_bytes=cut_bytes)[2]


@given(st.lists(st.floats(0, 1e3), min_size=1, max_size=80), st.data())
def test_larger_chains(costs, data):
    k = data.draw(st.integers(1, len(costs)))
    made = ps.partition_balanced(costs, k)
    assert made.largest == balanced(costs, k)
    assert min(made.sizes) >= 1
    assert sum(made.sizes) == len(costs)


@given(st.lists(st.integers(1, 9).map(float), min_size=4, max_size=9), st.data())
def test_chunks_are_balanced_by_rank(costs, data):
    k, v = data.draw(st.sampled_from([(2, 2), (1, 3), (2, 1), (1, 2), (2, 2)]))
    made = ps.partition_balanced(costs, k, first=1.0, last=2.0, chunks=v)
    best = best_chunk_load(costs, k, v, 1.0, 2.0)
    assert len(made.sizes) == k * v
    assert min(made.sizes) >= 1
    assert sum(made.loads) == sum(costs) + 3.0
    assert made.bound <= best <= made.largest
    if v == 2:
        assert made.proven
        assert made.largest == best
    assert made.proven == (made.largest <= made.bound)
    by_part = ps.partition_balanced(costs, k * v, first=1.0, last=2.0)
    pairs = [sum(by_part.loads[r::k]) for r in range(k)]
    assert made.largest <= max(pairs)


def test_two_chunks_of_real_numbers_are_the_optimum():
    for seed in range(4):
        costs = np.random.default_rng(seed).random(11).tolist()
        made = ps.partition_balanced(costs, 3, 0.3, 0.7, chunks=2)
        assert made.proven
        assert made.largest == pytest.approx(best_chunk_load(costs, 3, 2, 0.3, 0.7), rel=1e-14)
    assert ps.partition_balanced(np.random.default_rng(9).random(128), 8, chunks=2).proven


def test_equal_layers_in_chunks_are_proven():
    for n in range(8, 40):
        made = ps.partition_balanced([1.0] * n, 4, chunks=2)
        assert made.proven
        assert made.largest == -(-n // 4)


@pytest.mark.parametrize(
    ("costs", "k", "loads"),
    [
        ([4, 4, 4, 7, 7], 4, (4, 8, 7, 7)),
        ([2, 8, 5, 3, 2, 4, 2], 4, (2, 8, 8, 8)),
        ([0, 2, 0, 1, 1, 1, 1, 0, 0, 2, 0], 4, (2, 2, 2, 2)),
    ],
)
def test_reported_chains(costs, k, loads):
    """One library repeats a layer, one gives 10, one ignores the embedding."""
    assert ps.partition_balanced(costs, k).loads == loads


@pytest.mark.parametrize(
    ("n", "k", "split", "sizes"),
    [
        (42, 16, "equal-first", (3,) * 10 + (2,) * 6),
        (38, 8, "equal-first", (5, 5, 5, 5, 5, 5, 4, 4)),
        (30, 4, "equal-first", (8, 8, 7, 7)),
        (61, 8, "equal-first", (8, 8, 8, 8, 8, 7, 7, 7)),
        (61, 4, "equal-middle", (15, 15, 16, 15)),
        (94, 4, "equal-middle", (23, 24, 24, 23)),
        (61, 4, "equal-last", (15, 15, 15, 16)),
        (94, 4, "equal-last", (23, 23, 24, 24)),
        (60, 31, "equal-first", (2,) * 29 + (1,) * 2),
        (12, 5, "equal-last", (2, 2, 2, 3, 3)),
        (7, 4, "equal-middle", (2, 2, 2, 1)),
        (8, 4, "equal-middle", (2, 2, 2, 2)),
    ],
)
def test_reported_equal_splits(n, k, split, sizes):
    """Elsewhere: empty stages, all of the rest on one, layers dropped."""
    made = ps.partition_balanced([1.0] * n, k, split=split)
    assert made.sizes == sizes
    assert made.largest == -(-n // k)
    assert ps.partition_balanced([1.0] * n, k).largest == -(-n // k)


def test_bounds_as_reported():
    made = ps.partition_balanced([1] * 38, 8, split="equal-first")
    assert made.cuts == (0, 5, 10, 15, 20, 25, 30, 34, 38)


def test_ends_as_layers_of_their_own():
    joined = ps.partition_balanced([1, 1, 1, 1], 2, first=3, last=5)
    assert joined.cuts == (0, 3, 4)
    assert joined.loads == (6, 6)
    own = ps.partition_balanced([1, 1, 1, 1], 3, first=3, last=5, ends="layers")
    assert own.cuts[-1] == 6
    assert own.loads == (3, 4, 5)  # the smallest cuts among those with a 5


def test_the_optimum_on_real_models(data_dir):
    profiles = {}
    rows = 0
    with open(data_dir / "configs" / "balance_compare.csv") as file:
        for row in csv.DictReader(file):
            path = data_dir / "pipedream_profiles" / row["model"] / "graph.txt"
            if not path.exists():  # four of the twelve are not published with the data
                continue
            profile = profiles.setdefault(row["model"], ps.read_profile(path))
            made = ps.partition_balanced(profile, int(row["k"]))
            assert made.largest * 1e3 == pytest.approx(float(row["optimal_ms"]), abs=5e-4)
            assert made.largest == balanced(profile.compute.tolist(), int(row["k"]))
            rows += 1
    assert rows == 32


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: ps.partition_balanced([1, 2], 3), "k=3 needs at least 3 layers"),
        (lambda: ps.partition_balanced([1, 2], 1, chunks=3), "k=1 with chunks=3 needs"),
        (lambda: ps.partition_balanced([1, 2], 0), "k must be in"),
        (lambda: ps.partition_balanced([1, 2], 1, chunks=0), "chunks must be in"),
        (lambda: ps.partition_balanced([], 1), "costs must be a sequence"),
        (lambda: ps.partition_balanced([[1]], 1), "costs must be a sequence"),
        (lambda: ps.partition_balanced([1, -2], 1), "got -2.0 at position 1"),
        (lambda: ps.partition_balanced([1, np.nan], 1), "got nan at position 1"),
        (lambda: ps.partition_balanced([10**400], 1), "costs must fit a 64-bit float"),
        (lambda: ps.partition_balanced([1e308, 1e308], 2), "the sum of the costs is too large"),
        (lambda: ps.partition_balanced([1, 2], 1, first=-1), "first and last must be"),
        (lambda: ps.partition_balanced([1, 2], 1, split="odd"), "no split is named 'odd'"),
        (lambda: ps.partition_balanced([1, 2], 1, ends="odd"), "no way to place the ends"),
        (lambda: ps.partition_balanced([1, 2], 2, cut_bytes=[1, 2]), "each of the 1 places"),
        (lambda: ps.partition_balanced([1, 2], 1, chunks=2, cut_bytes=[1]), "one chunk a rank"),
    ],
)
def test_bad_input_is_named(call, text):
    with pytest.raises(ValueError, match=text):
        call()


def test_wrong_types_are_named():
    for costs in (["a"], ["1", "2"], None, [None, 1], "abc", [1j], {1, 2}):
        with pytest.raises(TypeError, match="costs must be a number or an array of numbers"):
            ps.partition_balanced(costs, 1)
    for first in ("1", None):
        with pytest.raises(TypeError, match="first and last must be a number"):
            ps.partition_balanced([1], 1, first=first)
    with pytest.raises(TypeError, match="k must be an int"):
        ps.partition_balanced([1], 1.5)


def test_input_is_not_touched_and_result_is_plain():
    costs = np.arange(6.0)
    kept = costs.copy()
    made = ps.partition_balanced(costs, 3)
    np.testing.assert_array_equal(costs, kept)
    assert all(type(cut) is int for cut in made.cuts)
    assert str(made).splitlines()[0].split()[0] == "0"


def test_threads_agree():
    costs = np.random.default_rng(2).random(500)
    expected = ps.partition_balanced(costs, 16).cuts
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(ps.partition_balanced(costs, 16).cuts))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 8
