"""The simulator against the slow twin, exactly; and what of it the twin does not say."""

import hypothesis.strategies as st
import numpy as np
import pytest
import reference
import strategies
from hypothesis import given
from twins import random_costs, random_schedule, with_comms

import pipesched as ps

SEEDS = st.integers(0, 2**32 - 1)


def assert_same(rows, num_stages, num_microbatches, costs):
    schedule = strategies.to_schedule(rows, num_stages, num_microbatches)
    twin = reference.simulate(rows, num_stages, num_microbatches, **costs)
    line = schedule.simulate(ps.Costs(**costs))
    assert line.start.tolist() == twin.start
    assert line.end.tolist() == twin.end
    assert line.makespan == twin.makespan
    assert line.busy.tolist() == twin.busy
    assert line.idle.tolist() == twin.idle
    assert line.peak_activations.tolist() == twin.peak_activations
    assert line.peak_memory.tolist() == twin.peak_memory
    for rank, profile in enumerate(twin.memory_profile):
        assert list(zip(*(x.tolist() for x in line.memory_profile(rank)), strict=True)) == profile
    # One correctly rounded division of whole numbers.
    for basis in ("bubble_fraction", "bubble_ratio", "span_bubble"):
        if hasattr(twin, basis):
            assert getattr(line, basis) == pytest.approx(float(getattr(twin, basis)), rel=1e-14)
    assert_caused(schedule, line)
    return line


def assert_caused(schedule, line):
    """Each op starts when its cause ends, or later by at most the transfers between them."""
    kinds, stages = schedule.ops["kind"], schedule.ops["stage"]
    rank_of = np.repeat(np.arange(schedule.p), np.diff(schedule.offsets))
    first = set(schedule.offsets[:-1].tolist())
    costs = line.costs
    for op, cause in enumerate(line.cause.tolist()):
        if cause < 0:
            assert line.start[op] == 0
            continue
        assert line.end[cause] <= line.start[op]
        if rank_of[op] == rank_of[cause]:
            assert line.start[op] == line.end[cause] or costs.link == "serial"
        pair = op not in first and schedule.ops["fuse"][op - 1]
        before = op - 1 - pair
        if before >= schedule.offsets[rank_of[op]] and line.end[before] == line.start[op]:
            assert cause == before
        elif costs.link == "free" and not pair and not schedule.ops["fuse"][op]:
            assert abs(stages[cause] - stages[op]) == 1
            assert (kinds[cause] in (0, 4)) == (kinds[op] in (0, 5))
    path = line.critical_path
    assert line.end[path[-1]] == line.end.max()
    assert line.cause[path[0]] == -1
    assert (line.cause[path[1:]] == path[:-1]).all()
    assert (np.diff(line.start[path]) >= 0).all()


@given(seed=SEEDS)
def test_any_schedule_is_timed_as_by_the_twin(seed):
    rows, num_stages, m = random_schedule(seed)
    assert_same(rows, num_stages, m, random_costs(seed, num_stages, m))


@given(seed=SEEDS)
def test_with_sends_and_receives(seed):
    rows, num_stages, m = random_schedule(seed)
    rows = with_comms(rows, num_stages, seed)
    costs = random_costs(seed, num_stages, m)
    if reference.simulate(rows, num_stages, m, **costs) is None:
        schedule = strategies.to_schedule(rows, num_stages, m)
        with pytest.raises(ps.ScheduleError) as caught:
            schedule.simulate(ps.Costs(**costs))
        assert caught.value.fault.code == "deadlock"
    else:
        assert_same(rows, num_stages, m, costs)


@given(seed=SEEDS)
def test_lowering_changes_no_time_on_free_links(seed):
    rows, num_stages, m = random_schedule(seed)
    costs = random_costs(seed, num_stages, m)
    costs["link"] = "free"
    schedule = strategies.to_schedule(rows, num_stages, m)
    plain, lowered = schedule.simulate(ps.Costs(**costs)), schedule.lower()
    line = lowered.simulate(ps.Costs(**costs))
    assert_same(strategies.to_rows(lowered), num_stages, m, costs)
    assert line.makespan >= plain.makespan  # a receive may stand before work that could go on
    assert line.busy.tolist() == plain.busy.tolist()
    assert line.peak_activations.tolist() == plain.peak_activations.tolist()


SMALL = [("naive", {}), ("gpipe", {}), ("1f1b", {}), ("eager-1f1b", {}), ("looped-bfs", {"v": 2}),
         ("interleaved-1f1b", {"v": 2}), ("zb-h1", {}), ("zb-1p", {"v": 2}), ("zb-v", {}),
         ("v-half", {}), ("v-min", {}), ("dualpipe", {}), ("dualpipe-v", {}), ("chimera", {}),
         ("hanayo", {}), ("pipedream", {}), ("seq-1f1b", {}), ("forward", {})]  # fmt: skip


@pytest.mark.parametrize(("name", "options"), SMALL, ids=[name for name, _ in SMALL])
def test_every_family_is_timed_as_by_the_twin(name, options):
    for p, m in ((4, 8), (2, 5), (1, 3), (4, 2)):
        try:
            schedule = ps.generate(name, p, m, **options)
        except ValueError:
            continue  # the family's rule; its own tests hold it to that
        shape = (schedule.num_stages, schedule.num_microbatches)
        for seed in range(4):
            assert_same(strategies.to_rows(schedule), *shape, random_costs(seed, *shape))
