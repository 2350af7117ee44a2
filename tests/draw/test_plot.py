"""The matplotlib plots: they draw every op, say what their colours mean, and save."""

import io

import numpy as np
import pytest

import pipesched as ps

mpl = pytest.importorskip("matplotlib")
mpl.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")

UNEVEN = ps.Costs(forward=[1.0, 2.5, 1.5, 0.5], transfer=0.25, activation=[9, 4, 3, 1], static=7)


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def corners(ax):
    """(left, right, middle) of every box that is drawn."""
    vertices = np.array([path.vertices[:4] for path in ax.collections[0].get_paths()])
    x, y = vertices[..., 0], vertices[..., 1]
    return x.min(axis=1), x.max(axis=1), y.mean(axis=1)


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


@pytest.mark.parametrize("name", list(ps.SCHEDULES))
def test_every_op_stands_where_its_time_is(name):
    timeline = ps.generate(name, 4, 8).lower().simulate(ps.Costs(transfer=0.2))
    left, right, middle = corners(timeline.plot())
    ops, compute = timeline.schedule.ops, timeline.schedule.ops["kind"] < 4
    assert len(left) == np.count_nonzero(compute)
    np.testing.assert_allclose(np.sort(left), np.sort(timeline.start[compute]))
    np.testing.assert_allclose(np.sort(right), np.sort(timeline.end[compute]))
    ranks = np.repeat(np.arange(4), np.diff(timeline.schedule.offsets))[compute]
    np.testing.assert_array_equal(np.sort(np.rint(middle)), ranks)
    assert len(ops) > len(left)


def test_micro_batches_are_named_and_colours_explained():
    ax = ps.generate("zb-h1", 4, 8).simulate(UNEVEN).plot()
    assert {text.get_text() for text in ax.texts} == {str(j) for j in range(8)}
    assert legend(ax) == ["forward", "backward (input)", "backward (weights)", "idle"]
    assert "bubble_fraction" in ax.get_title(loc="left")


def test_chunks_are_explained():
    def notes(name):
        return [
            t.get_text() for t in ps.generate(name, 4, 8).plot().texts if "chunk" in t.get_text()
        ]

    assert notes("1f1b") == []
    assert notes("zb-v") == ["lighter: a later chunk of the rank"]


@pytest.mark.parametrize(("format", "begins"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_all_plots_are_saved(format, begins):
    timeline = ps.generate("dualpipe", 4, 8).simulate()
    for ax in (
        timeline.plot(),
        timeline.plot_memory(),
        ps.plot_comparison([timeline, ps.generate("1f1b", 2, 3)])[0],
        ps.plot_bubble(2, [2, 4]),
    ):
        stream = io.BytesIO()
        ax.figure.savefig(stream, format=format)
        assert stream.getvalue().startswith(begins)


def test_they_draw_on_given_axes():
    _, axes = plt.subplots(3, 1)
    timeline = ps.generate("1f1b", 2, 3).simulate()
    assert timeline.plot(axes[0]) is axes[0]
    assert timeline.plot_memory(axes[1]) is axes[1]
    assert ps.plot_bubble(2, [2, 4], ax=axes[2]) is axes[2]
    with pytest.raises(TypeError, match="ax must be a matplotlib Axes, got int"):
        timeline.plot(3)
    with pytest.raises(TypeError, match="ax must be a matplotlib Axes, got NoneType"):
        ps.plot_comparison([timeline, timeline], [axes[0], None])
    with pytest.raises(ValueError, match="axes must be one for each of 2 timelines, got 3"):
        ps.plot_comparison([timeline, timeline], axes)


def test_memory_is_the_profile_of_each_rank_until_the_end():
    timeline = ps.generate("1f1b", 4, 8).simulate(UNEVEN)
    ax = timeline.plot_memory()
    assert len(ax.lines) == 4
    for rank, line in enumerate(ax.lines):
        times, held = timeline.memory_profile(rank)
        np.testing.assert_array_equal(line.get_xdata()[:-1], times)
        np.testing.assert_array_equal(line.get_ydata()[:-1], held)
        assert line.get_xdata()[-1] == timeline.end.max()
        assert held.max() == timeline.peak_memory[rank]
    assert len(ps.generate("1f1b", 64, 8).simulate().plot_memory().lines) == 8


def test_compared_timelines_share_one_axis_and_one_legend():
    timelines = [ps.generate(name, 4, 8).simulate() for name in ("1f1b", "zb-v")]
    axes = ps.plot_comparison(timelines)
    assert {ax.get_xlim() for ax in axes} == {(0, max(t.makespan for t in timelines))}
    assert len(legend(axes[0])) == 5
    assert axes[1].get_legend() is None
    assert [ax.get_xlabel() for ax in axes] == ["", "time"]


def test_bubble_against_m():
    ax = ps.plot_bubble(4, [2, 8, 32], basis="bubble_ratio")
    assert ax.get_ylabel() == "bubble_ratio"
    line = next(line for line in ax.lines if line.get_label() == "gpipe")
    np.testing.assert_allclose(line.get_ydata(), [3 / 2, 3 / 8, 3 / 32])


def test_no_two_curves_look_alike_and_the_legend_hides_none():
    ax = ps.plot_bubble(4, [8, 16], schedules=[n for n in ps.SCHEDULES if n != "forward"])
    looks = {(line.get_color(), line.get_marker(), line.get_linestyle()) for line in ax.lines}
    assert len(looks) == len(ax.lines) == len(ps.SCHEDULES) - 1
    ax.figure.canvas.draw()
    assert ax.get_legend().get_window_extent().x0 > ax.get_window_extent().x1


def test_nothing_in_the_picture_overlaps_or_is_cut():
    """Titles, legend, axis words and notes of every family."""
    for name in ps.SCHEDULES:
        ax = ps.generate(name, 4, 8).simulate(ps.Costs(forward=1234.5)).plot()
        figure = ax.figure
        figure.canvas.draw()
        notes = [text for text in ax.texts if "chunk" in text.get_text()]
        ticks = [t for t in ax.get_xticklabels() if t.get_position()[0] <= ax.get_xlim()[1]]
        words = [ax._left_title, ax.get_legend(), ax.xaxis.label, *ticks, *notes]
        boxes = [word.get_window_extent() for word in words]
        for i, box in enumerate(boxes):
            assert not any(box.overlaps(other) for other in boxes[:i]), name
            assert box.x0 >= 0
            assert box.x1 <= figure.bbox.x1 + 1
            assert box.y0 >= 0
            assert box.y1 <= figure.bbox.y1 + 1
