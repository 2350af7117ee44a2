"""Weight versions: the published equations, and a plain walk over every op."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pipesched as ps
from pipesched.generate import replicated
from pipesched.versions import RULES

SIZES = {"n": st.integers(1, 6), "m": st.integers(1, 20)}


@given(**SIZES)
def test_stashing_is_the_published_equation(n, m):
    """w(t+1) = w(t) - v grad f(w1(t-n+1), w2(t-n+2), .., wn(t))."""
    made = ps.weight_versions(ps.generate("pipedream", n, m), "stash")
    for stage in range(n):
        for t in range(m):
            assert made.forward[stage, t] == max(0, t - n + 1 + stage)
            assert made.applied_to[stage, t] == t
    assert made.passes_agree
    assert made.stages_agree == (n == 1 or m == 1)
    held = [min(n - s, m) for s in range(n)]
    assert all(have <= most for have, most in zip(made.held.tolist(), held, strict=True))
    if m >= 2 * n:  # before, some in flight share the first version
        assert made.held.tolist() == held


@given(**SIZES)
def test_vertical_sync_is_the_published_equation(n, m):
    """All stages at t-n+1."""
    made = ps.weight_versions(ps.generate("pipedream", n, m), "vertical-sync")
    for stage in range(n):
        assert made.forward[stage].tolist() == [max(0, t - n + 1) for t in range(m)]
    assert made.passes_agree
    assert made.stages_agree
    assert made.staleness.max() == min(n, m) - 1


@given(**SIZES, extra=st.integers(0, 3))
def test_two_buffered_is_the_published_equation(n, m, extra):
    """w(t+1) = w(t) - v grad f(w(t-1)), t counting batches."""
    schedule = ps.generate("pipedream", n, m)
    made = ps.weight_versions(schedule, "2bw", accumulate=min(n, m) + extra)
    batch = np.arange(m) // (min(n, m) + extra)
    for stage in range(n):
        assert made.forward[stage].tolist() == np.maximum(batch - 1, 0).tolist()
        assert made.applied_to[stage].tolist() == batch.tolist()
    assert made.stages_agree
    assert made.staleness.max() == min(1, batch[-1])
    assert made.held.max() <= 2


@given(**SIZES)
def test_naive_disagrees_and_flush_does_not(n, m):
    schedule = ps.generate("pipedream", n, m)
    naive = ps.weight_versions(schedule, "naive")
    for stage in range(n):
        assert naive.forward[stage].tolist() == [max(0, t - n + 1 + stage) for t in range(m)]
        assert naive.backward[stage].tolist() == list(range(m))
    assert naive.passes_agree == (n == 1 or m == 1)
    flush = ps.weight_versions(ps.generate("1f1b", n, m), "flush")
    assert not flush.forward.any()
    assert not flush.staleness.any()
    assert flush.stages_agree
    assert (flush.held == 1).all()


def test_versions_as_reported():
    """Four stages: PipeDream holds 4, 3, 2, 1 versions, 2BW two, a flush one."""
    schedule = ps.generate("pipedream", 4, 16)
    assert ps.weight_versions(schedule, "stash").held.tolist() == [4, 3, 2, 1]
    assert ps.weight_versions(schedule, "2bw").held.tolist() == [2, 2, 2, 2]
    assert ps.weight_versions(schedule, "flush").held.tolist() == [1, 1, 1, 1]
    gpipe = ps.generate("gpipe", 4, 16)
    assert ps.weight_versions(gpipe, "flush").held.tolist() == [1, 1, 1, 1]


def walk(schedule, rule):
    """Run the ops of every rank in order, and keep each stage's versions in a dict."""
    take = {}
    per_update = {}
    for ops in schedule:
        for stage in set(ops["stage"].tolist()):
            per_update[stage] = per_update.get(stage, 0) + 1
    admitted = {}
    for ops in schedule:
        done = 0
        for stage, j, kind, _ in ops.tolist():
            if stage == 0:
                if kind == 0:
                    admitted[j] = done * per_update[0]
                done += kind in (1, 3)
    result = {}
    for ops in schedule:
        for stage in set(ops["stage"].tolist()):
            own = [op for op in ops.tolist() if op[0] == stage]
            newest, uses = 0, []
            for _, j, kind, _ in own:
                if kind == 0:
                    used = admitted[j] // per_update[stage] if rule == "vertical-sync" else newest
                    take["F", stage, j] = used
                    uses.append(used)
                else:
                    used = newest if rule == "naive" else take["F", stage, j]
                    if kind in (1, 2):
                        take["B", stage, j] = used
                    uses.append(used if kind in (1, 2) else None)
                newest += kind in (1, 3)
            newest, most = 0, 0
            for i, (_, _, kind, _) in enumerate(own):
                needed = {used for used in uses[i:] if used is not None and used <= newest}
                most = max(most, len(needed | {newest}))
                newest += kind in (1, 3)
            result[stage] = max(result.get(stage, 1), most)
    return take, result


@given(
    st.sampled_from(["1f1b", "gpipe", "zb-h1", "interleaved-1f1b", "pipedream", "replicated"]),
    st.sampled_from(["stash", "vertical-sync", "naive"]),
    st.lists(st.integers(1, 3), min_size=1, max_size=4),
    st.integers(1, 10),
)
def test_any_schedule_is_walked_alike(family, rule, replicas, m):
    if family == "replicated":
        noam = [-(-sum(replicas[s:]) // r) for s, r in enumerate(replicas)]
        schedule = replicated(replicas, noam, max(m, max(replicas)))
    else:
        schedule = ps.generate(family, len(replicas), m)
    made = ps.weight_versions(schedule, rule)
    take, held = walk(schedule, rule)
    for (passes, stage, j), version in take.items():
        table = made.forward if passes == "F" else made.backward
        assert table[stage, j] == version
    if rule != "naive":
        assert made.held.tolist() == [held[s] for s in range(schedule.num_stages)]


def test_a_replicated_plan_holds_what_it_says():
    replicas, noam = [3, 1], [2, 1]
    made = ps.weight_versions(replicated(replicas, noam, 30), "stash", weights=[10.0, 7.0])
    assert made.per_update.tolist() == [3, 1]
    assert made.held.tolist() == noam
    assert made.bytes.tolist() == [20.0, 7.0]
    assert made.forward[0].tolist()[:9] == [0, 0, 0, 0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("rule", RULES)
def test_drawn_as_text(rule):
    made = ps.weight_versions(ps.generate("pipedream", 3, 40), rule)
    lines = str(made).splitlines()
    assert lines[0].startswith(rule + ": ")
    assert lines[3].startswith("stage 0")
    assert lines[3].endswith(str(made.held[0]))
    assert all(len(line) <= 100 for line in lines)


def test_result_is_frozen():
    made = ps.weight_versions(ps.generate("pipedream", 2, 3), "stash")
    with pytest.raises(ValueError, match="read-only"):
        made.forward[0, 0] = 3


def test_bad_input_is_named():
    schedule = ps.generate("pipedream", 4, 16)
    with pytest.raises(ValueError, match="no rule is named 'stahs'; did you mean 'stash'"):
        ps.weight_versions(schedule, "stahs")
    with pytest.raises(TypeError, match=r"schedule must be a pipesched\.Schedule"):
        ps.weight_versions([[0]], "stash")
    with pytest.raises(ValueError, match="accumulate belongs to '2bw'"):
        ps.weight_versions(schedule, "stash", accumulate=4)
    with pytest.raises(ValueError, match="accumulate must be at least 1, got 0"):
        ps.weight_versions(schedule, "2bw", accumulate=0)
    with pytest.raises(ValueError, match="accumulate=1: stage 0 starts batch 2 before batch 0"):
        ps.weight_versions(schedule, "2bw", accumulate=1)
    with pytest.raises(ValueError, match="need a schedule that trains"):
        ps.weight_versions(ps.generate("forward", 2, 3), "stash")


@pytest.mark.parametrize(
    ("weights", "error", "text"),
    [
        ([1, 2], ValueError, r"one for each of the 3 stages, got shape \(2,\)"),
        (-1, ValueError, "weights must be finite and not negative, got -1"),
        ([1, 2, np.nan], ValueError, "weights must be finite and not negative, got nan"),
        ("a", TypeError, "weights must be a number"),
    ],
)
def test_wrong_weights_are_named(weights, error, text):
    with pytest.raises(error, match=text):
        ps.weight_versions(ps.generate("pipedream", 3, 6), "stash", weights=weights)


def test_a_wrong_accumulate_is_named():
    with pytest.raises(TypeError, match=r"accumulate must be an int, got 1\.5"):
        ps.weight_versions(ps.generate("pipedream", 3, 6), "2bw", accumulate=1.5)
