"""Many cost vectors on one schedule: the same as one by one, to the bit, by any threads."""

import copy
import pickle
import tracemalloc

import hypothesis.strategies as st
import numpy as np
import pytest
import strategies
from conftest import assert_read_only
from hypothesis import given, settings
from twins import random_costs, random_schedule

import pipesched as ps


def batch_of(costs):
    """Several costs, as the twin takes them, as one batch."""
    batched = {}
    for name in set(costs[0]) - {"link"}:
        values = [np.atleast_1d(np.asarray(one[name], float)) for one in costs]
        length = min(map(len, values)) and max(map(len, values))  # one stage has no boundary
        batched[name] = np.stack([np.broadcast_to(value, length) for value in values])
    return ps.Costs(**batched, link=costs[0]["link"])


def costs_alike(seed, stages, microbatches, count):
    """Up to so many costs that have the same arguments given, with different values."""
    first = random_costs(seed, stages, microbatches)
    others = (random_costs(seed + i, stages, microbatches) for i in range(1, 2000))
    form = (set(first), first["link"])
    alike = (one for one in others if (set(one), one["link"]) == form)
    return [first, *(one for one, _ in zip(alike, range(count - 1), strict=False))]


@given(seed=st.integers(0, 2**32 - 1), threads=st.sampled_from([None, 1, 2, 3, 9]))
@settings(max_examples=25)
def test_a_batch_is_its_costs_one_by_one(seed, threads):
    rows, stages, m = random_schedule(seed)
    schedule = strategies.to_schedule(rows, stages, m)
    alike = costs_alike(seed, stages, m, 5)
    sweep = schedule.simulate(batch_of(alike), threads)
    assert len(sweep) == len(alike)
    for k, costs in enumerate(alike):
        for one in (schedule.simulate(ps.Costs(**costs)), sweep[k]):
            assert one.makespan == sweep.makespan[k]
            assert (one.busy == sweep.busy[k]).all()
            assert (one.idle == sweep.idle[k]).all()
            assert (one.peak_memory == sweep.peak_memory[k]).all()
            assert (one.peak_activations == sweep.peak_activations).all()
            for basis in ("bubble_fraction", "bubble_ratio", "span_bubble"):
                assert getattr(one, basis) == getattr(sweep, basis)[k]


@pytest.mark.parametrize(("name", "options"), [("interleaved-1f1b", {"v": 2}), ("dualpipe", {})])
def test_any_number_of_threads_gives_the_same_bits(name, options):
    schedule = ps.generate(name, 8, 40, **options)
    draw = np.random.default_rng(7)
    stages = schedule.num_stages
    costs = ps.Costs(
        forward=draw.random((37, stages)),
        backward=draw.random((37, stages)),
        overlap=draw.random((37, 1)),
        transfer=draw.random((37, stages - 1)),
        microbatch_scale=draw.random((37, 40)),
        activation=draw.random((37, stages)),
        static=draw.random(stages),
        link="serial",
    )
    first = schedule.simulate(costs, threads=1)
    for threads in (2, 3, 36, 37, 200, None):
        again = schedule.simulate(costs, threads)
        for sums in ("makespan", "busy", "peak_memory", "bubble_ratio"):
            assert getattr(first, sums).tobytes() == getattr(again, sums).tobytes()


def test_a_batch_of_none_and_of_one():
    schedule = ps.generate("1f1b", 2, 3)
    none = schedule.simulate(ps.Costs(forward=np.empty((0, 1))))
    assert len(none) == 0
    assert none.makespan.shape == none.bubble_fraction.shape == (0,)
    assert none.busy.shape == none.idle.shape == none.peak_memory.shape == (0, 2)
    one = schedule.simulate(ps.Costs(forward=[[1.0]]))
    assert one.makespan.tolist() == [12.0]
    assert [line.makespan for line in one] == [12.0]
    assert one[-1].makespan == 12.0
    assert repr(one) == "<1 Timelines of '1f1b'>"
    for wrong in (1, -2):
        with pytest.raises(IndexError, match="batch of 1"):
            one[wrong]


@pytest.mark.parametrize(
    ("threads", "error"),
    [(0, ValueError), (-1, ValueError), (1.5, TypeError), ("2", TypeError)],
)
def test_threads_that_cannot_be(threads, error):
    with pytest.raises(error, match="threads must be"):
        ps.generate("1f1b", 2, 3).simulate(ps.Costs(), threads)


def test_it_keeps_no_times():
    schedule = ps.generate("1f1b", 16, 256).check()
    costs = ps.Costs(forward=np.ones((64, 1)))
    schedule.simulate(costs, threads=1)
    tracemalloc.start()
    sweep = schedule.simulate(costs, threads=1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # The tables of the costs and the sums: nothing of the size of the ops for each.
    tables = 64 * 8 * (4 + 2 + 3 + 5) * 16
    assert peak < 3 * tables < 64 * 8 * len(schedule)
    assert sweep.makespan.tolist() == [schedule.simulate().makespan] * 64


def test_both_are_frozen():
    schedule = ps.generate("1f1b", 2, 3)
    for made in (schedule.simulate(), schedule.simulate(ps.Costs([[1.0]]))):
        with pytest.raises(AttributeError, match="frozen"):
            made.makespan = 0
        with pytest.raises(AttributeError, match="frozen"):
            del made.busy
        with pytest.raises(TypeError, match=r"Schedule\.simulate"):
            type(made)()
        again = pickle.loads(pickle.dumps(made))
        for one in (made, again, copy.copy(made), copy.deepcopy(made)):
            assert one.schedule == schedule
            assert repr(one) == repr(made)
            for name in ("start", "end", "cause", "makespan", "busy", "peak_memory"):
                value = getattr(one, name, None)  # a sweep has not all of them
                assert np.array_equal(value, getattr(made, name, None))
                if isinstance(value, np.ndarray):
                    assert_read_only(value)
            assert_read_only(one.peak_activations)


SHARED = """
import threading
import numpy as np
import pipesched as ps

costs = [ps.Costs(1 + k, transfer=0.5 * k, link=["free", "serial"][k % 2]) for k in range(6)]
expected = [ps.generate("chimera", 8, 32).simulate(one) for one in costs]
shared = ps.generate("chimera", 8, 32)
lines = [shared.simulate(one) for one in costs]
ready = threading.Barrier(6)
wrong = []


def work(k):
    ready.wait()
    for i in range(60):
        j = (k + i) % 6
        line, right = shared.simulate(costs[j]), expected[j]
        if line.makespan != right.makespan or (line.end != right.end).any():
            wrong.append("end")
        # Of one timeline's starts and causes, which are made when they are asked for.
        if (lines[j].start != right.start).any() or (lines[j].cause != right.cause).any():
            wrong.append("look back")


threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not wrong, wrong[:3]
print("done")
"""


def test_threads_share_a_schedule(run_python):
    assert run_python(SHARED).strip() == "done"
