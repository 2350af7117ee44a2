"""The comparison's rows are the simulations', on one model cut as each schedule wants it."""

import numpy as np
import pytest

import pipesched as ps


def test_rows_are_the_simulations():
    for row in ps.compare(4, 8):
        timeline = ps.compare(4, 8, schedules=[row.name]).timelines[row.name]
        assert row.makespan == timeline.makespan
        assert row.bubble_fraction == timeline.bubble_fraction
        assert row.bubble_ratio == timeline.bubble_ratio
        assert row.span_bubble == timeline.span_bubble
        assert row.peak_memory == timeline.peak_memory.max()


def test_every_schedule_does_the_same_work():
    """Cutting stages keeps the model's work and its weights (two copies if bidirectional)."""
    costs = ps.Costs(forward=[1, 2, 3, 4], backward=[2, 4, 6, 8], static=[10, 20, 30, 40])
    found = ps.compare(4, 8, costs)
    assert len(found) > 10
    for row in found:
        timeline = found.timelines[row.name]
        np.testing.assert_allclose(timeline.busy.sum(), 8 * 30)


def test_fastest_first_and_speedup_over_1f1b():
    found = ps.compare(4, 8)
    times = found.to_dict()["makespan"]
    assert times == sorted(times)
    base = next(row for row in found if row.name == "1f1b")
    assert base.speedup == 1.0
    for row in found:
        assert row.speedup == pytest.approx(base.makespan / row.makespan)


def test_interleaving_halves_the_bubble_and_costs_transfers():
    rows = {row.name: row for row in ps.compare(4, 8, schedules=["1f1b", "interleaved-1f1b"])}
    plain, dealt = rows["1f1b"], rows["interleaved-1f1b"]
    assert dealt.bubble_ratio == pytest.approx(plain.bubble_ratio / 2)
    assert plain.transfers == 2 * 8 * 3
    assert dealt.transfers == 2 * 8 * 7


def test_splits_of_micro_batches_send_no_more():
    rows = {row.name: row for row in ps.compare(4, 8, schedules=["1f1b", "seq-1f1b"])}
    assert rows["seq-1f1b"].transfers == rows["1f1b"].transfers == 2 * 8 * 3


def test_weights_count_copies():
    rows = {row.name: row.weights for row in ps.compare(4, 8)}
    assert rows["1f1b"] == rows["zb-v"] == rows["interleaved-1f1b"] == 1
    assert rows["dualpipe"] == rows["chimera"] == 2
    assert rows["pipedream"] == 4  # versions of the first rank


def test_what_is_left_out_says_why():
    found = ps.compare(4, 5)
    assert "dualpipe" in found.left_out
    assert "m" in found.left_out["dualpipe"]
    assert "dualpipe" not in found.to_dict()["name"]
    assert "left out: dualpipe:" in str(found)
    assert "dualpipe: dualpipe" not in str(found)


def test_memory_leaves_out_what_does_not_fit():
    costs = ps.Costs(activation=1e9, static=2e9)
    found = ps.compare(4, 16, costs, memory=8e9, schedules=["gpipe", "1f1b"])
    assert [row.name for row in found] == ["1f1b"]
    assert found.left_out["gpipe"] == ("needs 1.8e+10 bytes on rank 0, more than memory=8e+09")


def test_table_is_aligned():
    lines = str(ps.compare(4, 8, schedules=["gpipe", "1f1b", "zb-v"])).split("\n")
    assert len(lines) == 4
    assert len(set(map(len, lines))) == 1


def test_html_is_escaped():
    found = ps.compare(4, 8, schedules=["1f1b"])
    found.left_out["<b>"] = "a & b"
    assert "&lt;b&gt;: a &amp; b" in found._repr_html_()


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"no schedule is named 'gpip'.*did you mean 'gpipe'"):
        ps.compare(4, 8, schedules=["gpip"])
    with pytest.raises(ValueError, match="batch of 2"):
        ps.compare(4, 8, ps.Costs(forward=[[1], [2]]))
    with pytest.raises(ValueError, match="forward must have 4 entries"):
        ps.compare(4, 8, ps.Costs(forward=[1, 2, 3]))
    with pytest.raises(ValueError, match="p must be at least 1, got 0"):
        ps.compare(0, 8)
    with pytest.raises(ValueError, match="basis must be one of"):
        ps.plot_bubble(4, [4], basis="idle")


def test_one_rank_one_micro_batch():
    found = ps.compare(1, 1)
    assert all(row.bubble_fraction == 0 for row in found)
