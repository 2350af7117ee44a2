"""Which version of the weights each forward and backward of a schedule uses."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import wrap
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from pipesched._arrays import frozen, number_array
from pipesched._names import no_such
from pipesched.schedule import Schedule

__all__ = ["RULES", "WeightVersions", "weight_versions"]

#: What each rule does, in the order of their cost in memory.
RULES = {
    "flush": "all micro-batches use the same weights, which change at the flush",
    "naive": "weights change after every backward; each op takes the newest",
    "stash": "as naive, but a backward takes the version its forward took",
    "vertical-sync": "as stash, with the version that the first stage took, on all stages",
    "2bw": "gradients of several micro-batches make a version; each batch takes the last but one",
}

_F, _B, _I, _W = range(4)


@dataclass(frozen=True, eq=False)
class WeightVersions:
    """The versions of a schedule under a rule.

    A stage's version is the number of updates that its weights have seen.

    Attributes
    ----------
    schedule : Schedule
        The schedule.
    rule : str
        A key of ``pipesched.versions.RULES``.
    forward, backward : numpy.ndarray
        The version that F, and B or I, of (stage, micro-batch) take; int64 (S, m).
    applied_to : numpy.ndarray
        The version that the micro-batch's gradient is subtracted from; int64 (S, m).
    per_update : numpy.ndarray
        Micro-batches whose gradients make one update of a stage; int64 (S,). More than
        one where replicas reduce theirs together, or gradients are accumulated.
    held : numpy.ndarray
        The most versions that one rank holds of a stage at once; int64 (S,).
    weights : numpy.ndarray
        Bytes of one version of each stage; float64 (S,).

    Examples
    --------
    >>> import pipesched as ps
    >>> stash = ps.weight_versions(ps.generate("pipedream", 3, 5), "stash")
    >>> stash.forward.tolist()
    [[0, 0, 0, 1, 2], [0, 0, 1, 2, 3], [0, 1, 2, 3, 4]]
    >>> stash.held.tolist(), stash.passes_agree, stash.stages_agree
    ([3, 2, 1], True, False)
    """

    schedule: Schedule
    rule: str
    forward: np.ndarray
    backward: np.ndarray
    applied_to: np.ndarray
    per_update: np.ndarray
    held: np.ndarray
    weights: np.ndarray

    @property
    def staleness(self) -> np.ndarray:
        """Updates between the weights a forward took and those its gradient changes."""
        return self.applied_to - self.forward

    @property
    def passes_agree(self) -> bool:
        """Whether every backward takes the version its forward took."""
        return bool((self.forward == self.backward).all())

    @property
    def stages_agree(self) -> bool:
        """Whether each micro-batch sees weights of one age on all stages.

        Ages are compared in micro-batches, as stages may update at different paces.
        """
        age = self.forward * self.per_update[:, None]
        return bool((age == age[:1]).all()) and self.passes_agree

    @property
    def bytes(self) -> np.ndarray:
        """Bytes of the versions held, by stage."""
        return self.held * self.weights

    def __str__(self) -> str:
        return self.draw()

    def draw(self, width: int = 100) -> str:
        """The versions as text: a row a stage, a column a micro-batch.

        Parameters
        ----------
        width : int
            Columns of text; later micro-batches are left out.
        """
        cells = [
            [str(f) if f == b else f"{f}/{b}" for f, b in zip(fs, bs, strict=True)]
            for fs, bs in zip(self.forward.tolist(), self.backward.tolist(), strict=True)
        ]
        size = max(len(cell) for row in cells for cell in row)
        size = max(size, len(str(self.schedule.num_microbatches - 1))) + 1
        shown = max(1, min(self.schedule.num_microbatches, (width - 28) // size))
        more = " ..." if shown < self.schedule.num_microbatches else ""
        yes = {True: "agree", False: "differ"}
        prose = (
            f"{self.rule}: {RULES[self.rule]}",
            f"forward and backward {yes[self.passes_agree]}, stages {yes[self.stages_agree]}, "
            f"staleness up to {int(self.staleness.max())}",
        )
        lines = [
            *(part for text in prose for part in wrap(text, max(width, 20))),
            "micro-batch " + "".join(f"{j:>{size}}" for j in range(shown)) + more + "   held",
        ]
        for stage, row in enumerate(cells):
            text = "".join(f"{cell:>{size}}" for cell in row[:shown])
            lines.append(f"stage {stage:<6}{text}{more} {int(self.held[stage]):>6}")
        if not self.passes_agree:
            lines.append("(a/b: the forward takes version a, the backward version b)")
        return "\n".join(lines)


def weight_versions(
    schedule: Schedule,
    rule: str,
    *,
    accumulate: SupportsIndex | None = None,
    weights: npt.ArrayLike = 1.0,
) -> WeightVersions:
    """Which version of the weights every op of a schedule uses under a rule.

    Parameters
    ----------
    schedule : Schedule
        With a backward for every forward. Where several ranks share a stage they are
        replicas: each of their updates reduces one gradient of each.
    rule : {"flush", "naive", "stash", "vertical-sync", "2bw"}
        When weights change and which version an op takes.
    accumulate : int, optional
        Micro-batches an update of ``"2bw"``; by default the most that are in flight.
    weights : array_like
        Bytes of one version, one number or one a stage.

    Returns
    -------
    WeightVersions

    Raises
    ------
    ValueError
        A forward without its backward; or too few micro-batches an update for 2bw: a
        batch would start before the version it takes is there.

    Examples
    --------
    >>> import pipesched as ps
    >>> print(ps.weight_versions(ps.generate("pipedream", 3, 5), "naive"))
    naive: weights change after every backward; each op takes the newest
    forward and backward differ, stages differ, staleness up to 2
    micro-batch    0   1   2   3   4   held
    stage 0        0 0/1 0/2 1/3 2/4      1
    stage 1        0 0/1 1/2 2/3 3/4      1
    stage 2        0   1   2   3   4      1
    (a/b: the forward takes version a, the backward version b)
    """
    if not isinstance(schedule, Schedule):
        raise TypeError(f"schedule must be a pipesched.Schedule, got {type(schedule).__name__}")
    if rule not in RULES:
        raise ValueError(no_such("rule", rule, RULES))
    if accumulate is not None and rule != "2bw":
        raise ValueError(f"accumulate belongs to '2bw', got rule={rule!r}")
    schedule.check()
    size = _bytes_of(weights, schedule.num_stages)
    stages, m = schedule.num_stages, schedule.num_microbatches
    ranks = [_StageOnRank(stage, ops) for stage, ops in _stages_on_ranks(schedule)]
    replicas = np.bincount([place.stage for place in ranks], minlength=stages)
    forward, backward, applied_to = (np.zeros((stages, m), np.int64) for _ in range(3))
    per_update = np.array(replicas, np.int64)
    batch = m
    if rule == "flush":
        per_update[:] = m
    elif rule == "2bw":
        batch = _batch(accumulate, ranks, replicas)
        per_update[:] = batch
    for place in ranks:  # in the first pass the newest version of each op
        j = place.microbatch
        forward[place.stage, j] = place.updates_before(place.f)
        backward[place.stage, j] = place.updates_before(place.b)
        applied_to[place.stage, j] = place.updates_before(place.w)
    if rule == "flush":
        forward[:], backward[:], applied_to[:] = 0, 0, 0
    elif rule == "stash":
        backward = forward.copy()
    elif rule == "vertical-sync":
        admitted = forward[0] * per_update[0]
        forward = admitted[None, :] // per_update[:, None]
        backward = forward.copy()
    elif rule == "2bw":
        number = np.arange(m) // batch
        for place in ranks:
            place.check_batches(number[place.microbatch], batch)
        forward = np.tile(np.maximum(number - 1, 0), (stages, 1))
        backward = forward.copy()
        applied_to = np.tile(number, (stages, 1))
    held = np.ones(stages, np.int64)
    if rule not in ("flush", "naive"):
        for place in ranks:
            most = place.most_held(forward[place.stage], backward[place.stage], batch, rule)
            held[place.stage] = max(held[place.stage], most)
    arrays = (forward, backward, applied_to, per_update, held, size)
    return WeightVersions(schedule, rule, *map(frozen, arrays))


def _stages_on_ranks(schedule: Schedule) -> Iterator[tuple[int, np.ndarray]]:
    """The compute ops of each stage on each rank that holds it."""
    for ops in schedule:
        compute = ops[ops["kind"] <= _W]
        for stage in np.unique(compute["stage"]):
            yield int(stage), compute[compute["stage"] == stage]


class _StageOnRank:
    """One rank's ops of one stage: where each micro-batch's passes stand among them."""

    def __init__(self, stage: int, ops: np.ndarray) -> None:
        self.stage = stage
        kind, microbatch = ops["kind"], ops["microbatch"]
        self.length = len(ops)
        self.microbatch = np.sort(microbatch[kind == _F])
        self.f = self._places(kind == _F, microbatch)
        self.b = self._places((kind == _B) | (kind == _I), microbatch)
        self.w = self._places((kind == _B) | (kind == _W), microbatch)
        if not len(self.f) == len(self.b) == len(self.w):
            raise ValueError(
                f"stage {stage} has {len(self.f)} forwards and {len(self.w)} backwards: weight "
                "versions need a schedule that trains"
            )

    @staticmethod
    def _places(chosen: np.ndarray, microbatch: np.ndarray) -> np.ndarray:
        """Positions of the chosen ops in the order of their micro-batches."""
        places = np.flatnonzero(chosen)
        return places[np.argsort(microbatch[places], kind="stable")]

    def updates_before(self, places: np.ndarray) -> np.ndarray:
        """Weight gradients that were complete before each op: one update each."""
        done = np.sort(self.w)
        return np.searchsorted(done, places, side="left")

    def in_flight(self) -> int:
        """The most micro-batches between their forward and their weight gradient."""
        step = np.zeros(self.length, np.int64)
        step[self.f] += 1
        step[self.w] -= 1
        return int(np.cumsum(step).max())

    def check_batches(self, number: np.ndarray, batch: int) -> None:
        """Raise where a batch starts before the one but last has made its version."""
        for this in range(2, int(number[-1]) + 1 if len(number) else 0):
            starts, ends = self.f[number == this], self.w[number == this - 2]
            if len(starts) and len(ends) and starts.min() < ends.max():
                raise ValueError(
                    f"accumulate={batch}: stage {self.stage} starts batch {this} before batch "
                    f"{this - 2} has made the version it takes; accumulate at least as many "
                    "micro-batches as are in flight"
                )

    def most_held(self, forward: np.ndarray, backward: np.ndarray, batch: int, rule: str) -> int:
        """The most versions alive at once: the newest, and all that are still to be used.

        A version lives from the update that made it to its last use or until the next
        one is made; the places count the gaps before the ops.
        """
        made = np.sort(self.w)
        if rule == "2bw":  # a version is made by the last gradient of its batch
            number = self.microbatch // batch
            made = np.array(
                [self.w[number == b].max() for b in np.unique(number) if (number == b).any()],
                np.int64,
            )
        versions = len(made) + 1
        start = np.concatenate([[0], made + 1])
        stop = np.concatenate([made, [self.length]])
        for used, places in ((forward, self.f), (backward, self.b)):
            np.maximum.at(stop, np.minimum(used[self.microbatch], versions - 1), places)
        alive = np.zeros(self.length + 2, np.int64)
        np.add.at(alive, start, 1)
        np.add.at(alive, stop + 1, -1)
        # What is alive only behind the last op is of no use to this schedule.
        return int(np.cumsum(alive)[: self.length].max())


def _bytes_of(weights: npt.ArrayLike, stages: int) -> np.ndarray:
    size = number_array("weights", weights)
    if size.shape not in ((), (stages,)):
        raise ValueError(
            f"weights must be a number or one for each of the {stages} stages, got shape "
            f"{size.shape}"
        )
    bad = size[~(np.isfinite(size) & (size >= 0))]
    if bad.size:
        raise ValueError(f"weights must be finite and not negative, got {bad.flat[0]}")
    return np.broadcast_to(size, (stages,)).copy()


def _batch(accumulate: Any, ranks: list[_StageOnRank], replicas: np.ndarray) -> int:
    if accumulate is None:
        return max(int(place.in_flight() * replicas[place.stage]) for place in ranks)
    try:
        count = operator.index(accumulate)
    except TypeError:
        raise TypeError(f"accumulate must be an int, got {accumulate!r}") from None
    if count < 1:
        raise ValueError(f"accumulate must be at least 1, got {count}")
    return count
