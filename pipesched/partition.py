"""Cut a model into stages: balanced, or PipeDream's way with replicated stages."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from pipesched import _core
from pipesched._arrays import number, number_array
from pipesched._names import no_such
from pipesched.plan import Cluster, Plan, PlanStage, evaluate, spans
from pipesched.profile import Profile

__all__ = ["BalancedPartition", "baselines", "partition", "partition_balanced"]

_SPLITS = ("balanced", "equal-first", "equal-last", "equal-middle")
_ENDS = ("joined", "layers")
_INT32_MAX = 2**31 - 1
_MOST_LAYERS = 2**13  # beyond these the searches take hours
_MOST_WORKERS = 2**15
_COMPAT_STATES = 4096  # inception_v3 has far more, and the program does not end on it


# ---- balanced ------------------------------------------------------------------------------


@dataclass(frozen=True)
class BalancedPartition:
    """Contiguous parts of a chain of layers.

    Attributes
    ----------
    cuts : tuple of int
        Part i holds the layers ``cuts[i]`` to ``cuts[i+1] - 1``.
    loads : tuple of float
        The cost of each rank: of each part, or of its chunks together.
    bound : float
        No partition has a smaller largest load.

    Examples
    --------
    >>> import pipesched as ps
    >>> parts = ps.partition_balanced([2, 8, 5, 3, 2, 4, 2], 4)
    >>> parts.cuts, parts.largest, parts.proven
    ((0, 1, 2, 4, 7), 8.0, True)
    """

    cuts: tuple[int, ...]
    loads: tuple[float, ...]
    bound: float

    @property
    def largest(self) -> float:
        """The largest load."""
        return max(self.loads)

    @property
    def proven(self) -> bool:
        """Whether the largest load is known to be the smallest possible."""
        return self.largest <= self.bound

    @property
    def sizes(self) -> tuple[int, ...]:
        """Layers of each part."""
        return tuple(b - a for a, b in zip(self.cuts, self.cuts[1:], strict=False))

    def __str__(self) -> str:
        return self.draw()

    def draw(self, width: int = 40) -> str:
        """The parts as text: layers, load, and a bar for it.

        Parameters
        ----------
        width : int
            Columns of the longest bar.
        """
        k, longest = len(self.loads), self.largest or 1.0
        lines = []
        for rank, load in enumerate(self.loads):
            spans = ",".join(
                f"{self.cuts[part]}-{self.cuts[part + 1] - 1}"
                for part in range(rank, len(self.cuts) - 1, k)
            )
            bar = "#" * round(load / longest * width)
            lines.append(f"{rank:>4}  {spans:<16} {load:>12.6g}  {bar}".rstrip())
        return "\n".join(lines)


def partition_balanced(
    costs: npt.ArrayLike | Profile,
    k: SupportsIndex,
    first: float = 0.0,
    last: float = 0.0,
    *,
    chunks: SupportsIndex = 1,
    cut_bytes: npt.ArrayLike | None = None,
    ends: str = "joined",
    split: str = "balanced",
) -> BalancedPartition:
    """Cut a chain of layers into contiguous parts, none empty, as even as can be.

    Parameters
    ----------
    costs : array_like or Profile
        The cost of each layer; of a profile, forward and backward in seconds.
    k : int
        Parts, or ranks where each holds several chunks; at most as many parts as layers.
    first, last : float
        What comes on top at either end, such as the embedding and the head.
    chunks : int
        Parts a rank: part s is on rank s mod k, and the ranks are balanced. The optimum
        for one chunk, and for two of at most 128 layers; beyond, a local search, and
        `proven` says whether it is known to have found it.
    cut_bytes : array_like, optional
        What crosses a cut behind each layer but the last. Among the optima the one
        with the fewest bytes is taken, then the one with the smallest cuts. One chunk only.
    ends : {"joined", "layers"}
        Whether `first` and `last` go with the first and the last layer, or are layers
        of their own, which may then fill a part (and which the cuts count).
    split : {"balanced", "equal-first", "equal-last", "equal-middle"}
        Instead of balancing, the same number of layers in each part; where that leaves
        some over, one more in the first parts, in the last ones, or in the ones before
        the last.

    Returns
    -------
    BalancedPartition

    Raises
    ------
    ValueError
        More parts than layers, or a cost that is negative or not finite.

    Examples
    --------
    >>> import pipesched as ps
    >>> ps.partition_balanced([4, 4, 4, 7, 7], 4).cuts
    (0, 1, 3, 4, 5)
    >>> ps.partition_balanced([1.0] * 61, 4, split="equal-middle").sizes
    (15, 15, 16, 15)
    """
    if split not in _SPLITS:
        raise ValueError(no_such("split", split, _SPLITS))
    if ends not in _ENDS:
        raise ValueError(no_such("way to place the ends", ends, _ENDS))
    cost = _costs("costs", costs.compute if isinstance(costs, Profile) else costs)
    extra = _costs("first and last", [first, last])
    if ends == "layers":
        cost, extra = np.array([extra[0], *cost, extra[1]]), np.zeros(2)
    with np.errstate(over="ignore"):
        total = cost.sum() + extra.sum()
    if not np.isfinite(total):
        raise ValueError("the sum of the costs is too large for a 64-bit float; scale them down")
    ranks, per_rank = _count("k", k), _count("chunks", chunks)
    parts = ranks * per_rank
    if parts > len(cost):
        what = f"k={ranks}" if per_rank == 1 else f"k={ranks} with chunks={per_rank}"
        raise ValueError(
            f"{what} needs at least {parts} layers, one a part, got {len(cost)}; take fewer parts"
        )
    crossing_bytes = None
    if cut_bytes is not None:
        if per_rank != 1 or split != "balanced":
            raise ValueError("cut_bytes chooses among balanced partitions with one chunk a rank")
        crossing_bytes = _costs("cut_bytes", [*np.atleast_1d(cut_bytes), 0.0])
        if len(crossing_bytes) != len(cost):
            raise ValueError(
                f"cut_bytes must have a value for each of the {len(cost) - 1} places to cut, "
                f"got {len(crossing_bytes) - 1}"
            )
    if split != "balanced":
        cuts = _equal_cuts(len(cost), parts, split)
        bound = _core.balance(cost, ranks, per_rank, extra[0], extra[1], None)[2]
    else:
        cuts, _, bound = _core.balance(cost, ranks, per_rank, extra[0], extra[1], crossing_bytes)
    ahead = np.concatenate([[0.0], np.cumsum(cost)])
    load = np.diff(ahead[cuts])
    load[0] += extra[0]
    load[-1] += extra[1]
    loads = [float(sum(load[rank::ranks].tolist())) for rank in range(ranks)]
    return BalancedPartition(tuple(int(cut) for cut in cuts), tuple(loads), float(bound))


def _equal_cuts(n: int, parts: int, split: str) -> np.ndarray:
    """As many layers in each part, and the rest where other frameworks put it."""
    size = np.full(parts, n // parts)
    left = n % parts
    if split == "equal-first":
        size[:left] += 1
    elif split == "equal-last":
        size[parts - left :] += 1
    else:
        size[parts - 1 - left : parts - 1] += 1
    return np.concatenate([[0], np.cumsum(size)])


def _costs(name: str, values: npt.ArrayLike) -> np.ndarray:
    array = number_array(name, values)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name} must be a sequence of at least 1 number, got {values!r}")
    bad = np.flatnonzero(~(np.isfinite(array) & (array >= 0)))
    if bad.size:
        raise ValueError(
            f"{name} must be finite and not negative, got {array[bad[0]]} at position {bad[0]}"
        )
    return array


def _count(name: str, value: SupportsIndex, limit: int = _INT32_MAX) -> int:
    try:
        count = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an int, got {value!r}") from None
    if not 1 <= count <= limit:
        raise ValueError(f"{name} must be in 1..{limit}, got {count}")
    return count


# ---- PipeDream -----------------------------------------------------------------------------


def partition(
    profile: Profile,
    workers: SupportsIndex | Sequence[SupportsIndex],
    bandwidth: float | Sequence[float],
    memory: float | None = None,
    *,
    overlap: bool = True,
    optimizer: float = 1.0,
    stages: SupportsIndex | None = None,
    straight_pipeline: bool = False,
    max_states: SupportsIndex = 4096,
    compat: str | None = None,
    use_fewer_machines: bool = False,
    activation_compression_ratio: float | None = None,
) -> Plan:
    """Cut a model into replicated stages with the least time a mini-batch.

    The time is that of PipeDream's steady state: the slowest stage sets the pace. A
    stage with r replicas on the slowest link B among them takes, a mini-batch,
    compute / r; a ring all-reduce of 2 (r-1)/r weights / B once in r mini-batches; and
    the activation one way and its gradient the other over each of its borders. Stages
    stand on runs of workers, which may straddle servers; workers may stay idle. Among
    the fastest plans the one with the fewest stages is taken.

    Parameters
    ----------
    profile : Profile
        The model, for one mini-batch on one worker.
    workers : int or sequence of int
        How many. For levels of links: workers a server, servers, ... (innermost first).
    bandwidth : float or sequence of float
        Bytes a second of a link; one for each level.
    memory : float, optional
        Bytes of a worker. A stage needs versions * (weights + activations in flight
        with the stage's input) + optimizer * weights, with ceil(R / r) versions where R
        workers are busy from the stage on.
    overlap : bool
        Whether a worker computes while its link is busy: the larger of the two counts,
        or else their sum.
    optimizer : float
        Bytes of gradients and optimizer state for each byte of weights: 1 for plain
        SGD (the gradient), 2 with momentum, 3 for Adam.
    stages : int, optional
        Exactly so many stages.
    straight_pipeline : bool
        No stage is replicated.
    max_states : int
        The most prefixes of the graph to try. Where it has more, the layers are put in
        line in two orders: `Plan.exact` is then False, and `Plan.gap` says how far off
        the plan can be.
    compat : {"pipedream"}, optional
        The objective of PipeDream's published program instead, with its faults: twice
        the all-reduce, whole servers only, a memory test that is one version short,
        and no transfers unless activation_compression_ratio is given.
    use_fewer_machines : bool
        The published program's option: machines may be left over. Compat mode only.
    activation_compression_ratio : float, optional
        The published program's option: count transfers, divided by this. Compat mode only.

    Returns
    -------
    Plan

    Raises
    ------
    ValueError
        Nothing fits: the message names the stage that binds and the bytes that are missing.

    Examples
    --------
    >>> import pipesched as ps
    >>> layers = [ps.Layer("conv", 0.01, 0.02, 1e6, 1e6), ps.Layer("fc", 0.004, 0.006, 1e5, 4e8)]
    >>> plan = ps.partition(ps.Profile(layers), workers=(2, 2), bandwidth=(10e9, 1e9))
    >>> plan.config
    '3-1'
    """
    _need_profile(profile)
    cluster = _cluster(workers, bandwidth)
    limit = _positive("memory", memory) if memory is not None else math.inf
    if compat is not None and compat != "pipedream":
        raise ValueError(f"compat must be None or 'pipedream', got {compat!r}")
    if compat == "pipedream":
        if stages is not None:
            raise ValueError("compat='pipedream' has no choice of stages; leave it out")
        return _published(
            profile,
            cluster,
            limit,
            bool(straight_pipeline),
            bool(use_fewer_machines),
            activation_compression_ratio,
        )
    if use_fewer_machines or activation_compression_ratio is not None:
        raise ValueError(
            "use_fewer_machines and activation_compression_ratio belong to compat='pipedream'; "
            "the default model leaves workers idle by itself and always counts transfers"
        )
    settings: dict[str, Any] = {
        "overlap": bool(overlap),
        "optimizer": _not_negative("optimizer", optimizer),
        "straight_pipeline": bool(straight_pipeline),
        "max_states": _count("max_states", max_states, _INT32_MAX),
    }
    count = 0 if stages is None else _count("stages", stages)
    most = min(len(profile), cluster.size)
    if count > most:
        raise ValueError(
            f"stages={count} needs as many layers and workers, got {len(profile)} layers and "
            f"{cluster.size} workers"
        )
    plan = _best(profile, cluster, limit, count, **settings)
    if plan is None:
        raise ValueError(_why_infeasible(profile, cluster, limit, count, settings))
    return plan


def _need_profile(profile: object) -> None:
    if not isinstance(profile, Profile):
        raise TypeError(
            f"profile must be a pipesched.Profile, got {profile!r}; read_profile(path) reads one"
        )
    if len(profile) > _MOST_LAYERS:
        raise ValueError(
            f"plans are made for at most {_MOST_LAYERS} layers, got {len(profile)}; take several "
            "layers together, such as whole blocks of the model"
        )


def _cluster(
    workers: SupportsIndex | Sequence[SupportsIndex], bandwidth: float | Sequence[float]
) -> Cluster:
    counts: list[Any] = list(workers) if np.iterable(workers) else [workers]
    speeds: list[Any] = list(bandwidth) if np.iterable(bandwidth) else [bandwidth]
    if not counts or len(counts) != len(speeds):
        raise ValueError(
            f"workers and bandwidth must have one value a level, got workers={workers!r} and "
            f"bandwidth={bandwidth!r}"
        )
    if len(counts) > 8:
        raise ValueError(f"workers must have at most 8 levels, got {len(counts)}")
    cluster = Cluster(
        tuple(_count("workers", count) for count in counts),
        tuple(_positive("bandwidth", speed) for speed in speeds),
    )
    if cluster.size > _MOST_WORKERS:
        raise ValueError(
            f"plans are made for at most {_MOST_WORKERS} workers, got workers={workers!r}; plan "
            "for one of several copies of the pipeline"
        )
    return cluster


def _positive(name: str, value: float) -> float:
    amount = number(name, value)
    if not (math.isfinite(amount) and amount > 0):
        raise ValueError(f"{name} must be finite and above 0, got {value!r}")
    return amount


def _not_negative(name: str, value: float) -> float:
    amount = number(name, value)
    if not (math.isfinite(amount) and amount >= 0):
        raise ValueError(f"{name} must be finite and not negative, got {value!r}")
    return amount


def _arrays(
    profile: Profile, cluster: Cluster
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    return (
        profile.compute,
        profile.activation,
        profile.parameters,
        np.array(profile.edges, dtype=np.int32).reshape(-1),
        np.array(cluster.workers, dtype=np.int32),
        np.array(cluster.bandwidth, dtype=np.float64),
    )


def _ranks_of(stage_of_rank: np.ndarray, count: int, cluster: Cluster) -> list[tuple[int, ...]]:
    """The workers of each stage. On one level the busy ones come first."""
    busy = np.flatnonzero(stage_of_rank >= 0)
    shift = int(busy[0]) if len(cluster.workers) == 1 else 0
    return [
        tuple(int(rank) - shift for rank in np.flatnonzero(stage_of_rank == stage))
        for stage in range(count)
    ]


def _bound(profile: Profile, cluster: Cluster, overlap: bool) -> float:
    """No plan is faster: all compute over all workers; a layer alone, replicated at will."""
    fastest = max(cluster.link(0, 0), 0.0)
    replicas = np.arange(1, cluster.size + 1)
    bound = math.fsum(layer.compute for layer in profile.layers) / cluster.size
    for layer in profile.layers:
        compute = layer.compute / replicas
        reduce = 2.0 * (replicas - 1) / replicas * layer.parameters / fastest / replicas
        time = np.maximum(compute, reduce) if overlap else compute + reduce
        bound = max(bound, float(time.min()))
    return bound


def _best(
    profile: Profile,
    cluster: Cluster,
    memory: float,
    count: int,
    *,
    overlap: bool,
    optimizer: float,
    straight_pipeline: bool,
    max_states: int,
    minimise_memory: bool = False,
) -> Plan | None:
    """The best plan, or None where nothing fits."""
    found = _core.partition_plan(
        *_arrays(profile, cluster),
        overlap,
        minimise_memory,
        1 if straight_pipeline else 0,
        count,
        max_states,
        memory,
        optimizer,
    )
    if found == "too many states":
        raise ValueError(
            f"{len(profile)} layers for {cluster} are too much for the search's memory; take "
            "several layers together or fewer workers, or leave out memory or stages"
        )
    if found == "infeasible":
        return None
    stage_of_layer, stage_of_rank, num_stages, states, exact, _ = found
    ranks = _ranks_of(stage_of_rank, num_stages, cluster)
    made = evaluate(
        profile, cluster, stage_of_layer.tolist(), ranks, overlap=overlap, optimizer=optimizer
    )
    time = max(stage.time for stage in made)
    return Plan(
        profile=profile,
        cluster=cluster,
        stages=made,
        time=time,
        bound=time if exact else _bound(profile, cluster, overlap),
        exact=bool(exact),
        states=states,
        overlap=overlap,
        memory_limit=None if memory == math.inf else memory,
        name="straight pipeline" if straight_pipeline else "pipedream",
        settings=(
            ("memory", memory),
            ("overlap", overlap),
            ("optimizer", optimizer),
            ("straight_pipeline", straight_pipeline),
            ("max_states", max_states),
            ("stages", count),
        ),
    )


def _why_infeasible(
    profile: Profile, cluster: Cluster, memory: float, count: int, settings: dict[str, Any]
) -> str:
    """Name the stage that binds in the plan that needs the least memory."""
    least = _best(profile, cluster, math.inf, count, minimise_memory=True, **settings)
    if least is None:
        return f"there is no way to cut this graph into {count} stages on {cluster}"
    largest = max(range(len(least.stages)), key=lambda s: least.stages[s].memory)
    stage = least.stages[largest]
    name = profile.layers[stage.layers[0]].name
    return (
        f"no plan fits in memory={memory:g} bytes a worker: the one that needs least "
        f"({least.config}) needs {stage.memory:.6g} on stage {largest} (layers "
        f"{spans(stage.layers, '..')}, from {name!r}; {stage.versions} versions of "
        f"{stage.weights:.6g} bytes of weights and {stage.activations:.6g} of activations), "
        f"{stage.memory - memory:.6g} bytes too many"
    )


def _published(
    profile: Profile,
    cluster: Cluster,
    memory: float,
    straight: bool,
    fewer: bool,
    ratio: float | None,
) -> Plan:
    compressed = 0.0 if ratio is None else _positive("activation_compression_ratio", ratio)
    found = _core.partition_compat(
        *_arrays(profile, cluster), straight, fewer, memory, compressed, _COMPAT_STATES
    )
    if found == "infeasible":
        raise ValueError(
            f"the published program finds no partition of {len(profile)} layers for {cluster} "
            f"with memory={memory:g} and straight_pipeline={straight}, and stops with a "
            "TypeError; use fewer workers, more memory, or the default model, which says what "
            "is missing"
        )
    if found == "missing value":
        raise ValueError(
            f"the published program stops with a TypeError here: with use_fewer_machines it "
            f"compares a time with that of fewer machines, which does not fit in memory={memory:g};"
            " leave use_fewer_machines out, or take the default model"
        )
    if found == "too many states":
        raise ValueError(
            f"this graph has more than {_COMPAT_STATES} antichains, for which the published "
            "program would not end; the default model puts such layers in line"
        )
    stage_of_layer, stage_of_rank, count, states, _, objective = found
    # Layers that only feed what is before the last state stay with the last stage.
    stage_of_layer[stage_of_layer < 0] = count - 1
    ranks = _ranks_of(stage_of_rank, count, cluster)
    made = evaluate(profile, cluster, stage_of_layer.tolist(), ranks, overlap=True, optimizer=1.0)
    return Plan(
        profile=profile,
        cluster=cluster,
        stages=made,
        time=objective,
        bound=objective,
        states=states,
        memory_limit=None if memory == math.inf else memory,
        name="pipedream's published program",
    )


# ---- plans to compare with -----------------------------------------------------------------


def baselines(
    profile: Profile,
    workers: SupportsIndex | Sequence[SupportsIndex],
    bandwidth: float | Sequence[float],
    *,
    overlap: bool = True,
    optimizer: float = 1.0,
) -> dict[str, Plan]:
    """The plans that PipeDream's paper compares with, under the same model.

    Parameters
    ----------
    profile : Profile
        The model.
    workers : int or sequence of int
        As in :func:`partition`.
    bandwidth : float or sequence of float
        As in :func:`partition`.
    overlap : bool
        As in :func:`partition`.
    optimizer : float
        As in :func:`partition`.

    Returns
    -------
    dict of str to Plan
        ``"data parallel"``: one stage on all workers. ``"straight pipeline"``: no
        stage is replicated. ``"model parallel"``: the same stages with one mini-batch
        at a time. ``"hybrid"``: two or three stages of which some are replicated, with
        one mini-batch a replica at a time; absent where no stage has room for two.

    Examples
    --------
    >>> import pipesched as ps
    >>> layers = [ps.Layer("conv", 0.01, 0.02, 1e6, 1e6), ps.Layer("fc", 0.004, 0.006, 1e5, 4e8)]
    >>> plans = ps.baselines(ps.Profile(layers), workers=4, bandwidth=1e9)
    >>> [(name, round(plan.time * 1e3, 3)) for name, plan in plans.items()]
    [('data parallel', 150.375), ('straight pipeline', 30.0), ('model parallel', 42.0), \
('hybrid', 22.0)]
    """
    _need_profile(profile)
    cluster = _cluster(workers, bandwidth)
    settings: dict[str, Any] = {
        "overlap": bool(overlap),
        "optimizer": _not_negative("optimizer", optimizer),
    }
    everyone = [tuple(range(cluster.size))]
    plans = {
        "data parallel": _fixed(profile, cluster, [0] * len(profile), everyone, **settings),
    }
    straight = partition(
        profile, cluster.workers, cluster.bandwidth, straight_pipeline=True, **settings
    )
    plans["straight pipeline"] = straight
    plans["model parallel"] = _fixed(
        profile,
        cluster,
        straight.stage_of_layer,
        [stage.ranks for stage in straight.stages],
        pipelined=False,
        **settings,
    )
    hybrid = _hybrid(profile, cluster, **settings)
    if hybrid is not None:
        plans["hybrid"] = hybrid
    return {name: replace(plan, name=name) for name, plan in plans.items()}


def _fixed(
    profile: Profile,
    cluster: Cluster,
    stage_of_layer: Sequence[int],
    ranks: Sequence[Sequence[int]],
    *,
    overlap: bool,
    optimizer: float,
    pipelined: bool = True,
) -> Plan:
    """A given partition as a plan."""
    made = evaluate(
        profile,
        cluster,
        stage_of_layer,
        ranks,
        overlap=overlap,
        optimizer=optimizer,
        pipelined=pipelined,
    )
    time = max(stage.time for stage in made) if pipelined else _one_at_a_time(made, overlap)
    return Plan(
        profile=profile,
        cluster=cluster,
        stages=made,
        time=time,
        bound=min(time, _bound(profile, cluster, overlap)),
        overlap=overlap,
        pipelined=pipelined,
    )


def _one_at_a_time(stages: Sequence[PlanStage], overlap: bool) -> float:
    """Without a pipeline a mini-batch walks through all stages and borders in turn; only
    the all-reduce may hide behind that."""
    walk = math.fsum(stage.compute + stage.receive for stage in stages)
    reduce = max(stage.reduce for stage in stages)
    return max(walk, reduce) if overlap else walk + reduce


def _hybrid(profile: Profile, cluster: Cluster, *, overlap: bool, optimizer: float) -> Plan | None:
    """Replicated stages that wait for each other; None where there is room for no replica."""
    found = []
    for count in range(2, min(3, cluster.size - 1, len(profile)) + 1):
        plan = partition(
            profile,
            cluster.workers,
            cluster.bandwidth,
            stages=count,
            overlap=overlap,
            optimizer=optimizer,
        )
        if max(plan.replicas) > 1:
            ranks = [stage.ranks for stage in plan.stages]
            found.append(
                _fixed(
                    profile,
                    cluster,
                    plan.stage_of_layer,
                    ranks,
                    overlap=overlap,
                    optimizer=optimizer,
                    pipelined=False,
                )
            )
    return min(found, key=lambda plan: plan.time, default=None)


# ---- why this plan -------------------------------------------------------------------------


def explain(plan: Plan) -> str:
    """Text for `Plan.explain`."""
    stage = plan.stages[plan.binding]
    time = f"{plan.time * 1e3:.6g} ms a mini-batch"
    if not plan.pipelined:
        time += ", through all stages in turn"
    elif plan.time != stage.time:  # the published program's model is another
        time += f" by the published program, {stage.time * 1e3:.6g} ms by the default model"
    lines = [
        f"{plan.config}: {time}; stage {plan.binding} (layers {spans(stage.layers, '..')}) "
        f"{'binds' if plan.pipelined else 'is the slowest'} by its {stage.binds}: "
        f"compute {stage.compute * 1e3:.6g} ms, all-reduce {stage.reduce * 1e3:.6g} ms, "
        f"transfers {(stage.receive + stage.send) * 1e3:.6g} ms"
    ]
    if plan.settings:
        for step, word in ((-1, "fewer"), (1, "more")):
            lines.append(f"one stage {word}: {_neighbour(plan, len(plan.stages) + step)}")
        if len(plan.cluster.workers) == 1 and plan.cluster.size > 1:
            lines.append(f"one worker fewer: {_with_workers(plan, plan.cluster.size - 1)}")
    if plan.idle:
        lines.append(f"{len(plan.idle)} of {plan.cluster.size} workers stay idle{_why_idle(plan)}")
    return "\n".join(lines)


def _why_idle(plan: Plan) -> str:
    if not plan.settings:  # a plan to compare with, which nobody searched for
        return ""
    count = dict(plan.settings)["stages"]
    what = "plan" if count == 0 else f"plan of {count} stage{'s' if count > 1 else ''}"
    return f": no {what} that uses them is faster{'' if plan.exact else ', of those tried'}"


def _search_again(plan: Plan, cluster: Cluster, count: int) -> Plan | None:
    search: dict[str, Any] = dict(plan.settings)
    memory = search.pop("memory")
    del search["stages"]
    return _best(plan.profile, cluster, memory, count, **search)


def _difference(plan: Plan, other: Plan) -> str:
    stage = other.stages[other.binding]
    if plan.time > 0.0:
        change = other.time / plan.time - 1.0
    else:
        change = math.inf if other.time > 0.0 else 0.0
    than = "no slower and no faster" if abs(change) < 1e-9 else f"{change:+.1%}"
    return (
        f"at best {other.time * 1e3:.6g} ms ({other.config}, {than}): stage "
        f"{other.binding} binds by its {stage.binds}"
    )


def _neighbour(plan: Plan, count: int) -> str:
    if count < 1:
        return "there is one stage only"
    if count > min(len(plan.profile), plan.cluster.size):
        return "there are no more layers or workers"
    other = _search_again(plan, plan.cluster, count)
    return "nothing fits" if other is None else _difference(plan, other)


def _with_workers(plan: Plan, count: int) -> str:
    stages = dict(plan.settings)["stages"]
    other = _search_again(plan, Cluster((count,), plan.cluster.bandwidth), stages)
    return "nothing fits" if other is None else _difference(plan, other)
