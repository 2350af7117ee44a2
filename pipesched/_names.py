"""Help for names that were not found."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["did_you_mean", "no_such"]


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """``"; did you mean 'x'?"``, or nothing where no known name is close."""
    import difflib  # slow to load, and most names are found

    close = difflib.get_close_matches(str(word), list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def no_such(what: str, word: object, known: Iterable[str]) -> str:
    """A sentence that says what was given and lists what there is."""
    known = list(known)
    return f"no {what} is named {word!r}{did_you_mean(word, known)} (there are: {', '.join(known)})"
