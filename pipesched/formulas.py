"""The closed forms of the schedules, each with the domain in which it holds.

Words: p ranks, m micro-batches, v stages a rank (chunks), r a rank; f, b, w the costs of a
forward, of a backward for the input and of a backward for the weights of *one stage*,
T = f + b + w, and c of one transfer. All stages cost the same. Within its domain every form equals
the simulation exactly.

The bubble has three bases, always named: ``"total"`` is idle time over device time, ``"ideal"`` is
(makespan - ideal) / ideal where ideal is the busiest rank's work, and ``"span"`` is the one of the
zero-bubble papers, where the longest time from a rank's first to its last op takes the makespan's
place: (span - ideal) / span.

Examples
--------
>>> from pipesched import formulas
>>> formulas.bubble("1f1b", p=8, m=32)
0.1794871794871795
>>> formulas.bubble("1f1b", p=8, m=32, basis="ideal")
0.21875
>>> formulas.peak("1f1b", p=8, m=32), formulas.peak("gpipe", p=8, m=32)
(8, 32)
>>> formulas.microbatches_for(bubble=0.05, p=8)
133
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from numbers import Rational, Real
from types import MappingProxyType
from typing import Any, SupportsIndex

from pipesched._names import no_such

__all__ = [
    "BASES",
    "FORMULAS",
    "ClosedForm",
    "FamilyFormulas",
    "activation_factor",
    "bubble",
    "bubble_time",
    "makespan",
    "microbatches_for",
    "microbatches_of",
    "peak",
    "warmup",
    "weights",
]

#: The bases of a bubble.
BASES = ("total", "ideal", "span")


@dataclass(frozen=True)
class Case:
    """The arguments of a closed form: counts as int, costs as exact fractions."""

    p: int
    m: int
    v: int = 1
    group: int | None = None
    splits: int = 1
    waves: int = 1
    f: Fraction = Fraction(1)
    b: Fraction = Fraction(1)
    w: Fraction = Fraction(1)
    c: Fraction = Fraction(0)

    @property
    def T(self) -> Fraction:
        return self.f + self.b + self.w

    @property
    def n(self) -> int:
        """The group of an interleaved order: the one given, or the smallest of Megatron's rule."""
        if self.group is not None:
            return self.group
        group = min(self.p, self.m)
        while 0 < self.m % group < self.p:
            # While the quotient stays, a larger group leaves a smaller remainder: 0 or none.
            quotient = self.m // group
            group = -(-self.m // quotient)
        return group

    @property
    def round_trips(self) -> int:
        """How often 1F1B waits for a transfer there and back after its first backward."""
        later = max(self.m - 2, 0)
        return later - later // self.p


@dataclass(frozen=True)
class ClosedForm:
    """A formula in words, where it holds in words, and both as functions of a `Case` (and a rank).

    Attributes
    ----------
    text, domain : str
        The formula and where it holds, for people. An empty domain: for all p and m.
    by_rank : bool
        Whether it holds for each rank r, or only for the fullest one.
    """

    text: str
    domain: str
    value: Callable[..., Any] = field(repr=False)
    holds: Callable[[Case], bool] = field(repr=False, default=lambda case: True)
    by_rank: bool = True


@dataclass(frozen=True)
class FamilyFormulas:
    """The closed forms of one family; None where none is known.

    Attributes
    ----------
    ideal : ClosedForm
        The work of the busiest rank.
    bubble, span : ClosedForm or None
        Bubble time on the makespan, and on the longest span of a rank.
    peak : ClosedForm or None
        Most activations held at once by rank r, in micro-batches times chunks.
    weights : ClosedForm
        Copies of 1/p of the model's weights that rank r holds.
    warmup : ClosedForm or None
        Forwards of rank r before its first backward.
    options : Mapping of str to int or None
        The options that the forms take, with their defaults.
    stages : Callable
        Stages (times sequence splits) of the model, of a `Case`.
    fullest : Callable
        The rank with the highest peak, of a `Case`.
    """

    ideal: ClosedForm
    bubble: ClosedForm | None
    span: ClosedForm | None
    peak: ClosedForm | None
    weights: ClosedForm
    warmup: ClosedForm | None
    options: Mapping[str, int | None] = field(default_factory=dict)
    stages: Callable[[Case], int] = field(repr=False, default=lambda k: k.p * k.v)
    fullest: Callable[[Case], int] = field(repr=False, default=lambda k: 0)


def _no_transfer(k: Case) -> bool:
    return k.c == 0


def _small_w(k: Case) -> bool:
    return k.c == 0 and k.w <= min(k.f, k.b)


def _megatron_group(k: Case) -> bool:
    """Does the group keep Megatron's rule (or is it the only one, or without effect)?"""
    rest = k.m % k.n
    return k.v == 1 or k.n == k.m or (k.n >= k.p and (rest == 0 or rest >= k.p))


def _bfs_bubble(k: Case) -> Fraction:
    """Fill and drain, and where a chunk is done before its first micro-batch is back, the wait."""
    if k.p == 1:
        return Fraction(0)
    zero, back = Fraction(0), k.b + k.w
    wait = max(zero, k.p * (k.f + k.c) - k.m * k.f) + max(zero, k.p * (back + k.c) - k.m * back)
    return (k.p - 1) * (k.T + 2 * k.c) + (k.v - 1) * wait


def _1f1b_bubble(k: Case) -> Fraction:
    return (k.p - 1) * (k.T + 2 * k.c) + 2 * k.c * k.round_trips


def _interleaved_bubble(k: Case) -> Fraction:
    if k.v == 1 or k.p == 1:
        return _1f1b_bubble(k)
    return (k.p - 1) * k.T + (k.v - 1) * max(k.p - k.m, 0) * k.T + 2 * (k.p * k.v - 1) * k.c


def _interleaved_case(k: Case) -> bool:
    if k.v == 1 or k.p == 1:
        return True
    if k.c == 0:
        return _megatron_group(k)
    return k.n == k.p and k.m % k.p == 0 and k.c <= min(k.f, k.b + k.w)


_ONE = ClosedForm("1", "", lambda k, r: 1)
_TWO = ClosedForm("2", "", lambda k, r: 2)
_WORK = ClosedForm("mT", "", lambda k: k.m * k.T)
_CHUNK_WORK = ClosedForm("mvT", "", lambda k: k.m * k.v * k.T)

_FILL_AND_DRAIN = ClosedForm("(p-1)(T+2c)", "", lambda k: (k.p - 1) * (k.T + 2 * k.c))
_1F1B_BUBBLE = ClosedForm("(p-1)(T+2c) + 2c(n - n div p), n = max(m-2, 0)", "", _1f1b_bubble)

# Forwards before the first backward. Where a backward lets go of what it used at once, as many
# are held at the most.
_ALL_AHEAD = ClosedForm("m", "", lambda k, r: k.m)
_1F1B_AHEAD = ClosedForm("min(p-r, m)", "", lambda k, r: min(k.p - r, k.m))
_EAGER_AHEAD = ClosedForm("min(2(p-r)-1, m)", "", lambda k, r: min(2 * (k.p - r) - 1, k.m))
_BFS_AHEAD = ClosedForm("mv", "", lambda k, r: k.m * k.v)
_SEQ_AHEAD = ClosedForm(
    "min(p-1-r+k, mk) in k splits",
    "",
    lambda k, r: min(k.p - 1 - r + k.splits, k.m * k.splits),
)


def _one_less(k: Case) -> Fraction:
    """ZB-H1's bubble; below p micro-batches fewer Ws are there to fill it."""
    return (k.p - 1) * (k.f + k.b) - (min(k.m, k.p) - 1) * k.w


_NAIVE_BUBBLE = ClosedForm("m(p-1)(T+2c)", "", lambda k: k.m * (k.p - 1) * (k.T + 2 * k.c))
_EAGER_BUBBLE = ClosedForm(
    "(p-1)(T+2c)",
    "2c <= T",
    lambda k: (k.p - 1) * (k.T + 2 * k.c),
    lambda k: 2 * k.c <= k.T,
)
_INTERLEAVED_BUBBLE = ClosedForm(
    "(p-1)T + (v-1)max(p-m, 0)T + 2(pv-1)c; 1f1b's if v = 1",
    "c = 0 and a group of at least p that leaves no remainder below p (or all of m), "
    "or c <= min(f, b+w) and groups of p without a remainder",
    _interleaved_bubble,
    _interleaved_case,
)
_BFS_BUBBLE = ClosedForm(
    "(p-1)(T+2c) + (v-1)(max(0, p(f+c) - mf) + max(0, p(b+w+c) - m(b+w)))", "", _bfs_bubble
)
_ZB_H1_BUBBLE = ClosedForm(
    "(p-1)(f+b) - (min(m,p)-1)w", "c = 0 and w <= min(f, b)", _one_less, _small_w
)
_ZB_1P_BUBBLE = ClosedForm(
    "(p-1)(f+b-w)",
    "c = 0, w <= min(f, b) and m >= p",
    lambda k: (k.p - 1) * (k.f + k.b - k.w),
    lambda k: _small_w(k) and k.m >= k.p,
)
_DUALPIPE_DOMAIN = "c = 0, f = b >= w, an overlapped pair that costs F + B, and m >= 2p"


def _dualpipe_case(k: Case) -> bool:
    return k.c == 0 and k.f == k.b >= k.w and k.m >= 2 * k.p


_DUALPIPE_BUBBLE = ClosedForm(
    "(p/2-1)(f+2b-w)",
    f"{_DUALPIPE_DOMAIN}; p and m even",
    lambda k: (k.p // 2 - 1) * (k.f + 2 * k.b - k.w),
    lambda k: _dualpipe_case(k) and k.p % 2 == k.m % 2 == 0,
)
_DUALPIPE_V_BUBBLE = ClosedForm(
    "(p-1)(f+2b-w)",
    _DUALPIPE_DOMAIN,
    lambda k: (k.p - 1) * (k.f + 2 * k.b - k.w),
    _dualpipe_case,
)


def _whole_units(k: Case) -> bool:
    """Units of p micro-batches leave no gap between them where a backward costs a forward."""
    return k.c == 0 and (k.m == k.p or (k.m % k.p == 0 and k.b + k.w == k.f))


_CHIMERA_BUBBLE = ClosedForm(
    "(p-2)max(f, b+w)",
    "c = 0, p even, and m = p, or m a multiple of p and f = b+w",
    lambda k: (k.p - 2) * max(k.f, k.b + k.w),
    lambda k: _whole_units(k) and k.p % 2 == 0,
)
_HANAYO_BUBBLE = ClosedForm(
    "2(p-1)max(f, b+w)",
    "c = 0, and m = p, or m a multiple of p and f = b+w",
    lambda k: 2 * (k.p - 1) * max(k.f, k.b + k.w),
    _whole_units,
)


def _v_block_case(k: Case) -> bool:
    return k.c == 0 and k.f == k.b == k.w and k.m >= k.p + 2


_V_HALF_BUBBLE = ClosedForm(
    "(3p-7)f; (3p-4)f if p is odd",
    "c = 0, f = b = w, p > 2 and m >= p+2",
    lambda k: (3 * k.p - (4 if k.p % 2 else 7)) * k.f,
    lambda k: _v_block_case(k) and k.p > 2,
)
_V_MIN_BUBBLE = ClosedForm(
    "(4p-5)f; (4p-7)f if 3 divides p",
    "c = 0, f = b = w, p > 1 and m >= p+2",
    lambda k: (4 * k.p - (5 if k.p % 3 else 7)) * k.f,
    lambda k: _v_block_case(k) and k.p > 1,
)


def _zb_v_case(k: Case) -> bool:
    return k.c == 0 and k.b >= k.f >= k.w and k.m >= 2 * k.p - 1


def _zb_v_short_case(k: Case) -> bool:
    return k.c == 0 and k.f == k.b == k.w


_V_WORK = ClosedForm("2mT", "", lambda k: 2 * k.m * k.T)
_SEQ_BUBBLE = ClosedForm("(p-1)T", "c = 0", lambda k: (k.p - 1) * k.T, _no_transfer)


def _interleaved_ahead(k: Case, r: int) -> int:
    """Forwards of rank r up to its first backward."""
    hops = k.p - 1 - r
    ahead = hops if k.v == 1 else 2 * hops + (k.v - 1) * k.n
    return min(ahead + 1, k.m * k.v)


_INTERLEAVED_AHEAD = ClosedForm(
    "min((v-1)n + 2(p-1-r) + 1, mv) in groups of n; min(p-r, m) if v = 1", "", _interleaved_ahead
)

_FORMS: dict[str, FamilyFormulas] = {
    "naive": FamilyFormulas(
        ideal=_WORK,
        bubble=_NAIVE_BUBBLE,
        span=_NAIVE_BUBBLE,
        peak=_ONE,
        weights=_ONE,
        warmup=_ONE,
    ),
    "forward": FamilyFormulas(
        ideal=ClosedForm("mf", "", lambda k: k.m * k.f),
        bubble=ClosedForm("(p-1)(f+c)", "", lambda k: (k.p - 1) * (k.f + k.c)),
        span=ClosedForm("0", "", lambda k: 0),
        peak=_ONE,
        weights=_ONE,
        warmup=_ALL_AHEAD,
    ),
    "gpipe": FamilyFormulas(
        ideal=_WORK,
        bubble=_FILL_AND_DRAIN,
        span=_FILL_AND_DRAIN,
        peak=_ALL_AHEAD,
        weights=_ONE,
        warmup=_ALL_AHEAD,
    ),
    "1f1b": FamilyFormulas(
        ideal=_WORK,
        bubble=_1F1B_BUBBLE,
        span=_1F1B_BUBBLE,
        peak=_1F1B_AHEAD,
        weights=_ONE,
        warmup=_1F1B_AHEAD,
    ),
    "eager-1f1b": FamilyFormulas(
        ideal=_WORK,
        bubble=_EAGER_BUBBLE,
        span=_EAGER_BUBBLE,
        peak=_EAGER_AHEAD,
        weights=_ONE,
        warmup=_EAGER_AHEAD,
    ),
    "interleaved-1f1b": FamilyFormulas(
        ideal=_CHUNK_WORK,
        bubble=_INTERLEAVED_BUBBLE,
        span=_INTERLEAVED_BUBBLE,
        peak=_INTERLEAVED_AHEAD,
        weights=_ONE,
        warmup=_INTERLEAVED_AHEAD,
        options={"v": 2, "group": None},
    ),
    "looped-bfs": FamilyFormulas(
        ideal=_CHUNK_WORK,
        bubble=_BFS_BUBBLE,
        span=_BFS_BUBBLE,
        peak=_BFS_AHEAD,
        weights=_ONE,
        warmup=_BFS_AHEAD,
        options={"v": 2},
    ),
    "zb-h1": FamilyFormulas(
        ideal=_WORK,
        bubble=_ZB_H1_BUBBLE,
        span=_ZB_H1_BUBBLE,
        peak=ClosedForm("min(p, m)", "", lambda k, r: min(k.p, k.m)),
        weights=_ONE,
        warmup=_1F1B_AHEAD,
    ),
    "zb-h2": FamilyFormulas(
        ideal=_WORK,
        bubble=ClosedForm(
            "(p-1)max(f, f+b-2w)",
            "c = 0, w <= min(f, b) and m >= 2p-1",
            lambda k: (k.p - 1) * max(k.f, k.f + k.b - 2 * k.w),
            lambda k: _small_w(k) and k.m >= 2 * k.p - 1,
        ),
        span=ClosedForm(
            "(p-1)(f+b-2w)",
            "c = 0, w <= min(f, b) and m >= 2p-1",
            lambda k: (k.p - 1) * (k.f + k.b - 2 * k.w),
            lambda k: _small_w(k) and k.m >= 2 * k.p - 1,
        ),
        peak=ClosedForm(
            "2p-1", "m >= 2p-1", lambda k, r: 2 * k.p - 1, lambda k: k.m >= 2 * k.p - 1
        ),
        weights=_ONE,
        warmup=ClosedForm(
            "2(p-r)-1", "m >= 2p-1", lambda k, r: 2 * (k.p - r) - 1, lambda k: k.m >= 2 * k.p - 1
        ),
    ),
    "zb-1p": FamilyFormulas(
        ideal=_CHUNK_WORK,
        bubble=_ZB_1P_BUBBLE,
        span=_ZB_1P_BUBBLE,
        peak=ClosedForm(
            "min((v-1)n + p, mv) in groups of n",
            "",
            lambda k, r: min((k.v - 1) * k.n + k.p, k.m * k.v),
        ),
        weights=_ONE,
        warmup=ClosedForm(
            "min((v-1)n + p-r, mv) in groups of n",
            "",
            lambda k, r: min((k.v - 1) * k.n + k.p - r, k.m * k.v),
        ),
        options={"v": 2},
    ),
    "zb-v": FamilyFormulas(
        ideal=_V_WORK,
        bubble=ClosedForm(
            "(p-1)max(b, 2(b-w))",
            "c = 0, b >= f >= w and m >= 2p-1",
            lambda k: (k.p - 1) * max(k.b, 2 * (k.b - k.w)),
            _zb_v_case,
        ),
        span=ClosedForm(
            "2(p-1)(b-w); 2(2p-1-m)f if m < 2p-1",
            "c = 0, b >= f >= w and m >= 2p-1, or f = b = w",
            lambda k: 2 * (k.p - 1) * (k.b - k.w) + 2 * max(2 * k.p - 1 - k.m, 0) * k.f,
            lambda k: _zb_v_case(k) or _zb_v_short_case(k),
        ),
        peak=ClosedForm("min(2p, 2m, m+1+r)", "", lambda k, r: min(2 * k.p, 2 * k.m, k.m + 1 + r)),
        weights=_ONE,
        warmup=ClosedForm("2p", "m >= 2p-1", lambda k, r: 2 * k.p, lambda k: k.m >= 2 * k.p - 1),
        stages=lambda k: 2 * k.p,
        fullest=lambda k: k.p - 1,
    ),
    "v-half": FamilyFormulas(
        ideal=_V_WORK,
        bubble=_V_HALF_BUBBLE,
        span=_V_HALF_BUBBLE,
        peak=ClosedForm(
            "2min(m, (p+2) div 2)", "", lambda k, r: 2 * min(k.m, (k.p + 2) // 2), by_rank=False
        ),
        weights=_ONE,
        warmup=None,
        stages=lambda k: 2 * k.p,
    ),
    "v-min": FamilyFormulas(
        ideal=_V_WORK,
        bubble=_V_MIN_BUBBLE,
        span=_V_MIN_BUBBLE,
        peak=ClosedForm(
            "2min(m, (p+4) div 3)", "", lambda k, r: 2 * min(k.m, (k.p + 4) // 3), by_rank=False
        ),
        weights=_ONE,
        warmup=None,
        stages=lambda k: 2 * k.p,
    ),
    "dualpipe": FamilyFormulas(
        ideal=_WORK,
        bubble=_DUALPIPE_BUBBLE,
        span=_DUALPIPE_BUBBLE,
        peak=ClosedForm(
            "p+1",
            "m >= 2p; p and m even",
            lambda k, r: k.p + 1,
            lambda k: k.m >= 2 * k.p and k.p % 2 == k.m % 2 == 0,
        ),
        weights=_TWO,
        warmup=None,
    ),
    "dualpipe-v": FamilyFormulas(
        ideal=_V_WORK,
        bubble=_DUALPIPE_V_BUBBLE,
        span=_DUALPIPE_V_BUBBLE,
        peak=ClosedForm("2p+1", "m >= 2p", lambda k, r: 2 * k.p + 1, lambda k: k.m >= 2 * k.p),
        weights=_ONE,
        warmup=None,
        stages=lambda k: 2 * k.p,
    ),
    "chimera": FamilyFormulas(
        ideal=_WORK,
        bubble=_CHIMERA_BUBBLE,
        span=_CHIMERA_BUBBLE,
        peak=ClosedForm(
            "p/2 + 1 + min(r, p-1-r)",
            "m = p, even",
            lambda k, r: k.p // 2 + 1 + min(r, k.p - 1 - r),
            lambda k: k.m == k.p and k.p % 2 == 0,
        ),
        weights=_TWO,
        warmup=None,
        fullest=lambda k: (k.p - 1) // 2,
    ),
    "hanayo": FamilyFormulas(
        ideal=ClosedForm("2mWT in W waves", "", lambda k: 2 * k.m * k.waves * k.T),
        bubble=_HANAYO_BUBBLE,
        span=_HANAYO_BUBBLE,
        peak=ClosedForm(
            "2W min(p, m) in W waves",
            "",
            lambda k, r: 2 * k.waves * min(k.p, k.m),
            by_rank=False,
        ),
        weights=_ONE,
        warmup=None,
        options={"waves": 1},
        stages=lambda k: 2 * k.waves * k.p,
    ),
    "pipedream": FamilyFormulas(
        ideal=_WORK,
        bubble=_1F1B_BUBBLE,
        span=_1F1B_BUBBLE,
        peak=_1F1B_AHEAD,
        weights=ClosedForm("min(p-r, m)", "", lambda k, r: min(k.p - r, k.m)),
        warmup=_1F1B_AHEAD,
    ),
    "seq-1f1b": FamilyFormulas(
        ideal=ClosedForm("mkT in k splits", "", lambda k: k.m * k.splits * k.T),
        bubble=_SEQ_BUBBLE,
        span=_SEQ_BUBBLE,
        peak=_SEQ_AHEAD,
        weights=_ONE,
        warmup=_SEQ_AHEAD,
        options={"splits": 2},
        stages=lambda k: k.p * k.splits,
    ),
}

#: The closed forms by family name.
FORMULAS: Mapping[str, FamilyFormulas] = MappingProxyType(_FORMS)


# Arguments -----------------------------------------------------------------------------------


_INT32_MAX = 2**31 - 1  # as for `pipesched.generate`


def _count(name: str, value: Any, least: int = 1, most: int = _INT32_MAX) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {type(value).__name__}") from None
    if number < -most:  # Python may refuse to print so long a number
        raise ValueError(f"{name} must be at least {least}, got a number below -{most}")
    if number < least:
        raise ValueError(f"{name} must be at least {least}, got {number}")
    if number > most:
        raise OverflowError(f"{name} must be at most {most}, got a larger number")
    return number


def _exact(name: str, value: Any) -> Fraction:
    """The number as it was written: the float 0.05 is 1/20."""
    if isinstance(value, (Rational, Decimal)):
        number = value
    elif isinstance(value, Real):
        number = Decimal(str(value))
    else:
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    if isinstance(number, Decimal) and not number.is_finite():
        raise ValueError(f"{name} must be finite, got {value}")
    return Fraction(number)


def _cost(name: str, value: Any) -> Fraction:
    cost = _exact(name, value)
    if cost < 0:
        raise ValueError(f"{name} must not be negative, got {value}")
    return cost


def _costs(
    forward: Any, backward: Any, backward_input: Any, backward_weight: Any, transfer: Any
) -> dict[str, Fraction]:
    """f, b, w and c, with the defaults of `pipesched.Costs`."""
    f = _cost("forward", forward)
    if backward_input is None and backward_weight is None:
        whole = 2 * f if backward is None else _cost("backward", backward)
        b = w = whole / 2
    elif backward is not None or backward_input is None or backward_weight is None:
        raise ValueError("give backward alone, or backward_input and backward_weight together")
    else:
        b = _cost("backward_input", backward_input)
        w = _cost("backward_weight", backward_weight)
    return {"f": f, "b": b, "w": w, "c": _cost("transfer", transfer)}


def _forms(name: object) -> FamilyFormulas:
    if not isinstance(name, str):
        raise TypeError(f"name must be a string, got {type(name).__name__}")
    if name not in FORMULAS:
        raise ValueError(no_such("closed form", name, FORMULAS))
    return FORMULAS[name]


def _case(
    name: str, p: Any, m: Any, options: Mapping[str, Any], costs: Mapping[str, Any]
) -> tuple[FamilyFormulas, Case]:
    forms = _forms(name)
    chosen: dict[str, Any] = dict(forms.options)
    for option, value in options.items():
        if option not in chosen:
            allowed = ", ".join(chosen) or "none"
            raise TypeError(f"{name}'s closed forms have no option {option!r} (options: {allowed})")
        if value is not None:
            chosen[option] = _count(option, value)
    return forms, Case(_count("p", p), _count("m", m), **chosen, **costs)


def _evaluate(name: str, what: str, form: ClosedForm | None, case: Case, *rank: int) -> Any:
    if form is None:
        raise ValueError(f"no closed form is known for {name}'s {what}; simulate the schedule")
    if not form.holds(case):
        raise ValueError(
            f"the closed form of {name}'s {what}, {form.text}, holds for {form.domain}; "
            f"got p={case.p}, m={case.m}: simulate the schedule"
        )
    return form.value(case, *rank)


def _time(name: str, case: Case, basis: str, forms: FamilyFormulas) -> Fraction:
    if basis not in BASES:
        raise ValueError(f"basis must be one of {', '.join(map(repr, BASES))}, got {basis!r}")
    if basis == "span":
        return Fraction(_evaluate(name, "span bubble", forms.span, case))
    return Fraction(_evaluate(name, "bubble", forms.bubble, case))


def _plain(value: Fraction) -> int | Fraction:
    return value.numerator if value.denominator == 1 else value


# Questions -----------------------------------------------------------------------------------


def bubble(
    name: str,
    p: SupportsIndex,
    m: SupportsIndex,
    *,
    basis: str = "total",
    forward: Any = 1,
    backward: Any = None,
    backward_input: Any = None,
    backward_weight: Any = None,
    transfer: Any = 0,
    **options: Any,
) -> float:
    """The bubble of a family, as a share on a basis.

    Parameters
    ----------
    name : str
        The family, a key of `FORMULAS`.
    p, m : int
        Ranks and micro-batches.
    basis : {"total", "ideal", "span"}
        What the idle time is divided by; see the module.
    forward, backward, backward_input, backward_weight, transfer : number
        Costs of one stage, with the defaults of `pipesched.Costs`.
    **options
        The family's options, as in `pipesched.generate`.

    Returns
    -------
    float
        The float nearest to the exact value.

    Raises
    ------
    ValueError
        Outside the form's domain, or where no form is known; the message says which.

    Examples
    --------
    >>> bubble("interleaved-1f1b", p=8, m=32, v=2)
    0.09859154929577464
    >>> bubble("gpipe", p=16, m=8, basis="ideal")
    1.875
    """
    costs = _costs(forward, backward, backward_input, backward_weight, transfer)
    forms, case = _case(name, p, m, options, costs)
    idle = _time(name, case, basis, forms)
    ideal = Fraction(forms.ideal.value(case))
    if ideal == 0:
        raise ValueError("a bubble is a share of work, and with these costs there is none")
    return float(idle / (ideal if basis == "ideal" else ideal + idle))


def bubble_time(
    name: str,
    p: SupportsIndex,
    m: SupportsIndex,
    *,
    basis: str = "total",
    forward: Any = 1,
    backward: Any = None,
    backward_input: Any = None,
    backward_weight: Any = None,
    transfer: Any = 0,
    **options: Any,
) -> int | Fraction:
    """The bubble of a family in the time unit of the costs: makespan (or longest span) - ideal.

    The arguments are those of `bubble`; the result is exact.

    Examples
    --------
    >>> bubble_time("1f1b", p=8, m=32), bubble_time("zb-h1", p=8, m=32)
    (21, 7)
    """
    costs = _costs(forward, backward, backward_input, backward_weight, transfer)
    forms, case = _case(name, p, m, options, costs)
    return _plain(_time(name, case, basis, forms))


def makespan(
    name: str,
    p: SupportsIndex,
    m: SupportsIndex,
    *,
    forward: Any = 1,
    backward: Any = None,
    backward_input: Any = None,
    backward_weight: Any = None,
    transfer: Any = 0,
    **options: Any,
) -> int | Fraction:
    """The time from the first start to the last end; arguments of `bubble`, result exact.

    Examples
    --------
    >>> makespan("interleaved-1f1b", p=4, m=8, v=2)
    57
    """
    costs = _costs(forward, backward, backward_input, backward_weight, transfer)
    forms, case = _case(name, p, m, options, costs)
    return _plain(_time(name, case, "total", forms) + forms.ideal.value(case))


def _by_rank(
    name: str,
    what: str,
    form: ClosedForm | None,
    case: Case,
    rank: SupportsIndex | None,
    fullest: Callable[[Case], int],
) -> int:
    if rank is None:
        return int(_evaluate(name, what, form, case, fullest(case)))
    number = _count("rank", rank, least=0)
    if number >= case.p:
        raise ValueError(f"rank must be below p={case.p}, got {number}")
    if form is not None and not form.by_rank:
        raise ValueError(f"{name}'s {what} is known for the fullest rank only: leave rank out")
    return int(_evaluate(name, what, form, case, number))


def peak(
    name: str,
    p: SupportsIndex,
    m: SupportsIndex,
    rank: SupportsIndex | None = None,
    **options: Any,
) -> int:
    """Most activations a rank (None: any rank) holds at once, in micro-batches times chunks.

    An activation is held from its F until its B or W; where nothing runs backward, for its F.

    Examples
    --------
    >>> [peak("1f1b", p=4, m=8, rank=r) for r in range(4)]
    [4, 3, 2, 1]
    >>> peak("interleaved-1f1b", p=4, m=8, v=2)
    11
    """
    forms, case = _case(name, p, m, options, {})
    return _by_rank(name, "peak", forms.peak, case, rank, forms.fullest)


def weights(
    name: str,
    p: SupportsIndex,
    m: SupportsIndex,
    rank: SupportsIndex | None = None,
    **options: Any,
) -> int:
    """Copies of 1/p of the model's weights that a rank (None: any rank) holds.

    Examples
    --------
    >>> [weights("pipedream", p=4, m=8, rank=r) for r in range(4)]
    [4, 3, 2, 1]
    >>> weights("1f1b", p=4, m=8)
    1
    """
    forms, case = _case(name, p, m, options, {})
    return _by_rank(name, "weights", forms.weights, case, rank, forms.fullest)


def warmup(
    name: str,
    p: SupportsIndex,
    m: SupportsIndex,
    rank: SupportsIndex | None = None,
    **options: Any,
) -> int:
    """Forwards that a rank (None: any rank) does before its first backward.

    This counts the first forward of the steady state, which Megatron's and torch's "warm-up
    micro-batches" leave out: those are one less wherever a steady state is reached.

    Examples
    --------
    >>> [warmup("interleaved-1f1b", p=4, m=8, v=2, rank=r) - 1 for r in range(4)]
    [10, 8, 6, 4]
    """
    forms, case = _case(name, p, m, options, {})
    return _by_rank(name, "warm-up", forms.warmup, case, rank, forms.fullest)


def activation_factor(name: str, p: SupportsIndex, m: SupportsIndex, **options: Any) -> float:
    """Peak activations of the fullest rank, in micro-batches of the whole model.

    1F1B with m >= p holds 1: p micro-batches of 1/p of the model.

    Examples
    --------
    >>> activation_factor("1f1b", p=16, m=64)
    1.0
    >>> activation_factor("interleaved-1f1b", p=16, m=64, v=2)  # 1 + (p-1)/(pv)
    1.46875
    """
    forms, case = _case(name, p, m, options, {})
    return float(Fraction(peak(name, p, m, **options), forms.stages(case)))


def microbatches_for(
    bubble: Any,
    p: SupportsIndex,
    v: SupportsIndex = 1,
    basis: str = "total",
    *,
    strict: bool = False,
) -> int:
    """The fewest micro-batches with which 1F1B (interleaved, for v > 1) has at most this bubble.

    Parameters
    ----------
    bubble : number
        The bubble allowed, as a share on `basis`, above 0. A float is taken as it is written.
    p, v : int
        Ranks, and stages a rank.
    basis : {"total", "ideal", "span"}
        What the bubble is divided by; here the span is the makespan, so that ``"span"`` is
        ``"total"``.
    strict : bool
        Ask for less than this bubble, not for at most this.

    Returns
    -------
    int
        Exact: the bubble is compared as a fraction.

    Examples
    --------
    At most 5 % of the total, or of the ideal, on 8 ranks; then less than 5 %:

    >>> microbatches_for(0.05, p=8), microbatches_for(0.05, p=8, basis="ideal")
    (133, 140)
    >>> microbatches_for(0.05, p=8, strict=True), microbatches_for(0.05, 8, 1, "ideal", strict=True)
    (134, 141)
    """
    allowed = _exact("bubble", bubble)
    p, v = _count("p", p), _count("v", v)
    if basis not in BASES:
        raise ValueError(f"basis must be one of {', '.join(map(repr, BASES))}, got {basis!r}")
    if allowed <= 0:
        raise ValueError(f"bubble must be above 0, got {bubble}: only p = 1 has none")
    # idle / work: what the share on the total basis is on the ideal one. All of m >= 1 is
    # enough where even all of the time may be idle.
    if basis != "ideal":
        if allowed >= 1:
            return 1
        allowed = allowed / (1 - allowed)
    # From p micro-batches on, (p-1) / (v m); below, (v (p-m) + m-1) / (v m), which is higher.
    fewest = _fewest(Fraction(p - 1) / (v * allowed), strict)
    if fewest >= p:
        return fewest
    return min(p, _fewest(Fraction(v * p - 1) / (v * allowed + v - 1), strict))


def _fewest(bound: Fraction, strict: bool) -> int:
    """The least whole number of at least 1 that is at (strict: above) the bound or beyond."""
    return max(1, math.floor(bound) + 1 if strict else math.ceil(bound))


def microbatches_of(
    global_batch: SupportsIndex, microbatch_size: SupportsIndex, data_parallel: SupportsIndex = 1
) -> int:
    """Micro-batches of one pipeline: global batch / (micro-batch size * data-parallel replicas).

    Raises
    ------
    ValueError
        Where it does not divide; the message names the nearest batches that do.

    Examples
    --------
    >>> microbatches_of(384, microbatch_size=2, data_parallel=8)
    24
    """
    batch = _count("global_batch", global_batch, most=2**63 - 1)
    size = _count("microbatch_size", microbatch_size)
    replicas = _count("data_parallel", data_parallel)
    m, rest = divmod(batch, size * replicas)
    if rest:
        around = [str(n * size * replicas) for n in (m, m + 1) if n]
        raise ValueError(
            f"global_batch must be a multiple of microbatch_size * data_parallel = "
            f"{size * replicas}, got {batch}; the nearest: {', '.join(around)}"
        )
    return m
