"""Numbers that are taken, and arrays that are given away for reading only."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import numpy as np

__all__ = ["frozen", "number", "number_array"]


def frozen(array: np.ndarray) -> np.ndarray:
    """The same memory as an array that nobody can make writeable, not by its base either."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return np.frombuffer(flat.data.toreadonly(), dtype=array.dtype).reshape(array.shape)


def number(name: str, value: Any) -> float:
    """A float; of an int that no float can hold, infinity. Text is no number."""
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        return float(value)
    except OverflowError:
        return math.inf
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number, got {value!r}") from None


def number_array(name: str, value: Any) -> np.ndarray:
    """``value`` as a fresh float64 array, or the error that names the argument."""
    wanted = f"{name} must be a number or an array of numbers"
    if isinstance(value, (str, bytes)):
        raise TypeError(f"{wanted}, got {value!r}")
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(f"{wanted}, got {type(value).__name__}: {error}") from None
    if array.dtype.kind == "O":
        for item in array.flat:
            if not isinstance(item, Real) or isinstance(item, bool):
                raise TypeError(f"{wanted}, got {type(item).__name__} in it")
    elif array.dtype.kind not in "iuf":
        raise TypeError(f"{wanted}, got {array.dtype} values")
    try:
        with np.errstate(over="ignore"):  # a long double beyond float64: infinite, said below
            return array.astype(np.float64) + 0.0  # no negative zero
    except (OverflowError, TypeError, ValueError) as error:
        raise ValueError(f"{name} must fit a 64-bit float: {error}") from None
