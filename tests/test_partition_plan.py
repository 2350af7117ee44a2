"""PipeDream's partition: the published objective, and the default model's physics."""

import csv
import doctest
import math
import re
import shlex
import threading
import tracemalloc

import numpy as np
import pytest
from conftest import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_partition import Missing, best_plan, published

import pipesched as ps
from pipesched.partition import explain
from pipesched.plan import Cluster, evaluate

PAPER_A = ((4, 4), (12e9, 1.25e9))  # 4 servers of 4 V100, 10 Gbit/s between them


@pytest.fixture(scope="module")
def model(data_dir):
    """Read one of the published profiles, once."""
    read = {}

    def get(name):
        if name not in read:
            read[name] = ps.read_profile(data_dir / "pipedream_profiles" / name / "graph.txt")
        return read[name]

    return get


@st.composite
def graphs(draw, most=5, one_source=False):
    """(layers as tuples, edges): small graphs with ties and zeros."""
    n = draw(st.integers(1, most))
    amount = st.integers(0, 6).map(float)
    layers = [(draw(amount), draw(amount), draw(amount)) for _ in range(n)]
    edges = set()
    for target in range(1, n):
        sources = draw(st.sets(st.integers(0, target - 1), min_size=int(one_source), max_size=2))
        edges |= {(source, target) for source in sources}
    return layers, sorted(edges)


def profile_of(layers, edges):
    made = [ps.Layer(f"l{i}", c, 0.0, a, w) for i, (c, a, w) in enumerate(layers)]
    return ps.Profile(made, edges)


# ---- the published program -----------------------------------------------------------------


def options_of(arguments):
    """The published program's command line as arguments of ps.partition."""
    words = shlex.split(arguments)
    lists = {"-n": [], "-b": []}
    options = {}
    into = None
    for i, word in enumerate(words):
        if word in lists:
            into = lists[word]
        elif word == "-s":
            into, memory = None, float(words[i + 1])
        elif word == "--use_memory_constraint":
            options["memory"] = None
        elif word == "--activation_compression_ratio":
            into, options["activation_compression_ratio"] = None, float(words[i + 1])
        elif word in ("--straight_pipeline", "--use_fewer_machines"):
            into, options[word[2:]] = None, True
        elif into is not None:
            into.append(float(word))
    if "memory" in options:
        options["memory"] = memory
    return [int(n) for n in lists["-n"]], lists["-b"], options


def test_every_published_run(model, data_dir):
    rows = crashes = 0
    with open(data_dir / "pipedream_profiles" / "reference_outputs.csv") as file:
        for row in csv.DictReader(file):
            workers, bandwidth, options = options_of(row["args"])
            profile = model(row["model"])
            if row["err"]:
                with pytest.raises(ValueError, match=r"the published program .* TypeError"):
                    ps.partition(profile, workers, bandwidth, compat="pipedream", **options)
                crashes += 1
                continue
            plan = ps.partition(profile, workers, bandwidth, compat="pipedream", **options)
            assert abs(plan.time - float(row["time_per_stage_s"])) < 1e-9, row["tag"]
            assert plan.states == int(row["states"]), row["tag"]
            assert profile.compute.sum() == pytest.approx(float(row["single_time_s"]))
            if not options.get("use_fewer_machines"):
                assert len(plan.ranks) == math.prod(workers), row["tag"]
            assert sorted(i for stage in plan.stages for i in stage.layers) == list(
                range(len(profile))
            )
            rows += 1
    assert (rows, crashes) == (106, 3)


@given(graphs(most=6, one_source=True), st.data())
def test_published_objective_is_the_twin_s(graph, data):
    layers, edges = graph
    counts = data.draw(st.sampled_from([[1], [2], [3], [5], [2, 2], [3, 2], [2, 1, 2]]))
    bandwidth = [data.draw(st.sampled_from([0.5, 1.0, 8.0])) for _ in counts]
    options = {
        "straight": data.draw(st.booleans()),
        "fewer": data.draw(st.booleans()),
        "memory": data.draw(st.sampled_from([None, 1.0, 10.0, 40.0])),
        "ratio": data.draw(st.sampled_from([None, 1.0, 2.0])),
    }
    try:
        expected = published(layers, edges, counts, bandwidth, **options)
    except Missing:
        expected = None
    call = {
        "compat": "pipedream",
        "memory": options["memory"],
        "straight_pipeline": options["straight"],
        "use_fewer_machines": options["fewer"],
        "activation_compression_ratio": options["ratio"],
    }
    profile = profile_of(layers, edges)
    if expected is None:
        with pytest.raises(ValueError, match="the published program"):
            ps.partition(profile, counts, bandwidth, **call)
    else:
        plan = ps.partition(profile, counts, bandwidth, **call)
        assert plan.time == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_published_program_gives_up_where_it_would_not_end():
    layers = [ps.Layer("in", 1, 1, 1, 1)]
    edges = []
    for _ in range(8):  # eight branches of six: 7 ** 8 antichains
        edges.append((0, len(layers)))
        for i in range(6):
            layers.append(ps.Layer("x", 1, 1, 1, 1))
            if i:
                edges.append((len(layers) - 2, len(layers) - 1))
    with pytest.raises(ValueError, match="more than 4096 antichains"):
        ps.partition(ps.Profile(layers, edges), 4, 1e9, compat="pipedream")


# ---- the default model ---------------------------------------------------------------------


@settings(max_examples=60)
@given(graphs(most=4), st.data())
def test_the_best_plan_is_the_twin_s(graph, data):
    layers, edges = graph
    counts = data.draw(st.sampled_from([(1,), (2,), (3,), (4,), (2, 2), (1, 3), (3, 1)]))
    bandwidth = [data.draw(st.sampled_from([0.5, 1.0, 4.0])) for _ in counts]
    memory = data.draw(st.sampled_from([None, 6.0, 15.0, 30.0]))
    overlap = data.draw(st.booleans())
    optimizer = data.draw(st.sampled_from([0.0, 1.0, 2.0]))
    straight = data.draw(st.booleans())
    most = min(len(layers), math.prod(counts))
    stages = data.draw(st.sampled_from([None, *range(1, most + 1)]))
    time, least, fewest = best_plan(
        layers,
        edges,
        counts,
        bandwidth,
        math.inf if memory is None else memory,
        overlap,
        optimizer,
        stages,
        1 if straight else None,
    )
    call = {
        "memory": memory,
        "overlap": overlap,
        "optimizer": optimizer,
        "stages": stages,
        "straight_pipeline": straight,
    }
    profile = profile_of(layers, edges)
    if math.isinf(time):
        with pytest.raises(ValueError, match=r"bytes too many|no way to cut") as caught:
            ps.partition(profile, counts, bandwidth, **call)
        if not math.isinf(least):
            missing = float(re.search(r"\), ([\d.e+]+) bytes too many", str(caught.value))[1])
            assert missing == pytest.approx(least - memory)
        return
    plan = ps.partition(profile, counts, bandwidth, **call)
    assert plan.time == pytest.approx(time, rel=1e-12, abs=1e-12)
    assert plan.exact
    assert plan.gap == 0
    assert len(plan.stages) <= fewest  # equal, unless rounding parts two equal plans
    # The plan says of itself what is true.
    again = evaluate(
        profile,
        plan.cluster,
        plan.stage_of_layer,
        [stage.ranks for stage in plan.stages],
        overlap=overlap,
        optimizer=optimizer,
    )
    assert again == plan.stages
    assert sorted((*plan.ranks, *plan.idle)) == list(range(plan.cluster.size))
    if memory is not None:
        assert max(stage.memory for stage in plan.stages) <= memory
    if stages is not None:
        assert len(plan.stages) == stages
    for source, target in edges:
        assert plan.stage_of_layer[source] <= plan.stage_of_layer[target]


@given(graphs(most=6), st.data())
def test_more_of_anything_is_never_worse(graph, data):
    profile = profile_of(*graph)
    shape = data.draw(st.sampled_from([(2,), (3,), (2, 2), (3, 2), (2, 1, 2)]))
    bandwidth = [data.draw(st.sampled_from([0.5, 1.0, 4.0])) for _ in shape]
    memory = data.draw(st.sampled_from([10.0, 25.0, 60.0]))
    overlap = data.draw(st.booleans())

    def time_of(shape, bandwidth, memory):
        try:
            return ps.partition(profile, shape, bandwidth, memory, overlap=overlap).time
        except ValueError:
            return math.inf

    at_hand = time_of(shape, bandwidth, memory)
    hair = 1 + 1e-12
    for level in range(len(shape)):
        wider = [w + (i == level) for i, w in enumerate(shape)]
        faster = [b * (2 if i == level else 1) for i, b in enumerate(bandwidth)]
        assert time_of(wider, bandwidth, memory) <= at_hand * hair
        assert time_of(shape, faster, memory) <= at_hand * hair
    assert time_of(shape, bandwidth, memory * 1.5) <= at_hand * hair


def test_more_is_never_worse_on_real_models(model):
    for name in ("vgg16", "alexnet", "gnmt", "squeezenet1_0"):
        times = [ps.partition(model(name), n, 1.25e9).time for n in (1, 2, 3, 4, 7, 8, 12, 16)]
        assert times == sorted(times, reverse=True)
        times = [
            ps.partition(model(name), (4, 4), (12e9, b)).time for b in (1e8, 1e9, 5e9, 12e9, 4e10)
        ]
        assert times == sorted(times, reverse=True)


def test_the_paper_s_configurations_are_found(model):
    """Table 1, cluster A: a replicated stage that straddles four servers of four."""
    vgg = ps.partition(model("vgg16"), *PAPER_A)
    assert vgg.config == "15-1"
    assert vgg.stages[0].ranks == tuple(range(15))
    assert ps.partition(model("vgg16"), *PAPER_A, overlap=False).config == "15-1"
    assert ps.partition(model("resnet50"), *PAPER_A).config == "16"
    # The published program cannot even write 15-1, and loses by it.
    old = ps.partition(model("vgg16"), *PAPER_A, compat="pipedream", activation_compression_ratio=1)
    assert "15-1" not in old.config
    assert max(stage.time for stage in old.stages) > vgg.time


def test_numbers_of_a_plan_by_hand():
    layers = [ps.Layer("a", 1.0, 3.0, 8.0, 6.0), ps.Layer("b", 0.5, 0.5, 2.0, 10.0)]
    cluster = Cluster((2, 2), (8.0, 4.0))
    first, second = evaluate(
        ps.Profile(layers), cluster, [0, 1], [(0, 1, 2), (3,)], overlap=False, optimizer=1.0
    )
    assert first.compute == 4 / 3
    assert first.reduce == pytest.approx(2 * 2 / 3 * 6 / 4 / 3)  # over both servers
    assert first.send == pytest.approx(2 * 8 / 4 / 3)
    assert (second.compute, second.reduce, second.receive) == (1.0, 0.0, 4.0)
    assert (first.versions, second.versions) == (2, 1)
    assert first.memory == 2 * (6 + 8) + 6
    assert second.memory == 10 + 2 + 8 + 10
    assert second.time == 5.0
    assert second.binds == "transfer"


def test_in_flight_is_noam(model):
    for workers in (1, 4, 7, 16):
        plan = ps.partition(model("vgg16"), workers, 1.25e9)
        busy = len(plan.ranks)
        assert plan.in_flight == -(-busy // plan.stages[0].replicas)
        for s, stage in enumerate(plan.stages):
            behind = sum(plan.replicas[s:])
            assert stage.versions == -(-behind // stage.replicas)
    straight = ps.partition(model("vgg16"), 4, 1e9, straight_pipeline=True, stages=4)
    assert [stage.versions for stage in straight.stages] == [4, 3, 2, 1]


def test_a_one_byte_worker_is_refused_with_the_reason(model):
    """The published program says that VGG-16 fits into one byte."""
    with pytest.raises(ValueError, match=r"needs 9\.86547e\+09 on stage 0 .* 9\.86547e\+09 bytes"):
        ps.partition(model("vgg16"), 4, 1e9, memory=1)


def test_all_workers_are_used_or_named(model):
    plan = ps.partition(model("alexnet"), 16, 1.25e9)
    assert plan.config == "6-1"
    assert plan.idle == tuple(range(7, 16))
    assert "idle workers: 7-15" in plan.draw()
    assert "9 of 16 workers stay idle" in plan.explain()


def test_two_stages_on_a_mesh_of_two_servers():
    """A stage belongs inside a server where it talks a lot: two 1x4, not two 2x2."""
    layers = [ps.Layer("a", 1.0, 2.0, 1e3, 4e9), ps.Layer("b", 1.0, 2.0, 1e3, 4e9)]
    plan = ps.partition(ps.Profile(layers), (4, 2), (100e9, 1e9))
    assert [stage.ranks for stage in plan.stages] == [(0, 1, 2, 3), (4, 5, 6, 7)]


def test_a_slow_stage_s_place_matters_and_no_formula_says_so():
    """sum + (m-1) max is 54 wherever the slow stage is; 1F1B takes 48 if it comes first."""
    for times, expected in (([3, 3, 12], (54, 54)), ([12, 3, 3], (48, 54))):
        costs = ps.Costs(forward=[t / 3 for t in times], backward=[2 * t / 3 for t in times])
        made = tuple(ps.generate(name, 3, 4).simulate(costs).makespan for name in ("1f1b", "gpipe"))
        assert made == pytest.approx(expected)


def wide_graph(branches, length, blocks):
    """Blocks of parallel branches, as in inception_v3."""
    layers = [ps.Layer("stem", 1e-3, 2e-3, 1e6, 1e6)]
    edges = []
    for block in range(blocks):
        root = len(layers) - 1
        ends = []
        for branch in range(branches):
            at = root
            for i in range(length):
                layers.append(ps.Layer(f"{block}.{branch}.{i}", 1e-3, 2e-3, 1e6, 2e6))
                edges.append((at, len(layers) - 1))
                at = len(layers) - 1
            ends.append(at)
        layers.append(ps.Layer(f"{block}.concat", 1e-4, 1e-4, 4e6))
        edges += [(end, len(layers) - 1) for end in ends]
    return ps.Profile(layers, edges)


def test_graphs_with_too_many_prefixes_are_put_in_line():
    profile = wide_graph(branches=4, length=6, blocks=11)
    plan = ps.partition(profile, 8, 1e10)
    assert not plan.exact
    assert plan.bound <= plan.time
    assert 0 <= plan.gap < 0.2
    assert "layers in line: at most" in plan.draw()


@given(graphs(most=5), st.data())
def test_the_stated_loss_holds(graph, data):
    profile = profile_of(*graph)
    workers = data.draw(st.integers(1, 3))
    exact = ps.partition(profile, workers, 1.0)
    line = ps.partition(profile, workers, 1.0, max_states=1)
    assert exact.time <= line.time * (1 + 1e-12)
    if not line.exact and line.bound > 0:
        assert line.bound <= exact.time * (1 + 1e-12)
        assert line.time <= exact.time * (1 + line.gap) * (1 + 1e-9)


def test_layers_that_cost_nothing_do_not_multiply_the_states(model):
    """gnmt_large has 16,886 prefixes, most of them by where a free layer stands."""
    plan = ps.partition(model("gnmt_large"), 4, 1e9)
    assert plan.exact
    assert plan.states == 101


# ---- baselines, explanations ------------------------------------------------------------------


def test_baselines(model):
    profile = model("vgg16")
    plans = ps.baselines(profile, *PAPER_A)
    best = ps.partition(profile, *PAPER_A)
    assert list(plans) == ["data parallel", "straight pipeline", "model parallel", "hybrid"]
    assert all(plan.time >= best.time for plan in plans.values())
    assert plans["data parallel"].config == "16"
    weights = profile.parameters.sum()
    assert plans["data parallel"].stages[0].reduce == pytest.approx(
        2 * 15 / 16 * weights / 1.25e9 / 16
    )
    assert set(plans["straight pipeline"].replicas) == {1}
    alone = plans["model parallel"]
    assert not alone.pipelined
    assert [stage.versions for stage in alone.stages] == [1] * len(alone.stages)
    assert alone.time >= profile.compute.sum()
    hybrid = plans["hybrid"]
    assert max(hybrid.replicas) > 1
    assert not hybrid.pipelined
    assert hybrid.time > max(stage.time for stage in hybrid.stages)
    two = ps.Profile([ps.Layer("a", 1, 2), ps.Layer("b", 1, 2)])
    assert "hybrid" not in ps.baselines(two, 2, 1e9)


def test_explanations(model):
    plan = ps.partition(model("vgg16"), *PAPER_A)
    text = plan.explain()
    assert text == explain(plan)
    assert "stage 0 (layers 0..30) binds by its compute" in text
    assert "one stage fewer: at best 51.8841 ms (16, +17.5%)" in text
    assert "one stage more: at best" in text
    alone = ps.partition(model("vgg16"), 1, 1e9)
    assert "one stage fewer: there is one stage only" in alone.explain()
    assert "one stage more: there are no more layers or workers" in alone.explain()


def test_explanations_claim_what_was_searched_for(model):
    """A stage with gaps is not a run; a baseline and another's objective are not optima."""
    gnmt = model("gnmt")
    plan = ps.partition(gnmt, 8, 1e9, stages=5)
    assert "stage 1 (layers 5..14,18..21) binds by its transfer" in plan.explain()
    assert "3 of 8 workers stay idle: no plan of 5 stages that uses" in plan.explain()
    alone = ps.baselines(gnmt, 8, 1e9)["model parallel"].explain()
    assert "139.486 ms a mini-batch, through all stages in turn; stage 1 " in alone
    assert alone.endswith("workers stay idle")
    old = ps.partition(gnmt, 8, 1e9, compat="pipedream").explain()
    assert "19.032 ms a mini-batch by the published program, 51.4335 ms by the default" in old
    two = ps.partition(model("vgg16"), 2, 1e9, stages=2).explain()
    assert "one worker fewer: nothing fits" in two


def test_drawn_as_text(model):
    lines = str(ps.partition(model("vgg16"), *PAPER_A)).splitlines()
    assert lines[0] == "4 x 4 workers (12 GB/s, 1.25 GB/s)"
    assert lines[1].startswith("pipedream: 15-1, 44.159 ms a mini-batch, 15.23 x one worker")
    assert re.match(r" +0 +0-30 +0-14 +44\.159 ", lines[3])
    assert "*#" in lines[3]
    assert "*" not in lines[4]


# ---- bad input, leaks, threads, interruption --------------------------------------------------

SMALL = ps.Profile([ps.Layer("a", 1, 2, 3, 4), ps.Layer("b", 1, 2, 3, 4)])


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: ps.partition(SMALL, 0, 1e9), "workers must be in"),
        (lambda: ps.partition(SMALL, [], []), "one value a level"),
        (lambda: ps.partition(SMALL, (2, 2), 1e9), "one value a level"),
        (lambda: ps.partition(SMALL, (1,) * 9, (1.0,) * 9), "at most 8 levels"),
        (lambda: ps.partition(SMALL, 2, 0), "bandwidth must be finite and above 0"),
        (lambda: ps.partition(SMALL, 2, math.inf), "bandwidth must be finite"),
        (lambda: ps.partition(SMALL, 2, 1e9, -1), "memory must be finite and above 0"),
        (lambda: ps.partition(SMALL, 2, 1e9, optimizer=-1), "optimizer must be"),
        (lambda: ps.partition(SMALL, 2, 1e9, stages=3), "stages=3 needs as many layers"),
        (lambda: ps.partition(SMALL, 2, 1e9, max_states=0), "max_states must be"),
        (lambda: ps.partition(SMALL, 2, 1e9, compat="dapple"), "compat must be None or"),
        (lambda: ps.partition(SMALL, 2, 1e9, use_fewer_machines=True), "belong to compat"),
        (lambda: ps.partition(SMALL, 2, 1e9, compat="pipedream", stages=2), "no choice of stages"),
        (
            lambda: ps.partition(SMALL, 2, 1e9, compat="pipedream", activation_compression_ratio=0),
            "activation_compression_ratio must be",
        ),
    ],
)
def test_bad_input_is_named(call, text):
    with pytest.raises(ValueError, match=text):
        call()


def test_wrong_types_are_named():
    with pytest.raises(TypeError, match=r"profile must be a pipesched\.Profile"):
        ps.partition("vgg16", 2, 1e9)
    with pytest.raises(TypeError, match="bandwidth must be a number"):
        ps.partition(SMALL, 2, None)
    with pytest.raises(TypeError, match="bandwidth must be a number"):
        ps.partition(SMALL, [2], ["1e9"])
    with pytest.raises(TypeError, match="memory must be a number"):
        ps.partition(SMALL, 2, 1e9, "1e9")
    with pytest.raises(ValueError, match="at most 32768 workers"):
        ps.partition(SMALL, (2**20, 2**20), (1e9, 1e9))


def test_the_core_checks_what_it_is_given():
    from pipesched import _core

    one = np.ones(2)
    ids = np.int32
    good = (one, one, one, np.array([0, 1], ids), np.array([2], ids), np.array([1.0]))
    rest = (True, False, 0, 0, 100, math.inf, 1.0)
    assert _core.partition_plan(*good, *rest)[2] >= 1
    bad = [
        (0, np.array([1.0, -1.0])),
        (1, np.array([1.0, math.nan])),
        (1, np.ones(3)),
        (3, np.array([0, 2], ids)),
        (3, np.array([1, 0], ids)),
        (3, np.array([0], ids)),
        (4, np.array([0], ids)),
        (4, np.array([1, 1], ids)),
        (5, np.array([0.0])),
    ]
    for position, value in bad:
        arguments = list(good)
        arguments[position] = value
        with pytest.raises(ValueError, match=r".+"):
            _core.partition_plan(*arguments, *rest)
    with pytest.raises(OverflowError):
        _core.partition_plan(*good[:4], np.array([2**30] * 3, ids), np.ones(3), *rest)


def test_nothing_leaks(model):
    profile = model("alexnet")

    def work():
        ps.partition(profile, 4, 1e9)
        ps.partition(profile, (2, 2), (1e9, 1e8), compat="pipedream")
        ps.partition_balanced(profile, 4)
        with pytest.raises(ValueError, match="too many"):
            ps.partition(profile, 2, 1e9, memory=1)

    work()
    tracemalloc.start()
    try:
        work()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(5):
            work()
        assert tracemalloc.get_traced_memory()[0] - before < 20_000
    finally:
        tracemalloc.stop()


def test_other_threads_run_meanwhile_and_agree(model):
    profile = model("resnet18")
    expected = ps.partition(profile, (2, 2), (12e9, 1e9)).time
    found = []
    threads = [
        threading.Thread(
            target=lambda: found.append(ps.partition(profile, (2, 2), (12e9, 1e9)).time)
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 4


@pytest.mark.parametrize(
    ("layers", "workers", "bandwidth", "options"),
    [
        (4000, (8, 8), (1e9, 1e8), {"memory": 1e12}),
        (3, 32000, 1e9, {}),  # one step of the programme is long, too
        (4000, 1000, 1e9, {"compat": "pipedream"}),
    ],
)
def test_long_searches_heed_ctrl_c(layers, workers, bandwidth, options, run_python):
    """Work that would outlive the test's time limit ends with the signal."""
    code = f"""
import os, signal, threading
import pipesched as ps
profile = ps.Profile([ps.Layer("x", 1 + i % 7, 2, 3, 4) for i in range({layers})])
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    ps.partition(profile, {workers}, {bandwidth}, **{options})
    print("finished")
except KeyboardInterrupt:
    print("interrupted")
"""
    assert run_python(code).split() == ["interrupted"]


@pytest.mark.parametrize(
    ("layers", "workers", "options", "text"),
    [
        (2, 10**6, {}, "at most 32768 workers, got workers=1000000"),
        (10_000, 4, {}, "at most 8192 layers, got 10000; take several layers together"),
        (100, (64, 64), {"memory": 1e9}, "too much for the search's memory"),
    ],
)
def test_what_no_machine_can_search_is_refused(layers, workers, options, text):
    profile = ps.Profile([ps.Layer("x", 1, 2, 3, 4)] * layers)
    bandwidth = 1e9 if isinstance(workers, int) else [1e9] * len(workers)
    with pytest.raises(ValueError, match=text):
        ps.partition(profile, workers, bandwidth, **options)


def test_a_drawing_s_bars_are_no_longer_than_asked(model):
    """Compute and link add up in a bar, also where they overlap in time."""
    plan = ps.partition(model("vgg16"), *PAPER_A)
    bare = max(map(len, plan.draw(width=0).splitlines()[2:]))
    assert bare <= 64
    for width in (1, 20, 40):
        bars = [line[bare:] for line in plan.draw(width=width).splitlines()[3:5]]
        assert max(map(len, bars)) == width
    assert set(bars[0]) == {"#", "r", "t"}


def test_layers_that_cost_nothing():
    """No time to divide by: a plan, its text, its schedule and its baselines all the same."""
    chain = ps.Profile([ps.Layer("a", 0, 0), ps.Layer("b", 0, 0)])
    wide = ps.Profile([ps.Layer("a", 0, 0, 1)] * 30, [(0, i) for i in range(1, 30)])
    for profile in (chain, wide):
        plan = ps.partition(profile, 2, 1e9)
        assert (plan.time, plan.gap, plan.speedup) == (0.0, 0.0, 1.0)
        assert "0 ms" in plan.explain()
        assert "0 ms" in plan.draw()
        assert plan.steady_state().agrees
        assert ps.generate("pipedream", plan=plan, m=3).simulate(plan.costs()).makespan == 0.0
        assert all(other.speedup == 1.0 for other in ps.baselines(profile, 2, 1e9).values())
    assert ps.partition(chain, 2, 1e9, compat="pipedream").speedup == 1.0


def test_a_cluster_s_links():
    cluster = Cluster((2, 2), (1.0, 5.0))  # a way out of a server runs inside it, too
    assert cluster.link(0, 1) == 1.0
    assert cluster.link(1, 2) == 1.0
    assert str(cluster) == "2 x 2 workers (1e-09 GB/s, 5e-09 GB/s)"


def test_the_readme_shows_what_the_code_prints(data_dir, monkeypatch):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```pycon\n(>>> vgg = .*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(data_dir / "pipedream_profiles")
    example = doctest.DocTestParser().get_doctest(block, {"ps": ps}, "README", "README.md", 0)
    assert len(example.examples) == 4
    assert doctest.DocTestRunner().run(example).failed == 0
