"""The example on weight versions: plain restatements to the last digit, and its claims."""

import importlib.util

import numpy as np
import pytest
from conftest import ROOT

import pipesched as ps

spec = importlib.util.spec_from_file_location("staleness", ROOT / "examples" / "staleness.py")
example = importlib.util.module_from_spec(spec)
spec.loader.exec_module(example)

STAGES, STEPS, RATE = 4, 60, 1.0


@pytest.fixture(scope="module")
def task():
    return (*example.new_data(STEPS), example.new_weights(1, STAGES))


def restated(task, version_of, backward_version_of=None, batch=1):
    """w(t+1) = w(t) - v grad f(w1(a), w2(b), ...): the equations without any schedule.

    ``version_of(stage, t)`` is the version that mini-batch t takes on a stage.
    """
    inputs, classes, start = task
    history = [[matrix] for matrix in start]
    sums = [0.0] * len(start)
    for t in range(len(inputs)):
        y, kept = inputs[t], []
        for stage, versions in enumerate(history):
            y, one = example.forward(y, versions[version_of(stage, t)])
            kept.append(one)
        dy = example.loss_gradient(y, classes[t])
        for stage in reversed(range(len(history))):
            versions = history[stage]
            version = (backward_version_of or version_of)(stage, t)
            dy, gradient = example.backward(kept[stage], dy, versions[version])
            sums[stage] = sums[stage] + gradient
            if (t + 1) % batch == 0:
                versions.append(versions[-1] - RATE * sums[stage])
                sums[stage] = 0.0
    return [versions[-1] for versions in history]


def run(task, rule):
    inputs, classes, start = task
    return example.train(rule, inputs, classes, start, RATE)[0]


def stashed(stage, t):
    return max(0, t - STAGES + 1 + stage)


RULES = {
    "stash": {"version_of": stashed},
    "vertical-sync": {"version_of": lambda stage, t: max(0, t - STAGES + 1)},
    "naive": {"version_of": stashed, "backward_version_of": lambda stage, t: t},
    "2bw": {"version_of": lambda stage, t: max(0, t // STAGES - 1), "batch": STAGES},
    "flush": {"version_of": lambda stage, t: t // STAGES, "batch": STAGES},
}


@pytest.mark.parametrize("rule", RULES)
def test_the_schedule_s_run_is_the_equation_s_to_the_last_digit(rule, task):
    for got, expected in zip(run(task, rule), restated(task, **RULES[rule]), strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("rule", ["naive", "stash", "vertical-sync", "2bw"])
def test_the_run_takes_the_versions_that_the_library_names(rule, task):
    inputs, classes, start = task
    schedule = ps.generate("pipedream", STAGES, STEPS)
    pipeline = example.Pipeline(start, rule, batch=STAGES, rate=RATE)
    for stage, j, kind in example.in_time_order(schedule):
        if kind == 0:
            pipeline.forward(stage, j, inputs[j])
        else:
            pipeline.backward(stage, j, classes[j])
    made = ps.weight_versions(schedule, rule)
    for (stage, j), version in pipeline.taken.items():
        assert made.forward[stage, j] == version


def test_data_parallel_is_what_the_pipelines_restate(task):
    """BSP is a flush, ASP is vertical sync, but for the order of additions."""
    for pipeline, parallel in (("flush", "BSP"), ("vertical-sync", "ASP")):
        for a, b in zip(run(task, pipeline), run(task, parallel), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-9)


def test_gradients_are_those_of_the_loss(task):
    inputs, classes, start = task
    found = example.gradients(start, inputs[0], classes[0])
    step = 1e-6
    for stage in (0, STAGES - 1):
        nudged = [matrix.copy() for matrix in start]
        nudged[stage][2, 3] += step
        slope = example.loss(nudged, inputs[:1], classes[:1]) - example.loss(
            start, inputs[:1], classes[:1]
        )
        assert found[stage][2, 3] == pytest.approx(slope / step, rel=1e-3, abs=1e-6)


def test_naive_hurts_and_stashing_repairs():
    curves = example.run_all(steps=480)
    last = {rule: np.mean(curve[-8:]) for rule, curve in curves.items()}
    assert last["naive"] > 1.2 * last["stash"]
    for rule in ("stash", "vertical-sync", "flush", "BSP", "ASP"):
        assert last[rule] < 1.15 * min(last.values())


def test_the_picture(tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "curves.png"
    example.draw({rule: [2.0, 1.0] for rule in example.RULES}, str(path))
    assert path.read_bytes().startswith(b"\x89PNG")
