"""The oracle itself: the twin reproduces published numbers with its own simulator and checker."""

from fractions import Fraction

import pytest
import reference
import reference_schedules
from strategies import to_rows, to_schedule
from twins import random_schedule, with_comms

UNIT = {"forward": 1, "backward_input": 1, "backward_weight": 1}
PAIRED = {**UNIT, "overlap": 3}


@pytest.mark.parametrize(
    ("p", "m", "f", "b", "w", "c", "plain", "h1", "h2"),
    [
        (8, 24, 18522, 18086, 9337, 601, 0.2431, 0.1585, 0.1083),
        (8, 64, 29935, 29621, 19388, 535, 0.1091, 0.0554, 0.0294),
        (16, 48, 11347, 11248, 8132, 377, 0.2552, 0.1397, 0.0672),
    ],
)
def test_zero_bubble_tables(p, m, f, b, w, c, plain, h1, h2):
    costs = {"forward": f, "backward_input": b, "backward_weight": w, "transfer": c}
    for name, printed in (("1f1b", plain), ("zb-h1", h1), ("zb-h2", h2)):
        rows = reference_schedules.generate(name, p, m)
        assert round(float(reference.simulate(rows, **costs).span_bubble), 4) == printed


@pytest.mark.parametrize(
    ("group", "makespan", "peaks"), [(3, 57, None), (4, 55, None), (6, 45, [12, 11, 9, 7])]
)
def test_interleaved_groups(group, makespan, peaks):
    timeline = reference.simulate(reference_schedules.interleaved_1f1b(4, 6, 2, group))
    assert timeline.makespan == makespan
    assert peaks in (None, timeline.peak_activations)


def test_small_groups_wait_in_a_circle():
    rows = reference_schedules.interleaved_1f1b(4, 8, 2, 2)
    assert reference.simulate(rows) is None
    assert reference.check(rows, 8, 8)[0] == "deadlock"


@pytest.mark.parametrize(
    ("p", "m", "makespan", "idle", "peak"), [(4, 8, 26, 2, 5), (8, 20, 66, 6, 9)]
)
def test_dualpipe(p, m, makespan, idle, peak):
    timeline = reference.simulate(reference_schedules.dualpipe(p, m), **PAIRED)
    assert timeline.makespan == makespan
    assert set(timeline.idle) == {idle}
    assert set(timeline.peak_activations) == {peak}


@pytest.mark.parametrize(("d", "equal", "double"), [(4, 10, 16), (8, 22, 36)])
def test_chimera(d, equal, double):
    rows = reference_schedules.chimera(d, d)
    assert reference.simulate(rows, forward=1, backward=1).makespan == equal
    timeline = reference.simulate(rows, forward=1, backward=2)
    assert timeline.makespan == double
    assert timeline.bubble_fraction == Fraction(d - 2, 3 * d // 2 + d - 2)


def test_zb_v():
    rows = reference_schedules.zb_v(4, 16)
    timeline = reference.simulate(rows, **UNIT)
    assert (timeline.span_bubble, set(timeline.peak_activations)) == (0, {8})


def test_torch_files(data_dir):
    def read(name):
        return reference.rows_from_text((data_dir / "torch_csv" / f"{name}.csv").read_text())

    assert reference_schedules.dualpipe_v(4, 10) == read("dualpipev_4rank_10mb")
    assert reference_schedules.zb_1p(2, 8, 2, 2) == read("zb1p_2rank_2stagep_compute")
    assert read("bf3319ac_4-rank") == read("99202767_4-rank")
    assert reference.check(read("example_interleaved_2ranks_4mb_comms"), 4, 4) is None
    fault = reference.check(read("example_interleaved_2ranks_4mb_comms"), 4, 4, blocking=True)
    assert fault[0] == "deadlock"


def test_random_schedules():
    """Schedules of no family are legal; simulation and checker agree on which come to an end."""
    for seed in range(60):
        rows, stages, m = random_schedule(seed)
        assert to_rows(to_schedule(rows, stages, m)) == rows
        assert reference.check(rows, stages, m) is None
        assert reference.simulate(rows, stages, m) is not None
        rows = with_comms(rows, stages, seed)
        fault = reference.check(rows, stages, m)
        assert fault is None or fault[0] == "deadlock"
        assert (reference.simulate(rows, stages, m) is None) == (fault is not None)
