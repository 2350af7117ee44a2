"""Draw the README's picture: GPipe's forward schedule as docs/gpipe.svg.

python docs/draw_gpipe.py
"""

from pathlib import Path

import pipesched as ps

P, M = 4, 8
CELL, GAP, LEFT, TOP = 46, 3, 70, 44
FILLS = ("#3b6ea5", "#2a9d8f", "#6a994e", "#b08968", "#d1603d", "#b5446e", "#7b5ea7", "#4a6fa5")


def text(x, y, words, *, fill="#57606a", anchor="middle"):
    """Return one line of text."""
    return f'<text x="{x}" y="{y}" fill="{fill}" text-anchor="{anchor}">{words}</text>'


def picture(p, m):
    """Return the SVG of p ranks and m micro-batches."""
    table = ps.gpipe_forward_schedule(p, m)
    slots = table.shape[1]
    pitch = CELL + GAP
    width, height = LEFT + slots * pitch + 12, TOP + p * pitch + 34
    middle = CELL / 2 + 5
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="sans-serif" font-size="15">',
        f"<title>GPipe, forward: {p} ranks, {m} micro-batches</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        text(LEFT, 26, f"GPipe, forward: p = {p} ranks, m = {m} micro-batches", anchor="start"),
    ]
    for rank, row in enumerate(table.tolist()):
        y = TOP + rank * pitch
        parts.append(text(LEFT - 10, y + middle, f"rank {rank}", anchor="end"))
        for slot, cell in enumerate(row):
            x = LEFT + slot * pitch
            idle = cell == -1
            fill = "#eceff2" if idle else FILLS[cell % len(FILLS)]
            parts.append(
                f'<rect x="{x}" y="{y}" width="{CELL}" height="{CELL}" rx="4" fill="{fill}"/>'
            )
            if not idle:
                parts.append(text(x + CELL / 2, y + middle, cell, fill="#ffffff"))
    bubble = f"{p * (p - 1)} of {table.size} cells are idle: the bubble is "
    bubble += f"(p - 1) / (m + p - 1) = {p - 1} / {slots} = {ps.bubble_fraction(table):.1%}"
    parts += [text(LEFT, height - 12, bubble, anchor="start"), "</svg>", ""]
    return "\n".join(parts)


if __name__ == "__main__":
    Path(__file__).with_name("gpipe.svg").write_text(picture(P, M), encoding="utf-8")
