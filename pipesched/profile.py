"""A model's profile: what each layer costs and holds, as a chain or a graph."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from pipesched._arrays import number

if TYPE_CHECKING:
    from pipesched.costs import Costs

__all__ = ["Layer", "Profile"]

_QUANTITIES = ("forward", "backward", "activation", "parameters")
_MEASURED = ("backward_input", "backward_weight", "held")


@dataclass(frozen=True)
class Layer:
    """One layer: times in seconds a mini-batch, sizes in bytes.

    Parameters
    ----------
    name : str
        What the layer is.
    forward, backward : float
        Seconds of one mini-batch's forward and backward.
    activation : float
        Bytes of the layer's output for one mini-batch.
    parameters : float
        Bytes of the layer's weights.
    backward_input, backward_weight : float, optional
        Seconds of the two parts of the backward, where they were measured apart.
    held : float, optional
        Bytes that the layer keeps from its forward to its backward, where they were measured.

    Examples
    --------
    >>> import pipesched as ps
    >>> ps.Layer("conv", 0.01, 0.02, activation=8e6, parameters=1e6).compute
    0.03
    """

    name: str
    forward: float
    backward: float
    activation: float = 0.0
    parameters: float = 0.0
    backward_input: float | None = None
    backward_weight: float | None = None
    held: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise TypeError(f"a layer's name must be a str, got {self.name!r}")
        if (self.backward_input is None) != (self.backward_weight is None):
            raise ValueError(
                f"layer {self.name!r}: backward_input and backward_weight must be given together"
            )
        for quantity in (*_QUANTITIES, *_MEASURED):
            value = getattr(self, quantity)
            if value is None and quantity in _MEASURED:
                continue
            amount = number(f"layer {self.name!r}: {quantity}", value)
            if not (math.isfinite(amount) and amount >= 0):
                raise ValueError(
                    f"layer {self.name!r}: {quantity} must be finite and not negative, "
                    f"got {value!r}"
                )
            object.__setattr__(self, quantity, amount)

    @property
    def compute(self) -> float:
        """Seconds of forward and backward together."""
        return self.forward + self.backward


@dataclass(frozen=True)
class Profile:
    """The layers of a model with their costs, as a chain or a directed graph.

    Parameters
    ----------
    layers : iterable of Layer
        In an order in which the model can run them.
    edges : iterable of (int, int), optional
        Which layer's output feeds which, as positions in `layers`; the first of
        a pair is always the smaller. Without it the layers are a chain.
    name : str
        The model's name.

    Examples
    --------
    >>> import pipesched as ps
    >>> profile = ps.Profile(
    ...     [ps.Layer("conv", 2.0, 4.0, activation=8e6), ps.Layer("fc", 1.0, 2.0, parameters=4e8)]
    ... )
    >>> profile.is_chain, len(profile), float(profile.compute.sum())
    (True, 2, 9.0)
    """

    layers: tuple[Layer, ...]
    edges: tuple[tuple[int, int], ...] = ()
    name: str = "profile"
    _chain: bool = field(init=False, repr=False, compare=False, default=True)

    def __init__(
        self,
        layers: Iterable[Layer],
        edges: Iterable[tuple[int, int]] | None = None,
        name: str = "profile",
    ) -> None:
        layers = tuple(layers)
        if not layers:
            raise ValueError("a profile needs at least 1 layer, got 0")
        for position, layer in enumerate(layers):
            if not isinstance(layer, Layer):
                raise TypeError(f"layers[{position}] must be a pipesched.Layer, got {layer!r}")
        chain = tuple((i, i + 1) for i in range(len(layers) - 1))
        edges = chain if edges is None else _checked_edges(edges, len(layers))
        object.__setattr__(self, "layers", layers)
        object.__setattr__(self, "edges", edges)
        object.__setattr__(self, "name", str(name))
        object.__setattr__(self, "_chain", edges == chain)

    def __len__(self) -> int:
        return len(self.layers)

    @property
    def is_chain(self) -> bool:
        """Whether each layer feeds the next one and no other."""
        return self._chain

    @property
    def forward(self) -> np.ndarray:
        """Seconds of each layer's forward."""
        return self._column("forward")

    @property
    def backward(self) -> np.ndarray:
        """Seconds of each layer's backward."""
        return self._column("backward")

    @property
    def compute(self) -> np.ndarray:
        """Seconds of each layer's forward and backward together."""
        return self._column("compute")

    @property
    def activation(self) -> np.ndarray:
        """Bytes of each layer's output."""
        return self._column("activation")

    @property
    def parameters(self) -> np.ndarray:
        """Bytes of each layer's weights."""
        return self._column("parameters")

    def _column(self, quantity: str) -> np.ndarray:
        return np.array([getattr(layer, quantity) for layer in self.layers], dtype=np.float64)

    def costs(
        self, cuts: Sequence[int], bandwidth: float | None = None, *, first_whole: bool = False
    ) -> Costs:
        """The costs of the stages that the layers of a chain are cut into.

        Parameters
        ----------
        cuts : sequence of int
            Stage s holds the layers ``cuts[s]`` to ``cuts[s + 1] - 1``, such as
            ``partition_balanced(profile, k).cuts``.
        bandwidth : float, optional
            Bytes a second between stages; without it transfers take no time.
        first_whole : bool
            Whether the first stage does its whole backward in ``W`` and nothing in ``I``, as
            torch's pipeline runtime has it, since nobody waits for its input's gradient.

        Returns
        -------
        Costs
            The profile's mini-batch being the schedule's micro-batch: times of the stages, the
            parts of a backward as measured or in halves, what a micro-batch holds (the output of
            each layer where nothing was measured), and weights and gradients as static bytes.

        Examples
        --------
        >>> import pipesched as ps
        >>> layers = [ps.Layer(str(i), 1.0, 2.0, activation=100, parameters=10) for i in range(5)]
        >>> ps.Profile(layers).costs([0, 2, 5], bandwidth=200)
        Costs(forward=[2., 3.], backward_input=[2., 3.], backward_weight=[2., 3.], \
transfer=[0.5], activation=[200., 300.], static=[40., 60.])
        """
        from pipesched.costs import Costs

        if not self.is_chain:
            raise ValueError("costs need a chain of layers, and this profile is a graph")
        bounds = [int(cut) for cut in cuts]
        if (
            len(bounds) < 2
            or bounds[0] != 0
            or bounds[-1] != len(self)
            or any(a >= b for a, b in pairwise(bounds))
        ):
            raise ValueError(
                f"cuts must rise from 0 to the number of layers, {len(self)}, got {bounds}"
            )
        if bandwidth is not None and not (math.isfinite(bandwidth) and bandwidth > 0):
            raise ValueError(f"bandwidth must be positive and finite, got {bandwidth!r}")
        into, weight, held = [], [], []
        for layer in self.layers:
            half = layer.backward / 2
            into.append(half if layer.backward_input is None else layer.backward_input)
            weight.append(half if layer.backward_weight is None else layer.backward_weight)
            held.append(layer.activation if layer.held is None else layer.held)
        starts = np.array(bounds[:-1])
        of_input = np.add.reduceat(into, starts)
        of_weight = np.add.reduceat(weight, starts)
        if first_whole:
            of_weight[0] = self.backward[: bounds[1]].sum()
            of_input[0] = 0.0
        crossing = self.activation[np.array(bounds[1:-1], dtype=int) - 1]
        return Costs(
            np.add.reduceat(self.forward, starts),
            backward_input=of_input,
            backward_weight=of_weight,
            transfer=0.0 if bandwidth is None or len(bounds) == 2 else crossing / bandwidth,
            activation=np.add.reduceat(held, starts),
            static=2 * np.add.reduceat(self.parameters, starts),
        )

    def __str__(self) -> str:
        return self.draw()

    def draw(self, width: int = 30) -> str:
        """The profile as text: one line a layer, a bar for its time.

        Parameters
        ----------
        width : int
            Columns of the longest bar.
        """
        compute = self.compute
        longest = float(compute.max()) or 1.0
        total = f"{len(self)} layers, {'a chain' if self.is_chain else f'{len(self.edges)} edges'}"
        lines = [
            f"{self.name}: {total}; {compute.sum() * 1e3:.6g} ms a mini-batch, "
            f"{self.parameters.sum() / 1e6:.6g} MB of weights",
            f"{'':>4} {'forward':>10} {'backward':>10} {'output':>10} {'weights':>10}",
            f"{'':>4} {'ms':>10} {'ms':>10} {'MB':>10} {'MB':>10}",
        ]
        for i, layer in enumerate(self.layers):
            bar = _bar(layer.forward, layer.backward, longest, width)
            lines.append(
                f"{i:>4} {layer.forward * 1e3:>10.3f} {layer.backward * 1e3:>10.3f} "
                f"{layer.activation / 1e6:>10.2f} {layer.parameters / 1e6:>10.2f}  "
                f"{bar:<{width}}  {_short(layer.name, 30)}"
            )
        lines.append("(bars: # forward, = backward)")
        return "\n".join(line.rstrip() for line in lines)

    def plot(self, ax: Any = None) -> Any:
        """Draw time, outputs and weights of every layer with matplotlib.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw the times; the bytes go on an axis of their own at the
            right. A new figure by default.

        Returns
        -------
        matplotlib.axes.Axes
        """
        from pipesched.draw.profile import plot_profile

        return plot_profile(self, ax)


def _checked_edges(edges: Iterable[tuple[int, int]], count: int) -> tuple[tuple[int, int], ...]:
    seen = set()
    if not isinstance(edges, Iterable):
        raise TypeError(f"edges must be pairs of layers, got {edges!r}")
    for position, edge in enumerate(edges):
        try:
            source, target = (operator.index(end) for end in edge)
        except (TypeError, ValueError):
            raise TypeError(f"edges[{position}] must be a pair of layers, got {edge!r}") from None
        if not 0 <= source < target < count:
            raise ValueError(
                f"edges[{position}] = ({source}, {target}): an edge leads from an earlier layer to "
                f"a later one, both between 0 and {count - 1}"
            )
        if (source, target) in seen:
            raise ValueError(f"edges[{position}] = ({source}, {target}) stands twice")
        seen.add((source, target))
    return tuple(sorted(seen))


def _bar(forward: float, backward: float, longest: float, width: int) -> str:
    """Two runs of characters whose joint length is the layer's share of the longest."""
    whole = round((forward + backward) / longest * width)
    first = round(forward / longest * width)
    return "#" * min(first, whole) + "=" * (whole - min(first, whole))


def _short(text: str, limit: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 3] + "..."
