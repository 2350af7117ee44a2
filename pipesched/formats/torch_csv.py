"""Schedule files of torch's pipeline runtime, `torch.distributed.pipelining`.

One row for each rank, no header; cells between commas, an empty cell is an idle slot. There are
two formats, compute only and compute with sends and receives, and two dialects: files from before
December 2024 write `B` for the input gradient and `BW` for the full backward.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from pipesched.schedule import Schedule

__all__ = ["read_torch_csv", "write_torch_csv"]


def read_torch_csv(path: str | PathLike[str], dialect: str = "auto") -> Schedule:
    """Read a schedule file of torch's pipeline runtime.

    Spaces around words, blank cells, rows of different lengths, any line ending and a byte-order
    mark are fine; nothing in the file is trusted. The schedule is not checked: see
    `Schedule.check`.

    Parameters
    ----------
    path : path
        The file.
    dialect : {"auto", "new", "old"}
        What `B` means: the full backward ("new"), or the input gradient, with `BW` for the full
        backward ("old", before December 2024). By default a `BW`, or `B` and `W` without any `I`,
        gives the old words away.

    Returns
    -------
    Schedule
        Named after the file. Sends and receives are in it if they are in the file.

    Raises
    ------
    OSError
        Where the file cannot be read.
    ValueError
        Where a cell is not an action, or stands twice: the error names row, column and content.

    Examples
    --------
    >>> import pathlib, tempfile, pipesched as ps
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "old.csv")
    ...     _ = path.write_text("0F0,0F1,0B0,0W0,0BW1")
    ...     ps.read_torch_csv(path).rows()
    [['0F0', '0F1', '0I0', '0W0', '0B1']]
    """
    file = Path(path)
    return parse_torch_csv(file.read_bytes(), file.stem, dialect)


def parse_torch_csv(content: bytes, name: str, dialect: str = "auto") -> Schedule:
    """Read the content of a schedule file; see `read_torch_csv`."""
    return Schedule._from_text(content, name, dialect)


def write_torch_csv(schedule: Schedule, path: str | PathLike[str], comms: bool) -> None:
    """Write the schedule; see `Schedule.to_torch_csv`."""
    Path(path).write_text(format_torch_csv(schedule, comms), encoding="ascii", newline="\n")


def format_torch_csv(schedule: Schedule, comms: bool) -> str:
    """Return the content of the schedule's file; see `Schedule.to_torch_csv`."""
    if not comms:
        schedule = schedule.without_comms()
    elif not schedule.has_comms:
        schedule = schedule.lower()
    text = schedule._to_text()
    # A rank without work is a row of two blank cells: an empty line could be taken for none.
    return "\n".join(line or "," for line in text.split("\n")[:-1]) + "\n"
