"""The simulator against the slow twin, exactly; and what of it the twin does not say."""

import hypothesis.strategies as st
import numpy as np
import pytest
import reference
import strategies
from hypothesis import given
from twins import random_costs, random_schedule, with_comms

import pipesched as ps

SEEDS = st.integers(0, 2**32 - 1)


def assert_same(rows, num_stages, num_microbatches, costs):
    schedule = strategies.to_schedule(rows, num_stages, num_microbatches)
    twin = reference.simulate(rows, num_stages, num_microbatches, **costs)
    line = schedule.simulate(ps.Costs(**costs))
    assert line.start.tolist() == twin.start
    assert line.end.tolist() == twin.end
    assert line.makespan == twin.makespan
    assert line.busy.tolist() == twin.busy
    assert line.idle.tolist() == twin.idle
    assert line.peak_activations.tolist() == twin.peak_activations
    assert line.peak_memory.tolist() == twin.peak_memory
    for rank, profile in enumerate(twin.memory_profile):
        assert list(zip(*(x.tolist() for x in line.memory_profile(rank)), strict=True)) == profile
        times, held = line.activation_profile(rank)
        assert times.tolist() == [time for time, _ in profile]
        assert held.max() == twin.peak_activations[rank]
        assert held[0] == held[-1] == 0
        assert set(np.diff(held).tolist()) <= {-1, 0, 1}
    # One correctly rounded division of whole numbers.
    for basis in ("bubble_fraction", "bubble_ratio", "span_bubble"):
        if hasattr(twin, basis):
            assert getattr(line, basis) == pytest.approx(float(getattr(twin, basis)), rel=1e-14)
    assert_caused(schedule, line)
    return line


def assert_caused(schedule, line):
    """Each op starts when its cause ends, or later by at most the transfers between them."""
    kinds, stages = schedule.ops["kind"], schedule.ops["stage"]
    rank_of = np.repeat(np.arange(schedule.p), np.diff(schedule.offsets))
    first = set(schedule.offsets[:-1].tolist())
    costs = line.costs()
    for op, cause in enumerate(line.cause.tolist()):
        if cause < 0:
            assert line.start[op] == 0
            continue
        assert line.end[cause] <= line.start[op]
        if rank_of[op] == rank_of[cause]:
            assert line.start[op] == line.end[cause] or costs.link == "serial"
        pair = op not in first and schedule.ops["fuse"][op - 1]
        before = op - 1 - pair
        if before >= schedule.offsets[rank_of[op]] and line.end[before] == line.start[op]:
            assert cause == before
        elif costs.link == "free" and not pair and not schedule.ops["fuse"][op]:
            assert abs(stages[cause] - stages[op]) == 1
            assert (kinds[cause] in (0, 4)) == (kinds[op] in (0, 5))
    path = line.critical_path
    assert line.end[path[-1]] == line.end.max()
    assert line.cause[path[0]] == -1
    assert (line.cause[path[1:]] == path[:-1]).all()
    assert (np.diff(line.start[path]) >= 0).all()


@given(seed=SEEDS)
def test_any_schedule_is_timed_as_by_the_twin(seed):
    rows, num_stages, m = random_schedule(seed)
    assert_same(rows, num_stages, m, random_costs(seed, num_stages, m))


@given(seed=SEEDS)
def test_with_sends_and_receives(seed):
    rows, num_stages, m = random_schedule(seed)
    rows = with_comms(rows, num_stages, seed)
    costs = random_costs(seed, num_stages, m)
    if reference.simulate(rows, num_stages, m, **costs) is None:
        schedule = strategies.to_schedule(rows, num_stages, m)
        with pytest.raises(ps.ScheduleError) as caught:
            schedule.simulate(ps.Costs(**costs))
        assert caught.value.fault.code == "deadlock"
    else:
        assert_same(rows, num_stages, m, costs)


@given(seed=SEEDS)
def test_lowering_changes_no_time_on_free_links(seed):
    rows, num_stages, m = random_schedule(seed)
    costs = random_costs(seed, num_stages, m)
    costs["link"] = "free"
    schedule = strategies.to_schedule(rows, num_stages, m)
    plain, lowered = schedule.simulate(ps.Costs(**costs)), schedule.lower()
    line = lowered.simulate(ps.Costs(**costs))
    assert_same(strategies.to_rows(lowered), num_stages, m, costs)
    assert line.makespan >= plain.makespan  # a receive may stand before work that could go on
    assert line.busy.tolist() == plain.busy.tolist()
    assert line.peak_activations.tolist() == plain.peak_activations.tolist()


SMALL = [("naive", {}), ("gpipe", {}), ("1f1b", {}), ("eager-1f1b", {}), ("looped-bfs", {"v": 2}),
         ("interleaved-1f1b", {"v": 2}), ("zb-h1", {}), ("zb-1p", {"v": 2}), ("zb-v", {}),
         ("v-half", {}), ("v-min", {}), ("dualpipe", {}), ("dualpipe-v", {}), ("chimera", {}),
         ("hanayo", {}), ("pipedream", {}), ("seq-1f1b", {}), ("forward", {})]  # fmt: skip


@pytest.mark.parametrize(("name", "options"), SMALL, ids=[name for name, _ in SMALL])
def test_every_family_is_timed_as_by_the_twin(name, options):
    for p, m in ((4, 8), (2, 5), (1, 3), (4, 2)):
        try:
            schedule = ps.generate(name, p, m, **options)
        except ValueError:
            continue  # the family's rule; its own tests hold it to that
        shape = (schedule.num_stages, schedule.num_microbatches)
        for seed in range(4):
            assert_same(strategies.to_rows(schedule), *shape, random_costs(seed, *shape))


# What can go wrong -----------------------------------------------------------------------------


@pytest.mark.parametrize("costs", [1.0, {"forward": 1.0}, "1", ps.Costs], ids=str)
def test_costs_that_are_none(costs):
    with pytest.raises(TypeError, match=r"costs must be a pipesched\.Costs, got"):
        ps.generate("1f1b", 2, 3).simulate(costs)


@pytest.mark.parametrize(
    ("costs", "message"),
    [
        ({"forward": [1.0, 2.0, 3.0]}, r"forward must have 4 entries \(one value a stage\).*got 3"),
        ({"backward": [1.0]}, "^backward must have 4 entries"),
        ({"backward_input": [1.0], "backward_weight": 1.0}, "^backward_input must have 4 entries"),
        ({"backward_input": 1.0, "backward_weight": [1.0]}, "^backward_weight must have 4 entries"),
        ({"overlap": [1.0]}, "overlap must have 4 entries"),
        ({"transfer": [1.0] * 4}, r"transfer must have 3 entries \(one value a boundary"),
        ({"transfer_backward": [[1.0] * 4]}, "transfer_backward must have 3 entries"),
        ({"microbatch_scale": [1.0] * 4}, "microbatch_scale must have 5 entries .*a micro-batch"),
        ({"static": []}, "static must have 4 entries"),
    ],
)
def test_costs_of_another_shape(costs, message):
    with pytest.raises(ValueError, match=message):
        ps.generate("1f1b", 4, 5).simulate(ps.Costs(**costs))


def test_an_illegal_schedule_raises_what_check_raises():
    waiting = ["0F0 2F0 2B0 0B0", "3F0 1F0 1B0 3B0"]
    for rows in (waiting, ["0F0 0B0", "1B0 1F0"], ["0F0 0F1 0B0", "1F0 1F1 1B0 1B1"]):
        schedule = ps.Schedule.from_rows(rows)
        with pytest.raises(ps.ScheduleError) as simulated:
            schedule.simulate()
        with pytest.raises(ps.ScheduleError) as checked:
            schedule.check()
        assert simulated.value.fault == checked.value.fault


@pytest.mark.parametrize(
    "costs",
    [
        {"forward": 1e308, "backward": 1e308},
        {"forward": 0.0, "backward": 0.0, "transfer": 1e308},
        {"activation": 1e308},
        {"forward": 4e307, "backward": 0.0},  # only the sum over the ranks is too large
        {"microbatch_scale": [1e200] * 4, "forward": 1e200},
    ],
)
def test_costs_beyond_a_float(costs):
    schedule = ps.generate("gpipe", 2, 4)
    with pytest.raises(OverflowError, match="the costs are too large"):
        schedule.simulate(ps.Costs(**costs))
    batched = {name: np.atleast_2d(value) for name, value in costs.items()}
    with pytest.raises(OverflowError, match="the costs are too large"):
        schedule.simulate(ps.Costs(**batched), threads=2)


NUMBERS = st.floats(0, allow_nan=False, allow_infinity=False)


@given(seed=SEEDS, forward=NUMBERS, backward=NUMBERS, transfer=NUMBERS, activation=NUMBERS)
def test_any_numbers_are_timed_or_refused(seed, forward, backward, transfer, activation):
    rows, stages, m = random_schedule(seed)
    schedule = strategies.to_schedule(rows, stages, m)
    link = "serial" if seed % 2 else "free"
    costs = ps.Costs(forward, backward, transfer=transfer, activation=activation, link=link)
    try:
        line = schedule.simulate(costs)
    except OverflowError:
        return
    assert 0 <= line.bubble_fraction <= 1 + 1e-9
    assert line.bubble_ratio >= -1e-9
    assert np.isfinite([line.makespan, *line.busy, *line.idle, *line.peak_memory]).all()
    assert (line.start <= line.end).all()
    assert_caused(schedule, line)


def test_nothing_takes_no_time():
    line = ps.generate("1f1b", 3, 4).simulate(ps.Costs(0, 0))
    assert (line.makespan, line.bubble_fraction, line.bubble_ratio, line.span_bubble) == (0,) * 4
    line = ps.generate("1f1b", 3, 4).simulate(ps.Costs(0, 0, transfer=1))
    assert (line.makespan, line.bubble_fraction, line.span_bubble) == (8, 1, 1)
    assert line.bubble_ratio == float("inf")


def test_the_core_refuses_arrays_that_do_not_fit():
    """Only the package's own Python calls it, and still it never trusts a shape."""
    from pipesched import _core
    from pipesched.simulate import _tables

    schedule = ps.generate("1f1b", 2, 3)
    tables = _tables(schedule, ps.Costs(microbatch_scale=[1, 1, 1], overlap=1))
    end = schedule.simulate().end
    for place, table in enumerate(tables):
        for wrong in (table[..., :-1], table.astype("f4"), table[None], None, 1, table.tolist()):
            if wrong is None and place in (1, 3):
                continue
            bad = (*tables[:place], wrong, *tables[place + 1 :])
            with pytest.raises(ValueError, match="must be a contiguous float64 array"):
                _core.simulate(schedule, bad, False)
            with pytest.raises(ValueError, match="must be a contiguous float64 array"):
                _core.look_back(schedule, bad, False, end, True)
    with pytest.raises(TypeError, match="five tables"):
        _core.simulate(schedule, tables[:4], False)
    for wrong in (end[:-1], end[::2], end.astype(int), end.tolist()):
        with pytest.raises(ValueError, match="end must be"):
            _core.look_back(schedule, tables, False, wrong, False)
    batch = tuple(table[None] for table in tables)
    sums, fixed = np.empty((5, 1, 2)), np.empty((5, 1, 2))
    fixed.flags.writeable = False
    wrongs = ((0, 2, sums), (-1, 1, sums), (1, 0, sums), (0, 1, sums[:4]), (0, 1, sums[0]))
    for begin, stop, into in (*wrongs, (0, 1, fixed), (0, 1, None)):
        with pytest.raises(ValueError, match=r"rows|sums"):
            _core.simulate_batch(schedule, batch, False, begin, stop, into)
