"""Torch's action words: from text to a schedule and back."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from pipesched import _core
from pipesched.check import KINDS, check_form, check_unique
from pipesched.schedule import Schedule

__all__ = ["DIALECTS", "format_rows", "format_text", "parse_rows", "parse_text"]

#: How to take `B`: "new" is the full backward, "old" the input gradient.
DIALECTS = ("auto", "new", "old")

_B, _I, _W, _BW = 1, 2, 3, len(KINDS)

# In one string, words stand between commas or white space; a pair may have spaces inside.
_WORD_OR_PAIR = re.compile(r"\([^)]*\)?[^\s,]*|[^\s,]+")
_LINE_END = re.compile(rb"\r\n|\r|\n")
_WIDEST = 60  # characters of a bad cell that an error shows


def parse_rows(rows: Iterable[str | Iterable[str | None]], name: str) -> Schedule:
    """Read rows of words; see `Schedule.from_rows`."""
    if isinstance(rows, (str, bytes)) or not isinstance(rows, Iterable):
        raise TypeError(f"rows must be one row for each rank, got one {type(rows).__name__}")
    lines = [_line(r, row) for r, row in enumerate(rows)]
    text = "".join(line + "\n" for line in lines).encode("utf-8", "backslashreplace")
    ops, offsets = _parse(text)
    old = np.flatnonzero(ops["kind"] == _BW)
    if len(old):
        raise ValueError(
            f"{_cell_text(text, offsets, old[0])} is a word of files from before December 2024; "
            "write B for the full backward, I for the input gradient"
        )
    return check_form(_schedule(ops, offsets, name))


def parse_text(text: bytes, name: str, dialect: str) -> Schedule:
    """Read a file's text; see `pipesched.read_torch_csv`."""
    if dialect not in DIALECTS:
        raise ValueError(f"dialect must be 'auto', 'new' or 'old', got {dialect!r}")
    text = text.removeprefix(b"\xef\xbb\xbf").rstrip()
    ops, offsets = _parse(text)
    _translate(text, ops, offsets, dialect)
    schedule = _schedule(ops, offsets, name)
    fault = check_unique(schedule)
    if fault is not None:
        first = int(offsets[fault.other_rank]) + fault.other_position
        second = int(offsets[fault.rank]) + fault.position
        raise ValueError(
            f"{_cell_text(text, offsets, second)} stands already at "
            f"{_cell_place(text, offsets, first)}"
        )
    return schedule


def format_rows(schedule: Schedule) -> list[list[str]]:
    """Write the schedule as rows of words; see `Schedule.rows`."""
    lines = format_text(schedule).split("\n")[:-1]
    return [line.split(",") if line else [] for line in lines]


def format_text(schedule: Schedule) -> str:
    """Write the schedule as text: words between commas, one line for each rank."""
    return _core.format_words(schedule).decode("ascii")


def _line(r: int, row: str | Iterable[str | None]) -> str:
    """One row as a line of cells between commas."""
    if isinstance(row, str):
        return ",".join(_WORD_OR_PAIR.findall(row))
    if isinstance(row, bytes) or not isinstance(row, Iterable):
        raise TypeError(f"row {r + 1} must be words or one str, got {type(row).__name__}")
    cells = ["" if cell is None else cell for cell in row]
    for c, cell in enumerate(cells):
        if not isinstance(cell, str):
            raise TypeError(
                f"{_place(r, c)}: a word must be a str or None, got {type(cell).__name__}"
            )
    line = ",".join(cells)
    if line.count(",") != max(len(cells) - 1, 0) or "\n" in line or "\r" in line:
        bad = next(c for c, cell in enumerate(cells) if re.search(r"[,\r\n]", cell))
        raise ValueError(f"{_place(r, bad)}: {_shown(cells[bad])} is not one action")
    return line


def _parse(text: bytes) -> tuple[np.ndarray, npt.NDArray[np.int64]]:
    found = _core.parse_words(text)
    if len(found) == 2:
        return found
    row, column, cell, too_large = found
    shown = f"{_place(row, column)}: {_shown(cell.decode('utf-8', 'backslashreplace'))}"
    if too_large:
        raise ValueError(f"{shown} has a number above {2**31 - 2}")
    raise ValueError(
        f"{shown} is not an action; write stage, kind and micro-batch as in '2F0', '1UNSHARD' or "
        "'(0F7;7B3)OVERLAP_F_B'"
    )


def _schedule(ops: np.ndarray, offsets: npt.NDArray[np.int64], name: str) -> Schedule:
    if not len(ops):
        raise ValueError("a schedule must have at least one op, got none")
    num_stages = int(ops["stage"].max()) + 1
    num_microbatches = max(int(ops["microbatch"].max()) + 1, 1)
    return Schedule._wrap(ops, offsets, num_stages, num_microbatches, name)


def _translate(text: bytes, ops: np.ndarray, offsets: npt.NDArray[np.int64], dialect: str) -> None:
    """Turn the old words for backwards into today's, in place."""
    kinds = ops["kind"]
    has = {kind: bool((kinds == kind).any()) for kind in (_B, _I, _W, _BW)}
    old = dialect == "old"
    if dialect == "auto":
        old = has[_BW] or (has[_B] and has[_W] and not has[_I])
    stranger = _I if old else _BW
    if has[stranger]:
        index = int((kinds == stranger).argmax())
        words = "the old words, where B is the input gradient" if old else "today's words"
        why = "" if dialect != "auto" else ", which the file's BW tells it is in"
        raise ValueError(f"{_cell_text(text, offsets, index)} is not in {words}{why}")
    if old:
        kinds[kinds == _B] = _I
        kinds[kinds == _BW] = _B


def _place(r: int, c: int) -> str:
    return f"row {r + 1} (rank {r}), column {c + 1}"


def _shown(cell: str) -> str:
    return repr(cell if len(cell) <= _WIDEST else cell[: _WIDEST - 3] + "...")


def _cell_of(text: bytes, offsets: npt.NDArray[np.int64], index: int) -> tuple[int, int, str]:
    """Row, column and content of the cell that holds the op with this index."""
    r = int(np.searchsorted(offsets, index, side="right")) - 1
    left = index - int(offsets[r])
    cells = _LINE_END.split(text)[r].decode("utf-8", "backslashreplace").split(",")
    for c, cell in enumerate(cells):
        word = cell.strip(' \t\v\f"')
        left -= 0 if not word else 2 if word.startswith("(") else 1
        if left < 0:
            return r, c, word
    raise AssertionError("every op stands in a cell")


def _cell_place(text: bytes, offsets: npt.NDArray[np.int64], index: int) -> str:
    r, c, _ = _cell_of(text, offsets, index)
    return _place(r, c)


def _cell_text(text: bytes, offsets: npt.NDArray[np.int64], index: int) -> str:
    r, c, word = _cell_of(text, offsets, index)
    return f"{_place(r, c)}: {_shown(word)}"
