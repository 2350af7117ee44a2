"""A schedule under costs: when every op runs, what is wasted and what is held."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from pipesched._arrays import frozen

if TYPE_CHECKING:
    from os import PathLike

    from matplotlib.axes import Axes

    from pipesched.costs import Costs
    from pipesched.schedule import Schedule

__all__ = ["Timeline", "Timelines"]

_F, _B, _I, _W = range(4)
_COMPUTE_KINDS = 4


class _Frozen:
    """What a timeline and a batch of them share: the sums over ranks, and being frozen."""

    __slots__ = ("__weakref__", "_costs", "_fixed", "_span", "busy", "makespan",
                 "peak_activations", "peak_memory", "schedule")  # fmt: skip

    schedule: Schedule
    makespan: Any
    busy: np.ndarray
    peak_activations: np.ndarray
    peak_memory: np.ndarray
    _costs: Costs
    _fixed: np.ndarray  # static bytes by rank
    _span: Any  # longest time of a rank from its own first start to its own last end

    def _put(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _put_sums(
        self,
        schedule: Schedule,
        costs: Costs,
        sums: np.ndarray,
        peak_activations: np.ndarray,
    ) -> None:
        busy, first, last, fixed, peak_memory = frozen(sums)
        self._put("schedule", schedule)
        self._put("_costs", costs)
        self._put("busy", busy)
        self._put("_fixed", fixed)
        self._put("peak_memory", peak_memory)
        self._put("peak_activations", frozen(peak_activations))
        # A rank without ops has first = last = 0: it moves neither.
        self._put("makespan", last.max(axis=-1) - first.min(axis=-1))
        self._put("_span", (last - first).max(axis=-1))

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen: {name!r} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen: {name!r} cannot be deleted")

    def __setstate__(self, state: tuple[None, dict[str, Any]]) -> None:
        """What pickle and copy put back, which is frozen too."""
        for name, value in state[1].items():
            self._put(name, frozen(value) if isinstance(value, np.ndarray) else value)

    def costs(self) -> Costs:
        """Return the costs behind the times: those simulated, or those measured in a run.

        Returns
        -------
        Costs
            What ``schedule.simulate`` takes, for this schedule or another one of as many stages.

        Examples
        --------
        >>> import pipesched as ps
        >>> timeline = ps.generate("1f1b", 2, 4).simulate(ps.Costs(forward=[1.0, 2.0]))
        >>> ps.generate("zb-h1", 2, 4).simulate(timeline.costs()).makespan
        25.0
        """
        return self._costs

    def _bubble_fraction(self) -> np.ndarray:
        total = self.schedule.p * np.asarray(self.makespan)
        return _ratio(total - self.busy.sum(axis=-1), total)

    def _bubble_ratio(self) -> np.ndarray:
        ideal = self.busy.max(axis=-1)
        return _ratio(self.makespan - ideal, ideal)

    def _span_bubble(self) -> np.ndarray:
        return _ratio(self._span - self.busy.max(axis=-1), self._span)


def _ratio(part: Any, whole: Any) -> np.ndarray:
    """part / whole; nothing of nothing is 0, something of nothing infinite."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(np.asarray(part) == 0, 0.0, np.divide(part, whole))


class Timeline(_Frozen):
    """A schedule under costs. Made by :meth:`Schedule.simulate`; frozen.

    Attributes
    ----------
    schedule : Schedule
    start, end : ndarray
        Times of every op, in the order of ``schedule.ops``; float64, from 0. Both ops of an
        overlapped pair have the pair's. A send has the moment at which its transfer may start, a
        receive the moment at which it is posted; they and ``UNSHARD``, ``RESHARD``,
        ``REDUCE_GRAD`` take no time of the rank.
    makespan : float
        Last end minus first start of all compute ops.
    busy : ndarray
        Time at work of each rank.
    peak_activations : ndarray
        Most activations (one a stage and micro-batch) held on each rank at once, each from its
        ``F`` until its ``B`` or ``W``; an overlapped pair takes its forward's before it lets go
        of its backward's. int64. Without any backward (inference) an activation is held during
        its ``F`` only.
    peak_memory : ndarray
        Most bytes held on each rank at once, the static ones included.

    Notes
    -----
    Sends and receives of the schedule are simulated as torch's runtime executes them: a send
    waits for nobody, a receive is posted, and the op that needs what it brings is what waits. With
    them, a transfer starts when its send is reached; without them, when its op ends.

    Examples
    --------
    >>> import pipesched as ps
    >>> s = ps.Schedule.from_rows(["0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"])
    >>> t = s.simulate(ps.Costs(forward=1, backward=2))
    >>> t
    <Timeline of 'custom': makespan 9, bubble_fraction 0.3333, peak activations 2>
    >>> t.end
    array([1., 2., 6., 9., 2., 4., 5., 7.])
    """

    __slots__ = ("_cause", "_start", "end")

    end: np.ndarray
    makespan: float
    _start: np.ndarray | None
    _cause: np.ndarray | None

    def __init__(self) -> None:
        raise TypeError("a Timeline is made by Schedule.simulate(costs)")

    @classmethod
    def _make(
        cls,
        schedule: Schedule,
        costs: Costs,
        end: np.ndarray,
        sums: np.ndarray,
        peak_activations: np.ndarray,
        start: np.ndarray | None = None,
    ) -> Timeline:
        self = object.__new__(cls)
        self._put_sums(schedule, costs, sums, peak_activations)
        self._put("makespan", float(self.makespan))
        self._put("end", frozen(end))
        self._put("_start", None if start is None else frozen(start))
        self._put("_cause", None)
        return self

    @property
    def start(self) -> np.ndarray:
        """Start of every op, float64; :attr:`end` says in which order."""
        return self._looked_back("_start", cause=False)

    @property
    def idle(self) -> np.ndarray:
        """Time of the makespan that each rank is not at work."""
        return self.makespan - self.busy

    @property
    def bubble_fraction(self) -> float:
        """Idle share of all ranks' time: ``1 - sum(busy) / (p * makespan)``."""
        return float(self._bubble_fraction())

    @property
    def bubble_ratio(self) -> float:
        """``(makespan - ideal) / ideal``, where ideal is the busiest rank's work."""
        return float(self._bubble_ratio())

    @property
    def span_bubble(self) -> float:
        """``(span - ideal) / span``: the zero-bubble papers'.

        The span is the longest time of a rank from its own first start to its own last end.
        """
        return float(self._span_bubble())

    @property
    def cause(self) -> np.ndarray:
        """For each op, the index in ``schedule.ops`` of the op that fixed its start.

        That is the op before it on its rank (at a tie too), or the one whose result it waited
        for, or, where a serial link was busy, the one whose transfer began the unbroken row of
        transfers. -1 where nothing did. Both ops of an overlapped pair have the same.
        """
        return self._looked_back("_cause", cause=True)

    def _looked_back(self, name: str, cause: bool) -> np.ndarray:
        """Kept as an attribute once it is asked for: many uses need neither."""
        found = getattr(self, name)
        if found is None:
            from pipesched.simulate import look_back

            found = frozen(look_back(self.schedule, self._costs, self.end, cause))
            self._put(name, found)
        return found

    @property
    def critical_path(self) -> np.ndarray:
        """Indices in ``schedule.ops``, in time order, of ops that fixed the makespan.

        Each op of it is the :attr:`cause` of the next; between the two lie at most transfers.

        Examples
        --------
        >>> import pipesched as ps
        >>> s = ps.Schedule.from_rows(["0F0 0B0", "1F0 1B0"])
        >>> s.simulate().critical_path
        array([0, 2, 3, 1])
        """
        path = [int(self.end.argmax())]
        cause = self.cause
        while (before := int(cause[path[-1]])) >= 0:
            path.append(before)
        return np.array(path[::-1], dtype=np.int64)

    def memory_profile(self, rank: int) -> tuple[np.ndarray, np.ndarray]:
        """The bytes held on a rank over time.

        Parameters
        ----------
        rank : int

        Returns
        -------
        times, bytes : ndarray
            ``bytes[i]`` are held from ``times[i]`` on; the first entry is the static bytes at 0.

        Examples
        --------
        >>> import pipesched as ps
        >>> s = ps.Schedule.from_rows(["0F0 0F1 0B0 0B1"])
        >>> s.simulate(ps.Costs(activation=10, static=5)).memory_profile(0)
        (array([0., 0., 1., 4., 6.]), array([ 5., 15., 25., 15.,  5.]))
        """
        rank = _rank(rank, self.schedule.p)
        tables = self._costs.tables(self.schedule.num_stages, self.schedule.num_microbatches)
        whole, kept = tables["memory"][:2]
        change = np.stack([whole, -whole, kept - whole, -kept])
        return self._held(rank, self._fixed[rank], change, tables["scale"])

    def activation_profile(self, rank: int) -> tuple[np.ndarray, np.ndarray]:
        """The activations held on a rank over time, one a stage and micro-batch.

        Parameters
        ----------
        rank : int

        Returns
        -------
        times, held : ndarray
            ``held[i]`` (int64) are held from ``times[i]`` on; the first entry is 0 at 0. The
            largest is the rank's :attr:`peak_activations`.

        Examples
        --------
        >>> import pipesched as ps
        >>> s = ps.Schedule.from_rows(["0F0 0F1 0B0 0B1"])
        >>> s.simulate(ps.Costs(activation=10, static=5)).activation_profile(0)
        (array([0., 0., 1., 4., 6.]), array([0, 1, 2, 1, 0]))
        """
        rank = _rank(rank, self.schedule.p)
        change = np.array([[1], [-1], [0], [-1]], dtype=np.int64)
        change = np.broadcast_to(change, (_COMPUTE_KINDS, self.schedule.num_stages))
        return self._held(rank, np.int64(0), change, None)

    def _held(
        self, rank: int, at_first: np.generic, change: np.ndarray, scale: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """What a rank holds over time, where `change` says by kind and stage what an op adds."""
        begin, stop = (int(i) for i in self.schedule.offsets[rank : rank + 2])
        ops = self.schedule.ops[begin:stop]
        order = np.arange(begin, stop)
        # Of a pair whose backward comes first, take the forward's bytes before all the same.
        turned = np.flatnonzero((ops["fuse"] != 0) & (ops["kind"] != _F))
        order[turned], order[turned + 1] = order[turned + 1], order[turned]
        order = order[self.schedule.ops["kind"][order] < _COMPUTE_KINDS]
        ops = self.schedule.ops[order]

        change = change[ops["kind"], ops["stage"]]
        if scale is not None:
            change = change * scale[ops["microbatch"]]
        times = np.where(ops["kind"] == _F, self.start[order], self.end[order])
        # All of a legal schedule's forwards have a backward, or none: one rank tells it.
        if not np.isin(ops["kind"], (_B, _I)).any():  # inference: held during F
            times = np.stack([self.start[order], self.end[order]], axis=1).ravel()
            change = np.stack([change, -change], axis=1).ravel()
        held = np.cumsum(np.concatenate([[at_first], change]))
        return np.concatenate([[0.0], times]), held

    @property
    def lower_bound(self) -> float:
        """No schedule with this placement can have a shorter makespan under these costs.

        A schedule with this placement is one that has each (stage, micro-batch) on the same rank
        as here, in whatever order, with backwards whole or split, overlapped or not; of a
        forward-only schedule, a forward-only one. Up to rounding it is the largest of:

        - for each rank: the least time in which an activation can come to the rank, plus all the
          rank's work. Nothing on a rank can start before its first ``F``.
        - for each rank: that time, plus the rank's forwards and input gradients, plus the least
          time that the last of these still needs: its own ``W``, or the way of its gradient back
          to stage 0 and the ``W`` there.
        - for each micro-batch: its way through all stages and back.

        Whole backwards only make each of these longer (``B = I + W``). Where `Costs.overlap` is
        given, a pair may be shorter than its two ops: then each forward's work counts less by
        the most that any pair with it can save, and no op counts for more than a pair takes.
        Transfers count in full between ranks, as if links were free.

        Examples
        --------
        >>> import pipesched as ps
        >>> s = ps.Schedule.from_rows(["0F0 0B0", "1F0 1B0"])
        >>> t = s.simulate(ps.Costs(forward=1, backward=2))
        >>> t.makespan, t.lower_bound  # the W of stage 1 need not delay stage 0
        (6.0, 5.0)
        """
        tables = self._costs.tables(self.schedule.num_stages, self.schedule.num_microbatches)
        if np.isin(self.schedule.ops["kind"], (_B, _I)).any():
            return _training_bound(self.schedule, tables)
        return _inference_bound(self.schedule, tables)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the timeline with matplotlib (extra ``plot``): a row a rank, a box an op.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        matplotlib Axes
            Save it with ``ax.figure.savefig("a.png")`` (or ``.svg``, ``.pdf``).

        Raises
        ------
        ImportError
            matplotlib is not installed; the message names the command that installs it.

        Examples
        --------
        >>> import pipesched as ps
        >>> ax = ps.generate("1f1b", 4, 8).simulate().plot()
        >>> [label.get_text() for label in ax.get_yticklabels()]
        ['rank 0', 'rank 1', 'rank 2', 'rank 3']
        """
        from pipesched.draw.plot import gantt

        return gantt(self, ax)

    def plot_memory(self, ax: Axes | None = None) -> Axes:
        """Draw the bytes that each rank holds over time (extra ``plot``).

        With more than eight ranks, eight that are spread over them.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        matplotlib Axes

        Examples
        --------
        >>> import pipesched as ps
        >>> ax = ps.generate("1f1b", 4, 8).simulate().plot_memory()
        >>> ax.get_ylabel()
        'bytes held'
        """
        from pipesched.draw.plot import memory

        return memory(self, ax)

    def to_html(self) -> str:
        """Return the picture as a complete HTML page: hover over an op to learn its story.

        Nothing is fetched, and there is no script. It looks right on light and dark screens.

        Returns
        -------
        str
            The page; write it with ``Path("a.html").write_text(page, encoding="utf-8")``.

        Examples
        --------
        >>> import pipesched as ps
        >>> ps.generate("1f1b", 2, 2).simulate().to_html()[:15]
        '<!DOCTYPE html>'
        """
        from pipesched.draw.svg import page

        return page(self)

    def to_svg(self) -> str:
        """Return the picture as an SVG file that stands alone, for a page or a paper.

        Returns
        -------
        str
            The file's text.

        Examples
        --------
        >>> import pipesched as ps
        >>> ps.generate("1f1b", 2, 2).simulate().to_svg()[:4]
        '<svg'
        """
        from pipesched.draw.svg import render

        return render(self)

    def to_chrome_trace(self, path: str | PathLike[str] | TextIO, unit: str = "ms") -> None:
        """Write the timeline as a trace for Perfetto or chrome://tracing.

        One track a rank with the ops' durations, arrows along the dependencies between
        ranks, a counter of the bytes each rank holds.

        Parameters
        ----------
        path : path or text stream
            Where to write the JSON.
        unit : {"ms", "s", "us", "ns"}
            The unit of time that the costs are in.

        Raises
        ------
        ValueError
            `unit` is not one of those.
        OSError
            The file cannot be written.

        Notes
        -----
        Linear in the number of ops, written in blocks.

        Examples
        --------
        >>> import io, json
        >>> import pipesched as ps
        >>> stream = io.StringIO()
        >>> ps.generate("1f1b", 2, 2).simulate().to_chrome_trace(stream)
        >>> json.loads(stream.getvalue())["traceEvents"][0]["args"]["name"]
        '1f1b'
        """
        from pipesched.formats.chrome_trace import write

        write(self, path, unit)

    def __str__(self) -> str:
        from pipesched.draw.text import render

        return render(self)

    def _repr_html_(self) -> str:
        from pipesched.draw.svg import notebook

        return notebook(self)

    def __repr__(self) -> str:
        return (
            f"<Timeline of {self.schedule.name!r}: makespan {self.makespan:.6g}, "
            f"bubble_fraction {self.bubble_fraction:.4f}, "
            f"peak activations {self.peak_activations.max()}>"
        )


class Timelines(_Frozen):
    """A schedule under a batch of ``K`` cost vectors: the sums, without each op's times.

    Made by :meth:`Schedule.simulate` from batched :class:`Costs`; frozen. ``timelines[k]`` is
    the full :class:`Timeline` of cost vector ``k``, simulated anew.

    Attributes
    ----------
    schedule : Schedule
    makespan : ndarray
        Shape (K,).
    busy, peak_memory : ndarray
        Shape (K, p).
    peak_activations : ndarray
        Shape (p,): no cost changes it.

    Examples
    --------
    >>> import pipesched as ps
    >>> s = ps.Schedule.from_rows(["0F0 0B0", "1F0 1B0"])
    >>> sweep = s.simulate(ps.Costs(forward=[[1.0], [2.0]], transfer=[[0.0], [0.5]]))
    >>> sweep.makespan
    array([ 6., 13.])
    >>> sweep[1]
    <Timeline of 'custom': makespan 13, bubble_fraction 0.5385, peak activations 1>
    """

    __slots__ = ()

    makespan: np.ndarray

    def __init__(self) -> None:
        raise TypeError("Timelines are made by Schedule.simulate(costs), from a batch of costs")

    @classmethod
    def _make(
        cls, schedule: Schedule, costs: Costs, sums: np.ndarray, peak_activations: np.ndarray
    ) -> Timelines:
        self = object.__new__(cls)
        self._put_sums(schedule, costs, sums, peak_activations)
        self._put("makespan", frozen(self.makespan))
        return self

    def __len__(self) -> int:
        return len(self.makespan)

    def __getitem__(self, index: int) -> Timeline:
        return self.schedule.simulate(self._costs[index])

    @property
    def idle(self) -> np.ndarray:
        """Time of the makespan that each rank is not at work, (K, p)."""
        return self.makespan[:, np.newaxis] - self.busy

    @property
    def bubble_fraction(self) -> np.ndarray:
        """Idle share of all ranks' time, (K,): ``1 - sum(busy) / (p * makespan)``."""
        return self._bubble_fraction()

    @property
    def bubble_ratio(self) -> np.ndarray:
        """``(makespan - ideal) / ideal``, (K,), where ideal is the busiest rank's work."""
        return self._bubble_ratio()

    @property
    def span_bubble(self) -> np.ndarray:
        """``(span - ideal) / span``, (K,), the span being the longest of a rank's own."""
        return self._span_bubble()

    def __repr__(self) -> str:
        return f"<{len(self)} Timelines of {self.schedule.name!r}>"


def _rank(rank: Any, p: int) -> int:
    try:
        return range(p)[operator.index(rank)]
    except IndexError:
        raise IndexError(f"rank must be in 0..{p - 1}, got {rank}") from None


# ---- lower bounds -------------------------------------------------------------------------------


def _homes(schedule: Schedule) -> np.ndarray:
    """The rank of each (stage, micro-batch)."""
    ranks = np.repeat(np.arange(schedule.p, dtype=np.int32), np.diff(schedule.offsets))
    forward = schedule.ops["kind"] == _F
    homes = np.empty((schedule.num_stages, schedule.num_microbatches), dtype=np.int32)
    homes[schedule.ops["stage"][forward], schedule.ops["microbatch"][forward]] = ranks[forward]
    return homes


class _PerRank:
    """Sums and minima by rank, over cells that come one stage at a time."""

    def __init__(self, p: int) -> None:
        self.p = p
        self.head = np.full(p, np.inf)
        self.tail = np.full(p, np.inf)
        self.work = np.zeros(p)
        self.handed_on = np.zeros(p)  # the part of the work that others may wait for

    def add(self, values: np.ndarray, home: np.ndarray, cells: np.ndarray) -> None:
        values += np.bincount(home, weights=cells, minlength=self.p)

    def least(self, values: np.ndarray, home: np.ndarray, cells: np.ndarray) -> None:
        np.minimum.at(values, home, cells)


def _hops(homes: np.ndarray, transfers: np.ndarray, scale: np.ndarray, stage: int) -> np.ndarray:
    """Transfer times between a stage and the next, by micro-batch."""
    return np.where(homes[stage] != homes[stage + 1], transfers[stage] * scale, 0.0)


def _training_bound(schedule: Schedule, tables: dict[str, Any]) -> float:
    forward, whole, own_input, weight = tables["times"]
    homes = _homes(schedule)
    stages, m = homes.shape
    scale = np.ones(m) if tables["scale"] is None else tables["scale"]
    overlap = tables["overlap"]
    # The least that one op takes, alone or in a pair.
    shortest = np.inf if overlap is None else float(overlap.min())
    brief_forward = forward if overlap is None else np.minimum(forward, overlap)
    brief_input = np.minimum(own_input, shortest)
    brief_weight = np.minimum(weight, shortest)
    most_backward = np.zeros(schedule.p)
    if overlap is not None:
        for s in range(stages):
            np.maximum.at(most_backward, homes[s], whole[s])

    ranks = _PerRank(schedule.p)
    come = np.zeros(m)  # least time until F of this stage can start
    # Least time from the start of the stage's I until the micro-batch is over.
    rest = np.minimum(brief_input[0] + brief_weight[0], np.minimum(whole[0], shortest)) * scale
    for s in range(stages):
        home = homes[s]
        after_input = brief_weight[s] * scale
        if s > 0:
            come = come + _hops(homes, tables["transfers"][0], scale, s - 1)
            gone = _hops(homes, tables["transfers"][1], scale, s - 1) + rest
            after_input = np.maximum(after_input, gone)
            rest = brief_input[s] * scale + gone
        saved = np.zeros(m)
        if overlap is not None:
            most = most_backward[home]
            alike = (forward[s] + most - overlap[s]) * scale
            longer = forward[s] * scale + (most - overlap[s]) * scale.max()
            saved = np.maximum(0.0, np.maximum(alike, longer))
        ranks.least(ranks.head, home, come)
        ranks.least(ranks.tail, home, after_input)
        handed_on = (forward[s] + own_input[s]) * scale - saved
        ranks.add(ranks.handed_on, home, handed_on)
        ranks.add(ranks.work, home, handed_on + weight[s] * scale)
        come = come + brief_forward[s] * scale
    way = come + rest
    used = np.isfinite(ranks.head)  # ranks that hold a stage
    by_work = ranks.head[used] + ranks.work[used]
    by_chain = ranks.head[used] + ranks.handed_on[used] + ranks.tail[used]
    return float(max(by_work.max(), by_chain.max(), way.max()))


def _inference_bound(schedule: Schedule, tables: dict[str, Any]) -> float:
    forward = tables["times"][0]
    homes = _homes(schedule)
    stages, m = homes.shape
    scale = np.ones(m) if tables["scale"] is None else tables["scale"]
    ranks = _PerRank(schedule.p)
    come = np.zeros(m)
    for s in range(stages):
        if s > 0:
            come = come + _hops(homes, tables["transfers"][0], scale, s - 1)
        ranks.least(ranks.head, homes[s], come)
        ranks.add(ranks.work, homes[s], forward[s] * scale)
        come = come + forward[s] * scale
    gone = np.zeros(m)
    for s in reversed(range(stages)):
        ranks.least(ranks.tail, homes[s], gone)
        gone = gone + forward[s] * scale
        if s > 0:
            gone = gone + _hops(homes, tables["transfers"][0], scale, s - 1)
    used = np.isfinite(ranks.head)
    return float((ranks.head[used] + ranks.work[used] + ranks.tail[used]).max())
