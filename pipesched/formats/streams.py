"""A path or an open text stream: what readers and writers take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from typing import TextIO

__all__ = ["reading", "writing"]


@contextmanager
def reading(path: str | PathLike[str] | TextIO) -> Iterator[TextIO]:
    """The stream itself, or the opened file (a byte-order mark is left out)."""
    if isinstance(path, (str, PathLike)):
        with open(path, encoding="utf-8-sig") as stream:
            yield stream
    elif hasattr(path, "read"):
        yield path
    else:
        raise _neither(path)


@contextmanager
def writing(path: str | PathLike[str] | TextIO) -> Iterator[TextIO]:
    """The stream itself, or the file made anew."""
    if isinstance(path, (str, PathLike)):
        with open(path, "w", encoding="utf-8") as stream:
            yield stream
    elif hasattr(path, "write"):
        yield path
    else:
        raise _neither(path)


def _neither(path: object) -> TypeError:
    return TypeError(f"path must be a path or an open text stream, got {type(path).__name__}")
