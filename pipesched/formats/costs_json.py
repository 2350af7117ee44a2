"""Costs as a JSON object: the arguments of `Costs` by name, and a free ``"note"``."""

from __future__ import annotations

import inspect
import json
from os import PathLike
from typing import Any, TextIO

import numpy as np

from pipesched.costs import Costs
from pipesched.formats.streams import reading, writing

__all__ = ["read_costs", "write_costs"]


def read_costs(path: str | PathLike[str] | TextIO) -> Costs:
    """Read costs from a JSON file (or an open text stream).

    The file holds one object whose keys are arguments of `Costs`, with numbers or lists of
    numbers; the key ``"note"`` is for people and not read.

    Parameters
    ----------
    path : path or text stream
        What to read.

    Returns
    -------
    Costs

    Raises
    ------
    ValueError
        The file is not such an object; the message names the key.
    OSError
        The file cannot be read.

    Examples
    --------
    >>> import io
    >>> read_costs(io.StringIO('{"forward": [1, 2], "transfer": 0.5, "note": "by hand"}'))
    Costs(forward=[1., 2.], backward=[2., 4.], transfer=0.5)
    """
    where = str(path) if isinstance(path, (str, PathLike)) else "costs"
    with reading(path) as stream:
        try:
            text = stream.read()
        except UnicodeDecodeError as error:
            raise ValueError(f"{where}: not text in UTF-8: {error}") from None
    return _parse(text, where)


def write_costs(costs: Costs, path: str | PathLike[str] | TextIO, note: str | None = None) -> None:
    """Write costs as JSON; `read_costs` gives them back equal.

    Parameters
    ----------
    costs : Costs
        What to write.
    path : path or text stream
        Where to.
    note : str, optional
        How the costs were obtained, for people.

    Returns
    -------
    None

    Raises
    ------
    OSError
        The file cannot be written.

    Examples
    --------
    >>> import io
    >>> stream = io.StringIO()
    >>> write_costs(Costs(forward=[1, 2]), stream)
    >>> read_costs(io.StringIO(stream.getvalue())) == Costs(forward=[1, 2])
    True
    """
    if not isinstance(costs, Costs):
        raise TypeError(f"costs must be a pipesched.Costs, got {type(costs).__name__}")
    found: dict[str, Any] = {} if note is None else {"note": note}
    defaults = {"overlap": None, "microbatch_scale": None}
    for name in _arguments():
        if name == "backward":  # the sum of its two parts, which say more
            continue
        value = getattr(costs, name)
        if value is None and name in defaults:
            continue
        found[name] = value.tolist() if isinstance(value, np.ndarray) else value
    text = json.dumps(found, indent=1) + "\n"
    with writing(path) as stream:
        stream.write(text)


def _arguments() -> list[str]:
    return list(inspect.signature(Costs).parameters)


def _parse(text: str, where: str) -> Costs:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{where}: not JSON: {error}") from None
    except RecursionError:
        raise ValueError(f"{where}: nested too deeply for costs") from None
    if not isinstance(found, dict):
        raise ValueError(f"{where}: costs are one JSON object, got {type(found).__name__}")
    found.pop("note", None)
    known = _arguments()
    for key in found:
        if key not in known:
            raise ValueError(
                f"{where}: unknown key {key!r}; costs have {', '.join(known)} and note"
            )
    try:
        return Costs(**found)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from None
