"""Timing for the benchmarks: contenders take turns, so that noise meets them alike."""

import time


def race(*calls, seconds=0.5):
    """Return each call's best time in seconds, from rounds in which all take a turn.

    A turn repeats its call until it has lasted some 0.2 milliseconds.
    """
    repeats = []
    for call in calls:
        call()
        start = time.perf_counter()
        call()
        repeats.append(max(1, int(2e-4 / max(time.perf_counter() - start, 1e-9))))
    best = [float("inf")] * len(calls)
    end = time.perf_counter() + seconds
    rounds = 0
    while rounds < 3 or time.perf_counter() < end:
        for i, call in enumerate(calls):
            start = time.perf_counter()
            for _ in range(repeats[i]):
                call()
            best[i] = min(best[i], (time.perf_counter() - start) / repeats[i])
        rounds += 1
    return best


def human(seconds):
    """Return a time with its unit: "123 ns", "4.56 ms"."""
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
