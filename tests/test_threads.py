"""Threads that share arrays, and the GIL that is let go around long loops.

In subprocesses with a time-out: what goes wrong here may hang or crash. Each says in its last
line whether the GIL was there, which an interpreter without one must have kept away.
"""

import sys
import sysconfig

import pytest

FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


@pytest.fixture
def run_threads(run_python):
    """Run code in a fresh interpreter, and see that it ran to its end with its own GIL or none."""

    def run(code, timeout):
        ending = "\nimport sys\nprint('GIL:', getattr(sys, '_is_gil_enabled', lambda: True)())\n"
        printed = run_python(code + ending, timeout=timeout)
        assert printed == f"GIL: {not FREE_THREADED}\n"

    return run


def test_this_interpreter_runs_as_it_was_built():
    # Not so where PYTHON_GIL or a module that declares nothing brought the GIL back.
    assert getattr(sys, "_is_gil_enabled", lambda: True)() is not FREE_THREADED


SHARED = """
import threading
import numpy as np
import pipesched as ps

rounds, workers = 300, 6
shared = ps.gpipe_forward_schedule(40, 2000)
small = ps.gpipe_forward_schedule(4, 8)
expected = ps.bubble_formula(40, 2000)
moving = np.full((40, 2000), -1, np.int8)
ready = threading.Barrier(workers + 1)
wrong = []


def work(seed):
    ready.wait()
    for i in range(rounds):
        if ps.bubble_fraction(shared) != expected:
            wrong.append("shared")
        if ps.bubble_fraction(small) != ps.bubble_formula(4, 8):
            wrong.append("small")
        if not 0.0 <= ps.bubble_fraction(moving) <= 1.0:
            wrong.append("moving")
        p, m = 1 + (seed + i) % 50, 1 + (7 * seed + i) % 900
        table = ps.gpipe_forward_schedule(p, m)
        if table[p - 1, p - 1] != 0 or table[0, m - 1] != m - 1:
            wrong.append("table")
        if ps.bubble_fraction(table.T) != ps.bubble_formula(p, m):
            wrong.append("fraction")
        for bad in (0, None):
            try:
                ps.gpipe_forward_schedule(bad, 1)
            except (TypeError, ValueError):
                continue
            wrong.append("error")


threads = [threading.Thread(target=work, args=(k,)) for k in range(workers)]
for thread in threads:
    thread.start()
ready.wait()
value = 0
while any(thread.is_alive() for thread in threads):
    moving[:] = value  # somebody writes what the others count
    value = -1 - value
for thread in threads:
    thread.join()
assert not wrong, sorted(set(wrong))
"""


def test_threads_share_arrays(run_threads):
    run_threads(SHARED, timeout=300)


OBJECTS = """
import threading
import numpy as np
import pipesched as ps

workers, rounds = 6, 12
costs = ps.Costs(forward=1.0, backward=2.0, overlap=2.5, transfer=0.25, static=3.0, link="serial")
sweep = ps.Costs(forward=np.linspace(1.0, 2.0, 9)[:, None], transfer=0.5)
layers = np.arange(1.0, 40.0)
chain = ps.Profile([ps.Layer(str(i), i, 2.0 * i, 10.0, 20.0) for i in range(1, 9)])


def everything(schedule, timeline):
    "What the objects say: many of these are looked up at the first question."
    again = ps.generate(schedule.name, schedule.p, schedule.num_microbatches)
    lowered = schedule.lower()
    times = schedule.simulate(sweep, threads=2)
    cut = ps.partition_balanced(layers, schedule.p)
    plan = ps.partition(chain, [2, 2], [1e3, 1e2])
    return (
        again == schedule,
        hash(again) == hash(schedule),
        schedule.check() is schedule,
        schedule.placement,
        str(schedule.rows()),
        str(lowered.check(blocking=True).rows()),
        np.asarray(schedule).tobytes(),
        timeline.start.tobytes(),
        timeline.cause.tobytes(),
        timeline.critical_path.tobytes(),
        timeline.lower_bound,
        [part.tobytes() for part in timeline.memory_profile(1)],
        schedule.simulate(costs).end.tobytes(),
        times.makespan.tobytes(),
        times.peak_memory.tobytes(),
        repr(cut),
        repr(plan),
    )


def fresh(name):
    schedule = ps.generate(name, 4, 8)
    return schedule, schedule.simulate(costs)


def work():
    for _ in range(rounds):
        ready.wait()  # all ask the same new objects at once
        try:
            if everything(*shared) != expected:
                wrong.append("another answer")
        except Exception as error:
            wrong.append(repr(error))
        ready.wait()


# Whatever one thread finds where another writes, nothing out of range is taken.
def write_moving():
    while not over.is_set():
        moving["stage"] = 2**31 - 1
        moving[:] = still


def read_moving():
    while not over.is_set():
        try:
            ps.Schedule.from_arrays(moving, offsets, 4, 8).simulate()
        except ValueError:  # a ScheduleError too
            pass
        except Exception as error:
            wrong.append(repr(error))


wrong = []
ready = threading.Barrier(workers + 1)
over = threading.Event()
still, offsets = (array.copy() for array in (fresh("zb-h1")[0].ops, fresh("zb-h1")[0].offsets))
moving = still.copy()
threads = [threading.Thread(target=work) for _ in range(workers)]
threads += [threading.Thread(target=target) for target in (read_moving, write_moving)]
for thread in threads:
    thread.start()
names = ("1f1b", "zb-h1", "chimera", "dualpipe")
for i in range(rounds):
    expected = everything(*fresh(names[i % len(names)]))
    shared = fresh(names[i % len(names)])
    ready.wait()
    ready.wait()
over.set()
for thread in threads:
    thread.join()
assert not wrong, sorted(set(wrong))
"""


def test_threads_share_schedules_and_timelines(run_threads):
    run_threads(OBJECTS, timeout=300)


FREE = """
import threading, time
import numpy as np
import pipesched as ps

# Many cells in little memory: every row begins one byte after the one before.
memory = np.zeros(400_000, np.int8)
table = np.lib.stride_tricks.as_strided(memory, (200_000, 200_000), (1, 1))
ps.bubble_fraction(table[:1000])


def overlap():
    started, took = threading.Event(), []

    def count():
        started.set()
        start = time.perf_counter()
        ps.bubble_fraction(table)
        took.append(time.perf_counter() - start)

    thread = threading.Thread(target=count)
    thread.start()
    started.wait()
    start = time.perf_counter()
    time.sleep(0.02)  # lets the other go into the loop; its end waits for the GIL
    waited = time.perf_counter() - start
    thread.join()
    return waited < took[0] / 2


assert any(overlap() for _ in range(5))
"""


def test_others_run_while_a_large_table_is_counted(run_threads):
    run_threads(FREE, timeout=300)


IMPORTED = """
import threading
barrier = threading.Barrier(8)
wrong = []


def work():
    barrier.wait()
    import pipesched as ps
    if ps.bubble_formula(3, 2) != 0.5 or not callable(ps.generate):
        wrong.append(1)


threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not wrong
"""


def test_threads_import_it_at_once(run_threads):
    run_threads(IMPORTED, timeout=120)
