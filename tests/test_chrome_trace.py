"""Chrome traces hold every op with its real duration, the dependencies and the memory."""

import io
import json
import re

import numpy as np
import pytest

import pipesched as ps


def trace(timeline, **options) -> dict[str, list[dict]]:
    stream = io.StringIO()
    timeline.to_chrome_trace(stream, **options)
    events = json.loads(stream.getvalue())["traceEvents"]
    return {ph: [e for e in events if e["ph"] == ph] for ph in {e["ph"] for e in events}}


@pytest.mark.parametrize("name", ["1f1b", "interleaved-1f1b", "zb-v", "dualpipe-v"])
def test_slices_are_the_ops_and_add_up_to_the_busy_time(name):
    timeline = ps.generate(name, 4, 8).simulate(ps.Costs(transfer=0.25))
    found = trace(timeline)["X"]
    ops = timeline.schedule.ops
    assert len(found) == len(ops) - np.count_nonzero(ops["fuse"])
    busy = np.zeros(4)
    for event in found:
        busy[event["tid"]] += event["dur"]
    np.testing.assert_allclose(busy, timeline.busy * 1e3)


def test_one_named_track_a_rank():
    found = trace(ps.generate("1f1b", 3, 4).simulate())["M"]
    names = {e["tid"]: e["args"]["name"] for e in found if e["name"] == "thread_name"}
    assert names == {0: "rank 0", 1: "rank 1", 2: "rank 2"}


@pytest.mark.parametrize("name", list(ps.SCHEDULES))
def test_every_event_has_the_fields_of_its_phase(name):
    """Trace Event Format: what each phase needs; times are numbers and not negative."""
    found = trace(ps.generate(name, 4, 8).lower().simulate(ps.Costs(transfer=0.25)))
    needs = {
        "M": {"ph", "pid", "tid", "name", "args"},
        "X": {"ph", "pid", "tid", "name", "cat", "ts", "dur"},
        "s": {"ph", "pid", "tid", "name", "cat", "ts", "id"},
        "f": {"ph", "pid", "tid", "name", "cat", "ts", "id", "bp"},
        "C": {"ph", "pid", "tid", "name", "ts", "args"},
    }
    assert set(found) <= set(needs)
    for phase, events in found.items():
        for event in events:
            assert set(event) == needs[phase]
            assert min(event.get("ts", 0), event.get("dur", 0)) >= 0
    # Perfetto takes process 0 for the system's idle one, and a thread with its process' number
    # for the main thread, which it shows first.
    pids = {event["pid"] for events in found.values() for event in events}
    tids = {event["tid"] for events in found.values() for event in events}
    assert len(pids) == 1
    assert not pids & (tids | {0})


@pytest.mark.parametrize("name", ["1f1b", "zb-v"])
def test_flows_start_and_end_inside_the_ops_they_join(name):
    timeline = ps.generate(name, 4, 8).simulate(ps.Costs(transfer=0.25))
    found = trace(timeline)
    slices = found["X"]

    def around(event):
        hits = [
            s["name"]
            for s in slices
            if s["tid"] == event["tid"] and s["ts"] <= event["ts"] < s["ts"] + s["dur"]
        ]
        assert len(hits) == 1
        return hits[0]

    ends = {e["id"]: e for e in found["f"]}
    crossing = sum(
        a != b
        for a, b in zip(owners(timeline.schedule), owners(timeline.schedule)[1:], strict=False)
    )
    assert len(found["s"]) == len(ends) == 2 * 8 * crossing
    for start in found["s"]:
        source, target = words(around(start)), words(around(ends[start["id"]]))
        joined = [
            (s, k, t)
            for s, k, j in source
            for t, _, i in target
            if i == j and t == s + (1 if k == "F" else -1)
        ]
        assert joined


def words(name: str) -> list[tuple[int, str, int]]:
    return [(int(s), k, int(j)) for s, k, j in re.findall(r"(\d+)([FBIW])(\d+)", name)]


def owners(schedule) -> list[int]:
    where = {}
    for rank, stages in enumerate(schedule.placement):
        where.update(dict.fromkeys(stages, rank))
    return [where[s] for s in range(schedule.num_stages)]


def test_counters_reach_the_peak_and_return():
    timeline = ps.generate("zb-h1", 4, 8).simulate(ps.Costs(activation=[4, 3, 2, 1], static=10))
    for rank in range(4):
        held = [
            e["args"]["bytes"] for e in trace(timeline)["C"] if e["name"].endswith(f"rank {rank}")
        ]
        assert max(held) == timeline.peak_memory[rank]
        assert held[-1] == 10


@pytest.mark.parametrize(("unit", "factor"), [("s", 1e6), ("ms", 1e3), ("us", 1), ("ns", 1e-3)])
def test_units(unit, factor):
    found = trace(ps.generate("1f1b", 2, 2).simulate(), unit=unit)["X"]
    assert max(e["ts"] + e["dur"] for e in found) == pytest.approx(9 * factor)


def test_a_wrong_unit_and_a_wrong_path_are_named(tmp_path):
    timeline = ps.generate("1f1b", 2, 2).simulate()
    with pytest.raises(ValueError, match="unit must be one of s, ms, us, ns, got 'min'"):
        timeline.to_chrome_trace(tmp_path / "t.json", unit="min")
    with pytest.raises(FileNotFoundError):
        timeline.to_chrome_trace(tmp_path / "no" / "t.json")


def test_names_are_escaped(tmp_path):
    schedule = ps.Schedule.from_rows([["0F0", "0B0"]], name='a "name"\n\u2028</script>')
    path = tmp_path / "t.json"
    schedule.simulate().to_chrome_trace(path)
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    assert events[0]["args"]["name"] == schedule.name
