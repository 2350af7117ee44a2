"""A timeline, its memory, and comparisons as matplotlib plots (extra ``plot``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from . import palette
from .scene import build, number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

    from ..timeline import Timeline

#: Above this many boxes the hair lines between them would hide the colours.
EDGE_BOXES = 3000


def pyplot() -> Any:
    """``matplotlib.pyplot``, or an error that says how to install it."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "plots need matplotlib, which is not installed: pip install 'pipesched[plot]'"
        ) from error
    return plt


def new_axes(ax: Axes | None, width: float, height: float) -> Axes:
    """The given axes, or those of a new figure."""
    if ax is None:
        _, ax = pyplot().subplots(figsize=(width, height), layout="constrained")
    return _checked(ax)


def _checked(ax: Any) -> Axes:
    from matplotlib.axes import Axes as AnyAxes

    if not isinstance(ax, AnyAxes):
        raise TypeError(f"ax must be a matplotlib Axes, got {type(ax).__name__}")
    return ax


def gantt(timeline: Timeline, ax: Axes | None = None) -> Axes:
    """The Gantt drawing of a timeline: one row a rank, a box per op or overlapped pair."""
    ax = new_axes(ax, 10, min(1.4 + 0.32 * timeline.schedule.p, 12))
    _draw(timeline, ax)
    _explain([timeline], ax, ax)
    return ax


def _draw(timeline: Timeline, ax: Axes) -> None:
    from matplotlib.collections import PolyCollection

    schedule = timeline.schedule
    scene = build(timeline)
    kinds, microbatches = schedule.ops["kind"], schedule.ops["microbatch"]

    # Every box as a rectangle; an overlapped pair as two of half the height.
    paired = scene.partner >= 0
    low, high = scene.rank - 0.42, scene.rank + 0.42
    op = np.concatenate([scene.op, scene.partner[paired]])
    chunk = np.concatenate([scene.chunk, scene.partner_chunk[paired]])
    chunks = np.concatenate([scene.chunks, scene.chunks[paired]])
    left = np.concatenate([scene.start, scene.start[paired]]) - scene.origin
    right = np.concatenate([scene.end, scene.end[paired]]) - scene.origin
    bottom = np.concatenate([low, scene.rank[paired].astype(float)])
    top = np.concatenate([np.where(paired, scene.rank.astype(float), high), high[paired]])
    corners = np.stack(
        [
            np.stack([left, bottom], axis=1),
            np.stack([right, bottom], axis=1),
            np.stack([right, top], axis=1),
            np.stack([left, top], axis=1),
        ],
        axis=1,
    )
    fills = [
        palette.fill(k, c, n)
        for k, c, n in zip(kinds[op].tolist(), chunk.tolist(), chunks.tolist(), strict=True)
    ]
    span = float(right.max()) if len(op) else 1.0
    for rank in range(schedule.p):
        ax.barh(rank, span, height=0.84, color=palette.IDLE, zorder=0)
    edged = len(op) <= EDGE_BOXES
    ax.add_collection(
        PolyCollection(
            list(corners),
            facecolors=fills,
            edgecolors="white" if edged else "none",
            linewidths=0.4 if edged else 0.0,
            # Boxes narrower than a pixel mix; moved to whole pixels they would make false stripes.
            snap=None if edged else False,
        )
    )
    ax.set_xlim(0, span if span > 0 else 1.0)
    ax.set_ylim(schedule.p - 0.5, -0.5)
    _label_boxes(ax, microbatches[op], fills, left, right, bottom, top, span)

    every = max(1, schedule.p // 32)
    ax.set_yticks(range(0, schedule.p, every), [f"rank {r}" for r in range(0, schedule.p, every)])
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.set_title(
        f"{schedule.name}\nmakespan {number(timeline.makespan)}, "
        f"bubble_fraction {timeline.bubble_fraction:.4f}",
        loc="left",
        fontsize="medium",
    )


def _explain(timelines: Sequence[Timeline], top: Axes, bottom: Axes) -> None:
    """What the colours mean: a legend above `top` at the right, and the words below `bottom`."""
    from matplotlib.patches import Patch

    handles = [
        Patch(color=palette.FILLS[k], label=palette.KIND_WORDS[k])
        for k in sorted({k for t in timelines for k in set(t.schedule.ops["kind"].tolist())})
        if k < len(palette.FILLS)
    ]
    handles.append(Patch(facecolor=palette.IDLE, edgecolor="#B0B0BC", label="idle"))
    top.legend(
        handles=handles,
        loc="lower right",
        bbox_to_anchor=(1, 1),
        ncols=len(handles),
        frameon=False,
        fontsize="small",
        handlelength=1.0,
        handletextpad=0.4,
        columnspacing=1.2,
    )
    bottom.set_xlabel("time")
    if any(len(stages) > 1 for t in timelines for stages in t.schedule.placement):
        bottom.annotate(
            "lighter: a later chunk of the rank",
            (1, 0),
            xycoords="axes fraction",
            xytext=(0, -32),
            textcoords="offset points",
            ha="right",
            fontsize="small",
        )


def _label_boxes(
    ax: Axes,
    microbatches: np.ndarray,
    fills: list[str],
    left: np.ndarray,
    right: np.ndarray,
    bottom: np.ndarray,
    top: np.ndarray,
    span: float,
) -> None:
    """Write the micro-batch into every box that has room for it."""
    points = ax.get_window_extent().width * 72 / ax.figure.dpi  # width of the axes
    size = 7.0
    room = (right - left) / (span or 1.0) * points
    texts = [str(j) for j in microbatches.tolist()]
    for i in np.flatnonzero(room > 0.6 * size).tolist():
        if room[i] < 0.62 * size * len(texts[i]) + 1:
            continue
        ax.text(
            (left[i] + right[i]) / 2,
            (bottom[i] + top[i]) / 2,
            texts[i],
            ha="center",
            va="center",
            fontsize=size if top[i] - bottom[i] > 0.5 else size - 2,
            color=palette.ink(fills[i]),
            clip_on=True,
        )


def save(timeline: Timeline, path: Any, format: str = "png") -> None:
    """Draw a timeline into a picture file (a path or a binary stream)."""
    pyplot()  # the error that names the extra, where matplotlib is missing
    from matplotlib.figure import Figure

    height = min(1.4 + 0.32 * timeline.schedule.p, 12)
    figure = Figure(figsize=(10, height), layout="constrained")
    gantt(timeline, figure.add_subplot())
    figure.savefig(path, format=format, dpi=150)


def memory(timeline: Timeline, ax: Axes | None = None) -> Axes:
    """Bytes held over time, one line a rank (at most eight: spread over the ranks)."""
    ax = new_axes(ax, 10, 3.2)
    from matplotlib.ticker import EngFormatter

    p = timeline.schedule.p
    ranks = sorted({round(i * (p - 1) / 7) for i in range(8)}) if p > 8 else range(p)
    colours = pyplot().get_cmap("viridis")(np.linspace(0, 0.9, len(ranks)))
    # From thick to thin, so that ranks that hold the same stay visible below each other.
    widths = np.linspace(3.6, 1.2, len(ranks))
    for rank, colour, width in zip(ranks, colours, widths, strict=True):
        times, held = timeline.memory_profile(rank)
        times, held = np.append(times, timeline.end.max()), np.append(held, held[-1])
        ax.step(times, held, where="post", color=colour, linewidth=width, label=f"rank {rank}")
    ax.yaxis.set_major_formatter(EngFormatter())
    ax.set_xlabel("time")
    ax.set_ylabel("bytes held")
    ax.set_ylim(bottom=0)
    ax.set_title(f"{timeline.schedule.name}: memory by rank", loc="left", fontsize="medium")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))  # hides no line
    return ax


def comparison(timelines: Sequence[Timeline], axes: Any = None) -> Any:
    """Timelines under each other on one time axis, so that lengths can be compared."""
    if not len(timelines):
        raise ValueError("plot_comparison needs at least one timeline, got none")
    if axes is None:
        heights = [1.2 + 0.28 * t.schedule.p for t in timelines]
        _, axes = pyplot().subplots(
            len(timelines),
            1,
            sharex=True,
            figsize=(10, min(sum(heights), 40)),
            height_ratios=heights,
            layout="constrained",
            squeeze=False,
        )
    axes = np.atleast_1d(np.asarray(axes, dtype=object)).ravel()
    if len(axes) != len(timelines):
        raise ValueError(
            f"axes must be one for each of {len(timelines)} timelines, got {len(axes)}"
        )
    longest = max(t.makespan for t in timelines)
    for ax, timeline in zip(axes, timelines, strict=True):
        _draw(timeline, _checked(ax))
        ax.set_xlim(0, longest)
    _explain(timelines, axes[0], axes[-1])
    return axes


def bubble_curves(
    curves: Mapping[str, tuple[Sequence[int], Sequence[float]]],
    ax: Axes | None = None,
    basis: str = "bubble_fraction",
) -> Axes:
    """Bubble against the number of micro-batches; `curves` maps a name to (m, bubble)."""
    beside = len(curves) > 8  # a long legend would hide the lines
    ax = new_axes(ax, 9 if beside else 7, max(4.0, 0.25 * len(curves)) if beside else 4)
    # Lines, markers and strokes repeat after 7, 8 and 4: no two of 56 curves look alike.
    markers, strokes = "osD^vPX*", ("-", "--", "-.", ":")
    for i, (name, (m, bubble)) in enumerate(curves.items()):
        ax.plot(
            m,
            bubble,
            label=name,
            color=palette.LINES[i % len(palette.LINES)],
            marker=markers[i % len(markers)],
            linestyle=strokes[i // len(palette.LINES) % len(strokes)],
            markersize=4,
        )
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set_ylim(bottom=0)
    ax.set_xlabel("micro-batches m")
    ax.set_ylabel(basis)
    ax.grid(alpha=0.3)
    ax.spines[["top", "right"]].set_visible(False)
    if beside:
        ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    else:
        ax.legend(frameon=False)
    return ax
