"""What each op and each transfer of a pipeline takes, and what each op holds in memory."""

from __future__ import annotations

import operator
import sys
from typing import Any

import numpy as np

from pipesched._arrays import frozen, number_array

__all__ = ["Costs"]

_LINKS = ("free", "serial")

# What one value of an argument stands for, for the messages.
_PER_STAGE = "one value a stage"
_PER_BOUNDARY = "one value a boundary (stages - 1)"
_PER_MICROBATCH = "one value a micro-batch"


def _checked(name: str, value: Any, axes: str) -> float | np.ndarray:
    """A cost as the attribute keeps it: a float, or a read-only array of one or two axes."""
    if type(value) in (int, float) and 0 <= value <= sys.float_info.max:
        return float(value) + 0.0  # almost every cost: no array is made of it
    array = number_array(name, value)
    if array.ndim > 2:
        raise ValueError(
            f"{name} must be a number, a 1-D array ({axes}) or a 2-D array "
            f"(a batch of cost vectors first), got {array.ndim} dimensions"
        )
    bad = ~(np.isfinite(array) & (array >= 0))
    if bad.any():
        where = np.unravel_index(int(bad.argmax()), array.shape)
        at = f" at index {', '.join(str(int(i)) for i in where)}" if array.ndim else ""
        raise ValueError(f"{name} must be finite and not negative, got {array[where]!s}{at}")
    if array.ndim == 0:
        return float(array)
    return frozen(array)


def _frozen(value: float | np.ndarray) -> float | np.ndarray:
    """A computed cost, read-only like the given ones."""
    if isinstance(value, np.ndarray):
        return frozen(value)
    return float(value)


def _doubled(value: float | np.ndarray) -> float | np.ndarray:
    return _finite("backward (2 * forward)", _combine(np.add, value, value))


def _combine(
    operation: Any, left: float | np.ndarray, right: float | np.ndarray
) -> float | np.ndarray:
    """Elementwise, where a per-stage vector may meet a batch of vectors."""
    try:
        with np.errstate(over="ignore"):
            return _frozen(operation(left, right))
    except ValueError:
        raise ValueError(
            "backward_input and backward_weight must have one length, "
            f"got shapes {np.shape(left)} and {np.shape(right)}"
        ) from None


def _finite(name: str, value: float | np.ndarray) -> float | np.ndarray:
    if not np.all(np.isfinite(value)):
        raise ValueError(f"{name} is infinite: the given costs are too large for a 64-bit float")
    return value


def _check_length(name: str, value: float | np.ndarray, length: int, axes: str) -> None:
    """Raise ValueError where the value does not fill a last axis of ``length`` entries."""
    if not isinstance(value, np.ndarray) or value.shape[-1] == length:
        return
    given = value.shape[-1]
    if value.ndim == 1 or given != 1:
        raise ValueError(
            f"{name} must have {length} entries ({axes}) for this schedule, got {given}"
        )


class Costs:
    """Times and bytes of a pipeline, for :meth:`Schedule.simulate`.

    Every numeric argument is a number (the same everywhere) or a 1-D array with one value a
    stage (a boundary, a micro-batch); any consistent units of time and memory will do. A 2-D
    array has a batch of ``K`` cost vectors on its first axis (its second axis may be 1: one
    number for all stages); such costs are simulated together, see
    :class:`~pipesched.timeline.Timelines`. All times and bytes are finite and not negative.

    Parameters
    ----------
    forward : float or array, default 1.0
        Time of ``F``, per stage.
    backward : float or array, optional
        Time of the full backward ``B``, per stage; ``2 * forward`` by default. ``I`` and ``W``
        take half of it each where they stand apart.
    backward_input, backward_weight : float or array, optional
        Times of ``I`` and ``W``, given together and in place of `backward`; ``B`` is their sum.
    overlap : float or array, optional
        Time of an overlapped pair, per stage of the pair's forward; of two micro-batches of
        different scale, the larger scale counts. By default the sum of the pair's two ops.
    transfer : float or array, default 0.0
        Time of a transfer of activations over the boundary from stage ``s`` to ``s + 1``
        (``stages - 1`` values). Two stages on one rank need no transfer.
    transfer_backward : float or array, optional
        Time of a transfer of gradients from stage ``s + 1`` to ``s``; default: `transfer`.
    microbatch_scale : array, optional
        One factor a micro-batch on its times, transfers and activation bytes (variable
        lengths). Default: 1 each.
    activation : float or array, default 1.0
        Bytes held from the start of ``F`` to the end of ``B`` or ``I``.
    activation_kept : float or array, optional
        Bytes still held from the end of ``I`` to the end of ``W``; default: `activation`.
    static : float or array, default 0.0
        Bytes of a stage on every rank that holds it (weights, gradients, optimizer).
    link : {"free", "serial"}, default "free"
        ``"free"``: transfers do not disturb each other. ``"serial"``: one transfer at a time
        from one rank to another, in the sender's order.

    Notes
    -----
    The attributes have the names of the arguments, with the defaults filled in. They are floats
    or read-only arrays.

    Examples
    --------
    >>> costs = Costs(forward=[1.0, 2.0], transfer=0.5)
    >>> costs.backward
    array([2., 4.])
    >>> costs.backward_weight
    array([1., 2.])
    >>> Costs(forward=-1.0)
    Traceback (most recent call last):
        ...
    ValueError: forward must be finite and not negative, got -1.0
    """

    __slots__ = (
        "activation",
        "activation_kept",
        "backward",
        "backward_input",
        "backward_weight",
        "batch",
        "forward",
        "link",
        "microbatch_scale",
        "overlap",
        "static",
        "transfer",
        "transfer_backward",
    )

    forward: float | np.ndarray
    backward: float | np.ndarray
    backward_input: float | np.ndarray
    backward_weight: float | np.ndarray
    overlap: float | np.ndarray | None
    transfer: float | np.ndarray
    transfer_backward: float | np.ndarray
    microbatch_scale: np.ndarray | None
    activation: float | np.ndarray
    activation_kept: float | np.ndarray
    static: float | np.ndarray
    link: str
    batch: int | None
    """Number of cost vectors, where they are a batch; else None."""

    def __init__(
        self,
        forward: Any = 1.0,
        backward: Any = None,
        *,
        backward_input: Any = None,
        backward_weight: Any = None,
        overlap: Any = None,
        transfer: Any = 0.0,
        transfer_backward: Any = None,
        microbatch_scale: Any = None,
        activation: Any = 1.0,
        activation_kept: Any = None,
        static: Any = 0.0,
        link: str = "free",
    ) -> None:
        if (backward_input is None) != (backward_weight is None):
            given, missing = "backward_input", "backward_weight"
            if backward_input is None:
                given, missing = missing, given
            raise ValueError(f"{given} is given without {missing}: give both, or backward alone")
        if backward is not None and backward_input is not None:
            raise ValueError(
                "backward is given together with backward_input and backward_weight: "
                "give the two parts, or their sum as backward"
            )
        if not isinstance(link, str):
            raise TypeError(f"link must be 'free' or 'serial', got {type(link).__name__}")
        if link not in _LINKS:
            raise ValueError(f"link must be 'free' or 'serial', got {link!r}")

        def put(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        put("link", link)
        put("forward", _checked("forward", forward, _PER_STAGE))
        if backward_input is None:
            if backward is None:
                put("backward", _doubled(self.forward))
            else:
                put("backward", _checked("backward", backward, _PER_STAGE))
            half = _frozen(self.backward * 0.5)
            put("backward_input", half)
            put("backward_weight", half)
        else:
            put("backward_input", _checked("backward_input", backward_input, _PER_STAGE))
            put("backward_weight", _checked("backward_weight", backward_weight, _PER_STAGE))
            both = _combine(np.add, self.backward_input, self.backward_weight)
            put("backward", _finite("backward_input + backward_weight", both))
        put("overlap", None if overlap is None else _checked("overlap", overlap, _PER_STAGE))
        put("transfer", _checked("transfer", transfer, _PER_BOUNDARY))
        if transfer_backward is None:
            put("transfer_backward", self.transfer)
        else:
            put(
                "transfer_backward",
                _checked("transfer_backward", transfer_backward, _PER_BOUNDARY),
            )
        put("microbatch_scale", None)
        if microbatch_scale is not None:
            scale = _checked("microbatch_scale", microbatch_scale, _PER_MICROBATCH)
            if not isinstance(scale, np.ndarray):
                raise ValueError(
                    f"microbatch_scale must have one value a micro-batch, got the number {scale}; "
                    "scale the costs themselves where it is the same for all"
                )
            put("microbatch_scale", scale)
        put("activation", _checked("activation", activation, _PER_STAGE))
        if activation_kept is None:
            put("activation_kept", self.activation)
        else:
            put("activation_kept", _checked("activation_kept", activation_kept, _PER_STAGE))
        put("static", _checked("static", static, _PER_STAGE))
        put("batch", self._batch_size())

    def _batch_size(self) -> int | None:
        sizes = {
            name: value.shape[0]
            for name, value in self._arguments().items()
            if isinstance(value, np.ndarray) and value.ndim == 2
        }
        if not sizes:
            return None
        if len(set(sizes.values())) > 1:
            text = ", ".join(f"{name} {size}" for name, size in sizes.items())
            raise ValueError(f"the batch axes of the costs must have one length, got {text}")
        return next(iter(sizes.values()))

    def _numbers(self) -> list[tuple[str, Any]]:
        return [(name, getattr(self, name)) for name in self.__slots__ if name not in _WORDS]

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"Costs is frozen: make new ones instead of setting {name!r}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"Costs is frozen: {name!r} cannot be deleted")

    def _arguments(self) -> dict[str, Any]:
        """The arguments that make these costs again, without the defaults."""
        # Halves of one backward are one object; two given parts never are.
        if self.backward_input is self.backward_weight:
            found: dict[str, Any] = {"forward": self.forward, "backward": self.backward}
        else:
            found = {
                "forward": self.forward,
                "backward_input": self.backward_input,
                "backward_weight": self.backward_weight,
            }
        defaults = {
            "overlap": None,
            "transfer": 0.0,
            "transfer_backward": self.transfer,
            "microbatch_scale": None,
            "activation": 1.0,
            "activation_kept": self.activation,
            "static": 0.0,
            "link": "free",
        }
        for name, default in defaults.items():
            value = getattr(self, name)
            if not _same(value, default):
                found[name] = value
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return (_make, (self._arguments(),))

    def __repr__(self) -> str:
        parts = []
        for name, value in self._arguments().items():
            if isinstance(value, np.ndarray):
                text = np.array2string(value, separator=", ", threshold=12, edgeitems=3)
                value = " ".join(text.split())
            else:
                value = repr(value)
            parts.append(f"{name}={value}")
        return f"Costs({', '.join(parts)})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Costs):
            return NotImplemented
        return all(_same(getattr(self, name), getattr(other, name)) for name in self.__slots__)

    def __hash__(self) -> int:
        given = [value for _, value in self._numbers() if value is not None]
        return hash((self.link, *((np.shape(value), float(np.sum(value))) for value in given)))

    def __getitem__(self, index: int) -> Costs:
        """Cost vector ``index`` of a batch, as costs of their own.

        Examples
        --------
        >>> Costs(forward=[[1.0], [3.0]])[1]
        Costs(forward=3.0, backward=6.0)
        """
        if self.batch is None:
            raise TypeError("these costs are not a batch: none of them has two axes")
        index = operator.index(index)
        if not -self.batch <= index < self.batch:
            raise IndexError(f"cost vector {index} of a batch of {self.batch}")
        picked = {}
        for name, value in self._arguments().items():
            if isinstance(value, np.ndarray) and value.ndim == 2:
                value = value[index]
                if value.shape[0] == 1 and name != "microbatch_scale":
                    value = float(value[0])
            picked[name] = value
        return Costs(**picked)

    def tables(self, num_stages: int, num_microbatches: int) -> dict[str, Any]:
        """The costs of a model of that shape as plain arrays, the form that the core reads.

        Parameters
        ----------
        num_stages, num_microbatches : int
            The schedule's.

        Returns
        -------
        dict
            ``times`` (4, stages): of F, B, I, W; ``overlap`` (stages,) or None; ``transfers``
            (2, stages): onward from each stage, and of gradients back into each stage (the last
            entries are 0); ``scale`` (micro-batches,) or None; ``memory`` (3, stages):
            activation, activation_kept, static. With a batch axis in front of all that where
            :attr:`batch` is set.

        Raises
        ------
        TypeError, ValueError
            A count is no int of at least 1, or an array has not one value a stage, boundary or
            micro-batch.

        Examples
        --------
        >>> Costs(forward=1.0, transfer=0.5).tables(3, 2)["transfers"]
        array([[0.5, 0.5, 0. ],
               [0.5, 0.5, 0. ]])
        """

        for count, given in (("num_stages", num_stages), ("num_microbatches", num_microbatches)):
            if operator.index(given) < 1:
                raise ValueError(f"{count} must be at least 1, got {given}")

        for name, value in self._arguments().items():  # what is given, not what follows from it
            if name.startswith("transfer"):
                _check_length(name, value, num_stages - 1, _PER_BOUNDARY)
            elif name == "microbatch_scale":
                _check_length(name, value, num_microbatches, _PER_MICROBATCH)
            else:
                _check_length(name, value, num_stages, _PER_STAGE)
        batch = () if self.batch is None else (self.batch,)

        def stack(*names: str, length: int = num_stages, beyond: int = 0) -> np.ndarray:
            table = np.zeros((*batch, len(names), length + beyond))
            for i, name in enumerate(names):
                table[..., i, :length] = getattr(self, name)
            return table

        def row(name: str, length: int) -> np.ndarray | None:
            if getattr(self, name) is None:
                return None
            return stack(name, length=length).reshape(*batch, length)

        return {
            "times": stack("forward", "backward", "backward_input", "backward_weight"),
            "overlap": row("overlap", num_stages),
            "transfers": stack("transfer", "transfer_backward", length=num_stages - 1, beyond=1),
            "scale": row("microbatch_scale", num_microbatches),
            "memory": stack("activation", "activation_kept", "static"),
        }


_WORDS = ("link", "batch")


def _same(left: Any, right: Any) -> bool:
    """Equal in value and shape."""
    if left is right:
        return True
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        return np.shape(left) == np.shape(right) and bool(np.array_equal(left, right))
    return bool(left == right)


def _make(arguments: dict[str, Any]) -> Costs:
    return Costs(**arguments)
