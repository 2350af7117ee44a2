"""Torch's action words: from rows of words to a schedule and back."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from pipesched.check import KINDS
from pipesched.schedule import OP_DTYPE, Schedule

_INT32_MAX = 2**31 - 1
_WORD = re.compile(r"(\d+)([A-Z_]+)(\d*)", re.ASCII)
_PAIR = re.compile(r"\(([^;()]*);([^;()]*)\)OVERLAP_F_B")
_SPLIT = re.compile(r"\([^)]*\)?[^\s,]*|[^\s,]+")
_KIND = {word: number for number, word in enumerate(KINDS)}


def parse_rows(rows: Iterable[str | Iterable[str | None]], name: str) -> Schedule:
    """Read rows of words; see `Schedule.from_rows`."""
    ops: list[tuple[int, int, int, int]] = []
    offsets = [0]
    for r, row in enumerate(rows):
        for c, cell in enumerate(_SPLIT.findall(row) if isinstance(row, str) else row):
            if cell is None:
                continue
            if not isinstance(cell, str):
                raise TypeError(f"row {r}, column {c}: a word must be a str, got {cell!r}")
            word = cell.strip()
            if word:
                pair = _PAIR.fullmatch(word)
                parts = pair.groups() if pair else (word,)
                for k, part in enumerate(parts):
                    fuse = int(k + 1 < len(parts))
                    ops.append((*_parse_word(part.strip(), cell, r, c), fuse))
        offsets.append(len(ops))
    if not ops:
        raise ValueError("rows must hold at least one op, got none")
    array = np.array(ops, OP_DTYPE)
    num_stages = int(array["stage"].max()) + 1
    num_microbatches = max(int(array["microbatch"].max()) + 1, 1)
    return Schedule.from_arrays(array, offsets, num_stages, num_microbatches, name)


def _parse_word(word: str, cell: str, r: int, c: int) -> tuple[int, int, int]:
    match = _WORD.fullmatch(word)
    kind = _KIND.get(match[2]) if match else None
    if kind is None or (match[3] == "") != (kind >= 8):
        raise ValueError(
            f"row {r}, column {c}: {cell!r} is not an action; write stage, kind and micro-batch "
            "as in '2F0', '1UNSHARD' or '(0F7;7B3)OVERLAP_F_B'"
        )
    stage, microbatch = int(match[1]), int(match[3] or -1)
    if max(stage, microbatch) >= _INT32_MAX:
        raise ValueError(f"row {r}, column {c}: {cell!r} holds a number above {_INT32_MAX - 1}")
    return stage, microbatch, kind


def format_rows(schedule: Schedule) -> list[list[str]]:
    """Write the schedule as rows of words; see `Schedule.rows`."""
    rows = []
    for ops in schedule:
        row: list[str] = []
        first = ""
        for stage, microbatch, kind, fuse in ops.tolist():
            word = f"{stage}{KINDS[kind]}{microbatch if kind < 8 else ''}"
            if fuse:
                first = word
            elif first:
                row.append(f"({first};{word})OVERLAP_F_B")
                first = ""
            else:
                row.append(word)
        rows.append(row)
    return rows
