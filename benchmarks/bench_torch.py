"""How long torch's files take: schedules in and out, the report, a run's traces."""

import json
import tempfile
import time
from pathlib import Path

from timing import human

import pipesched as ps


def timed(call):
    """What the call gives, and its seconds."""
    start = time.perf_counter()
    result = call()
    return result, time.perf_counter() - start


def files(folder):
    schedule = ps.generate("1f1b", 64, 7813)
    path = folder / "schedule.csv"
    for comms in (False, True):
        _, writing = timed(lambda comms=comms: schedule.to_torch_csv(path, comms=comms))
        found, reading = timed(lambda: ps.read_torch_csv(path))
        kind = "with its transfers" if comms else "compute only"
        print(f"{len(found):,} actions, {kind}: written {human(writing)}, read {human(reading)}")


def report():
    schedule = ps.generate("1f1b", 64, 512)
    found, took = timed(schedule.torch_report)
    assert found
    print(f"report on {len(schedule):,} ops: {human(took)}")


def traces(folder, p=8, m=64, steps=50):
    """Traces with nothing but the ranges of the actions, as long as a profile of many steps."""
    timeline = ps.generate("1f1b", p, m).simulate(ps.Costs(1e-3, transfer=1e-5))
    offsets, rows = timeline.schedule.offsets, timeline.schedule.rows()
    paths, count = [], 0
    for rank in range(p):
        span = slice(offsets[rank], offsets[rank + 1])
        times = list(zip(timeline.start[span] * 1e6, timeline.end[span] * 1e6, strict=True))
        events = [
            {"ph": "X", "name": f"PP:{word}", "ts": start + k * 1e7, "dur": end - start}
            for k in range(steps)
            for word, (start, end) in zip(rows[rank], times, strict=True)
        ]
        paths.append(folder / f"rank{rank}.json")
        paths[-1].write_text(json.dumps({"traceEvents": events, "host_name": "one"}))
        count += len(events)
    _, took = timed(lambda: ps.read_torch_trace(paths))
    print(f"traces of {p} ranks, {steps} steps, {count:,} ranges: read {human(took)}")


with tempfile.TemporaryDirectory() as name:
    files(Path(name))
    report()
    traces(Path(name))
