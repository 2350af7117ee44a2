"""A timeline as a Gantt drawing in the terminal.

One row a rank, widths in proportion to time. Where there is colour the colour tells
the kind and the box holds the micro-batch; where there is none the box begins with
the kind's letter (`F3`; `f3` for a later chunk of the rank) and its filling tells the
kind again. What does not fit one
line is folded like music into several systems; what does not fit those is left out
in the middle, and the drawing says so.
"""

from __future__ import annotations

import bisect
import math
import os
import re
import shutil
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

import numpy as np

from . import palette
from .scene import Scene, build, extent, number, round_step, summary

if TYPE_CHECKING:
    from ..timeline import Timeline

#: Drawings longer than these are windowed: lines of ranks in all, ranks in one system.
MAX_LINES = 72
MAX_RANKS = 32

_RESET = "\x1b[0m"
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Terminal:
    """What the place that is written to can show."""

    width: int
    colour: bool
    unicode: bool

    @classmethod
    def of(cls, stream: TextIO | None = None) -> Terminal:
        """Ask the stream (standard output by default) and the environment."""
        stream = sys.stdout if stream is None else stream
        try:
            is_terminal = stream.isatty()
        except (AttributeError, ValueError):
            is_terminal = False
        colour = is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        encoding = (getattr(stream, "encoding", None) or "ascii").lower()
        return cls(
            width=shutil.get_terminal_size((100, 24)).columns,
            colour=colour,
            unicode=encoding.replace("-", "").replace("_", "") in ("utf8", "utf16", "utf32"),
        )


#: How a box without colour is filled behind its label, by kind; then idle time.
_ASCII = ("-", "=", "+", "~", ".")
_UNICODE = ("─", "═", "╌", "┄", "·")


def render(timeline: Timeline, terminal: Terminal | None = None) -> str:
    """The drawing as one string, without a newline at the end.

    Linear in the number of ops that are shown.
    """
    terminal = Terminal.of() if terminal is None else terminal
    scene = build(timeline)
    heading = f"{_name(timeline.schedule.name, terminal)}: {extent(timeline.schedule)}"
    if not len(scene):
        return f"{heading}\n(no compute ops to draw)"
    drawing = _Drawing(timeline, scene, terminal)
    return "\n".join([heading, *drawing.lines(), drawing.legend(), summary(timeline)])


def _name(name: str, terminal: Terminal) -> str:
    """The name without what would steer the terminal, in characters that it can show."""
    safe = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)
    return safe if terminal.unicode else safe.encode("ascii", "backslashreplace").decode()


class _Drawing:
    def __init__(self, timeline: Timeline, scene: Scene, terminal: Terminal) -> None:
        self.scene, self.terminal = scene, terminal
        self.schedule = timeline.schedule
        self.kind = self.schedule.ops["kind"][scene.op]
        self.start = scene.start - scene.origin
        self.end = scene.end - scene.origin
        self.span = float(self.end.max())
        self.name_width = len(str(self.schedule.p - 1)) + 6  # "rank 3 "
        self.columns = max(terminal.width - self.name_width - 1, 20)
        self.shown_ranks = self._choose_ranks()
        self.left_out: tuple[float, float] | None = None
        self._choose_scale()

    def _label(self, box: int) -> str:
        """The micro-batch of a box, behind the kind's letter where colour does not tell it."""

        def word(op: int) -> str:
            _, microbatch, kind, _ = self.schedule.ops[op].item()
            letter = "" if self.terminal.colour else palette.KIND_LETTERS[kind]
            return f"{letter.lower() if self.scene.chunk[box] else letter}{microbatch}"

        op, partner = int(self.scene.op[box]), int(self.scene.partner[box])
        return word(op) if partner < 0 else f"{word(op)}/{word(partner)}"

    def _label_width(self) -> int:
        """Of the longest label."""
        one = len(str(self.schedule.num_microbatches - 1)) + (not self.terminal.colour)
        return 2 * one + 1 if (self.scene.partner >= 0).any() else one

    def _choose_ranks(self) -> list[int]:
        """All ranks, or the first and the last of them around a gap (-1)."""
        p = self.schedule.p
        if p <= MAX_RANKS:
            return list(range(p))
        half = MAX_RANKS // 2
        return [*range(half), -1, *range(p - half, p)]

    def _choose_scale(self) -> None:
        """Columns per unit of time, and which stretches of time make the systems."""
        typical = self.scene.typical()
        if typical == 0:
            self.scale, self.windows = 0.0, [(0.0, 0.0)]
            return
        label = self._label_width()
        systems = max(1, MAX_LINES // (len(self.shown_ranks) + 1))
        room = self.columns / self.span
        # A column of air beside the label, which in colour keeps neighbours apart; letters do
        # so themselves where the picture would not fit one line otherwise.
        tight = not self.terminal.colour and label / typical <= room < (label + 1) / typical
        wanted = (label if tight else label + 1) / typical
        # Where times are small whole numbers, whole columns a unit: equal ops look equal.
        whole = typical <= 8 and typical.is_integer()
        if whole:
            wanted = math.ceil(wanted)
        if wanted <= room:
            self.scale = min(math.floor(room) if whole else room, 2 * wanted)
        else:
            # Shrink until it fits, but never below a column for a typical box.
            self.scale = wanted
            if wanted * self.span > systems * self.columns:
                self.scale = max(1 / typical, systems * self.columns / self.span)
        needed = self.span * self.scale / self.columns
        count = max(1, math.ceil(needed - 1e-9))
        if not whole and 1 < count <= systems and (count - 1) / needed > 0.85:
            count -= 1  # a little tighter, rather than a last system with next to nothing
            self.scale = count * self.columns / self.span
        per_system = self.columns / self.scale
        if count == 1:
            per_system = self.span
        elif count <= systems and not whole:
            per_system = self.span / count  # systems of one length
        elif per_system >= typical:
            # Fold between boxes of the typical length; into even systems where all are shown.
            per_system = math.floor(per_system / typical) * typical
            count = math.ceil(self.span / per_system - 1e-9)
            if count <= systems:
                per_system = math.ceil(self.span / typical / count - 1e-9) * typical
        count = max(1, math.ceil(self.span / per_system - 1e-9))
        edges = [(i * per_system, min((i + 1) * per_system, self.span)) for i in range(count)]
        if count > systems:
            front, back = edges[: systems - systems // 2], edges[count - systems // 2 :]
            self.left_out = (front[-1][1], back[0][0] if back else self.span)
            edges = front + back
        self.windows = edges

    def lines(self) -> list[str]:
        out: list[str] = []
        bounds = np.searchsorted(self.scene.rank, np.arange(self.schedule.p + 1))
        for system, (begin, stop) in enumerate(self.windows):
            if self.left_out is not None and math.isclose(begin, self.left_out[1]):
                out.append(_gap_line(*self.left_out))
            for r in self.shown_ranks:
                if r < 0:
                    hidden = self.schedule.p - 2 * (MAX_RANKS // 2)
                    out.append(f"  ...   {hidden} more ranks are not drawn")
                    continue
                bar = "│" if self.terminal.unicode else "|"
                name = f"rank {r}".ljust(self.name_width)
                out.append(name + bar + self._row(np.arange(bounds[r], bounds[r + 1]), system))
            out.append(self._axis(begin, stop))
        if self.left_out is not None and math.isclose(self.left_out[1], self.span):
            out.append(_gap_line(*self.left_out))
        return out

    def _home(self, box: int) -> int:
        """The system that shows most of a box, the first of equals: its label stands there."""
        start, end = float(self.start[box]), float(self.end[box])
        first = max(bisect.bisect_right(self.windows, (start, math.inf)) - 1, 0)
        after = bisect.bisect_left(self.windows, (end, -math.inf))
        shown = [min(end, b) - max(start, a) for a, b in self.windows[first:after]]
        return first + shown.index(max(shown))

    def _row(self, boxes: np.ndarray, system: int) -> str:
        begin, stop = self.windows[system]
        fillings = _UNICODE if self.terminal.unicode else _ASCII
        inside = boxes[(self.end[boxes] > begin) & (self.start[boxes] < stop)]
        left = np.rint((np.maximum(self.start[inside], begin) - begin) * self.scale).astype(int)
        right = np.rint((np.minimum(self.end[inside], stop) - begin) * self.scale).astype(int)
        cut = (self.start[inside] < begin) | (self.end[inside] > stop)
        width = round((stop - begin) * self.scale)
        parts: list[str] = []
        at = 0
        for box, x0, x1, is_cut in zip(
            inside.tolist(), left.tolist(), right.tolist(), cut.tolist(), strict=True
        ):
            if x1 <= x0:
                continue
            parts.append(self._idle(x0 - at, fillings[4]))
            labelled = not is_cut or self._home(box) == system
            begins = bool(self.start[box] >= begin)
            parts.append(self._box(box, x1 - x0, fillings, labelled, begins))
            at = x1
        parts.append(self._idle(width - at, fillings[4]))
        return "".join(parts)

    def _idle(self, width: int, filling: str) -> str:
        text = filling * max(width, 0)
        if self.terminal.colour and text:
            return f"\x1b[38;5;{palette.TERMINAL_IDLE}m{text}{_RESET}"
        return text

    def _box(
        self, box: int, width: int, fillings: tuple[str, ...], labelled: bool, begins: bool
    ) -> str:
        if self.terminal.colour:
            return self._coloured(box, width, labelled, begins)
        kind = int(self.kind[box])
        label = self._label(box) if labelled else ""
        if not label:
            return fillings[kind] * width
        if len(label) > width:  # the kinds alone: F, or F/B of a pair
            label = "/".join(word[0] for word in label.split("/"))
        return (label if len(label) <= width else label[0]).ljust(width, fillings[kind])

    def _coloured(self, box: int, width: int, labelled: bool, begins: bool) -> str:
        """A box in the colour of its kind; an overlapped pair shows both, half and half.

        Where it is the rest of a box that began before the fold, no edge says that it begins.
        """
        scene = self.scene
        labels = self._label(box).split("/") if labelled else ["", ""]
        halves = [(int(self.kind[box]), int(scene.chunk[box]), width)]
        partner = int(scene.partner[box])
        if partner >= 0 and width > 1:
            kind = int(self.schedule.ops["kind"][partner])
            halves[0] = (*halves[0][:2], width - width // 2)
            halves.append((kind, int(scene.partner_chunk[box]), width // 2))
        parts: list[str] = []
        for (kind, chunk, room), label in zip(halves, labels, strict=False):
            text = label.center(room) if len(label) <= room else " " * room
            if room > 1 and (begins or parts):  # a hair of the other colour keeps neighbours apart
                edge = "▏" if self.terminal.unicode else "|"
                edge = "/" if parts else edge
                text = edge + (label.center(room - 1) if len(label) < room else text[1:])
            back = palette.TERMINAL_FILLS[kind][min(chunk, 1)]
            front = 255 if kind < 2 and chunk == 0 else 16
            parts.append(f"\x1b[48;5;{back};38;5;{front}m{text}{_RESET}")
        return "".join(parts)

    def _axis(self, begin: float, stop: float) -> str:
        """Times under the ticks, at round distances."""
        width = round((stop - begin) * self.scale)
        if self.scale == 0:
            return ""
        step = round_step(10 / self.scale)
        line = ["time".ljust(self.name_width), " "]
        at = 0
        tick = math.ceil(begin / step - 1e-9)
        while tick * step <= stop + 1e-9:
            x = round((tick * step - begin) * self.scale)
            text = number(tick * step)
            if x >= at and x + len(text) <= max(width + 1, len(text)):
                line.append(" " * (x - at) + text)
                at = x + len(text)
            tick += 1
        return "".join(line).rstrip()

    def legend(self) -> str:
        fillings = _UNICODE if self.terminal.unicode else _ASCII
        used = set(self.schedule.ops["kind"][self.scene.op].tolist())
        paired = self.scene.partner[self.scene.partner >= 0]
        used |= set(self.schedule.ops["kind"][paired].tolist())
        items = []
        for kind in sorted(used):
            word, letter = palette.KIND_WORDS[kind], palette.KIND_LETTERS[kind]
            if self.terminal.colour:
                fills = palette.TERMINAL_FILLS[kind]
                shown = fills if int(self.scene.chunk.max()) else fills[:1]
                swatch = "".join(f"\x1b[48;5;{c}m  {_RESET}" for c in shown)
                items.append(f"{swatch} {word}")
            else:
                items.append(f"{letter}{fillings[kind]} {word}")
        items.append(f"{self._idle(2, fillings[4])} idle")
        if len(paired):
            items.append("a/b overlapped pair")
        if self.terminal.colour and int(self.scene.chunk.max()):
            items.append("lighter = a later chunk of the rank")
        elif int(self.scene.chunk.max()):
            items.append("small letters: a later chunk of the rank")
        return self._wrapped(items)

    def _wrapped(self, items: list[str]) -> str:
        """The items, in lines no longer than the terminal is wide."""
        lines: list[list[str]] = [[]]
        room = 0
        for item in items:
            width = len(_ESCAPE.sub("", item)) + 2
            if width > room + 2:
                lines.append([])
                room = self.terminal.width
            lines[-1].append(item)
            room -= width
        return "\n".join("  ".join(line) for line in lines if line)


def _gap_line(begin: float, stop: float) -> str:
    return f"  ...   time {number(begin)} to {number(stop)} is not drawn: it does not fit"
