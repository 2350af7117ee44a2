"""The exercise: GPipe's forward schedule and its bubble.

Takes the three functions from pipesched where it is installed. Where it is not,
the same in plain NumPy stands below, with the same signatures, results and errors.
"""

try:
    from pipesched import bubble_formula, bubble_fraction, gpipe_forward_schedule
except ImportError:
    import operator
    import sys

    import numpy as np

    def _count(name, value):
        """Return value as an int of at least 1, or raise an error that names it."""
        try:
            value = operator.index(value)
        except TypeError:
            kind = type(value).__name__
            raise TypeError(f"{name} must be an integer, got {kind}") from None
        if value < -(2**63):  # Python may refuse to print so long a number
            raise ValueError(f"{name} must be at least 1, got a number below -2**63")
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
        return value

    def gpipe_forward_schedule(p, m):
        """Return the int64 table of p ranks and m + p - 1 slots.

        Rank r works on micro-batch j in slot r + j; the other cells are -1.
        """
        p, m = _count("p", p), _count("m", m)
        slots = m + p - 1
        if p * slots > sys.maxsize // 8:
            raise OverflowError("p * (m + p - 1) cells of 8 bytes cannot be addressed")
        table = np.full((p, slots), -1, dtype=np.int64)
        for rank in range(p):
            table[rank, rank : rank + m] = np.arange(m)
        return table

    def bubble_fraction(schedule):
        """Return the part of a table's cells that are -1."""
        try:
            table = np.asarray(schedule)
        except ValueError:
            if isinstance(schedule, (list, tuple)):
                raise ValueError(
                    "schedule must be a table of ranks and slots, but its rows have "
                    "different lengths"
                ) from None
            raise
        if table.size == 0:
            raise ValueError(
                "schedule must have at least one rank and one slot, got an empty table"
            )
        if table.dtype.kind not in "iu":
            raise TypeError(
                "schedule must hold integers (micro-batches, or -1 where idle) of one "
                f"NumPy integer type, got {table.dtype}"
            )
        if table.ndim != 2:
            axes = "1 axis" if table.ndim == 1 else f"{table.ndim} axes"
            raise ValueError(f"schedule must have two axes, ranks and slots, got {axes}")
        idle = 0 if table.dtype.kind == "u" else int(np.count_nonzero(table == -1))
        return idle / table.size

    def bubble_formula(p, m):
        """Return (p - 1) / (m + p - 1)."""
        p, m = _count("p", p), _count("m", m)
        return (p - 1) / (m + p - 1)


if __name__ == "__main__":
    print(gpipe_forward_schedule(3, 2))
    print(bubble_fraction(gpipe_forward_schedule(3, 2)), bubble_formula(3, 2))
