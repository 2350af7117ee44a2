"""DualPipe, Chimera and Hanayo: two directions at once, or one that turns back in waves."""

import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from measure import bubble_times, measure, peaks
from strategies import to_rows

import pipesched as ps

COSTS = st.integers(1, 9)


def mirrored(p):
    return tuple(tuple(sorted({rank, p - 1 - rank})) for rank in range(p))


def test_any_allowed_size_is_legal():
    for p in range(2, 11, 2):
        for m in range(1, 26):
            assert len(ps.generate("chimera", p, m).check()) == 2 * p * m
        for m in range(2 * p, 50, 2):
            assert ps.generate("dualpipe", p, m).check().placement == mirrored(p)


def test_any_hanayo_is_legal():
    for waves in (1, 2, 3):
        for p in range(1, 11):
            for m in range(1, 26):
                schedule = ps.generate("hanayo", p, m, waves=waves).check()
                assert schedule.num_stages == 2 * waves * p
                assert len(schedule) == 4 * waves * p * m


@pytest.mark.parametrize(("name", "p", "m"), [("dualpipe", 64, 200), ("chimera", 64, 300)])
def test_large_sizes_are_legal(name, p, m):
    ps.generate(name, p, m).check()


def test_large_hanayo_is_legal():
    ps.generate("hanayo", 64, 100).check()
    ps.generate("hanayo", 5, 40, waves=37).check()


# DualPipe ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("p", "m", "makespan", "idle", "peak"),
    [
        (4, 8, 26, 2, 5),
        (8, 16, 54, 6, 9),
        (8, 20, 66, 6, 9),
        (8, 40, 126, 6, 9),
        (16, 32, 110, 14, 17),
    ],
)
def test_dualpipe_as_published(p, m, makespan, idle, peak):
    timeline = measure(ps.generate("dualpipe", p, m), overlap=3)
    assert timeline.makespan == makespan
    assert timeline.idle == [idle] * p
    assert timeline.peak_activations == [peak] * p


def test_dualpipe_peak():
    for p in range(2, 13, 2):
        for m in range(2 * p, 40, 2):
            assert peaks(ps.generate("dualpipe", p, m)) == [p + 1] * p


@given(half=st.integers(1, 4), extra=st.integers(0, 5), f=COSTS, w=COSTS)
def test_dualpipe_bubble(half, extra, f, w):
    """(PP/2-1)(F&B + B - 3W) is exact for f=b>=w and F&B = F+B."""
    w = min(f, w)
    schedule = ps.generate("dualpipe", 2 * half, 4 * half + 2 * extra)
    bubble, _ = bubble_times(schedule, forward=f, backward_input=f, backward_weight=w)
    assert bubble == (half - 1) * (2 * f + w + f + w - 3 * w)


def test_dualpipe_is_symmetric():
    """Seen from the other end, with the other half of the micro-batches, it is the same."""
    for p, m in [(2, 4), (6, 16), (8, 18)]:
        rows = to_rows(ps.generate("dualpipe", p, m))
        for rank, row in enumerate(rows):
            other = [(kind, s, (j + m // 2) % m, fuse) for kind, s, j, fuse in row]
            assert rows[p - 1 - rank] == other


def test_dualpipe_v_is_dualpipe_cut_in_half():
    """The upper ranks of DualPipe do what the ranks of DualPipeV do, with the lanes renamed."""
    for half, count in [(1, 2), (3, 8), (4, 11)]:
        whole = to_rows(ps.generate("dualpipe", 2 * half, 2 * count))
        folded = to_rows(ps.generate("dualpipe-v", half, count))
        for rank in range(half):
            renamed = [(k, s, j + (s >= half) * count, fuse) for k, s, j, fuse in folded[rank]]
            assert whole[rank] == renamed


@pytest.mark.parametrize(
    ("p", "m", "text"),
    [
        (3, 12, r"p must be even, got p=3.*p=4.*dualpipe-v"),
        (1, 4, r"p must be even, got p=1.*p=2"),
        (1, 2, r"p must be even, got p=1; take dualpipe-v"),  # with p=2, m must be 4
        (4, 6, r"m >= 2p, got m=6.*m=8.*chimera"),
        (4, 9, r"m must be even, got m=9.*m=8.*dualpipe-v"),
    ],
)
def test_dualpipe_names_its_rule(p, m, text):
    with pytest.raises(ValueError, match=text):
        ps.generate("dualpipe", p, m)


# Chimera -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("d", "equal", "double", "least", "most"),
    [(4, 10, 16, 3, 4), (8, 22, 36, 5, 8), (16, 46, 76, 9, 16)],
)
def test_chimera_as_published(d, equal, double, least, most):
    """Makespans at B = F and B = 2F."""
    schedule = ps.generate("chimera", d, d)
    assert measure(schedule, backward_weight=0).makespan == equal
    timeline = measure(schedule)
    assert timeline.makespan == double
    assert (min(timeline.peak_activations), max(timeline.peak_activations)) == (least, most)
    assert schedule.placement == mirrored(d)


def test_chimera_units_follow_each_other_without_a_gap_where_b_is_f():
    for p in range(2, 11, 2):
        for units in (1, 2, 3, 4):
            schedule = ps.generate("chimera", p, units * p)
            assert bubble_times(schedule, backward_weight=0)[0] == p - 2


@given(half=st.integers(1, 5), forward=COSTS, backward=COSTS)
def test_chimera_bubble_of_one_unit(half, forward, backward):
    schedule = ps.generate("chimera", 2 * half, 2 * half)
    bubble, _ = bubble_times(schedule, forward=forward, backward_input=backward, backward_weight=0)
    assert bubble == (2 * half - 2) * max(forward, backward)


def test_chimera_peak():
    for p in range(2, 13, 2):
        unit = [p // 2 + 1 + min(rank, p - 1 - rank) for rank in range(p)]
        assert peaks(ps.generate("chimera", p, p)) == unit
        for m in range(1, 3 * p):
            assert max(peaks(ps.generate("chimera", p, m))) == min(m, p)


def test_chimera_sends_half_each_way():
    """The first half, and the odd micro-batch, enter at rank 0; the others at the last rank."""
    for p, m in [(2, 1), (4, 3), (4, 10), (6, 7)]:
        rows = to_rows(ps.generate("chimera", p, m))
        down = {j for kind, stage, j, _ in rows[0] if (kind, stage) == ("F", 0)}
        up = {j for kind, stage, j, _ in rows[-1] if (kind, stage) == ("F", 0)}
        assert down == set(range(m - m // 2))
        assert up == set(range(m - m // 2, m))


def test_chimera_names_its_rule():
    with pytest.raises(ValueError, match=r"p must be even, got p=5.*p=6.*zb-v"):
        ps.generate("chimera", 5, 10)


# Hanayo --------------------------------------------------------------------------------------


def test_hanayo_snakes():
    assert ps.generate("hanayo", 3, 2, waves=2).placement == (
        (0, 5, 6, 11),
        (1, 4, 7, 10),
        (2, 3, 8, 9),
    )


@given(p=st.integers(1, 6), waves=st.integers(1, 3), forward=COSTS, backward=COSTS)
def test_hanayo_bubble_of_p_microbatches(p, waves, forward, backward):
    schedule = ps.generate("hanayo", p, p, waves=waves)
    bubble, _ = bubble_times(schedule, forward=forward, backward_input=backward, backward_weight=0)
    assert bubble == 2 * (p - 1) * max(forward, backward)


def test_hanayo_wastes_no_more_than_the_paper_says():
    """The paper's share at m=p and B=2F is (2p-2)/(3pW+p-1)."""
    for p in range(1, 9):
        for waves in (1, 2, 3):
            share = measure(ps.generate("hanayo", p, p, waves=waves)).bubble_fraction
            assert share * (3 * p * waves + 2 * p - 2) == 2 * p - 2
            assert share * (3 * p * waves + p - 1) <= 2 * p - 2


def test_hanayo_keeps_its_bubble_for_more_microbatches_where_b_is_f():
    for p in range(1, 7):
        for units in (1, 2, 3):
            schedule = ps.generate("hanayo", p, units * p, waves=2)
            assert bubble_times(schedule, backward_weight=0)[0] == 2 * (p - 1)


def test_hanayo_peak():
    for p in range(1, 9):
        for waves in (1, 2):
            for m in range(1, 2 * p + 3):
                schedule = ps.generate("hanayo", p, m, waves=waves)
                assert max(peaks(schedule)) == 2 * waves * min(m, p)


def test_list_scheduling_never_idles_while_something_is_ready():
    """The definition, from the outcome: in unit time no rank waits while it holds a ready op, and
    no forward runs while a backward is ready."""
    for schedule in (ps.generate("chimera", 6, 11), ps.generate("hanayo", 4, 7, waves=2)):
        rows = to_rows(schedule)
        timeline = measure(schedule, backward_weight=0)
        ends = iter(timeline.end)
        end = {op[:3]: next(ends) for row in rows for op in row}
        last = schedule.num_stages - 1
        ready = {}
        for kind, stage, j in end:
            if kind == "F":
                ready[kind, stage, j] = end["F", stage - 1, j] if stage else 0
            else:
                ready[kind, stage, j] = end["B", stage + 1, j] if stage < last else 0
                ready[kind, stage, j] = max(ready[kind, stage, j], end["F", stage, j])
        for row in rows:
            busy = {end[op[:3]] - 1: op for op in row}
            for op in row:
                for time in range(ready[op[:3]], end[op[:3]] - 1):
                    assert time in busy
                    assert (busy[time][0], op[0]) != ("F", "B")


def test_waves_are_counted_from_one():
    with pytest.raises(ValueError, match="waves must be at least 1, got 0"):
        ps.generate("hanayo", 4, 8, waves=0)
    assert ps.generate("hanayo", 4, 8) == ps.generate("hanayo", 4, 8, waves=1)


def test_reference_agrees_that_nothing_is_wrong():
    for name, p, m in [("dualpipe", 4, 10), ("chimera", 4, 7), ("hanayo", 3, 5)]:
        schedule = ps.generate(name, p, m)
        assert not reference.check(to_rows(schedule), schedule.num_stages, m)
