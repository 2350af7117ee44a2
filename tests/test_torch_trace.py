"""Reading a torch run back: `read_torch_trace` and `compare_timelines`, without torch."""

import contextlib
import gzip
import json

import numpy as np
import pytest
from conftest import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st

import pipesched as ps

MICRO = 1e6
POST = 0.5e-6  # seconds to post a transfer
RECORDED = ROOT / "tests" / "data" / "torch_trace"


def write_traces(
    folder,
    timeline,
    *,
    skew=(),
    steps=1,
    gap=1.0,
    receives=True,
    markers=True,
    profiler_steps=False,
    host="one",
    edit=None,
    compress=False,
    ranked=True,
):
    """Traces such as torch would write of a run with these times (in seconds).

    A rank comes to its next op when the one before has ended, and waits inside its range; a send
    is posted at the end of what it sends, and a receive just before the op that needs it.
    """
    schedule = timeline.schedule
    paths, rows = [], schedule.rows()
    for rank in range(schedule.p):
        offset = skew[rank] if skew else 0.0
        events = []
        for k in range(steps):
            begin = k * (timeline.makespan + gap)
            come, index = begin, int(schedule.offsets[rank])
            if markers:
                events += around(schedule, rank, "UNSHARD", begin - 3 * POST, offset)
            for word in rows[rank]:
                parts = word[1 : word.index(")")].split(";") if word[0] == "(" else [word]
                start, end = begin + timeline.start[index], begin + timeline.end[index]
                for part in parts:
                    stage, kind, j = split(part)
                    if kind in "FBI" and remote(schedule, stage, kind) and receives:
                        name = f"{stage}RECV_{'F' if kind == 'F' else 'B'}{j}"
                        events.append(event(f"PP:{name}", come, come + POST, offset))
                        arrival = max(start, come + POST)
                        events.append(event("gloo:recv", come + POST / 2, arrival, offset))
                        come += POST
                events.append(event(f"PP:{word}", come, end, offset))
                for part in parts:
                    stage, kind, j = split(part)
                    if kind in "FBI" and sends(schedule, stage, kind):
                        name = f"{stage}SEND_{'F' if kind == 'F' else 'B'}{j}"
                        events.append(event(f"PP:{name}", end, end + POST, offset))
                        end += POST
                come = end
                index += len(parts)
            if markers:
                events += around(schedule, rank, "REDUCE_GRAD", come + POST, offset)
            if profiler_steps:
                events.append(event(f"ProfilerStep#{k}", begin - gap / 2, come + gap / 3, offset))
        document = {"traceEvents": events, "baseTimeNanoseconds": 1_000_000_000}
        if host:
            document["host_name"] = host if host == "one" else f"{host}{rank}"
        if ranked:
            document["distributedInfo"] = {"rank": 10 + rank}
        if edit:
            edit(rank, document)
        path = folder / f"rank{rank}.json"
        text = json.dumps(document).encode()
        path.write_bytes(gzip.compress(text) if compress else text)
        paths.append(path)
    return paths


def around(schedule, rank, kind, start, offset):
    """What torch puts before and after a step, an action a stage."""
    stages = schedule.placement[rank]
    length = POST / len(stages)
    return [
        event(f"PP:{s}{kind}", start + i * length, start + (i + 1) * length, offset)
        for i, s in enumerate(stages)
    ]


def event(name, start, end, offset):
    return {
        "ph": "X",
        "cat": "user_annotation",
        "name": name,
        "ts": (start + offset) * MICRO,
        "dur": (end - start) * MICRO,
        "pid": 1,
        "tid": 1,
    }


def split(word):
    kind = next(letter for letter in word if letter.isalpha())
    stage, j = word.split(kind)
    return int(stage), kind, int(j)


def home(schedule):
    return {stage: rank for rank, stages in enumerate(schedule.placement) for stage in stages}


def remote(schedule, stage, kind):
    other = stage - 1 if kind == "F" else stage + 1
    homes = home(schedule)
    return other in homes and homes[other] != homes[stage]


def sends(schedule, stage, kind):
    other = stage + 1 if kind == "F" else stage - 1
    homes = home(schedule)
    return other in homes and homes[other] != homes[stage]


def costs(stages):
    """Uneven and in milliseconds, as a run has them."""
    rng = np.random.default_rng(stages)
    return ps.Costs(
        rng.integers(2, 9, stages) * 1e-3,
        backward_input=rng.integers(2, 9, stages) * 1e-3,
        backward_weight=rng.integers(2, 9, stages) * 1e-3,
        transfer=1e-3,
    )


def agree(measured, timeline, tolerance=3e-6):
    assert measured.schedule == timeline.schedule
    assert np.allclose(measured.start, timeline.start, rtol=0, atol=tolerance)
    assert np.allclose(measured.end, timeline.end, rtol=0, atol=tolerance)
    for basis in ("makespan", "bubble_fraction", "bubble_ratio", "span_bubble"):
        assert getattr(measured, basis) == pytest.approx(getattr(timeline, basis), abs=1e-3)
    assert np.array_equal(measured.peak_activations, timeline.peak_activations)


CASES = [
    ("1f1b", 4, 6),
    ("gpipe", 2, 3),
    ("interleaved-1f1b", 2, 5),
    ("zb-h1", 3, 4),
    ("zb-v", 2, 5),
    ("dualpipe-v", 2, 5),
]


@pytest.mark.parametrize(("name", "p", "m"), CASES)
@pytest.mark.parametrize("compress", [False, True])
def test_a_run_is_read_back(tmp_path, name, p, m, compress):
    schedule = ps.generate(name, p, m)
    timeline = schedule.simulate(costs(schedule.num_stages))
    paths = write_traces(tmp_path, timeline, steps=3, compress=compress)
    measured = ps.read_torch_trace(paths[::-1])  # the files name their ranks
    agree(measured, timeline)
    assert len(measured.steps) == 3
    assert measured.notes == ()
    assert not measured.clock_offsets.any()
    # Until its last op, a rank that is not at work waits.
    last = np.maximum.reduceat(timeline.end, schedule.offsets[:-1])
    assert np.allclose(measured.waited, timeline.idle - (timeline.makespan - last), atol=1e-4)


def test_costs_come_back_and_predict_the_run(tmp_path):
    schedule = ps.generate("1f1b", 3, 5)
    given = costs(3)
    timeline = schedule.simulate(given)
    measured = ps.read_torch_trace(write_traces(tmp_path, timeline, steps=2))
    assert np.allclose(measured.costs().forward, given.forward, atol=1e-6)
    assert np.allclose(measured.costs().backward, given.backward, atol=1e-6)
    assert np.allclose(measured.costs().transfer, 1e-3, atol=3e-6)
    again = measured.schedule.simulate(measured.costs())
    assert again.makespan == pytest.approx(timeline.makespan, rel=1e-3)
    by_key = {(cost.stage, cost.kind): cost for cost in measured.stage_costs}
    assert by_key[1, "F"].count == 10
    assert by_key[1, "F"].spread == pytest.approx(0, abs=1e-9)
    assert by_key[0, "SEND_F"].median == pytest.approx(1e-3, abs=3e-6)


def test_waiting_is_told_by_op_and_rank(tmp_path):
    schedule = ps.Schedule.from_rows(["0F0 0B0", "1F0 1B0"])
    timeline = schedule.simulate(ps.Costs(2e-3, 3e-3, transfer=1e-3))
    measured = ps.read_torch_trace(write_traces(tmp_path, timeline))
    assert np.allclose(measured.wait, [0, 7e-3, 3e-3, 0], atol=3e-6)
    assert np.allclose(measured.waited, [7e-3, 3e-3], atol=3e-6)
    assert measured.cause.tolist() == [-1, 3, 0, 2]
    assert measured.critical_path.tolist() == [0, 2, 3, 1]
    assert "step 0 of 1" in repr(measured)


@pytest.mark.parametrize("name", ["1f1b", "zb-v"])
def test_clocks_of_several_hosts_are_aligned(tmp_path, name):
    schedule = ps.generate(name, 3, 6)
    timeline = schedule.simulate(costs(schedule.num_stages))
    # As two reported clocks were: seconds apart, of which the true skew is unknown.
    skew = [0.0, 11.56, -0.0016]
    measured = ps.read_torch_trace(write_traces(tmp_path, timeline, skew=skew, host="node"))
    agree(measured, timeline, tolerance=2e-3)
    offset = measured.clock_offsets - measured.clock_offsets[0]
    assert np.allclose(offset, [0, -11.56, 0.0016], atol=2e-3)
    assert any("midway" in note for note in measured.notes)


def test_clocks_that_cannot_be_aligned_are_refused(tmp_path):
    """Two runs of different speed, whose receives end before their sends on any offset."""
    schedule = ps.generate("1f1b", 2, 4)
    slow = schedule.simulate(ps.Costs(9e-3, 9e-3))
    fast = schedule.simulate(ps.Costs(1e-3, 1e-3))
    (tmp_path / "slow").mkdir()
    (tmp_path / "fast").mkdir()
    paths = [
        write_traces(tmp_path / "slow", slow, host="a")[1],
        write_traces(tmp_path / "fast", fast, host="a")[0],
    ]
    with pytest.raises(ValueError, match=r"received .* ms before it was sent"):
        ps.read_torch_trace(paths)


def test_one_hosts_clock_is_not_believed_where_it_contradicts(tmp_path):
    schedule = ps.generate("1f1b", 2, 4)
    timeline = schedule.simulate(ps.Costs(2e-3, transfer=1e-4))
    measured = ps.read_torch_trace(write_traces(tmp_path, timeline, skew=[0, -5.0]))
    agree(measured, timeline, tolerance=1e-3)
    assert any("one host" in note for note in measured.notes)


def test_transfers_one_way_only(tmp_path):
    schedule = ps.generate("forward", 3, 4)
    timeline = schedule.simulate(ps.Costs(2e-3))
    measured = ps.read_torch_trace(
        write_traces(tmp_path, timeline, skew=[0, 3.0, -4.0], host="node")
    )
    agree(measured, timeline, tolerance=1e-5)
    assert any("one way" in note for note in measured.notes)


def test_without_the_backends_ranges_the_waiting_is_bounded(tmp_path):
    """As with other backends: what is known is that no input comes before it was sent."""
    schedule = ps.generate("1f1b", 3, 5)
    timeline = schedule.simulate(ps.Costs(2e-3, 4e-3))
    measured = ps.read_torch_trace(write_traces(tmp_path, timeline, receives=False))
    agree(measured, timeline, tolerance=1e-5)


def drop(*words, rank=0, occurrence=0):
    def edit(r, document):
        if r != rank:
            return
        for word in words:
            events = document["traceEvents"]
            found = [e for e in events if e["name"] == f"PP:{word}"]
            events.remove(found[occurrence])

    return edit


def test_a_step_with_a_missing_range_is_left_out_and_reported(tmp_path):
    timeline = ps.generate("1f1b", 2, 4).simulate(ps.Costs(1e-3))
    paths = write_traces(tmp_path, timeline, steps=3, edit=drop("0B2", rank=0, occurrence=1))
    measured = ps.read_torch_trace(paths)
    assert len(measured.steps) == 2
    (note,) = measured.notes
    assert "rank 0, step 1 of 3" in note
    assert "no range of 0B2" in note
    agree(measured, timeline)


@pytest.mark.parametrize("markers", [{"markers": True}, {"profiler_steps": True}])
@pytest.mark.parametrize("name", ["1f1b", "naive", "zb-h1"])
def test_a_profile_that_began_or_ended_within_a_step(tmp_path, name, markers):
    timeline = ps.generate(name, 2, 4).simulate(ps.Costs(1e-3))

    def edit(rank, document):
        events = document["traceEvents"]
        cut = timeline.makespan * 0.6 * MICRO
        tail = (3 * timeline.makespan + 3 + timeline.makespan * 0.5) * MICRO
        document["traceEvents"] = [e for e in events if cut < e["ts"] < tail]

    paths = write_traces(tmp_path, timeline, steps=4, edit=edit, **markers)
    measured = ps.read_torch_trace(paths)
    assert len(measured.steps) >= 2
    assert measured.notes
    agree(measured, timeline)


def test_no_complete_step_is_an_error(tmp_path):
    timeline = ps.generate("1f1b", 2, 4).simulate(ps.Costs(1e-3))
    paths = write_traces(tmp_path, timeline, edit=drop("1B2", rank=1))
    with pytest.raises(ValueError, match=r"not hold a whole step.*1B2"):
        ps.read_torch_trace(paths)


def test_ranks_with_different_numbers_of_steps(tmp_path):
    timeline = ps.generate("1f1b", 2, 4).simulate(ps.Costs(1e-3))
    (tmp_path / "more").mkdir()
    paths = [
        write_traces(tmp_path, timeline, steps=2)[0],
        write_traces(tmp_path / "more", timeline, steps=3)[1],
    ]
    with pytest.raises(ValueError, match="2 on rank 0, 3 on rank 1"):
        ps.read_torch_trace(paths)


def test_nested_ranges(tmp_path):
    schedule = ps.Schedule.from_rows(["0F0 (0F1;0B0)OVERLAP_F_B 0B1"])
    timeline = schedule.simulate(ps.Costs(2e-3, 3e-3))

    def inside(name, start):
        def edit(rank, document):
            document["traceEvents"].append(event(f"PP:{name}", start, start + 1e-3, 0))

        return edit

    # A custom function for the pair may name its two ops again.
    measured = ps.read_torch_trace(write_traces(tmp_path, timeline, edit=inside("0B0", 5e-3)))
    agree(measured, timeline)
    assert "1 ranges inside the overlapped pairs" in measured.notes[0]
    with pytest.raises(ValueError, match="PP:0B0 starts inside PP:0F0"):
        ps.read_torch_trace(write_traces(tmp_path, timeline, edit=inside("0B0", 5e-4)))


def test_a_step_can_be_chosen(tmp_path):
    timeline = ps.generate("1f1b", 2, 2).simulate(ps.Costs(1e-3))
    paths = write_traces(tmp_path, timeline, steps=3)
    assert ps.read_torch_trace(paths, step=2).step == 2
    with pytest.raises(ValueError, match=r"step must be in 0\.\.2.*got 3"):
        ps.read_torch_trace(paths, step=3)


def edited(change):
    def edit(rank, document):
        if rank == 0:
            change(document)

    return edit


BAD = {
    "no list of traceEvents": lambda d: d.update(traceEvents=3),
    "no range of an action": lambda d: d.update(traceEvents=[]),
    "in 'ts', but 'soon'": lambda d: d["traceEvents"][0].update(ts="soon"),
    "'dur'": lambda d: d["traceEvents"][0].update(dur=-1.0),
    "in 'ts', but nan": lambda d: d["traceEvents"][0].update(ts=float("nan")),
    "in 'ts', but 1000": lambda d: d["traceEvents"][0].update(ts=10**400),
    "in 'ts', but True": lambda d: d["traceEvents"][0].update(ts=True),
    "traces are all of rank 11": lambda d: d.update(distributedInfo={"rank": 11}),
}


@pytest.mark.parametrize("text", BAD)
def test_bad_files_are_named(tmp_path, text):
    timeline = ps.generate("1f1b", 2, 2).simulate(ps.Costs(1e-3))
    paths = write_traces(tmp_path, timeline, edit=edited(BAD[text]))
    with pytest.raises(ValueError, match=text) as caught:
        ps.read_torch_trace(paths)
    assert "rank0.json" in str(caught.value)


WORDS = st.sampled_from(
    ["0F0", "0B0", "1F0", "0F999999999", "(0F1;0B0)OVERLAP_F_B", "x", "0SEND_F0"]
)
EVENTS = st.fixed_dictionaries(
    {"ph": st.sampled_from(["X", "M", 3]), "name": WORDS.map("PP:{}".format) | st.integers()},
    optional={
        "ts": st.floats() | st.integers() | st.none() | st.text(max_size=3),
        "dur": st.floats() | st.integers(0, 9) | st.booleans(),
        "cat": st.sampled_from(["user_annotation", "gpu_user_annotation", None]),
    },
)
JSON = st.recursive(
    st.none() | st.integers() | st.floats() | st.text(max_size=5) | EVENTS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)
DOCUMENTS = JSON | st.fixed_dictionaries(
    {"traceEvents": st.lists(EVENTS, max_size=8)},
    optional={"baseTimeNanoseconds": JSON, "distributedInfo": JSON, "host_name": JSON},
)


@settings(max_examples=100)
@given(st.lists(DOCUMENTS.map(json.dumps).map(str.encode) | st.binary(), min_size=1, max_size=2))
def test_any_files_are_read_or_refused(tmp_path_factory, contents):
    folder = tmp_path_factory.mktemp("any")
    paths = []
    for index, content in enumerate(contents):
        paths.append(folder / f"{index}.json")
        paths[-1].write_bytes(content)
    with contextlib.suppress(ValueError):
        assert ps.read_torch_trace(paths).schedule.check()


@pytest.mark.parametrize(
    "raw", [b"[" * 200_000, b"", b"PK", b"{", b"\x1f\x8bnot gzip", b"\xff\xfe\x00"]
)
def test_files_that_are_no_traces(tmp_path, raw):
    path = tmp_path / "trace.json"
    path.write_bytes(raw)
    with pytest.raises(ValueError, match=r"trace\.json is no Chrome trace"):
        ps.read_torch_trace(path)


def test_no_paths():
    with pytest.raises(ValueError, match="at least one trace"):
        ps.read_torch_trace([])


def test_other_ranges_and_events_are_passed_over(tmp_path):
    timeline = ps.generate("1f1b", 2, 2).simulate(ps.Costs(1e-3))

    def edit(rank, document):
        document["traceEvents"] += [
            3,
            {"ph": "M", "name": "process_name"},
            {"ph": "X", "name": 7, "ts": 0, "dur": 0},
            {"ph": "X", "name": "PP:mine", "ts": 0, "dur": 0},
            {"ph": "X", "cat": "gpu_user_annotation", "name": "PP:0F0", "ts": 0, "dur": 0},
        ]

    measured = ps.read_torch_trace(write_traces(tmp_path, timeline, edit=edit, ranked=False))
    agree(measured, timeline)
    assert any("PP:mine" in note for note in measured.notes)
    assert any("GPU" in note for note in measured.notes)


@settings(max_examples=30)
@given(st.sampled_from(CASES), st.integers(0, 2**32 - 1))
def test_any_skew_within_the_transfers_leaves_no_receive_before_its_send(
    tmp_path_factory, case, seed
):
    name, p, m = case
    schedule = ps.generate(name, p, m)
    timeline = schedule.simulate(costs(schedule.num_stages))
    skew = np.random.default_rng(seed).uniform(-5, 5, p)
    folder = tmp_path_factory.mktemp("skew")
    measured = ps.read_torch_trace(write_traces(folder, timeline, skew=list(skew), host="node"))
    ends = {}
    for (stage, j, kind, _), end in zip(schedule.ops.tolist(), measured.end, strict=True):
        ends[stage, j, kind] = end
    for (stage, j, kind, _), start in zip(schedule.ops.tolist(), measured.start, strict=True):
        if kind == 0 and stage > 0:
            assert start >= ends[stage - 1, j, 0] - 3e-6


def test_the_trace_of_a_rank_that_was_not_given_is_missed(tmp_path):
    schedule = ps.generate("1f1b", 3, 4)
    paths = write_traces(tmp_path, schedule.simulate(costs(3)))
    with pytest.raises(ValueError, match=r"rank1\.json: PP:1SEND_F0 .* stage 2, which no trace"):
        ps.read_torch_trace(paths[:2])
    with pytest.raises(ValueError, match=r"rank0\.json: PP:0SEND_F0 .* stage 1, which no trace"):
        ps.read_torch_trace(paths[:1])
    with pytest.raises(ValueError, match=r"rank1\.json: PP:1RECV_F0 .* stage 0, which no trace"):
        ps.read_torch_trace(paths[1:])


# ---- a recorded run ----------------------------------------------------------------------------


def test_a_recorded_run_of_torch():
    """Two ranks of torch 2.13.0 on gloo, six steps of ZB-V (made by tests/with_torch)."""
    measured = ps.read_torch_trace(sorted(RECORDED.glob("*.json.gz")))
    assert measured.schedule == ps.generate("zb-v", 2, 4)
    assert len(measured.steps) == 6
    assert measured.notes == ()
    assert (measured.end > measured.start).all()
    assert 0 < measured.bubble_fraction < 1
    assert (measured.waited < measured.makespan).all()
    predicted = measured.schedule.simulate(measured.costs())
    assert 0.5 < predicted.makespan / measured.makespan < 1.5


# ---- comparison --------------------------------------------------------------------------------


def test_comparison_names_what_differs():
    schedule = ps.generate("1f1b", 2, 4)
    one, two = schedule.simulate(ps.Costs(1, 2)), schedule.simulate(ps.Costs(2, 4, transfer=1))
    found = ps.compare_timelines(one, two)
    assert found.error == one.makespan / two.makespan - 1
    assert found.to_dict()["makespan"] == {"predicted": one.makespan, "measured": two.makespan}
    assert [name for name, *_ in found.rows[:4]] == [
        "makespan",
        "bubble_fraction",
        "bubble_ratio",
        "span_bubble",
    ]
    assert "the ops took 100 % more" in str(found)
    assert "idle time, in proportion to the work, made up 12 % of the step more" in str(found)
    # A bubble that is longer only because its work is, is explained by the work.
    slower = ps.compare_timelines(one, schedule.simulate(ps.Costs(2, 4)))
    assert len(slower.reasons) == 1
    assert slower.reasons[0].startswith("the ops took 100 % more")
    same = ps.compare_timelines(one, one)
    assert same.error == 0
    assert same.reasons == ()


def test_comparison_refuses_what_cannot_be_compared():
    one = ps.generate("1f1b", 2, 4).simulate()
    with pytest.raises(TypeError, match="measured must be a Timeline"):
        ps.compare_timelines(one, ps.generate("1f1b", 2, 4))
    nothing = ps.generate("1f1b", 2, 4).simulate(ps.Costs(0.0))
    with pytest.raises(ValueError, match="predicted has no op that takes time"):
        ps.compare_timelines(nothing, one)
    with pytest.raises(ValueError, match="measured has no op that takes time"):
        ps.compare_timelines(one, nothing)
    with pytest.raises(ValueError, match="2 predicted and 3 measured"):
        ps.compare_timelines(one, ps.generate("1f1b", 3, 4).simulate())
