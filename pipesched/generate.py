"""Make the published schedules by name; `SCHEDULES` says which there are."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from pipesched import _core
from pipesched._names import did_you_mean, no_such
from pipesched.check import ScheduleError
from pipesched.formulas import FORMULAS, ClosedForm
from pipesched.schedule import Schedule

if TYPE_CHECKING:
    from pipesched.plan import Plan

__all__ = ["SCHEDULES", "Option", "ScheduleFamily", "generate"]


@dataclass(frozen=True)
class Option:
    """An option of a schedule family: a whole number, or one of a few words.

    Attributes
    ----------
    name : str
        The keyword of `generate`.
    default : int, str or None
        What it is when not given; None where that depends on ``p`` and ``m``.
    minimum : int or None
        The least value of a number.
    words : tuple of str
        The words to choose from; empty for a number.
    text : str
        What the option does.
    """

    name: str
    default: int | str | None
    minimum: int | None
    words: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class ScheduleFamily:
    """What is known of one family of schedules.

    Attributes
    ----------
    name : str
        The name `generate` takes.
    title : str
        The name people use.
    summary : str
        What the rule does.
    constraints : str
        What the definition asks of ``p``, ``m`` and the options; empty for nothing.
    bubble, peak, weights : str
        The closed forms in words, with where they hold; `pipesched.formulas` computes them.
        The bubble is a time, peaks count micro-batches times chunks on rank r, weights copies
        of 1/p of the model.
    placement : str
        ``"loop"`` (stage s on rank s mod p), ``"v"``, ``"snake"`` or ``"bidirectional"``.
    source : str
        The paper or program the rule comes from.
    options : Mapping of str to Option
        The keywords that `generate` takes for this family.
    """

    name: str
    title: str
    summary: str
    constraints: str
    placement: str
    source: str
    bubble: str
    peak: str
    weights: str
    options: Mapping[str, Option]

    def __reduce__(self) -> tuple[Any, ...]:
        return _find, (self.name,)


class _Schedules(Mapping[str, ScheduleFamily]):
    """The registry as a read-only mapping, in the order in which to show it; prints as a table."""

    def __init__(self, families: Iterable[ScheduleFamily]) -> None:
        self._families = {family.name: family for family in families}

    def __getitem__(self, name: str) -> ScheduleFamily:
        return self._families[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._families)

    def __len__(self) -> int:
        return len(self._families)

    def __reduce__(self) -> str:
        return "SCHEDULES"

    def __repr__(self) -> str:
        return f"<SCHEDULES: {', '.join(self)}>"

    def __str__(self) -> str:
        return self.table()

    def table(self) -> str:
        """The families as a Markdown table; a dash where no closed form is known."""
        lines = [
            "| schedule | options | bubble time | peak on rank r | weights | constraints |",
            "|---|---|---|---|---|---|",
        ]
        for name, family in self.items():
            options = ", ".join(f"`{option.name}`" for option in family.options.values())
            cells = (f"`{name}`", options, *_formula_cells(name), family.constraints)
            lines.append("| " + " | ".join(cells) + " |")
        return "\n".join(lines)


def _forms(name: str) -> tuple[ClosedForm | None, ...]:
    forms = FORMULAS[name]
    return forms.bubble, forms.peak, forms.weights


def _formula_cells(name: str) -> list[str]:
    return [
        "-" if form is None else f"`{form.text}`" + (form.domain and f" for {form.domain}")
        for form in _forms(name)
    ]


def _family(record: tuple[Any, ...]) -> ScheduleFamily:
    name, title, summary, constraints, placement, source, options = record
    bubble, peak, weights = (cell.replace("`", "") for cell in _formula_cells(name))
    made = {}
    for key, preset, minimum, words, text in options:
        if words is None:
            made[key] = Option(key, preset, minimum, (), text)
        else:
            made[key] = Option(key, words[preset], None, tuple(words), text)
    return ScheduleFamily(
        name=name,
        title=title,
        summary=summary,
        constraints=constraints,
        placement=placement,
        source=source,
        bubble=bubble,
        peak=peak,
        weights=weights,
        options=MappingProxyType(made),
    )


#: The families by name, read-only; it prints as a table.
SCHEDULES = _Schedules(map(_family, _core.families()))


def _find(name: object) -> ScheduleFamily:
    if not isinstance(name, str):
        raise TypeError(f"name must be a string, got {name!r} of type {type(name).__name__}")
    family = SCHEDULES.get(name)
    if family is None:
        raise ValueError(no_such("schedule", name, SCHEDULES))
    return family


def _option_value(option: Option, value: Any) -> Any:
    """The number that the core takes for an option's value."""
    if value is None or not option.words:
        return value
    if not isinstance(value, str):
        raise TypeError(
            f"{option.name} must be a string, got {value!r} of type {type(value).__name__}"
        )
    if value not in option.words:
        raise ValueError(
            f"{option.name} must be one of {', '.join(map(repr, option.words))}, got {value!r}"
            f"{did_you_mean(value, option.words)}"
        )
    return option.words.index(value)


def generate(
    name: str,
    p: SupportsIndex | None = None,
    m: SupportsIndex | None = None,
    *,
    plan: Plan | None = None,
    **options: Any,
) -> Schedule:
    """Make the schedule of a family for p ranks and m micro-batches.

    Parameters
    ----------
    name : str
        The family, a key of `SCHEDULES`.
    p : int
        Ranks, at least 1. A plan knows its own.
    m : int
        Micro-batches, at least 1.
    plan : Plan, optional
        PipeDream over replicated stages (1F1B-RR): micro-batch j runs on replica
        j mod r of each stage with r replicas, and a replica has as many in flight as
        the plan has weight versions. The ranks stand in the order of ``plan.ranks``.
    **options
        The family's own options, ``SCHEDULES[name].options``; None is the default.

    Returns
    -------
    Schedule

    Raises
    ------
    ValueError
        An unknown family, a number below its minimum, or arguments that the family's
        definition forbids; the message names the rule and the nearest that works.
    ScheduleError
        Options with which the ranks would wait for each other in a circle (a `group` that breaks
        its rule); the message and `.fault` have the circle.
    TypeError
        An unknown option, or a value that is not an integer (or not a word).
    OverflowError
        More than can be addressed.

    Examples
    --------
    >>> import pipesched as ps
    >>> ps.generate("interleaved-1f1b", p=2, m=2, v=2).rows()[1]
    ['1F0', '1F1', '3F0', '3B0', '3F1', '3B1', '1B0', '1B1']
    >>> ps.generate("zb-h2", p=4, m=3)
    Traceback (most recent call last):
        ...
    ValueError: zb-h2: the rule needs m >= 2p - 1, got m=3; m=7 works, or take zb-h1
    """
    family = _find(name)
    if plan is not None:
        return _replicated(family.name, plan, p, m, options)
    for argument, value in (("p", p), ("m", m)):
        if value is None:
            raise TypeError(f"{argument} must be an integer, and none was given to generate")
    for option in options:
        if option not in family.options:
            allowed = ", ".join(family.options) or "none"
            raise TypeError(
                f"{name} has no option {option!r}{did_you_mean(option, family.options)} "
                f"(its options: {allowed})"
            )
    values = tuple(
        _option_value(option, options.get(key)) for key, option in family.options.items()
    )
    ops, offsets, stages, microbatches, broken_rule = _core.generate(
        family.name,
        p,  # type: ignore[arg-type]
        m,  # type: ignore[arg-type]
        values,
    )
    schedule = Schedule._wrap(ops, offsets, stages, microbatches, family.name)
    if broken_rule is not None:
        try:
            schedule.check()
        except ScheduleError as error:
            text = f"{broken_rule} ({error.fault.text})"
            raise ScheduleError(replace(error.fault, text=text)) from None
    return schedule


def _replicated(
    name: str,
    plan: Plan,
    p: SupportsIndex | None,
    m: SupportsIndex | None,
    options: dict[str, Any],
) -> Schedule:
    """1F1B-RR over the stages of a plan."""
    from pipesched.plan import Plan

    if not isinstance(plan, Plan):
        raise TypeError(f"plan must be a pipesched.Plan, got {type(plan).__name__}")
    if name != "pipedream":
        raise ValueError(f"a plan is made for 'pipedream', got {name!r}")
    if options:
        raise TypeError(f"a plan has no options, got {', '.join(options)}")
    if m is None:
        raise TypeError("generate('pipedream', plan=plan) needs m")
    if p is not None and p != len(plan.ranks):
        raise ValueError(f"p must be the plan's {len(plan.ranks)} busy workers, got {p}")
    if not plan.pipelined:
        raise ValueError(f"the plan {plan.name!r} runs one mini-batch at a time: no pipeline")
    return replicated(plan.replicas, [stage.versions for stage in plan.stages], m)


def replicated(replicas: Sequence[int], in_flight: Sequence[int], m: SupportsIndex) -> Schedule:
    """1F1B-RR for any numbers of replicas and of mini-batches in flight a replica."""
    count = operator.index(m)
    if count < 1:
        raise ValueError(f"m must be at least 1, got {count}")
    ops, offsets = _core.replicated(
        np.array(replicas, dtype=np.int32), np.array(in_flight, dtype=np.int32), count
    )
    return Schedule._wrap(ops, offsets, len(replicas), count, "pipedream")
