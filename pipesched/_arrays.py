"""Arrays that are given away for reading only."""

from __future__ import annotations

import numpy as np

__all__ = ["frozen"]


def frozen(array: np.ndarray) -> np.ndarray:
    """The same memory as an array that nobody can make writeable, not by its base either."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return np.frombuffer(flat.data.toreadonly(), dtype=array.dtype).reshape(array.shape)
