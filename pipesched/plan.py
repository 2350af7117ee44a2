"""A plan: which layers make a stage, on which workers, and what that costs."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from pipesched.profile import Profile

if TYPE_CHECKING:
    from pipesched.costs import Costs
    from pipesched.timeline import Timeline

__all__ = ["Cluster", "Plan", "PlanStage", "SteadyState"]

_BACKWARD = 1  # the kind of B in Schedule.ops


@dataclass(frozen=True)
class Cluster:
    """Workers in levels: servers of workers, racks of servers, and so on.

    Parameters
    ----------
    workers : tuple of int
        Workers that share the fastest links (a server), then how many of those
        groups share the next, and so on.
    bandwidth : tuple of float
        Bytes a second of a link on each level.

    Examples
    --------
    >>> from pipesched.plan import Cluster
    >>> cluster = Cluster((4, 4), (12e9, 1.25e9))
    >>> cluster.size, cluster.link(0, 3), cluster.link(3, 4)
    (16, 12000000000.0, 1250000000.0)
    """

    workers: tuple[int, ...]
    bandwidth: tuple[float, ...]

    @property
    def size(self) -> int:
        """All workers."""
        return math.prod(self.workers)

    def link(self, first: int, last: int) -> float:
        """Bytes a second of the slowest link between two workers.

        A path to another server runs over the links inside, too.
        """
        slowest, size = math.inf, 1
        for count, bandwidth in zip(self.workers, self.bandwidth, strict=True):
            size *= count
            slowest = min(slowest, bandwidth)
            if first // size == last // size:
                break
        return slowest

    def __str__(self) -> str:
        shape = " x ".join(map(str, reversed(self.workers)))
        speed = ", ".join(f"{b / 1e9:g} GB/s" for b in self.bandwidth)
        return f"{shape} workers ({speed})"


@dataclass(frozen=True)
class PlanStage:
    """One stage of a plan; times in seconds a mini-batch, sizes in bytes.

    Attributes
    ----------
    layers : tuple of int
        Positions in the profile.
    ranks : tuple of int
        The workers that hold a replica.
    compute : float
        Forward and backward, shared by the replicas.
    reduce : float
        The ring all-reduce of the replicas' gradients: once for as many mini-batches
        as there are replicas.
    receive, send : float
        The activation one way and its gradient the other, over the stage's first
        and its last border, shared by the replicas.
    versions : int
        Weight versions kept, which is also the mini-batches in flight a replica.
    weights, activations : float
        Bytes of one version, and of one mini-batch in flight with the stage's input.
    memory : float
        Bytes of a worker: versions * (weights + activations), and gradients and
        optimizer state.
    time : float
        Seconds a mini-batch, all together.
    binds : str
        ``"compute"``, ``"all-reduce"`` or ``"transfer"``: the largest part.
    """

    layers: tuple[int, ...]
    ranks: tuple[int, ...]
    compute: float
    reduce: float
    receive: float
    send: float
    versions: int
    weights: float
    activations: float
    memory: float
    time: float
    binds: str

    @property
    def replicas(self) -> int:
        """How many workers share the stage."""
        return len(self.ranks)


@dataclass(frozen=True)
class SteadyState:
    """How fast a plan's schedule runs once it is full; seconds a mini-batch.

    Attributes
    ----------
    expected : float
        The slowest stage of the plan.
    simulated : float
        The pace of the simulated schedule.
    without_transfers : float
        The same with transfers that take no time on the way.
    in_flight : tuple of int
        Mini-batches in flight a replica of each stage: ceil(R / r), PipeDream's rule.
    enough : tuple of int
        How many there must be so that no stage waits for another to admit more.
    with_enough : float
        The pace with `enough` in flight and transfers that take no time.
    """

    expected: float
    simulated: float
    without_transfers: float
    in_flight: tuple[int, ...]
    enough: tuple[int, ...]
    with_enough: float

    @property
    def agrees(self) -> bool:
        """Whether the simulation runs at the expected pace, to a millionth."""
        return abs(self.simulated - self.expected) <= 1e-6 * self.expected

    def __str__(self) -> str:
        lines = [
            f"expected {self.expected * 1e3:.6g} ms a mini-batch, "
            f"simulated {self.simulated * 1e3:.6g} ms"
        ]
        if self.agrees:
            return lines[0]
        hair = 1e-6 * self.expected
        if self.simulated - self.without_transfers > hair:
            lines.append(
                f"{(self.simulated - self.without_transfers) * 1e3:.6g} ms of it because the way "
                "of the transfers, there and back, is longer than the mini-batches in flight can "
                "hide"
            )
        if self.without_transfers - self.with_enough > hair:
            short = [
                f"stage {s}: {have}, needs {need}"
                for s, (have, need) in enumerate(zip(self.in_flight, self.enough, strict=True))
                if need > have
            ]
            lines.append(
                f"{(self.without_transfers - self.with_enough) * 1e3:.6g} ms of it because too few "
                "mini-batches are in flight a replica: ceil(R / r) rounds each stage by itself, "
                f"and a stage may admit fewer than those behind it hold ({'; '.join(short)})"
            )
        return "\n".join(lines)


def enough_in_flight(replicas: Sequence[int]) -> tuple[int, ...]:
    """Mini-batches in flight a replica with which 1F1B-RR keeps the pace of its slowest stage.

    A stage must have admitted all that the next one holds, and one a replica of its own.
    Where all numbers divide evenly this is PipeDream's ceil(R / r).
    """
    enough = [1]
    for here, behind in zip(replicas[-2::-1], replicas[:0:-1], strict=True):
        enough.append(-(-behind * enough[-1] // here) + 1)
    return tuple(reversed(enough))


def _pace(timeline: Timeline, m: int, period: int) -> float:
    """Seconds a mini-batch in the full part, by when the first stage's backwards end.

    Over whole periods, as replicas finish in bursts, and before the drain.
    """
    ops = timeline.schedule.ops
    ends = np.sort(timeline.end[(ops["stage"] == 0) & (ops["kind"] == _BACKWARD)])
    last = m - 1 - (m // 4)
    span = max(m // 3 // period, 1) * period if period <= m // 3 else m // 3
    return float(ends[last] - ends[last - span]) / span


@dataclass(frozen=True)
class Plan:
    """Stages, where they run, and what is expected of them.

    Made by :func:`pipesched.partition` and :func:`pipesched.baselines`.

    Attributes
    ----------
    profile : Profile
        The model.
    cluster : Cluster
        The workers and their links.
    stages : tuple of PlanStage
        In the order of the model.
    time : float
        Expected seconds a mini-batch.
    bound : float
        No plan for these workers can be faster than this.
    exact : bool
        Whether every prefix of the graph was tried. Where not, the layers were put
        in line, and `gap` says how far off the plan can be.
    states : int
        Prefixes that were tried.
    overlap : bool
        Whether a worker computes while its link is busy.
    pipelined : bool
        Whether more than one mini-batch is in flight.
    memory_limit : float or None
        Bytes of a worker.
    name : str
        What kind of plan it is.
    settings : tuple of (str, object)
        What the search was asked for, for `explain`; empty where there was none.

    Examples
    --------
    >>> import pipesched as ps
    >>> layers = [ps.Layer("conv", 0.01, 0.02, 1e6, 1e6), ps.Layer("fc", 0.004, 0.006, 1e5, 4e8)]
    >>> plan = ps.partition(ps.Profile(layers), workers=4, bandwidth=1e9)
    >>> plan.config, plan.in_flight, round(plan.time * 1e3, 3)
    ('3-1', 2, 10.0)
    """

    profile: Profile
    cluster: Cluster
    stages: tuple[PlanStage, ...]
    time: float
    bound: float
    exact: bool = True
    states: int = 0
    overlap: bool = True
    pipelined: bool = True
    memory_limit: float | None = None
    name: str = "pipedream"
    settings: tuple[tuple[str, Any], ...] = field(default=(), repr=False, compare=False)

    @property
    def replicas(self) -> tuple[int, ...]:
        """Replicas of each stage."""
        return tuple(stage.replicas for stage in self.stages)

    @property
    def config(self) -> str:
        """The replicas in PipeDream's notation, ``"15-1"``."""
        return "-".join(map(str, self.replicas))

    @property
    def ranks(self) -> tuple[int, ...]:
        """The workers that are used, in the order of the schedule's ranks."""
        return tuple(rank for stage in self.stages for rank in stage.ranks)

    @property
    def idle(self) -> tuple[int, ...]:
        """The workers that are not."""
        return tuple(sorted(set(range(self.cluster.size)) - set(self.ranks)))

    @property
    def in_flight(self) -> int:
        """PipeDream's NOAM: mini-batches that each replica of the first stage admits."""
        return self.stages[0].versions

    @property
    def gap(self) -> float:
        """How far above the optimum the plan can be, as a share of the optimum."""
        if self.exact or self.time <= self.bound:
            return 0.0
        return self.time / self.bound - 1.0 if self.bound > 0.0 else math.inf

    @property
    def speedup(self) -> float:
        """Over one worker."""
        alone = float(self.profile.compute.sum())
        return alone / self.time if self.time > 0.0 else 1.0

    @property
    def binding(self) -> int:
        """The stage that sets the pace."""
        return max(range(len(self.stages)), key=lambda s: self.stages[s].time)

    @property
    def stage_of_layer(self) -> tuple[int, ...]:
        """The stage of each layer of the profile."""
        found = [0] * len(self.profile)
        for number, stage in enumerate(self.stages):
            for layer in stage.layers:
                found[layer] = number
        return tuple(found)

    @property
    def summary(self) -> str:
        """The plan in a line."""
        text = f"{self.name}: {self.config}, {self.time * 1e3:.6g} ms a mini-batch"
        text += f", {self.speedup:.2f} x one worker"
        if self.pipelined:
            text += f", {self.in_flight} in flight"
        if not self.exact:
            text += f"; layers in line: at most {self.gap:.1%} above the optimum"
        elif self.settings:
            text += "; optimal"
        return text

    def costs(self) -> Costs:
        """The costs under which to simulate the plan's schedule.

        A replica's mini-batch costs the stage's whole forward and backward. What the
        worker's link does is added to the backward as far as it is not hidden behind
        the compute: all of it without overlap, and what exceeds the compute with it.
        Transfers also take their time on the way where they overlap.
        """
        from pipesched.costs import Costs

        forward, backward, static, kept = [], [], [], []
        for stage in self.stages:
            ahead = sum(self.profile.layers[i].forward for i in stage.layers)
            forward.append(ahead)
            backward.append(stage.time * stage.replicas - ahead)
            static.append(stage.memory - stage.versions * stage.activations)
            kept.append(stage.activations)
        transfer: float | list[float] = 0.0
        if self.overlap and len(self.stages) > 1:
            transfer = [
                stage.receive * stage.replicas / 2.0  # one of the two ways of one mini-batch
                for stage in self.stages[1:]
            ]
        return Costs(
            forward=forward, backward=backward, transfer=transfer, activation=kept, static=static
        )

    def steady_state(self, m: int | None = None) -> SteadyState:
        """Simulate the plan's schedule and compare its pace with the expectation.

        Parameters
        ----------
        m : int, optional
            Mini-batches to simulate; by default enough for the pattern of the replicas
            to repeat several times. With too few there is no steady state to look at.

        Examples
        --------
        >>> import pipesched as ps
        >>> conv = ps.Layer("conv", 0.01, 0.02, activation=1e6, parameters=1e6)
        >>> fc = ps.Layer("fc", 0.004, 0.006, activation=1e5, parameters=4e8)
        >>> plan = ps.partition(ps.Profile([conv, fc]), workers=4, bandwidth=1e9)
        >>> print(plan.steady_state())
        expected 10 ms a mini-batch, simulated 10 ms
        """
        from pipesched.costs import Costs
        from pipesched.generate import replicated

        if not self.pipelined:
            raise ValueError(f"the plan {self.name!r} runs one mini-batch at a time: no pipeline")
        period = math.lcm(*self.replicas)
        enough = enough_in_flight(self.replicas)
        # The fill, the drain, and some periods between; a period may be out of reach.
        reach = min(period, 1 << 13)
        least = max(4 * self.replicas[0] * enough[0], 3 * reach)
        if m is None:
            m = 4 * sum(self.replicas) * enough[0] + 6 * reach
        elif operator.index(m) < least:
            raise ValueError(
                f"m must be at least {least} for the plan {self.config} to run at its full pace "
                f"between the fill and the drain, got {m}"
            )
        given = tuple(stage.versions for stage in self.stages)
        costs = self.costs()
        still = Costs(forward=costs.forward, backward=costs.backward)

        def pace(in_flight: Sequence[int], under: Costs) -> float:
            timeline = replicated(self.replicas, in_flight, m).simulate(under)
            return _pace(timeline, m, period)

        expected = max(stage.time for stage in self.stages)
        return SteadyState(
            expected=expected,
            simulated=pace(given, costs),
            without_transfers=pace(given, still),
            in_flight=given,
            enough=enough,
            with_enough=pace(enough, still),
        )

    def explain(self) -> str:
        """Which stage and what of it binds, and why not fewer or more stages."""
        from pipesched.partition import explain

        return explain(self)

    def draw(self, width: int = 40) -> str:
        """The plan as text: the cut of the model, a line a stage, and a bar for its time.

        Parameters
        ----------
        width : int
            Columns of the longest bar.
        """
        longest = max(map(_all_parts, self.stages)) or 1.0
        table: list[tuple[str, ...]] = [
            ("stage", "layers", "workers", "compute", "reduce", "transfer", "versions", "memory")
        ]
        for number, stage in enumerate(self.stages):
            times = (stage.compute, stage.reduce, stage.receive + stage.send)
            table.append(
                (
                    str(number),
                    spans(stage.layers),
                    spans(stage.ranks),
                    *(f"{time * 1e3:.3f}" for time in times),
                    str(stage.versions),
                    f"{stage.memory / 1e9:.3f}",
                )
            )
        table.append(("", "", "", "ms", "ms", "ms", "", "GB"))
        wide = [max(map(len, column)) for column in zip(*table, strict=True)]
        marks = ["*" if s == self.binding else " " for s in range(len(self.stages))]
        bars = [_stage_bar(stage, longest, width) for stage in self.stages]
        lines = [f"{self.cluster}", self.summary]
        for row, mark, bar in zip(table, ["", *marks, ""], ["", *bars, ""], strict=True):
            cells = [cell.rjust(size) for cell, size in zip(row, wide, strict=True)]
            lines.append(f"{' '.join(cells)} {mark}{bar}")
        legend = "# compute, r all-reduce, t transfer; " if width > 0 else ""
        lines.append(f"({legend}* binds)")
        if self.idle:
            lines.append(f"idle workers: {spans(self.idle)}")
        return "\n".join(line.rstrip() for line in lines)

    def __str__(self) -> str:
        return self.draw()


def spans(numbers: Sequence[int], to: str = "-") -> str:
    """``0-3,7``: runs of whole numbers."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{a}{to}{b}" if b > a else f"{a}" for a, b in runs)


def _all_parts(stage: PlanStage) -> float:
    return stage.compute + stage.reduce + stage.receive + stage.send


def _stage_bar(stage: PlanStage, longest: float, width: int) -> str:
    """Compute and what the link does, one behind the other, also where they overlap."""
    text, ahead = "", 0.0
    parts = (("#", stage.compute), ("r", stage.reduce), ("t", stage.receive + stage.send))
    for mark, value in parts:
        ahead += value
        text += mark * (round(ahead / longest * width) - len(text))
    return text


def crossing(profile: Profile, stage_of_layer: Sequence[int], border: int) -> float:
    """Bytes of outputs of stages up to `border` that later stages need."""
    needed = {
        source
        for source, target in profile.edges
        if stage_of_layer[source] <= border < stage_of_layer[target]
    }
    return math.fsum(profile.layers[source].activation for source in needed)


def evaluate(
    profile: Profile,
    cluster: Cluster,
    stage_of_layer: Sequence[int],
    ranks: Sequence[Sequence[int]],
    *,
    overlap: bool,
    optimizer: float,
    pipelined: bool = True,
) -> tuple[PlanStage, ...]:
    """What each stage of a partition costs, by the rules of the default model.

    The same model as the dynamic programme's, restated: it fills in what a `Plan`
    shows, and tests hold the one to the other.
    """
    count = len(ranks)
    borders = [0.0, *(crossing(profile, stage_of_layer, s) for s in range(count - 1)), 0.0]
    stages = []
    for s in range(count):
        layers = tuple(i for i, stage in enumerate(stage_of_layer) if stage == s)
        own = [profile.layers[i] for i in layers]
        r = len(ranks[s])
        weights = math.fsum(layer.parameters for layer in own)
        held = math.fsum(layer.activation for layer in own) + borders[s]
        low, high = min(ranks[s]), max(ranks[s])
        compute = math.fsum(layer.compute for layer in own) / r
        reduce = 2.0 * (r - 1) / r * weights / cluster.link(low, high) / r
        receive = send = 0.0
        if s > 0:
            receive = 2.0 * borders[s] / _between(cluster, ranks[s - 1], ranks[s]) / r
        if s < count - 1:
            send = 2.0 * borders[s + 1] / _between(cluster, ranks[s], ranks[s + 1]) / r
        link = reduce + receive + send
        behind = sum(len(ranks[later]) for later in range(s, count))
        versions = -(-behind // r) if pipelined else 1
        parts = {"compute": compute, "all-reduce": reduce, "transfer": receive + send}
        if overlap:  # compute on one side, all that the link does on the other
            names = ("compute",) if compute >= link else ("all-reduce", "transfer")
            parts = {name: parts[name] for name in names}
        stages.append(
            PlanStage(
                layers=layers,
                ranks=tuple(ranks[s]),
                compute=compute,
                reduce=reduce,
                receive=receive,
                send=send,
                versions=versions,
                weights=weights,
                activations=held,
                memory=versions * (weights + held) + optimizer * weights,
                time=max(compute, link) if overlap else compute + link,
                binds=max(parts, key=lambda part: parts[part]),
            )
        )
    return tuple(stages)


def _between(cluster: Cluster, before: Sequence[int], after: Sequence[int]) -> float:
    """The slowest link that the border between two stages needs."""
    together = (*before, *after)
    return cluster.link(min(together), max(together))
