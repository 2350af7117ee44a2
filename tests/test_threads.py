"""Threads that share arrays, and the GIL that is let go around long loops.

In subprocesses with a time-out: what goes wrong here may hang or crash.
"""

SHARED = """
import sys, threading
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
print("done", getattr(sys, "_is_gil_enabled", lambda: True)())
"""


def test_threads_share_arrays(run_python):
    assert run_python(SHARED, timeout=300).startswith("done")


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


def test_others_run_while_a_large_table_is_counted(run_python):
    run_python(FREE, timeout=300)


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


def test_threads_import_it_at_once(run_python):
    run_python(IMPORTED, timeout=120)
