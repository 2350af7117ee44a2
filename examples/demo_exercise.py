"""Draw GPipe's forward schedule, and count what it wastes.

    python examples/demo_exercise.py RANKS MICRO_BATCHES [FOLDER]

prints the schedule and its bubble, and writes the same as a PNG into the folder.
"""

import os
import shutil
import sys
from pathlib import Path

import numpy as np

import pipesched as ps

IDLE = -1
# The micro-batches take turns in these colours (of the 256 that terminals have).
COLOURS = (67, 72, 108, 143, 179, 173, 131, 133, 97, 61)


def has_colour(stream):
    """Return whether the stream is a terminal that shows colours, and may (NO_COLOR)."""
    return stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def shown(count, room):
    """Return which of count rows or columns to show where there is room for some.

    All of them, or the first and the last with None between, for those left out.
    """
    if count <= room:
        return list(range(count))
    head = max(1, (room - 1) * 2 // 3)
    tail = max(1, room - 1 - head)
    return [*range(head), None, *range(count - tail, count)]


def cell_text(cell, width, colour):
    """Return one cell of the picture: a micro-batch, or a dot where the rank is idle."""
    if cell == IDLE:
        text = f"{'·':^{width}}"
        return f"\x1b[2m{text}\x1b[0m" if colour else text
    text = f"{cell:^{width}}"
    if not colour:
        return text
    return f"\x1b[38;5;231;48;5;{COLOURS[cell % len(COLOURS)]}m{text}\x1b[0m"


def picture(table, columns, lines, colour):
    """Return the table as text that fits into so many columns and lines."""
    ranks, slots = table.shape
    width = len(str(table.max())) + 2
    label = len(f"rank {ranks - 1} ")
    across = shown(slots, max(3, (columns - label) // width))
    rows = []
    for rank in shown(ranks, lines):
        if rank is None:
            rows.append(f"{'...':>{label - 1}}")
            continue
        cells = (
            f"{'…':^{width}}" if slot is None else cell_text(int(table[rank, slot]), width, colour)
            for slot in across
        )
        rows.append(f"{f'rank {rank}':<{label}}" + "".join(cells).rstrip())
    return "\n".join(rows)


def growing(p, m):
    """Return the numbers of micro-batches to compare: powers of two, and m itself."""
    powers = [1 << k for k in range(max(7, (16 * p).bit_length()))]
    return sorted({m, *(power for power in powers if power >= p // 4)})


def fall(p, m):
    """Return lines that show how the bubble falls as the micro-batches grow."""
    counts = growing(p, m)
    width = max(len(f"{count:,}") for count in counts)
    for count in counts:
        bubble = ps.bubble_formula(p, count)
        mark = "  <- here" if count == m else ""
        bar = "█" * round(40 * bubble)
        yield f"  m = {count:>{width},}  {bubble:6.1%}  {bar}{mark}"


def save_png(table, path):
    """Write the schedule, and how its bubble falls with m, as a PNG."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    p, slots = table.shape
    m = slots - p + 1
    figure, (top, bottom) = plt.subplots(
        2, 1, figsize=(10, 6.5), height_ratios=(3, 2), layout="constrained"
    )

    # A picture has no use for more cells than pixels.
    step = (-(-p // 1000), -(-slots // 4000))
    cells = table[:: step[0], :: step[1]]
    colours = mpl.colormaps["viridis"].with_extremes(bad="#f0f0f0")
    top.imshow(
        np.ma.masked_equal(cells, IDLE),
        cmap=colours,
        vmin=0,
        vmax=m,
        aspect="auto",
        interpolation="nearest",
        extent=(-0.5, slots - 0.5, p - 0.5, -0.5),
    )
    if p <= 24 and slots <= 48:
        for (rank, slot), cell in np.ndenumerate(table):
            text, colour = ("·", "#999999") if cell == IDLE else (str(cell), "white")
            if cell > 0.7 * m:
                colour = "black"
            top.text(slot, rank, text, ha="center", va="center", color=colour, fontsize=9)
        top.set_xticks(np.arange(-0.5, slots), minor=True)
        top.set_yticks(np.arange(-0.5, p), minor=True)
        top.grid(which="minor", color="white", linewidth=1.5)
        top.tick_params(which="minor", length=0)
    top.xaxis.set_major_locator(mpl.ticker.MaxNLocator(integer=True))
    top.yaxis.set_major_locator(mpl.ticker.MaxNLocator(integer=True))
    top.set(xlabel="slot", ylabel="rank")
    top.set_title(
        f"GPipe, forward: p = {p} ranks, m = {m} micro-batches. "
        f"Bubble (idle / total): {ps.bubble_fraction(table):.1%}",
        loc="left",
    )

    counts = growing(p, m)
    bottom.plot(counts, [ps.bubble_formula(p, count) for count in counts], "o-", color="#3b528b")
    bottom.plot([m], [ps.bubble_formula(p, m)], "o", ms=11, color="#d1495b", label=f"m = {m}")
    bottom.set_xscale("log", base=2)
    bottom.xaxis.set_major_formatter(mpl.ticker.StrMethodFormatter("{x:g}"))
    bottom.yaxis.set_major_formatter(mpl.ticker.PercentFormatter(1.0))
    bottom.set_ylim(bottom=0)
    bottom.grid(alpha=0.3)
    bottom.legend()
    bottom.set(xlabel="micro-batches m", ylabel="bubble (idle / total)")
    bottom.set_title(f"(p - 1) / (m + p - 1) with p = {p}", loc="left")

    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main(arguments):
    """Run the demo; return the program's exit code."""
    if len(arguments) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        p, m = (int(text) for text in arguments[:2])
        table = ps.gpipe_forward_schedule(p, m)
    except (ValueError, OverflowError, MemoryError) as error:
        print(f"The demo takes whole numbers from 1, as in P=4 M=8: {error}", file=sys.stderr)
        return 2
    folder = Path(arguments[2] if len(arguments) > 2 else "demo_output")
    sys.stdout.reconfigure(errors="replace")  # a terminal without · still shows the rest
    size = shutil.get_terminal_size((100, 40))

    print(f"GPipe, forward: p = {p} ranks, m = {m} micro-batches, {table.shape[1]} slots\n")
    print(picture(table, size.columns, max(8, size.lines - 24), has_colour(sys.stdout)))
    counted, formula = ps.bubble_fraction(table), ps.bubble_formula(p, m)
    print("\nThe bubble, idle / total:")
    print(f"  counted     {round(counted * table.size):,} of {table.size:,} cells = {counted!r}")
    print(f"  by formula  (p - 1) / (m + p - 1) = {p - 1:,} / {m + p - 1:,} = {formula!r}")
    print("\nIt falls as the micro-batches grow:")
    for line in fall(p, m):
        print(line)
    path = folder / f"gpipe-p{p}-m{m}.png"
    save_png(table, path)
    print(f"\nWrote the same to {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
