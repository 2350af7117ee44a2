"""Schedules made, checked and simulated: speed, memory, growth, threads; the twin and torch."""

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from timing import human, race

import pipesched as ps

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))

import reference
import reference_schedules

P, M = 64, 512
SCHEDULES = [("1f1b", {}), ("interleaved-1f1b", {"v": 2}), ("zb-v", {})]
COSTS = ps.Costs(forward=1.0, backward=2.0, transfer=0.125)
# (p, m) of interleaved 1F1B with v = 2: 4 p m ops.
CURVE = [(8, 32), (16, 160), (64, 400), (128, 2000), (256, 10_000), (1024, 8192)]


def title(text):
    print(f"\n{text}")


def all_three(name, p, m, options):
    """What a user does: nothing is known of the schedule beforehand."""
    ps.generate(name, p, m, **options).check().simulate(COSTS)


def single():
    """Return the best time for all three, by schedule."""
    title(f"p={P} m={M}, one thread: ns an op")
    head = ("ops", "make", "check", "simulate", "all three", "M ops/s", "starts")
    print(f"  {'':<18}" + "".join(f"{word:>10}" for word in head))
    found = {}
    for name, options in SCHEDULES:
        schedule = ps.generate(name, P, M, **options).check()
        line = schedule.simulate(COSTS)
        n = len(schedule)

        def check(schedule=schedule):
            schedule._put("_is_legal", False)  # or it would only remember
            schedule.check()

        def starts(line=line):
            line._put("_start", None)
            return line.start

        times = race(
            lambda name=name, options=options: ps.generate(name, P, M, **options),
            check,
            lambda schedule=schedule: schedule.simulate(COSTS),
            lambda name=name, options=options: all_three(name, P, M, options),
            starts,
            seconds=4,
        )
        make, checked, simulated, total, later = (1e9 * t / n for t in times)
        print(
            f"  {name:<18}{n:>10,}{make:>10.1f}{checked:>10.1f}{simulated:>10.1f}{total:>10.1f}"
            f"{1e3 / total:>10.1f}{later:>10.1f}"
        )
        found[name] = times[3]
    print("  (starts: asked for once, after a simulation, which keeps the ends only)")
    return found


def twin(ours):
    title(f"p={P} m={M} against the slow twin of the tests, plain Python, once")
    for name, options in SCHEDULES:
        begin = time.perf_counter()
        rows = reference_schedules.generate(name, P, M, **options)
        stages = reference.count_stages(rows)
        assert not reference.check(rows, stages, M)
        result = reference.simulate(rows, stages, M, forward=1, backward=2, transfer=0.125)
        took = time.perf_counter() - begin
        line = ps.generate(name, P, M, **options).simulate(COSTS)
        assert line.makespan == result.makespan
        print(f"  {name:<18} twin {human(took):>8}   {took / ours[name]:6.0f} times as fast")


def torch_itself():
    title(f"p={P} m={M} built, validated and lowered, against torch's own classes, once")
    try:
        import torch
        from torch.distributed.pipelining import schedules
    except ImportError:
        print("  torch is not installed, so not measured")
        return
    print(f"  torch {torch.__version__}")
    classes = {"1f1b": (schedules.ScheduleInterleaved1F1B, 1),
               "interleaved-1f1b": (schedules.ScheduleInterleaved1F1B, 2),
               "zb-v": (schedules.ScheduleZBVZeroBubble, 2)}  # fmt: skip
    for name, options in SCHEDULES:
        make, v = classes[name]
        # All that their constructors ask of a stage: no model is built, nothing is sent.
        stages = [
            SimpleNamespace(
                num_stages=P * v, group_size=P, group_rank=0, stage_index=i, submod=None
            )
            for i in range(v)
        ]
        begin = time.perf_counter()
        theirs = make(stages, M)
        took = time.perf_counter() - begin
        (ours,) = race(
            lambda name=name, options=options: ps.generate(name, P, M, **options).check().lower()
        )
        lowered = ps.generate(name, P, M, **options).lower()
        rows = theirs.pipeline_order_with_comms.values()
        count = sum(
            action.computation_type.name not in ("UNSHARD", "RESHARD", "REDUCE_GRAD")
            for row in rows
            for action in row
        )
        assert count == len(lowered), (count, len(lowered))
        print(
            f"  {name:<18} torch {human(took):>8}   ours {human(ours):>8}   "
            f"{took / ours:6.0f} times as fast"
        )


def high_water():
    """Most bytes that this process ever held."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def one_of_the_curve(p, m):
    """In a process of its own, whose memory it measures."""
    all_three("interleaved-1f1b", 2, 2, {"v": 2})
    before = high_water()
    begin = time.perf_counter()
    schedule = ps.generate("interleaved-1f1b", p, m, v=2)
    made = time.perf_counter()
    schedule.check()
    checked = time.perf_counter()
    schedule.simulate(COSTS)
    end = time.perf_counter()
    memory = high_water() - before
    times = [made - begin, checked - made, end - checked]
    if len(schedule) < 10**6:  # too short for one measurement
        best = race(lambda: all_three("interleaved-1f1b", p, m, {"v": 2}))
        times = [t * best[0] / sum(times) for t in times]
    print(json.dumps({"ops": len(schedule), "times": times, "memory": memory}))


def curve():
    title("growth: interleaved 1F1B, v=2, all three, each in a process of its own, best of three")
    print(
        f"  {'p':>6}{'m':>8}{'ops':>12}{'ns an op':>10}{'in total':>10}   bytes an op at the peak"
    )
    for p, m in CURVE:
        command = [sys.executable, __file__, str(p), str(m)]
        # On a virtual machine the first to touch much memory waits until the host finds it.
        tries = [
            json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
            for _ in range(3)
        ]
        one = min(tries, key=lambda found: sum(found["times"]))
        ops, total = one["ops"], sum(one["times"])
        memory = f"{one['memory'] / ops:.0f}" if ops >= 10**5 else "(too few to tell)"
        print(f"  {p:>6}{m:>8}{ops:>12,}{1e9 * total / ops:>10.1f}{human(total):>10}   {memory}")
    make, check, simulate = (human(t) for t in one["times"])
    print(f"  the last: made in {make}, checked in {check}, simulated in {simulate}")


def sweep():
    p, m, count = 16, 256, 256
    title(f"one schedule, {count} cost vectors: 1F1B p={p} m={m}")
    schedule = ps.generate("1f1b", p, m).check()
    draw = np.random.default_rng(1)
    costs = ps.Costs(forward=draw.random((count, p)), transfer=draw.random((count, 1)))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    numbers = sorted({1, *(n for n in (2, 4, 8, 16, 32, 64) if n < cores), cores})
    times = race(*(lambda n=n: schedule.simulate(costs, threads=n) for n in numbers), seconds=4)
    for number, took in zip(numbers, times, strict=True):
        rate = count * len(schedule) / took / 1e6
        print(
            f"  {number:>3} thread{'s' if number > 1 else ' '}  {human(took):>8}   "
            f"{rate:6.1f} M ops/s   {times[0] / took:4.2f} times one thread"
        )
    print(f"  ({cores} cores here)")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        one_of_the_curve(int(sys.argv[1]), int(sys.argv[2]))
    else:
        curve()
        best = single()
        twin(best)
        torch_itself()
        sweep()
