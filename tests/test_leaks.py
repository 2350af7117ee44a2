"""No call keeps memory or references, and neither does any way in which it fails."""

import ctypes
import gc
import sys
import tracemalloc

import numpy as np
import pytest

import pipesched as ps

HUGE = 10**4000
TABLE = ps.gpipe_forward_schedule(5, 7)
ROWS = TABLE.tolist()


class FailingIndex:
    """Its __index__ fails."""

    def __index__(self):
        raise RuntimeError("not today")


class FailingArray:
    """Its __array__ fails."""

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("not today")


class AnArray:
    """Its __array__ gives a table."""

    def __array__(self, dtype=None, copy=None):
        return TABLE


class OddNames(type):
    """A type whose name cannot be had."""

    @property
    def __name__(cls):
        raise RuntimeError("no name")


class Nameless(metaclass=OddNames):
    """What is no number, of a type without a name."""


two = {call.__name__: call for call in (ps.gpipe_forward_schedule, ps.bubble_formula)}
made = {name: ps.generate(name, 4, 8) for name in ps.SCHEDULES}
SERIAL = ps.Costs(3, transfer=1, static=2, microbatch_scale=range(1, 9), link="serial")
CALLS = {
    "table": lambda: ps.gpipe_forward_schedule(30, 301),
    "table, long": lambda: ps.gpipe_forward_schedule(20, 2000),
    "table, NumPy's numbers": lambda: ps.gpipe_forward_schedule(np.int64(100), np.uint8(200)),
    "table, no address": lambda: ps.gpipe_forward_schedule(2**40, 2**40),
    "table, no number": lambda: ps.gpipe_forward_schedule(HUGE, 1),
    "table, no memory": lambda: ps.gpipe_forward_schedule(1, 2**59),
    "fraction": lambda: ps.bubble_fraction(TABLE),
    "fraction, by name": lambda: ps.bubble_fraction(schedule=TABLE),
    "fraction of a list": lambda: ps.bubble_fraction(ROWS),
    "fraction of a view": lambda: ps.bubble_fraction(TABLE[::-2, ::3].T),
    "fraction of an array's maker": lambda: ps.bubble_fraction(AnArray()),
    "fraction of much": lambda: ps.bubble_fraction(np.broadcast_to(TABLE, (2**54, 5, 11))[:, 0]),
    "fraction, empty": lambda: ps.bubble_fraction([]),
    "fraction, ragged": lambda: ps.bubble_fraction([[1], [2, 3]]),
    "fraction, a row": lambda: ps.bubble_fraction([1, 2]),
    "fraction, no integers": lambda: ps.bubble_fraction([[1.5]]),
    "fraction, object": lambda: ps.bubble_fraction(object()),
    "fraction, fails": lambda: ps.bubble_fraction(FailingArray()),
    "fraction, no argument": lambda: ps.bubble_fraction(),
    "fraction, wrong name": lambda: ps.bubble_fraction(table=1),
    "formula": lambda: ps.bubble_formula(1001, 5000),
    "formula, by name": lambda: ps.bubble_formula(m=1001, p=5000),
    "formula, large": lambda: ps.bubble_formula(2**61, 2**61),
    "formula, larger": lambda: ps.bubble_formula(2**62, 2**62),
    "formula, huge": lambda: ps.bubble_formula(HUGE, HUGE),
    **{
        f"{name}({label})": lambda call=call, args=args: call(*args)
        for name, call in two.items()
        for label, args in {
            "0, 1": (0, 1),
            "1001, -1001": (1001, -1001),
            "-HUGE, 1": (-HUGE, 1),
            "1, -HUGE": (np.int64(1001), -HUGE),
            "float": (1.5, 1),
            "int64, string": (np.int64(1001), "1"),
            "fails": (np.int64(1001), FailingIndex()),
            "array": (np.array([1, 2]), 1),
            "nameless": (Nameless(), 1),
            "one": (1,),
            "three": (1, 2, 3),
        }.items()
    },
    **{f"generate {name}": lambda name=name: ps.generate(name, 4, 8) for name in ps.SCHEDULES},
    **{f"check {name}": lambda name=name: made[name].check() for name in made},
    "generate, unknown": lambda: ps.generate("nothing", 4, 8),
    "generate, no rank": lambda: ps.generate("1f1b", 0, 8),
    "generate, no number": lambda: ps.generate("1f1b", 4, 1.5),
    "generate, no memory": lambda: ps.generate("1f1b", 2**20, 2**20),
    "generate, no address": lambda: ps.generate("1f1b", 2**31 - 1, 2**31 - 1),
    "generate, rule": lambda: ps.generate("dualpipe", 4, 1),
    "check, order": lambda: ps.Schedule.from_rows(["0F0 0B0", "1B0 1F0"]).check(),
    "check, missing": lambda: ps.Schedule.from_rows(["0F0 0B0", "1F0"]).check(),
    "check, deadlock": lambda: ps.Schedule.from_rows(
        ["0F0 2F0 2B0 0B0", "3F0 1F0 1B0 3B0"]
    ).check(),
    **{f"simulate {name}": lambda name=name: made[name].simulate() for name in made},
    "simulate, looking back": lambda: made["chimera"].simulate(SERIAL).cause,
    "simulate, lower bound": lambda: made["chimera"].simulate(SERIAL).lower_bound,
    "simulate, memory": lambda: made["zb-v"].simulate(SERIAL).memory_profile(1),
    "simulate, batch": lambda: made["1f1b"].simulate(ps.Costs([[1], [2], [3]]), threads=1),
    "simulate, too large": lambda: made["1f1b"].simulate(ps.Costs(1e308, 1e308)),
    "simulate, batch, too large": lambda: made["1f1b"].simulate(ps.Costs([[8e307]]), threads=1),
    "simulate, wrong length": lambda: made["1f1b"].simulate(ps.Costs([1, 2])),
    "costs, negative": lambda: ps.Costs([1, 2, -3]),
    "rows, no word": lambda: ps.Schedule.from_rows(["0F0 what"]),
    "p twice": lambda: ps.bubble_formula(1001, p=1001),
    "p unknown": lambda: ps.bubble_formula(1001, n=1001),
}


def run(call, times):
    for _ in range(times):
        try:
            call()
        except Exception:
            continue


def settle():
    """Let go of garbage, and of the names that Python's type cache has kept."""
    sys._clear_type_cache()
    gc.collect()


def least_growth(call, measure):
    """Return the least that a measure grows by in some rounds of 100 calls.

    A leak grows in every round; what Python keeps for later, now and then.
    """
    gc.freeze()  # collect only what the calls make
    run(call, 50)
    rounds = []
    for _ in range(4):
        settle()
        before = measure()
        run(call, 100)
        settle()
        rounds.append(measure() - before)
    gc.unfreeze()
    return min(rounds)


@pytest.mark.parametrize("name", CALLS)
def test_memory_does_not_grow(name):
    """As Python and NumPy count what they take."""
    tracemalloc.start()
    try:
        grown = least_growth(CALLS[name], lambda: tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert grown < 800  # the smallest object, once a call, would be 1600


class Mallinfo(ctypes.Structure):
    """What glibc's mallinfo2 returns."""

    _fields_ = (("size", ctypes.c_size_t * 10),)


def allocated():
    """Return how many bytes malloc has given and not got back; 0 where it does not tell."""
    mallinfo = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo is None:
        return 0
    mallinfo.restype = Mallinfo
    size = mallinfo().size
    return size[7] + size[4]  # uordblks: in the heap; hblkhd: mapped


@pytest.mark.parametrize("name", CALLS)
def test_malloc_does_not_grow(name):
    """The scratch of the C core, which Python does not count."""
    assert least_growth(CALLS[name], allocated) < 1600  # malloc's smallest, once a call


@pytest.mark.parametrize("name", CALLS)
def test_references_stay(name):
    kept = [TABLE, ROWS, HUGE, np.dtype(np.int64), ps.gpipe_forward_schedule]
    before = [sys.getrefcount(thing) for thing in kept]
    run(CALLS[name], 100)
    after = [sys.getrefcount(thing) for thing in kept]
    assert all(abs(a - b) < 50 for a, b in zip(after, before, strict=True))


def test_peak_memory_is_the_table():
    ps.gpipe_forward_schedule(2, 2)
    tracemalloc.start()
    table = ps.gpipe_forward_schedule(64, 100_000)
    ps.bubble_fraction(table)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak - table.nbytes < 1000
