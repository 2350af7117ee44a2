"""What C makes and checks is what the slow twin makes and checks."""

import hypothesis.strategies as st
import pytest
import reference
import reference_schedules
from hypothesis import given
from strategies import to_rows, to_schedule
from twins import damaged, random_schedule, with_comms

import pipesched as ps

# Every option of every family, with values around the interesting places.
OPTIONS = {
    "gpipe": [{}, {"order": "forward"}, {"order": "reversed"}],
    "interleaved-1f1b": [
        {},
        *({"v": v} for v in (1, 2, 3)),
        *({"v": v, "rule": "torch"} for v in (1, 2, 3)),
        *({"v": v, "group": group} for v in (1, 2, 3) for group in (1, 2, 3, 4, 5, 7)),
    ],
    "looped-bfs": [{}, {"v": 1}, {"v": 3}],
    "zb-1p": [{}, {"v": 1}, {"v": 3}],
    "seq-1f1b": [{}, {"splits": 1}, {"splits": 3}],
    "hanayo": [{}, {"waves": 1}, {"waves": 2}],
}
# Only what comes out of these is published: see test_published.
OUTCOME_ONLY = {"v-half", "v-min"}


def is_allowed(name, p, m, options):
    """Whether the family's definition allows this."""
    if name == "zb-h2":
        return m >= 2 * p - 1
    if name == "dualpipe":
        return p % 2 == 0 and m % 2 == 0 and m >= 2 * p
    if name == "dualpipe-v":
        return m >= 2 * p
    if name == "chimera":
        return p % 2 == 0
    if name == "interleaved-1f1b" and options.get("rule") == "torch":
        return m % max(1, m // p) == 0
    return True


def assert_same(name, p, m, options):
    if not is_allowed(name, p, m, options):
        with pytest.raises(ValueError, match="="):
            ps.generate(name, p, m, **options)
        return
    rows = reference_schedules.generate(name, p, m, **options)
    stages, microbatches = reference.count_stages(rows), reference.count_microbatches(rows)
    fault = reference.check(rows, stages, microbatches)
    if fault:
        assert "group" in options, f"{fault} in a schedule without a group of the caller's"
        with pytest.raises(ValueError, match=r"group|wait"):
            ps.generate(name, p, m, **options).check()
        return
    schedule = ps.generate(name, p, m, **options)
    assert to_rows(schedule) == rows
    assert (schedule.num_stages, schedule.num_microbatches) == (stages, microbatches)


@pytest.mark.parametrize("name", [name for name in ps.SCHEDULES if name not in OUTCOME_ONLY])
def test_generate_small(name):
    for options in OPTIONS.get(name, [{}]):
        for p in range(1, 6):
            for m in range(1, 12):
                assert_same(name, p, m, options)


@pytest.mark.parametrize("name", [name for name in ps.SCHEDULES if name not in OUTCOME_ONLY])
@given(data=st.data())
def test_generate_any(name, data):
    options = data.draw(st.sampled_from(OPTIONS.get(name, [{}])))
    p = data.draw(st.integers(1, 10))
    m = data.draw(st.integers(1, 32))
    assert_same(name, p, m, options)


SEEDS = st.integers(0, 2**32 - 1)


def fault_of(rows, stages, microbatches, blocking):
    """The fault that the library finds, where it is made or where it is checked; None: legal."""
    try:
        to_schedule(rows, stages, microbatches).check(blocking)
    except ps.ScheduleError as error:
        return error.fault
    return None


def assert_same_verdict(rows, stages, microbatches):
    for blocking in (False, True):
        twin = reference.faults(rows, stages, microbatches, blocking)
        fault = fault_of(rows, stages, microbatches, blocking)
        if fault is None:
            assert not twin
            continue
        # Which of several faults is named first is free; that it is one of them is not.
        assert fault.code in {code for code, _, _ in twin}
        if fault.code == "deadlock":
            assert {("deadlock", rank, position) for rank, position, _ in fault.cycle} <= set(twin)
            for (rank, position, word), after in zip(
                fault.cycle, fault.cycle[1:] + fault.cycle[:1], strict=True
            ):
                assert word in fault.text
                kind, stage, j, _ = rows[rank][position]
                assert word == f"{stage}{kind}{j}"
                assert after[0] != rank or len(fault.cycle) == 1
        elif fault.position >= 0:
            assert (fault.code, fault.rank, fault.position) in set(twin)
        else:
            assert (fault.code, None, -1) in twin


@given(seed=SEEDS)
def test_check_legal(seed):
    rows, stages, microbatches = random_schedule(seed)
    assert fault_of(rows, stages, microbatches, blocking=False) is None
    assert_same_verdict(rows, stages, microbatches)


@given(seed=SEEDS)
def test_check_with_comms(seed):
    rows, stages, microbatches = random_schedule(seed)
    assert_same_verdict(with_comms(rows, stages, seed), stages, microbatches)


@given(seed=SEEDS, comms=st.booleans())
def test_check_damaged(seed, comms):
    rows, stages, microbatches = random_schedule(seed)
    if comms:
        rows = with_comms(rows, stages, seed)
    assert_same_verdict(damaged(rows, seed), stages, microbatches)
