"""The lower bound on the makespan holds for every schedule with the same placement."""

import random

import hypothesis.strategies as st
import pytest
import reference
from hypothesis import given, settings
from strategies import to_schedule
from twins import random_costs, random_schedule

import pipesched as ps

SEEDS = st.integers(0, 2**32 - 1)
ROUNDING = 1 + 1e-12


@given(seed=SEEDS)
@settings(max_examples=10)
def test_against_all_schedules(seed):
    """With at most two cells a rank, all orders, splits and pairs there are can be tried."""
    draw = random.Random(seed)
    stages, microbatches = draw.choice(((1, 2), (2, 1), (2, 2), (3, 1), (2, 2)))
    cells = [(stage, j) for stage in range(stages) for j in range(microbatches)]
    draw.shuffle(cells)
    rank_of = {cell: place // 2 for place, cell in enumerate(cells)}
    rows = [[] for _ in range(1 + max(rank_of.values()))]
    for j in range(microbatches):
        for stage in range(stages):
            rows[rank_of[stage, j]].append(("F", stage, j, 0))
        for stage in reversed(range(stages)):
            rows[rank_of[stage, j]].append(("B", stage, j, 0))
    costs = random_costs(seed, stages, microbatches)
    best = reference.shortest_makespan(rows, stages, microbatches, **costs)
    timeline = to_schedule(rows, stages, microbatches).check().simulate(ps.Costs(**costs))
    assert timeline.lower_bound <= best * ROUNDING


@given(seed=SEEDS)
def test_against_one_schedule(seed):
    rows, stages, microbatches = random_schedule(seed)
    costs = random_costs(seed, stages, microbatches)
    timeline = to_schedule(rows, stages, microbatches).simulate(ps.Costs(**costs))
    assert timeline.lower_bound <= timeline.makespan * ROUNDING


@pytest.mark.parametrize("name", ps.SCHEDULES)
def test_against_families(name):
    """And it is worth having: within a half of every published schedule with enough to do."""
    schedule = ps.generate(name, 4, 16)
    timeline = schedule.simulate(ps.Costs(forward=2, backward_input=2, backward_weight=1))
    assert timeline.lower_bound <= timeline.makespan * ROUNDING
    if name != "naive":
        assert timeline.makespan <= 1.5 * timeline.lower_bound


def test_where_it_is_reached():
    """ZB-V leaves nothing to gain at f = b = w; forwards alone fill and drain once."""
    costs = ps.Costs(forward=1, backward_input=1, backward_weight=1)
    timeline = ps.generate("forward", 4, 8).simulate(costs)
    assert timeline.lower_bound == timeline.makespan == 11
    timeline = ps.generate("zb-v", 4, 16).simulate(costs)
    assert timeline.lower_bound == timeline.makespan
