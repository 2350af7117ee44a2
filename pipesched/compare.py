"""All families side by side on one model: what each wastes, holds and sends."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from html import escape
from numbers import Real
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from pipesched._names import no_such
from pipesched.costs import Costs
from pipesched.generate import SCHEDULES, generate
from pipesched.schedule import Schedule
from pipesched.timeline import Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The bases that `plot_bubble` draws.
_BASES = ("bubble_fraction", "bubble_ratio", "span_bubble")

__all__ = ["Comparison", "ComparisonRow", "compare", "plot_bubble", "plot_comparison"]


@dataclass(frozen=True)
class ComparisonRow:
    """One schedule under the costs of a comparison.

    Attributes
    ----------
    name : str
        The schedule.
    makespan : float
        In the costs' unit of time.
    bubble_fraction, bubble_ratio, span_bubble : float
        The bubble on its three bases, see `Timeline`.
    peak_activations : float
        Whole micro-batches that the fullest rank holds, in units of a rank's share of the
        model: a chunk of a rank that holds v chunks counts 1/v, a split of a micro-batch in
        k counts 1/k.
    peak_memory : float
        Bytes of the fullest rank, weights included (one copy a stage, for ``pipedream`` too:
        the costs do not say how much of `static` a stashed version takes).
    weights : int
        Copies of the model's weights over all ranks: 2 for bidirectional schedules, and for
        ``pipedream`` the versions that its fullest rank stashes.
    transfers : int
        Communication volume: activations and gradients sent between ranks in one step, counted
        in those of a whole micro-batch at a boundary (a split in k counts 1/k).
    speedup : float
        1F1B's makespan over this one's.

    Examples
    --------
    >>> import pipesched as ps
    >>> ps.compare(4, 8, schedules=["zb-h1"])[0].makespan
    27.0
    """

    name: str
    makespan: float
    bubble_fraction: float
    bubble_ratio: float
    span_bubble: float
    peak_activations: float
    peak_memory: float
    weights: int
    transfers: int
    speedup: float


class Comparison(Sequence[ComparisonRow]):
    """The rows of a comparison, fastest first, and why the others are left out.

    Prints as an aligned table; `to_dict` gives plain columns (``pandas.DataFrame(c.to_dict())``).

    Attributes
    ----------
    rows : tuple of ComparisonRow
        What indexing and iteration give.
    left_out : dict of str to str
        Name and reason of each schedule without a row.
    timelines : dict of str to Timeline
        The simulated schedule behind each row.

    Examples
    --------
    >>> import pipesched as ps
    >>> print(ps.compare(2, 2, schedules=["1f1b", "dualpipe"]))  # doctest: +ELLIPSIS
    schedule  makespan  bubble_fraction ...
    1f1b             9           0.3333 ...
    left out: dualpipe: ...
    """

    def __init__(
        self,
        rows: Iterable[ComparisonRow],
        left_out: dict[str, str],
        timelines: dict[str, Timeline],
    ) -> None:
        self.rows = tuple(rows)
        self.left_out = dict(left_out)
        self.timelines = dict(timelines)

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[ComparisonRow]:
        return iter(self.rows)

    def to_dict(self) -> dict[str, list[Any]]:
        """Columns by name, each a list with one entry a row.

        Examples
        --------
        >>> import pipesched as ps
        >>> ps.compare(4, 8, schedules=["1f1b", "gpipe"]).to_dict()["makespan"]
        [33.0, 33.0]
        """
        return {f.name: [getattr(row, f.name) for row in self] for f in fields(ComparisonRow)}

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        head = [
            "schedule", "makespan", "bubble_fraction", "bubble_ratio", "span_bubble",
            "peak held", "peak bytes", "weights", "transfers", "vs 1f1b",
        ]  # fmt: skip
        body = [
            [
                row.name,
                f"{row.makespan:.6g}",
                f"{row.bubble_fraction:.4f}",
                f"{row.bubble_ratio:.4f}",
                f"{row.span_bubble:.4f}",
                f"{row.peak_activations:.4g}",
                f"{row.peak_memory:.4g}",
                f"{row.weights}x",
                str(row.transfers),
                f"{row.speedup:.3f}x",
            ]
            for row in self
        ]
        return head, body

    def __str__(self) -> str:
        head, body = self._cells()
        widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
        lines = [
            "  ".join(
                cell.ljust(w) if i == 0 else cell.rjust(w)
                for i, (cell, w) in enumerate(zip(cells, widths, strict=True))
            ).rstrip()
            for cells in [head, *body]
        ]
        lines += [f"left out: {name}: {why}" for name, why in self.left_out.items()]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<Comparison of {len(self)} schedules, {len(self.left_out)} left out>"

    def _repr_html_(self) -> str:
        head, body = self._cells()
        top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
        rows = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"
            for cells in body
        )
        out = "".join(
            f"<li>{escape(name)}: {escape(why)}</li>" for name, why in self.left_out.items()
        )
        out = f"<p>left out</p><ul>{out}</ul>" if out else ""
        return f"<table><thead><tr>{top}</tr></thead><tbody>{rows}</tbody></table>{out}"


def compare(
    p: SupportsIndex,
    m: SupportsIndex,
    costs: Costs | None = None,
    memory: float | None = None,
    schedules: Iterable[str] | None = None,
) -> Comparison:
    """Simulate many schedules of one model on one set of costs.

    The costs are those of the model cut into `p` stages, one a rank. A schedule with k stages
    a rank cuts each of those into k equal parts: times and bytes of a part are 1/k of the
    stage's, a transfer costs what it costs. A schedule that cuts micro-batches into k
    (``seq-1f1b``) has 1/k of the times, transfers and activations in each.

    Parameters
    ----------
    p : int
        Ranks, at least 1.
    m : int
        Micro-batches, at least 1.
    costs : Costs, optional
        Scalars, or one value for each of p stages; ``Costs()`` by default (F 1, B 2).
    memory : float, optional
        Bytes that a rank has; schedules that need more are left out.
    schedules : iterable of str, optional
        Names from `SCHEDULES`, all of those that train by default.

    Returns
    -------
    Comparison
        One row a schedule, fastest first.

    Raises
    ------
    ValueError
        An unknown name, costs that do not fit p stages, a batch of costs.

    Notes
    -----
    Linear in the number of ops of all the schedules.

    Examples
    --------
    >>> import pipesched as ps
    >>> table = ps.compare(4, 8, schedules=["gpipe", "1f1b", "zb-h1"])
    >>> [(row.name, row.makespan, row.peak_activations) for row in table]
    [('zb-h1', 27.0, 4.0), ('1f1b', 33.0, 4.0), ('gpipe', 33.0, 8.0)]
    """
    costs = Costs() if costs is None else costs
    if not isinstance(costs, Costs):
        raise TypeError(f"costs must be a pipesched.Costs, got {type(costs).__name__}")
    if costs.batch is not None:
        raise ValueError(f"compare takes one set of costs, got a batch of {costs.batch}")
    if memory is not None:
        if not isinstance(memory, Real):
            raise TypeError(f"memory must be a number of bytes, got {type(memory).__name__}")
        if not memory >= 0:
            raise ValueError(f"memory must not be negative, got {memory}")
    names = [n for n in SCHEDULES if n != "forward"] if schedules is None else list(schedules)
    base = generate("1f1b", p, m).simulate(costs)
    rows: list[ComparisonRow] = []
    left_out: dict[str, str] = {}
    timelines: dict[str, Timeline] = {}
    for name in names:
        if name not in SCHEDULES:
            raise ValueError(no_such("schedule", name, SCHEDULES))
        try:
            schedule = generate(name, p, m).check()
        except ValueError as error:  # a rule of the family, or (ScheduleError) a deadlock
            left_out[name] = str(error).removeprefix(f"{name}: ")
            continue
        share = max(schedule.num_stages // schedule.p, 1)
        pieces = schedule.num_microbatches // operator.index(m)
        timeline = schedule.simulate(_split(costs, share, pieces, operator.index(m)))
        need = timeline.peak_memory
        if memory is not None and float(need.max()) > memory:
            worst = int(np.argmax(need))
            left_out[name] = (
                f"needs {need[worst]:.6g} bytes on rank {worst}, more than memory={memory:.6g}"
            )
            continue
        timelines[name] = timeline
        rows.append(_row(timeline, share, pieces, base.makespan))
    rows.sort(key=lambda row: (row.makespan, row.peak_memory))
    return Comparison(rows, left_out, timelines)


def _row(timeline: Timeline, share: int, pieces: int, base: float) -> ComparisonRow:
    schedule = timeline.schedule
    held = sum(len(stages) for stages in schedule.placement)
    weights = max(round(held / schedule.num_stages), 1)
    if schedule.name == "pipedream":  # one version per micro-batch in flight
        weights = int(timeline.peak_activations.max())
    return ComparisonRow(
        name=schedule.name,
        makespan=timeline.makespan,
        bubble_fraction=timeline.bubble_fraction,
        bubble_ratio=timeline.bubble_ratio,
        span_bubble=timeline.span_bubble,
        peak_activations=float(timeline.peak_activations.max()) / (share * pieces),
        peak_memory=float(timeline.peak_memory.max()),
        weights=weights,
        transfers=_transfers(schedule) // pieces,
        speedup=base / timeline.makespan if timeline.makespan else 1.0,
    )


def _transfers(schedule: Schedule) -> int:
    """Boundaries between different ranks, counted for every micro-batch and direction."""
    ops, m = schedule.ops, schedule.num_microbatches
    rank_of = np.repeat(np.arange(schedule.p), np.diff(schedule.offsets))
    forward = ops["kind"] == 0
    home = np.full((schedule.num_stages, m), -1)
    home[ops["stage"][forward], ops["microbatch"][forward]] = rank_of[forward]
    crossings = int(np.count_nonzero(home[1:] != home[:-1]))
    trains = bool(np.any((ops["kind"] == 1) | (ops["kind"] == 2)))
    return crossings * (2 if trains else 1)


def _split(costs: Costs, parts: int, pieces: int, m: int) -> Costs:
    """The costs of the same model with every stage cut into parts, every micro-batch in pieces."""
    if parts == pieces == 1:
        return costs

    def stage(value: Any) -> Any:
        if value is None:
            return None
        return np.repeat(value, parts) / parts if isinstance(value, np.ndarray) else value / parts

    def boundary(value: Any) -> Any:
        # A cut inside a stage sends what the boundary behind the stage sends.
        if not isinstance(value, np.ndarray) or not len(value):
            return value
        return np.repeat(np.append(value, value[-1]), parts)[:-1]

    scale = costs.microbatch_scale
    if pieces > 1:
        scale = np.repeat(np.ones(m) if scale is None else scale, pieces) / pieces
    return Costs(
        stage(costs.forward),
        backward_input=stage(costs.backward_input),
        backward_weight=stage(costs.backward_weight),
        overlap=stage(costs.overlap),
        transfer=boundary(costs.transfer),
        transfer_backward=boundary(costs.transfer_backward),
        microbatch_scale=scale,
        activation=stage(costs.activation),
        activation_kept=stage(costs.activation_kept),
        static=stage(costs.static),
        link=costs.link,
    )


def plot_comparison(timelines: Iterable[Schedule | Timeline], axes: Any = None) -> np.ndarray:
    """Draw timelines under each other on one time axis (extra ``plot``).

    Parameters
    ----------
    timelines : iterable of Timeline or Schedule
        What to draw, from top to bottom; a Schedule is simulated with ``Costs()``.
    axes : array of matplotlib Axes, optional
        One for each; a new figure by default.

    Returns
    -------
    numpy.ndarray
        The axes.

    Raises
    ------
    ImportError
        matplotlib is not installed; the message names the command that installs it.

    Examples
    --------
    >>> import pipesched as ps
    >>> axes = ps.plot_comparison([ps.generate(name, 4, 8) for name in ("1f1b", "zb-h1")])
    >>> len(axes)
    2
    """
    from pipesched.draw.plot import comparison

    found = [t.simulate() if isinstance(t, Schedule) else t for t in timelines]
    for timeline in found:
        if not isinstance(timeline, Timeline):
            raise TypeError(f"timelines must be Timelines, got {type(timeline).__name__} in it")
    return comparison(found, axes)


def plot_bubble(
    p: SupportsIndex,
    m: Iterable[SupportsIndex],
    schedules: Iterable[str] = ("gpipe", "interleaved-1f1b", "zb-h1", "zb-v"),
    costs: Costs | None = None,
    basis: str = "bubble_fraction",
    ax: Axes | None = None,
) -> Axes:
    """Plot the simulated bubble against the number of micro-batches (extra ``plot``).

    Parameters
    ----------
    p : int
        Ranks.
    m : iterable of int
        The numbers of micro-batches; where a schedule's rule forbids one, its line has
        no point there.
    schedules : iterable of str
        Names from `SCHEDULES`, one line each.
    costs : Costs, optional
        As for `compare`.
    basis : {"bubble_fraction", "bubble_ratio", "span_bubble"}
        Which bubble.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import pipesched as ps
    >>> ax = ps.plot_bubble(4, [4, 8, 16], schedules=["gpipe", "zb-h1"])
    >>> [len(line.get_xdata()) for line in ax.lines]
    [3, 3]
    """
    from pipesched.draw.plot import bubble_curves

    if basis not in _BASES:
        raise ValueError(f"basis must be one of {', '.join(_BASES)}, got {basis!r}")
    names, counts = list(schedules), list(m)
    if not names or not counts:
        raise ValueError("m and schedules must hold at least one each, there is nothing to plot")
    points: dict[str, tuple[list[Any], list[float]]] = {name: ([], []) for name in names}
    for count in counts:
        found = compare(p, count, costs, schedules=names)
        for row in found:
            points[row.name][0].append(count)
            points[row.name][1].append(getattr(row, basis))
    return bubble_curves(points, ax, basis)
