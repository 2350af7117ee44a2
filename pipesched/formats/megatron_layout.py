"""Megatron's pipeline layout string: which layers stand on which stage."""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from typing import SupportsIndex

__all__ = ["MegatronLayout", "megatron_layout"]

# A repeated group, or one symbol, either of them with a count.
_TERM = re.compile(r"(?:\((?P<group>[^()]*)\)|(?P<one>[EtmL|]))(?:\*(?P<count>[0-9]+))?")
_COSMETIC = re.compile(r"[,\s]+")
_MOST = 1_000_000  # symbols of an expanded layout: far above any model


@dataclass(frozen=True)
class MegatronLayout:
    """What a layout string says.

    Attributes
    ----------
    p : int
        Ranks; stage s is on rank s mod p.
    stages : tuple of str
        The symbols of each stage: ``E`` embedding, ``t`` decoder layer, ``m`` multi-token
        prediction layer, ``L`` loss; empty for a stage without any.

    Examples
    --------
    >>> megatron_layout("Et|t*3|tL|", p=2).layers
    (1, 3, 1, 0)
    """

    p: int
    stages: tuple[str, ...]

    @property
    def v(self) -> int:
        """Stages a rank."""
        return len(self.stages) // self.p

    @property
    def layers(self) -> tuple[int, ...]:
        """Decoder layers of each stage."""
        return tuple(stage.count("t") for stage in self.stages)

    @property
    def num_layers(self) -> int:
        """Decoder layers of the model: hold it against what the model should have."""
        return sum(self.layers)

    @property
    def empty(self) -> tuple[int, ...]:
        """The stages that hold nothing at all, which only hand on what they get."""
        return tuple(index for index, stage in enumerate(self.stages) if not stage)


def megatron_layout(text: str, p: SupportsIndex) -> MegatronLayout:
    """Read a layout string of Megatron's ``--pipeline-model-parallel-layout``.

    Parameters
    ----------
    text : str
        Stages between ``|``, each of the symbols ``E t m L``; ``x*n`` repeats a symbol and
        ``(...)*n`` a group, without nesting; commas and spaces do not count.
    p : int
        Ranks.

    Returns
    -------
    MegatronLayout

    Raises
    ------
    ValueError
        Where the text is no layout (with the column), where ``E`` is not the first or ``L`` not the
        last symbol, or where the stages do not divide among the ranks.

    Examples
    --------
    >>> import pipesched as ps
    >>> layout = ps.megatron_layout("Et|(tt|)*29|L", p=16)
    >>> layout.v, layout.num_layers, layout.empty
    (2, 59, (30,))
    """
    if not isinstance(text, str):
        raise TypeError(f"text must be a string, got {type(text).__name__}")
    ranks = operator.index(p)
    if ranks < 1:
        raise ValueError(f"p must be at least 1, got {ranks}")
    symbols = _expand(text)
    order = symbols.replace("|", "")
    for symbol, right, where in (("E", order[:1], "first"), ("L", order[-1:], "last")):
        if order.count(symbol) != 1 or right != symbol:
            raise ValueError(f"{symbol} must stand once, as the {where} symbol, in {text!r}")
    stages = tuple(symbols.split("|"))
    if len(stages) % ranks:
        raise ValueError(
            f"the layout has {len(stages)} stages, which p={ranks} does not divide; "
            "write an empty stage as nothing between two |"
        )
    return MegatronLayout(ranks, stages)


def _expand(text: str) -> str:
    """The symbols, with the repeats written out and the cosmetics gone."""
    found, size, column = [], 0, 0
    while column < len(text):
        cosmetic = _COSMETIC.match(text, column)
        if cosmetic:
            column = cosmetic.end()
            continue
        term = _TERM.match(text, column)
        inside = "" if term is None else _COSMETIC.sub("", term["group"] or term["one"] or "")
        if term is None or not set(inside) <= set("EtmL|"):
            raise ValueError(
                f"column {column}: {text[column : column + 12]!r} is not E, t, m, L, |, or a group "
                "of these in ( ), with *n to repeat"
            )
        count = int(term["count"] or 1)
        size += count * len(inside)
        if size > _MOST:
            raise ValueError(f"column {column}: the layout has more than {_MOST} symbols")
        found.append(inside * count)
        column = term.end()
    return "".join(found)
