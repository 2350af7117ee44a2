"""The first of the three nouns: a schedule, for each rank the ordered list of its ops."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pipesched._arrays import frozen
from pipesched.check import ScheduleError, check_form

if TYPE_CHECKING:
    from os import PathLike

    import numpy.typing as npt
    from matplotlib.axes import Axes

    from pipesched.costs import Costs
    from pipesched.formats.torch_report import TorchReport

__all__ = ["OP_DTYPE", "Schedule"]

#: One op, 12 bytes: what the C core reads and writes.
OP_DTYPE = np.dtype([("stage", "=i4"), ("microbatch", "=i4"), ("kind", "=i2"), ("fuse", "=i2")])

_FIELDS = ("stage", "microbatch", "kind", "fuse")
_FIRST_SEND, _FIRST_STAGE_WIDE = 4, 8
_INT32_MAX = 2**31 - 1


class Schedule:
    """For each rank, the ordered list of its ops. Order only, no times. Immutable.

    Make one by name with `pipesched.generate`, by hand with `Schedule.from_rows`, from a file with
    `pipesched.read_torch_csv`, or from arrays with `Schedule.from_arrays`. A Schedule is always
    well-formed (every number is in range, every overlapped pair has two members); whether it is a
    *legal* schedule, complete and free of deadlock, is what `check` tells.

    Placement is not stored: (stage, micro-batch) lives on the rank where its forward stands.

    Examples
    --------
    >>> import pipesched as ps
    >>> s = ps.Schedule.from_rows([["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]])
    >>> s
    <Schedule 'custom': 2 ranks, 2 stages, 2 micro-batches, 8 ops>
    >>> s.placement
    ((0,), (1,))
    >>> s.rows()[1]
    ['1F0', '1B0', '1F1', '1B1']
    """

    __slots__ = (
        "__weakref__",
        "_is_legal",
        "_name",
        "_num_microbatches",
        "_num_stages",
        "_offsets",
        "_ops",
    )

    _ops: np.ndarray
    _offsets: npt.NDArray[np.int64]
    _num_stages: int
    _num_microbatches: int
    _name: str
    _is_legal: bool

    def __init__(self) -> None:
        raise TypeError(
            "make a Schedule with pipesched.generate(name, p, m), Schedule.from_rows(rows) or "
            "Schedule.from_arrays(ops, offsets, num_stages, num_microbatches)"
        )

    @classmethod
    def _wrap(
        cls,
        ops: np.ndarray,
        offsets: np.ndarray,
        num_stages: int,
        num_microbatches: int,
        name: str,
    ) -> Schedule:
        """Take over arrays that this package made itself: no copy, no check."""
        if not isinstance(name, str):
            raise TypeError(f"name must be a str, got {type(name).__name__}")
        self = object.__new__(cls)
        self._put("_ops", frozen(ops))
        self._put("_offsets", frozen(offsets))
        self._put("_num_stages", num_stages)
        self._put("_num_microbatches", num_microbatches)
        self._put("_name", name)
        self._put("_is_legal", False)  # not known yet
        return self

    def _put(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Schedule is immutable: {name!r} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a Schedule is immutable: {name!r} cannot be deleted")

    @classmethod
    def from_arrays(
        cls,
        ops: np.ndarray,
        offsets: np.ndarray,
        num_stages: int,
        num_microbatches: int,
        name: str = "custom",
    ) -> Schedule:
        """Make a schedule from the arrays of the one representation, which are copied.

        Parameters
        ----------
        ops : structured array
            One record an op, rank by rank, in order, with the fields `stage`, `microbatch`, `kind`
            (an index into `pipesched.KINDS`) and `fuse` (1: runs together with the next op of the
            rank as one overlapped pair).
        offsets : array of int
            p + 1 entries; rank r's ops are ``ops[offsets[r]:offsets[r + 1]]``.
        num_stages, num_microbatches : int
            What `stage` and `microbatch` count up to. `microbatch` is -1 for `UNSHARD`, `RESHARD`
            and `REDUCE_GRAD`, which belong to a stage as a whole.
        name : str
            For people; it does not count in comparisons.

        Raises
        ------
        TypeError
            Where an argument is not such an array or number.
        ScheduleError
            Where an op is out of range or an overlapped pair does not have two members.

        Examples
        --------
        >>> import numpy as np, pipesched as ps
        >>> ops = np.zeros(2, ps.OP_DTYPE)
        >>> ops["microbatch"] = [0, 1]
        >>> ps.Schedule.from_arrays(ops, [0, 2], 1, 2).rows()
        [['0F0', '0F1']]
        """
        num_stages = _count("num_stages", num_stages)
        num_microbatches = _count("num_microbatches", num_microbatches)
        own_offsets = _own_offsets(offsets)
        own_ops = _own_ops(ops)
        if own_offsets[-1] != len(own_ops):
            raise ValueError(
                f"offsets must end at the number of ops, {len(own_ops)}, got {own_offsets[-1]}"
            )
        self = cls._wrap(own_ops, own_offsets, num_stages, num_microbatches, name)
        return check_form(self)

    @classmethod
    def from_rows(
        cls, rows: Iterable[str | Iterable[str | None]], name: str = "custom"
    ) -> Schedule:
        """Make a schedule from torch's action words, one row a rank.

        Parameters
        ----------
        rows : iterable
            For each rank a list of words, or one string of words between commas or spaces. A word
            is stage, kind and micro-batch (`"2F0"`, `"0SEND_F1"`, `"1UNSHARD"`), or an overlapped
            pair (`"(0F7;7B3)OVERLAP_F_B"`). `None` and `""` are idle slots, which are left out.
        name : str
            For people; it does not count in comparisons.

        Raises
        ------
        ValueError
            Where a cell is not a word, naming row, column and content.

        Examples
        --------
        >>> import pipesched as ps
        >>> ps.Schedule.from_rows(["0F0 0F1", ",1F0,1F1"]).rows()
        [['0F0', '0F1'], ['1F0', '1F1']]
        """
        from pipesched.words import parse_rows

        return parse_rows(rows, name)

    @classmethod
    def _from_text(cls, text: bytes, name: str, dialect: str) -> Schedule:
        """Read a file's text: rows of words, in any dialect; what `formats` are made of."""
        from pipesched.words import parse_text

        return parse_text(text, name, dialect)

    def _to_text(self) -> str:
        """The schedule as text: words between commas, one line for each rank."""
        from pipesched.words import format_text

        return format_text(self)

    @property
    def ops(self) -> np.ndarray:
        """One record an op, rank by rank, in order; read-only, of dtype `OP_DTYPE`."""
        return self._ops

    @property
    def offsets(self) -> np.ndarray:
        """Rank r's ops are ``ops[offsets[r]:offsets[r + 1]]``; read-only int64, p + 1 entries."""
        return self._offsets

    @property
    def p(self) -> int:
        """Number of ranks."""
        return len(self._offsets) - 1

    @property
    def num_stages(self) -> int:
        """Number of stages of the model, over all ranks."""
        return self._num_stages

    @property
    def num_microbatches(self) -> int:
        """Number of micro-batches of the batch."""
        return self._num_microbatches

    @property
    def name(self) -> str:
        """What the schedule is called; it does not count in comparisons."""
        return self._name

    @property
    def placement(self) -> tuple[tuple[int, ...], ...]:
        """The stages of each rank, ascending: those whose forwards stand there."""
        return tuple(_distinct(ops["stage"][ops["kind"] == 0]) for ops in self)

    @property
    def has_comms(self) -> bool:
        """Whether sends and receives are in the schedule (see `lower`)."""
        kind = self._ops["kind"]
        return bool(((kind >= _FIRST_SEND) & (kind < _FIRST_STAGE_WIDE)).any())

    def rows(self) -> list[list[str]]:
        """The schedule in torch's action words, one list a rank; an overlapped pair is one word.

        Examples
        --------
        >>> import pipesched as ps
        >>> ps.Schedule.from_rows(["0F0 (0F1;0B0)OVERLAP_F_B 0B1"]).rows()
        [['0F0', '(0F1;0B0)OVERLAP_F_B', '0B1']]
        """
        from pipesched.words import format_rows

        return format_rows(self)

    def check(self, blocking: bool = False) -> Schedule:
        """Return the schedule itself if it is complete, legal and free of deadlock.

        Parameters
        ----------
        blocking : bool
            How sends behave where they are in the schedule: by default they are buffered (a send
            never waits); with `blocking`, a send waits until its receive is reached.

        Raises
        ------
        ScheduleError
            With `.fault`: what is wrong, on which rank, at which op; for a deadlock, the whole
            waiting cycle.

        Examples
        --------
        >>> import pipesched as ps
        >>> ps.Schedule.from_rows(["0F0 0B0", "1B0 1F0"]).check()
        Traceback (most recent call last):
            ...
        pipesched.check.ScheduleError: rank 1, op 0: 1B0 before its forward 1F0 (op 1)
        """
        # What is legal where sends block is legal where they are buffered, and stays so.
        if blocking or not self._is_legal:
            from pipesched.check import check

            check(self, blocking)
            self._put("_is_legal", True)
        return self

    def lower(self) -> Schedule:
        """Return the schedule with its sends and receives, in an order that cannot deadlock.

        Every transfer between two ranks becomes a `SEND` after the op that produces it and a
        `RECV` before the op that needs it, such that no rank ever waits in a circle, whether sends
        are buffered or block. Sends and receives that are there already are replaced.

        Examples
        --------
        >>> import pipesched as ps
        >>> ps.Schedule.from_rows(["0F0 0B0", "1F0 1B0"]).lower().rows()[1]
        ['1RECV_F0', '1F0', '1B0', '1SEND_B0']
        """
        from pipesched.lower import lower

        return lower(self)

    def without_comms(self) -> Schedule:
        """Return the schedule without its sends and receives; itself where it has none.

        Examples
        --------
        >>> import pipesched as ps
        >>> s = ps.Schedule.from_rows(["0F0 0B0", "1F0 1B0"])
        >>> s.lower().without_comms() == s
        True
        """
        kind, fuse = self._ops["kind"], self._ops["fuse"] != 0
        comms = (kind >= _FIRST_SEND) & (kind < _FIRST_STAGE_WIDE)
        if not comms.any():
            return self
        if (comms & fuse).any() or (comms[1:] & fuse[:-1]).any():
            self.check()  # which refuses a send or receive in an overlapped pair
        before = np.concatenate([[0], np.cumsum(~comms)])
        ops, offsets = self._ops[~comms], before[self._offsets]
        return self._wrap(ops, offsets, self._num_stages, self._num_microbatches, self._name)

    def simulate(self, costs: Costs | None = None, threads: int | None = None) -> Any:
        """Return the timeline of the schedule under `costs`.

        The schedule is checked first. From a batch of costs come `Timelines`: the sums only.

        Parameters
        ----------
        costs : Costs
            What ops and transfers take and hold; by default ``Costs()``: 1 for a forward, 2 for
            a backward, nothing for a transfer.
        threads : int
            How many threads share a batch of costs; by default one for each CPU. The results do
            not depend on it.

        Returns
        -------
        Timeline or Timelines

        Raises
        ------
        ScheduleError
            The schedule is not legal; see `check`.
        ValueError
            The costs have not one value a stage, boundary or micro-batch of this schedule.
        OverflowError
            Times or bytes leave the range of a 64-bit float.

        Examples
        --------
        >>> import pipesched as ps
        >>> t = ps.generate("1f1b", p=4, m=8).simulate(ps.Costs(forward=1, backward=2))
        >>> t.makespan, t.bubble_ratio, t.peak_activations.tolist()
        (33.0, 0.375, [4, 3, 2, 1])
        """
        from pipesched.simulate import simulate

        return simulate(self, costs, threads)

    def table(self) -> np.ndarray:
        """Return the slot table in unit time: int64 of shape (p, slots), -1 where a rank idles.

        Every compute op takes one slot, transfers take none, and a cell holds the micro-batch. An
        overlapped pair takes two slots in a row, starts when both of its members can and ends as
        one. ``numpy.asarray(schedule)`` is this table.

        Examples
        --------
        >>> import pipesched as ps
        >>> ps.Schedule.from_rows(["0F0 0F1", "1F0 1F1"]).table()
        array([[ 0,  1, -1],
               [-1,  0,  1]])
        """
        from pipesched.lower import table

        return table(self)

    def to_torch_csv(self, path: str | PathLike[str], comms: bool = False) -> None:
        """Write the schedule as a file for torch's pipeline runtime.

        Parameters
        ----------
        path : path
            The file to write.
        comms : bool
            Write the sends and receives too (those of the schedule, or of `lower` where it has
            none). By default they are left out, and torch puts in its own.

        Examples
        --------
        >>> import os, tempfile, pipesched as ps
        >>> s = ps.Schedule.from_rows(["0F0 0B0", "1F0 1B0"])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "s.csv")
        ...     s.to_torch_csv(path)
        ...     ps.read_torch_csv(path) == s
        True
        """
        from pipesched.formats.torch_csv import write_torch_csv

        write_torch_csv(self, path, comms)

    def torch_report(self) -> TorchReport:
        """Tell whether torch's pipeline runtime loads and runs the schedule, and if not, why.

        torch is not needed for it. The answer is for the file that `to_torch_csv` writes: with
        its transfers where the schedule holds transfers, without where it does not.

        Returns
        -------
        TorchReport
            True in a condition where torch runs the schedule; with `.reasons`, each with its op,
            where it does not, and `.notes` on what torch does otherwise.

        Examples
        --------
        >>> import pipesched as ps
        >>> print(ps.Schedule.from_rows(["0F0 0F1 0B0"]).torch_report())
        torch does not load this schedule (format compute_only):
          stage 0 has backwards of 1 of the 2 micro-batches; 0B1 is missing
        """
        from pipesched.formats.torch_report import torch_report

        return torch_report(self)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw `simulate()` with matplotlib, see `Timeline.plot`."""
        return self.simulate().plot(ax)

    def __len__(self) -> int:
        return len(self._ops)

    def __getitem__(self, rank: int) -> np.ndarray:
        """The ops of one rank, a read-only view."""
        try:
            r = range(self.p)[operator.index(rank)]
        except IndexError:
            raise IndexError(f"rank must be in 0..{self.p - 1}, got {rank}") from None
        return self._ops[self._offsets[r] : self._offsets[r + 1]]

    def __iter__(self) -> Iterator[np.ndarray]:
        """The ops of each rank in turn."""
        return (self[rank] for rank in range(self.p))

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("the slot table of a schedule is made on demand: it is always a copy")
        return self.table().astype(dtype or np.int64, copy=False)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schedule):
            return NotImplemented
        return (
            self._num_stages == other._num_stages
            and self._num_microbatches == other._num_microbatches
            and np.array_equal(self._offsets, other._offsets)
            and np.array_equal(self._ops.view(np.uint8), other._ops.view(np.uint8))
        )

    def __hash__(self) -> int:
        shape = (self._num_stages, self._num_microbatches, tuple(self._offsets.tolist()))
        import hashlib  # slow to load, and few schedules are hashed

        content = hashlib.blake2b(self._ops.view(np.uint8).data, digest_size=8).digest()
        return hash((*shape, content))

    def __reduce__(self) -> tuple:
        state = (self._ops, self._offsets, self._num_stages, self._num_microbatches, self._name)
        return Schedule.from_arrays, state

    def __str__(self) -> str:
        """The drawing of ``simulate()`` (F 1, B 2); what is wrong where that cannot run."""
        try:
            return str(self.simulate())
        except ScheduleError as error:
            return f"{self!r}\nit cannot run: {error}"

    def _repr_html_(self) -> str:
        try:
            return self.simulate()._repr_html_()
        except ScheduleError:
            from html import escape

            return f"<pre>{escape(str(self))}</pre>"

    def __repr__(self) -> str:
        counts = [
            (self.p, "rank"),
            (self._num_stages, "stage"),
            (self._num_microbatches, "micro-batch"),
            (len(self), "op"),
        ]
        text = ", ".join(f"{n} {word}{_plural(word, n)}" for n, word in counts)
        return f"<Schedule {self._name!r}: {text}>"


def _distinct(numbers: np.ndarray) -> tuple[int, ...]:
    """The numbers in order, each once; np.unique would import half of NumPy for it."""
    ordered = np.sort(numbers)
    is_first = np.ones(len(ordered), dtype=bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    return tuple(ordered[is_first].tolist())


def _plural(word: str, n: int) -> str:
    if n == 1:
        return ""
    return "es" if word.endswith("ch") else "s"


def _count(argument: str, value: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{argument} must be an int, got {type(value).__name__}") from None
    if not 1 <= number <= _INT32_MAX:
        raise ValueError(f"{argument} must be in 1..{_INT32_MAX}, got {number}")
    return number


def _own_offsets(offsets: Sequence[int] | np.ndarray) -> np.ndarray:
    given = np.asarray(offsets)
    if given.ndim != 1 or given.dtype.kind not in "iu":
        raise TypeError(f"offsets must be a 1-D array of int, got {given.ndim}-D of {given.dtype}")
    if given.dtype == np.uint64 and (given > np.uint64(2**63 - 1)).any():
        raise ValueError("offsets must not be above 2**63 - 1")
    own = np.array(given, dtype=np.int64)
    if not 2 <= len(own) <= _INT32_MAX:
        raise ValueError(f"offsets must have p + 1 entries for p >= 1 ranks, got {len(own)}")
    if own[0] != 0 or (own[1:] < own[:-1]).any():
        raise ValueError("offsets must start at 0 and must not fall")
    return own


def _own_ops(ops: np.ndarray) -> np.ndarray:
    given = np.asarray(ops)
    if given.ndim != 1 or given.dtype.names != _FIELDS:
        raise TypeError(
            f"ops must be a 1-D array with the fields {', '.join(_FIELDS)}, "
            f"got {given.ndim}-D of {given.dtype}"
        )
    if given.dtype == OP_DTYPE:
        return np.array(given, dtype=OP_DTYPE)
    own = np.empty(len(given), OP_DTYPE)
    for field in _FIELDS:
        column = given[field]
        if column.ndim != 1 or column.dtype.kind not in "iu":
            raise TypeError(f"ops[{field!r}] must be a 1-D array of int, got {column.dtype}")
        bounds = np.iinfo(own[field].dtype)
        if ((column < bounds.min) | (column > bounds.max)).any():
            raise ValueError(f"ops[{field!r}] must be in {bounds.min}..{bounds.max}")
        own[field] = column
    return own
