"""The one place for colours and words of the pictures.

The four kinds keep apart under the common colour blindnesses and in grey print:
their lightness (CIE L*) falls in the order W, I, F, B, and every
picture also writes the micro-batch number and, where there is no colour, the
kind's letter. A rank's later chunks (virtual stages) are drawn lighter.
"""

from __future__ import annotations

from ..check import KINDS

#: The kinds that take time of a rank, and so have a box.
KIND_LETTERS = KINDS[:4]

#: What the legend calls a kind; index is the kind's number.
KIND_WORDS = ("forward", "backward", "backward (input)", "backward (weights)")

#: Fill colour of a kind, for light and dark backgrounds alike.
FILLS = ("#4477AA", "#AA3377", "#EE8866", "#DDCC77")

#: Where a rank waits, on light and on dark backgrounds.
IDLE, IDLE_DARK = "#E6E6EC", "#2B303B"

#: The kinds in the 256 colours of a terminal, first chunk and later chunks.
TERMINAL_FILLS = ((25, 67), (125, 168), (209, 216), (179, 186))
TERMINAL_IDLE = 244

#: Colours for the lines of a plot, one a family (Okabe and Ito).
LINES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def channels(colour: str) -> tuple[int, int, int]:
    """``"#4477AA"`` as (68, 119, 170)."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def lighten(colour: str, share: float) -> str:
    """The colour mixed with white: 0 leaves it, 1 is white."""
    mixed = (round(c + (255 - c) * share) for c in channels(colour))
    return "#{:02X}{:02X}{:02X}".format(*mixed)


def fill(kind: int, chunk: int, chunks: int) -> str:
    """Colour of an op of a rank's chunk number `chunk` of `chunks`."""
    share = 0.0 if chunks < 2 else 0.45 * chunk / (chunks - 1)
    return lighten(FILLS[kind], share)


def ink(colour: str) -> str:
    """Black or white, whichever reads better on the colour (WCAG contrast)."""

    def linear(c: int) -> float:
        s = c / 255
        return s / 12.92 if s <= 0.03928 else ((s + 0.055) / 1.055) ** 2.4

    red, green, blue = (linear(c) for c in channels(colour))
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return "#FFFFFF" if luminance < 0.19 else "#111111"
