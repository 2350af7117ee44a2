"""The exercise against the NumPy solution of its hint, and what an import costs."""

import subprocess
import sys
import tracemalloc

import numpy as np
from timing import human, race

import pipesched as ps


def numpy_schedule(p, m):
    """The hint: fill with -1, then each row's run of micro-batches."""
    schedule = np.full((p, m + p - 1), -1)
    for rank in range(p):
        schedule[rank, rank : rank + m] = np.arange(m)
    return schedule


def numpy_fraction(schedule):
    """The hint: the mean of the idle cells."""
    return float((schedule == -1).mean())


def line(what, ours, theirs, against):
    print(
        f"  {what:<34} {human(ours):>8}   {against:<10} {human(theirs):>8}   "
        f"{theirs / ours:5.1f} times as fast, {ours / theirs:.2f} of its time"
    )


def small(p, m):
    print(f"p={p} m={m}")
    table = ps.gpipe_forward_schedule(p, m)
    ours, theirs = race(lambda: ps.gpipe_forward_schedule(p, m), lambda: numpy_schedule(p, m))
    line("gpipe_forward_schedule", ours, theirs, "the hint")
    ours, theirs = race(lambda: ps.bubble_fraction(table), lambda: numpy_fraction(table))
    line("bubble_fraction", ours, theirs, "the hint")


def large(p, m):
    shape = (p, m + p - 1)
    print(f"p={p} m={m}: {shape[0] * shape[1] * 8 / 2**20:.0f} MiB")
    ours, theirs = race(
        lambda: ps.gpipe_forward_schedule(p, m), lambda: np.full(shape, -1), seconds=8
    )
    line("gpipe_forward_schedule", ours, theirs, "np.full")
    table = ps.gpipe_forward_schedule(p, m)
    ours, theirs = race(lambda: ps.bubble_fraction(table), lambda: np.sum(table), seconds=4)
    line("bubble_fraction", ours, theirs, "np.sum")


def memory(p, m):
    ps.gpipe_forward_schedule(2, 2)
    tracemalloc.start()
    table = ps.gpipe_forward_schedule(p, m)
    ps.bubble_fraction(table)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    print(f"  memory at its peak, beyond the table: {peak - table.nbytes} bytes")


IMPORT = """
import time
import numpy
start = time.perf_counter()
import pipesched
print(time.perf_counter() - start)
"""


def imports():
    command = [sys.executable, "-c", IMPORT]
    runs = [subprocess.run(command, capture_output=True, check=True).stdout for _ in range(15)]
    print(f"import pipesched, after import numpy: {human(min(map(float, runs)))}")


if __name__ == "__main__":
    small(4, 8)
    small(64, 1024)
    large(512, 65536)
    memory(512, 65536)
    imports()
