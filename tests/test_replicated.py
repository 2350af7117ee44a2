"""PipeDream's schedule over replicated stages, and how its pace compares with the plan's."""

import pickle
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pipesched as ps
from pipesched.generate import replicated
from pipesched.plan import Cluster, Plan, enough_in_flight, evaluate

REPLICAS = st.lists(st.integers(1, 5), min_size=1, max_size=4)


def noam(replicas):
    return [-(-sum(replicas[s:]) // r) for s, r in enumerate(replicas)]


def plain_rows(replicas, in_flight, m):
    """1F1B-RR restated: each replica's share in order, warm-up, pairs, the rest."""
    rows = []
    for s, r in enumerate(replicas):
        for replica in range(r):
            share = range(replica, m, r)
            ahead = min(in_flight[s] - 1, len(share))
            row = [f"{s}F{j}" for j in share[:ahead]]
            for i, j in enumerate(share[ahead:]):
                row += [f"{s}F{j}", f"{s}B{share[i]}"]
            rows.append(row + [f"{s}B{j}" for j in share[len(share) - ahead :]])
    return rows


@given(REPLICAS, st.integers(1, 40))
def test_the_order_is_the_restated_one_and_runs(replicas, m):
    schedule = replicated(replicas, noam(replicas), m)
    assert schedule.rows() == plain_rows(replicas, noam(replicas), m)
    schedule.check()
    # Micro-batch j runs on replica j mod r of each stage, both ways.
    start = np.cumsum([0, *replicas])
    for rank, ops in enumerate(schedule):
        stage = int(np.searchsorted(start, rank, side="right")) - 1
        assert set(ops["stage"].tolist()) <= {stage}
        assert set((ops["microbatch"] % replicas[stage]).tolist()) <= {rank - start[stage]}


@given(st.integers(1, 6), st.integers(1, 12))
def test_without_replicas_it_is_the_plain_family(p, m):
    assert replicated([1] * p, noam([1] * p), m) == ps.generate("pipedream", p, m)


@given(REPLICAS)
def test_with_enough_in_flight_the_pace_is_the_slowest_stage_s(replicas):
    """Stages of the same time a mini-batch, the case with no slack anywhere."""
    enough = enough_in_flight(replicas)
    assert all(need >= have for need, have in zip(enough, noam(replicas), strict=True))
    period = int(np.lcm.reduce(replicas))
    m = 4 * sum(replicas) * enough[0] + 6 * period
    third = [r / 3 for r in replicas]
    costs = ps.Costs(forward=third, backward=[2 * t for t in third])
    timeline = replicated(replicas, enough, m).simulate(costs)
    ops = timeline.schedule.ops
    ends = np.sort(timeline.end[(ops["stage"] == 0) & (ops["kind"] == 1)])
    last = 3 * m // 4
    assert (ends[last] - ends[last - period]) / period == pytest.approx(1.0)


@given(st.integers(1, 8), st.integers(1, 8))
def test_two_stages_always_have_enough_in_flight(a, b):
    assert list(enough_in_flight([a, b])) == noam([a, b])


@pytest.fixture(scope="module")
def plan_of(data_dir):
    def make(name, workers, bandwidth, **options):
        path = data_dir / "pipedream_profiles" / name / "graph.txt"
        return ps.partition(ps.read_profile(path), workers, bandwidth, **options)

    return make


PAPER_A = ((4, 4), (12e9, 1.25e9))


@pytest.mark.parametrize("name", ["vgg16", "alexnet", "resnet50", "squeezenet1_0"])
@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("cluster", [PAPER_A, (16, 1.25e9), (4, 1e9)])
def test_the_simulated_pace_is_the_plan_s(name, overlap, cluster, plan_of):
    plan = plan_of(name, *cluster, overlap=overlap)
    state = plan.steady_state()
    assert state.agrees
    assert state.simulated == pytest.approx(plan.time, rel=1e-9)
    assert "\n" not in str(state)


@pytest.mark.parametrize(
    ("name", "overlap", "words"),
    [
        ("gnmt", True, ["the way of the transfers", "too few mini-batches are in flight"]),
        ("gnmt", False, ["stage 0: 16, needs 22"]),
        ("gnmt_large", True, ["the way of the transfers"]),
    ],
)
def test_where_it_is_not_the_difference_is_explained(name, overlap, words, plan_of):
    plan = plan_of(name, *PAPER_A, overlap=overlap)
    state = plan.steady_state()
    assert not state.agrees
    assert state.with_enough == pytest.approx(plan.time, rel=1e-9)  # nothing is left over
    assert state.simulated >= state.without_transfers >= state.with_enough * (1 - 1e-9)
    for text in words:
        assert text in str(state)


@pytest.mark.parametrize("name", ["vgg16", "gnmt"])
def test_the_simulated_memory_is_the_plan_s(name, plan_of):
    plan = plan_of(name, *PAPER_A)
    timeline = ps.generate("pipedream", plan=plan, m=300).simulate(plan.costs())
    peaks = dict(zip(plan.ranks, timeline.peak_memory.tolist(), strict=True))
    for stage in plan.stages:
        assert max(peaks[rank] for rank in stage.ranks) == pytest.approx(stage.memory)
        versions = {plan.ranks.index(rank): stage.versions for rank in stage.ranks}
        for rank, held in versions.items():
            assert timeline.peak_activations[rank] == held


def test_a_plan_s_schedule(plan_of):
    plan = plan_of("vgg16", *PAPER_A)
    schedule = ps.generate("pipedream", plan=plan, m=45).check()
    assert (schedule.p, schedule.num_stages, schedule.name) == (16, 2, "pipedream")
    assert schedule.rows()[0] == ["0F0", "0F15", "0B0", "0F30", "0B15", "0B30"]
    assert schedule.rows()[15][:4] == ["1F0", "1B0", "1F1", "1B1"]
    assert ps.generate("pipedream", 16, 45, plan=plan) == schedule


def test_a_plan_survives_pickling(plan_of):
    plan = plan_of("vgg16", 4, 1e9)
    again = pickle.loads(pickle.dumps(plan))
    assert again == plan
    assert again.explain() == plan.explain()


@pytest.mark.parametrize("replicas", [(1,), (4,), (3, 1), (2, 3, 1), (1, 1, 1, 1)])
def test_a_steady_state_needs_enough_mini_batches(replicas):
    """The fewest that are allowed show the pace; fewer show the fill, and are refused."""
    layers = [ps.Layer(str(i), 1.0 * r, 2.0 * r, 1.0, 1.0) for i, r in enumerate(replicas)]
    cluster = Cluster((sum(replicas),), (1e9,))
    ranks = iter(range(sum(replicas)))
    stages = [tuple(next(ranks) for _ in range(r)) for r in replicas]
    profile = ps.Profile(layers)
    made = evaluate(profile, cluster, range(len(layers)), stages, overlap=True, optimizer=1.0)
    time = max(stage.time for stage in made)
    plan = Plan(profile=profile, cluster=cluster, stages=made, time=time, bound=time)
    for few in (1, 2, 3):
        with pytest.raises(ValueError, match=rf"m must be at least \d+ .*, got {few}") as caught:
            plan.steady_state(few)
    least = int(re.search(r"at least (\d+)", str(caught.value))[1])
    assert plan.steady_state(least).with_enough == pytest.approx(plan.time)


def test_bad_input_is_named(plan_of):
    plan = plan_of("vgg16", 4, 1e9)
    with pytest.raises(ValueError, match="a plan is made for 'pipedream', got '1f1b'"):
        ps.generate("1f1b", plan=plan, m=4)
    with pytest.raises(ValueError, match="p must be the plan's 4 busy workers, got 3"):
        ps.generate("pipedream", 3, 4, plan=plan)
    with pytest.raises(TypeError, match="needs m"):
        ps.generate("pipedream", plan=plan)
    with pytest.raises(TypeError, match="p must be an integer, and none was given"):
        ps.generate("1f1b", m=4)
    with pytest.raises(TypeError, match="a plan has no options, got v"):
        ps.generate("pipedream", plan=plan, m=4, v=2)
    with pytest.raises(TypeError, match=r"plan must be a pipesched\.Plan, got str"):
        ps.generate("pipedream", plan="15-1", m=4)
    with pytest.raises(ValueError, match="m must be at least 1, got 0"):
        ps.generate("pipedream", plan=plan, m=0)
    with pytest.raises(OverflowError):
        ps.generate("pipedream", plan=plan, m=2**31)
    alone = ps.baselines(plan.profile, 4, 1e9)["model parallel"]
    for call in (lambda: ps.generate("pipedream", plan=alone, m=4), alone.steady_state):
        with pytest.raises(ValueError, match="runs one mini-batch at a time"):
            call()


@pytest.mark.parametrize(
    ("replicas", "in_flight", "error"),
    [
        ([], [], ValueError),
        ([0], [1], ValueError),
        ([1], [0], ValueError),
        ([1, 2], [1], ValueError),
        ([2**31 - 1, 1], [1, 1], OverflowError),
    ],
)
def test_the_core_checks_what_it_is_given(replicas, in_flight, error):
    with pytest.raises(error):
        replicated(replicas, in_flight, 4)
