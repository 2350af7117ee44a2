"""A timeline as one self-contained SVG: for notebooks, web pages and papers.

No script and nothing from elsewhere: hovering shows each op's start, end and what it
waited for through the SVG's own titles, and the colours follow a light or a dark
surrounding by style rules. Above `MAX_BOXES` the picture becomes an overview, because
browsers slow down with the number of elements (``benchmarks/bench_draw.py`` prints the
measurement behind the limit).
"""

from __future__ import annotations

import base64
import struct
import zlib
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from ..check import KINDS
from . import palette
from .scene import Scene, build, number, round_step, summary

if TYPE_CHECKING:
    from ..timeline import Timeline

#: More boxes than these are drawn as an overview.
MAX_BOXES = 8192

WIDTH = 960  # of a picture that fits; a longer one scrolls
MAX_WIDTH = 16000
ROW, GAP, BOX = 26, 4, 22  # heights: of a rank's row, between rows, of a box
LEFT, TOP = 64, 30
_FONT = "font-family:ui-sans-serif,system-ui,-apple-system,Segoe UI,Helvetica,Arial,sans-serif"


def render(timeline: Timeline) -> str:
    """The picture as an ``<svg>`` element that also stands alone as a file.

    Linear in the number of ops.
    """
    scene = build(timeline)
    span = float((scene.end - scene.origin).max()) if len(scene) else 0.0
    overview = len(scene) > MAX_BOXES
    scale = _scale(scene, span, overview)
    width = LEFT + span * scale + 16
    p = timeline.schedule.p
    row = ROW if not overview else max(min(ROW, 640 / p), 2)
    height = TOP + p * row + 62
    body = (
        _overview(timeline, scene, span, scale, row) if overview else _boxes(timeline, scene, scale)
    )
    name, room = timeline.schedule.name, int((width - 16) / 9)  # 9 pixels hold most letters
    heading = _text(name if len(name) <= room else name[: room - 1] + "\N{HORIZONTAL ELLIPSIS}")
    note = f" (overview of {len(scene):,} ops)" if overview else ""
    parts = [
        _axis(span, scale, p, row),
        _rank_names(p, row, span, scale),
        body,
        _legend(timeline, scene, TOP + p * row + 32, overview),
        f'<text class="s" x="8" y="{TOP + p * row + 54:.6g}">{_text(summary(timeline))}</text>',
    ]
    inner = "".join(parts)
    # Two pictures on one page must not share style rules by accident.
    scope = f"ps{zlib.crc32((heading + inner).encode()):08x}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="{scope}" role="img" '
        f'width="{width:.6g}" height="{height:.6g}" viewBox="0 0 {width:.6g} {height:.6g}">'
        f"<style>{_style(scope)}</style>"
        f'<rect class="bg" width="100%" height="100%"/>'
        f'<text class="h" x="8" y="17">{heading}{note}</text>{inner}</svg>'
    )


def notebook(timeline: Timeline) -> str:
    """The picture as HTML for a notebook cell; a long one scrolls sideways."""
    return f'<div style="overflow-x:auto;max-width:100%">{render(timeline)}</div>'


def page(timeline: Timeline) -> str:
    """The picture as a complete HTML document."""
    title = _text(timeline.schedule.name)
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<link rel="icon" href="data:,">'
        '<meta name="viewport" content="width=device-width">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{title} - pipesched</title></head>"
        f'<body style="margin:16px">{notebook(timeline)}</body></html>\n'
    )


def _text(text: str) -> str:
    """Escaped for XML, which has no control characters and no lone surrogates."""
    return escape("".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text))


def _style(scope: str) -> str:
    light = f"--bg:#fff;--ink:#222;--dim:#667;--idle:{palette.IDLE};--grid:#c8c8d2"
    dark = f"--bg:#16181d;--ink:#e8e8ec;--dim:#a0a4b0;--idle:{palette.IDLE_DARK};--grid:#464c5a"
    rules = [
        f".{scope}{{{light};{_FONT}}}",
        f"@media (prefers-color-scheme:dark){{.{scope}{{{dark}}}}}",
        # Notebooks that choose their theme themselves.
        f"[data-jp-theme-light=true] .{scope},.vscode-light .{scope}{{{light}}}",
        f"[data-jp-theme-light=false] .{scope},.vscode-dark .{scope}{{{dark}}}",
        f".{scope} .bg{{fill:var(--bg)}}",
        f".{scope} text{{fill:var(--ink);font-size:12px}}",
        f".{scope} .h{{font-size:14px;font-weight:600}}",
        f".{scope} .s,.{scope} .t{{fill:var(--dim);font-size:11px}}",
        f".{scope} .t{{text-anchor:middle}}",
        f".{scope} .i{{fill:var(--idle)}}",
        f".{scope} .g{{stroke:var(--grid);stroke-width:1}}",
        f".{scope} .n{{text-anchor:middle;pointer-events:none;font-size:11px}}",
        f".{scope} .b text.n{{fill:#111}}",
        f".{scope} .b text.w{{fill:#fff}}",
        f".{scope} .b g:hover rect{{stroke:var(--ink);stroke-width:2}}",
    ]
    return "".join(rules)


def _scale(scene: Scene, span: float, overview: bool) -> float:
    """Pixels per unit of time."""
    if span <= 0:
        return 1.0
    fit = (WIDTH - LEFT - 16) / span
    if overview:
        return fit
    readable = 18 / scene.typical()  # three digits in a short box
    return max(fit, min(readable, (MAX_WIDTH - LEFT) / span))


def _rank_names(p: int, row: float, span: float, scale: float) -> str:
    parts = []
    every = max(1, int(np.ceil(12 / row)))
    for rank in range(p):
        y = TOP + rank * row
        gap = GAP / 2 if row >= 2 * GAP else 0
        parts.append(
            f'<rect class="i" x="{LEFT}" y="{y + gap:.6g}" width="{span * scale:.6g}" '
            f'height="{row - 2 * gap:.6g}"/>'
        )
        if rank % every == 0:
            parts.append(f'<text x="8" y="{y + row / 2 + 4:.6g}">rank {rank}</text>')
    return "".join(parts)


def _axis(span: float, scale: float, p: int, row: float) -> str:
    if span <= 0:
        return ""
    step = round_step(80 / scale)
    bottom = TOP + p * row
    parts = [f'<text class="s" x="8" y="{bottom + 15:.6g}">time</text>']
    for tick in range(int(span / step + 1e-9) + 1):
        x = LEFT + tick * step * scale
        parts.append(
            f'<path class="g" d="M{x:.6g} {TOP - 2}V{bottom + 3:.6g}"/>'
            f'<text class="t" x="{x:.6g}" y="{bottom + 15:.6g}">{number(tick * step)}</text>'
        )
    return "".join(parts)


def _boxes(timeline: Timeline, scene: Scene, scale: float) -> str:
    words = _words(timeline)
    rank_of = np.repeat(np.arange(timeline.schedule.p), np.diff(timeline.schedule.offsets)).tolist()
    cause = timeline.cause.tolist()
    ops = timeline.schedule.ops
    kinds, microbatches = ops["kind"].tolist(), ops["microbatch"].tolist()
    colours: dict[tuple[int, int, int], tuple[str, str]] = {}

    def colour(kind: int, chunk: int, chunks: int) -> tuple[str, str]:
        key = (kind, chunk, chunks)
        if key not in colours:
            fill = palette.fill(*key)
            colours[key] = (fill, " w" if palette.ink(fill) == "#FFFFFF" else "")
        return colours[key]

    parts = ['<g class="b">']
    left = (LEFT + (scene.start - scene.origin) * scale).tolist()
    right = (LEFT + (scene.end - scene.origin) * scale).tolist()
    columns = zip(
        scene.op.tolist(), scene.partner.tolist(), scene.rank.tolist(), scene.chunk.tolist(),
        scene.partner_chunk.tolist(), scene.chunks.tolist(), left, right,
        scene.start.tolist(), scene.end.tolist(),
        strict=True,
    )  # fmt: skip
    for op, partner, rank, chunk, other, chunks, x0, x1, start, end in columns:
        y = TOP + rank * ROW + (ROW - BOX) // 2
        width = max(x1 - x0 - 0.6, 0.4)  # a hair between neighbours
        title = words[op] if partner < 0 else f"{words[op]} &amp; {words[partner]}"
        before = cause[op]
        if before < 0:
            waited = "waited for nothing"
        elif rank_of[before] == rank:
            waited = f"after {words[before]} on its own rank"
        else:
            waited = f"waited for {words[before]} on rank {rank_of[before]}"
        parts.append(
            f"<g><title>{title} on rank {rank}\n{number(start)} to {number(end)}\n{waited}</title>"
        )
        halves = [(op, chunk, y, BOX)]
        if partner >= 0:
            halves = [(op, chunk, y, BOX // 2), (partner, other, y + BOX // 2, BOX // 2)]
        for index, own_chunk, top, tall in halves:
            fill, dark = colour(kinds[index], own_chunk, chunks)
            parts.append(
                f'<rect x="{x0:.6g}" y="{top}" width="{width:.6g}" height="{tall}" fill="{fill}"/>'
            )
            label = str(microbatches[index])
            if 6.5 * len(label) <= width:
                parts.append(
                    f'<text class="n{dark}" x="{(x0 + x1) / 2:.6g}" '
                    f'y="{top + tall / 2 + 4:.6g}">{label}</text>'
                )
        parts.append("</g>")
    parts.append("</g>")
    return "".join(parts)


def _words(timeline: Timeline) -> list[str]:
    """Each op in torch's words; a wait may be for a send."""
    ops = timeline.schedule.ops
    columns = (ops["stage"].tolist(), ops["kind"].tolist(), ops["microbatch"].tolist())
    return [f"{s}{KINDS[k]}{j if j >= 0 else ''}" for s, k, j in zip(*columns, strict=True)]


def _legend(timeline: Timeline, scene: Scene, y: float, overview: bool) -> str:
    kinds = set(timeline.schedule.ops["kind"][scene.op].tolist())
    kinds |= set(timeline.schedule.ops["kind"][scene.partner[scene.partner >= 0]].tolist())
    parts, x = [], 8.0
    chunks = int(scene.chunks.max()) if len(scene) else 1
    for kind in sorted(kinds):
        shown = range(chunks) if not overview and chunks <= 4 else range(1)
        for chunk in shown:
            parts.append(
                f'<rect x="{x:.6g}" y="{y - 10:.6g}" width="12" height="12" '
                f'fill="{palette.fill(kind, chunk, chunks)}"/>'
            )
            x += 12
        word = palette.KIND_WORDS[kind]
        parts.append(f'<text x="{x + 5:.6g}" y="{y:.6g}">{word}</text>')
        x += 22 + 6.6 * len(word)
    parts.append(f'<rect class="i g" x="{x:.6g}" y="{y - 10:.6g}" width="12" height="12"/>')
    parts.append(f'<text x="{x + 17:.6g}" y="{y:.6g}">idle</text>')
    x += 56
    if chunks > 1 and not overview:
        parts.append(f'<text class="s" x="{x:.6g}" y="{y:.6g}">lighter: a later chunk</text>')
    return "".join(parts)


def _overview(timeline: Timeline, scene: Scene, span: float, scale: float, row: float) -> str:
    """One pixel column per bin: the kinds' colours mixed by their share of the bin's time."""
    columns = WIDTH - LEFT - 16
    p = timeline.schedule.p
    share = np.zeros((p, columns, 4))
    kinds = timeline.schedule.ops["kind"]
    first, second = kinds[scene.op], np.where(scene.partner >= 0, kinds[scene.partner], -1)
    weight = np.where(scene.partner >= 0, 0.5, 1.0)  # both ops of a pair share its box
    left = (scene.start - scene.origin) / span * columns
    right = (scene.end - scene.origin) / span * columns
    bounds = np.searchsorted(scene.rank, np.arange(p + 1))
    for rank in range(p):
        mine = slice(bounds[rank], bounds[rank + 1])
        for kind in range(4):
            for of in (first, second):
                for part in (0.5, 1.0):
                    boxes = (of[mine] == kind) & (weight[mine] == part)
                    if boxes.any():
                        covered = _coverage(left[mine][boxes], right[mine][boxes], columns)
                        share[rank, :, kind] += part * covered
    colours = np.array([palette.channels(c) for c in palette.FILLS], dtype=float)
    busy = share.sum(axis=2, keepdims=True)
    rgb = share @ colours / np.maximum(busy, 1e-12)
    image = np.concatenate([rgb, 255 * np.clip(busy, 0, 1)], axis=2).round().astype(np.uint8)
    data = base64.b64encode(_png(image)).decode("ascii")
    title = "each column is a stretch of time; the paler, the more of it is idle"
    return (
        f'<image x="{LEFT}" y="{TOP}" width="{span * scale:.6g}" height="{p * row:.6g}" '
        f'preserveAspectRatio="none" style="image-rendering:pixelated" '
        f'href="data:image/png;base64,{data}"><title>{title}</title></image>'
    )


def _coverage(left: np.ndarray, right: np.ndarray, columns: int) -> np.ndarray:
    """The share of each unit bin that the disjoint intervals cover."""
    order = np.argsort(left, kind="stable")
    left, right = left[order], right[order]
    edges = np.arange(columns + 1, dtype=float)
    # The busy time up to each edge; its differences are the shares.
    done = np.concatenate([[0.0], np.cumsum(right - left)])
    begun = np.searchsorted(left, edges, side="right")  # intervals begun before the edge
    over = np.where(begun > 0, np.maximum(right[begun - 1] - edges, 0.0), 0.0)
    return np.diff(done[begun] - over)


def _png(rgba: np.ndarray) -> bytes:
    """A PNG file of an (height, width, 4) uint8 array; the base install has no imaging library."""

    def chunk(tag: bytes, data: bytes) -> bytes:
        crc = zlib.crc32(tag + data)
        return struct.pack(">I", len(data)) + tag + data + struct.pack(">I", crc)

    height, width, _ = rgba.shape
    rows = np.zeros((height, 1 + 4 * width), dtype=np.uint8)  # each row begins with filter 0
    rows[:, 1:] = rgba.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows.tobytes(), 6))
        + chunk(b"IEND", b"")
    )
