"""Profiles on disk: PipeDream's and DAPPLE's text, and pipesched's JSON.

PipeDream's text: a line that starts with a TAB is an edge ``SRC -- DST``, any
other is a node ``ID -- DESCRIPTION -- forward_compute_time=F, ...``. Times are
milliseconds there and seconds in a :class:`~pipesched.Profile`; they are moved by
three decimal places, not divided, so that a file survives reading and writing.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import fields
from decimal import Decimal
from pathlib import Path
from typing import Any

from pipesched._names import no_such
from pipesched.profile import Layer, Profile

__all__ = ["read_profile", "write_profile"]

_FIELDS = {
    "forward_compute_time": "forward",
    "backward_compute_time": "backward",
    "activation_size": "activation",
    "parameter_size": "parameters",
}
_TIMES = ("forward_compute_time", "backward_compute_time")
_FORMAT = "pipesched-profile"
_KEYS = tuple(field.name for field in fields(Layer))
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")


class _Fault(ValueError):
    """A fault in a file, with its place in front."""


def read_profile(path: str | os.PathLike[str]) -> Profile:
    """Read a profile: PipeDream's or DAPPLE's text, or pipesched's JSON.

    Nodes may stand in any order. Sources named ``Input*`` are left out (their
    time is that of loading data), and so are sinks named ``__getitem__*`` (an
    element of an output that nobody uses).

    Parameters
    ----------
    path : path
        The file; JSON where its first character that is not blank is ``{``.

    Returns
    -------
    Profile
        With the name of the file, or of its directory where it is ``graph.txt``.

    Raises
    ------
    ValueError
        With the line of the fault.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import pipesched as ps
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "small.txt"
    >>> _ = path.write_text(
    ...     "node1 -- Linear(in_features=4) -- forward_compute_time=1.5, "
    ...     "backward_compute_time=3, activation_size=[64; 32], parameter_size=1024\\n"
    ... )
    >>> ps.read_profile(path).layers[0].forward
    0.0015
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: a profile is text in UTF-8, and this is not: {error}") from None
    if text.lstrip().startswith("{"):
        return _from_json(text, path)
    name = path.parent.name if path.stem == "graph" and path.parent.name else path.stem
    return _from_text(text, path, name)


def write_profile(
    profile: Profile, path: str | os.PathLike[str], format: str | None = None
) -> None:
    """Write a profile as pipesched's JSON or as PipeDream's text.

    Parameters
    ----------
    profile : Profile
        What to write. PipeDream's text holds no name of the model, and nothing of what was
        measured beyond PipeDream's own four quantities; read back from it, the layers of a graph
        stand depth first, whatever their order was.
    path : path
        The file to make or replace.
    format : {"json", "pipedream"}, optional
        By default JSON where the path ends in ``.json``, else PipeDream's text.

    Returns
    -------
    None

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import pipesched as ps
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "small.json"
    >>> profile = ps.Profile([ps.Layer("conv", 0.01, 0.02), ps.Layer("fc", 0.01, 0.02)])
    >>> ps.write_profile(profile, path)
    >>> ps.read_profile(path) == profile
    True
    """
    if not isinstance(profile, Profile):
        raise TypeError(f"profile must be a pipesched.Profile, got {type(profile).__name__}")
    if format is None:
        format = "json" if str(path).endswith(".json") else "pipedream"
    if format == "json":
        text = _to_json(profile)
    elif format == "pipedream":
        text = _to_text(profile)
    else:
        raise ValueError(f"format must be 'json' or 'pipedream', got {format!r}")
    Path(path).write_text(text, encoding="utf-8")


# --- PipeDream's text ---------------------------------------------------------------------


def _number(text: str, where: str) -> Decimal:
    text = text.strip()
    if text.lstrip("+-").lower() in ("nan", "inf", "infinity"):
        raise _Fault(f"{where} must be finite and not negative, got {text!r}")
    if not _DECIMAL.fullmatch(text):
        raise _Fault(f"{where} must be a number, got {text!r}")
    value = Decimal(text)
    if value < 0 or float(value) == float("inf"):
        raise _Fault(f"{where} must be finite and not negative, got {text!r}")
    return abs(value)  # no negative zero


def _amount(text: str, where: str) -> Decimal:
    """A number, or a list ``[x; y; z]`` that is summed."""
    text = text.strip()
    if not text.startswith("["):
        return _number(text, where)
    if not text.endswith("]"):
        raise _Fault(f"{where}: the list {text!r} does not end with ']'")
    inside = text[1:-1].strip()
    parts = inside.split(";") if inside else []
    total = sum((_number(part, where) for part in parts), Decimal(0))
    if float(total) == float("inf"):
        raise _Fault(f"{where}: the sum of {text} is too large")
    return total


def _node(line: str) -> tuple[str, Layer]:
    parts = line.split(" -- ")
    if len(parts) not in (3, 4):
        raise _Fault(
            "a node is 'ID -- DESCRIPTION -- forward_compute_time=F, backward_compute_time=B, "
            f"activation_size=A, parameter_size=P', got {len(parts)} parts between ' -- '"
        )
    identity, description, fields = parts[0].strip(), parts[1].strip(), parts[2]
    if not identity:
        raise _Fault("a node needs a name before its first ' -- '")
    if len(parts) == 4 and not re.fullmatch(r"stage_id=[0-9]+", parts[3].strip()):
        raise _Fault(f"the fourth part of a node is 'stage_id=N', got {parts[3].strip()!r}")
    values: dict[str, float] = {}
    for item in fields.split(", "):
        key, equals, amount = item.strip().partition("=")
        if not equals or key not in _FIELDS:
            raise _Fault(f"unknown field {item.strip()!r}; the fields are {', '.join(_FIELDS)}")
        if _FIELDS[key] in values:
            raise _Fault(f"the field {key} stands twice")
        value = _amount(amount, key)
        values[_FIELDS[key]] = float(value.scaleb(-3) if key in _TIMES else value)
    missing = [key for key, name in _FIELDS.items() if name not in values]
    if missing:
        raise _Fault(f"node {identity!r} has no {', '.join(missing)}")
    return identity, Layer(description, **values)


def _edge(line: str) -> tuple[str, str]:
    ends = line.strip().split(" -- ")
    if len(ends) != 2:
        raise _Fault(f"an edge is 'SRC -- DST' after a TAB, got {line.strip()!r}")
    return ends[0].strip(), ends[1].strip()


def _from_text(text: str, path: Path, name: str) -> Profile:
    nodes: dict[str, Layer] = {}
    edges: dict[tuple[str, str], int] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            if line.startswith("\t"):
                edge = _edge(line)
                if edge in edges:
                    raise _Fault(f"the edge {edge[0]} -- {edge[1]} stands twice")
                edges[edge] = number
            else:
                identity, layer = _node(line)
                if identity in nodes:
                    raise _Fault(f"the node {identity!r} stands twice")
                nodes[identity] = layer
        except _Fault as fault:
            raise ValueError(f"{path}, line {number}: {fault}") from None
    for (source, target), number in edges.items():
        for end in (source, target):
            if end not in nodes:
                raise ValueError(f"{path}, line {number}: the edge names {end!r}, which no line is")
    if not nodes:
        raise ValueError(f"{path}: no node in the file")
    keep, links = _without_ends(nodes, list(edges))
    if not keep:
        raise ValueError(f"{path}: only Input* and unused __getitem__* nodes in the file")
    position = {identity: i for i, identity in enumerate(keep)}
    pairs = [(position[a], position[b]) for a, b in links]
    order = _depth_first([nodes[identity].name for identity in keep], pairs)
    if len(order) < len(keep):
        a, b = links[_closing_edge(pairs, len(keep))]
        raise ValueError(
            f"{path}, line {edges[a, b]}: the edge {a} -- {b} is part of a circle of edges"
        )
    place = {old: new for new, old in enumerate(order)}
    return Profile(
        [nodes[keep[old]] for old in order], [(place[a], place[b]) for a, b in pairs], name=name
    )


def _without_ends(
    nodes: dict[str, Layer], edges: list[tuple[str, str]]
) -> tuple[list[str], list[tuple[str, str]]]:
    """Drop sources named Input* (loading data), then sinks named __getitem__* (unused)."""
    fed = {target for _, target in edges}
    inputs = {i for i, node in nodes.items() if i not in fed and node.name.startswith("Input")}
    edges = [edge for edge in edges if edge[0] not in inputs]
    feeding = {source for source, _ in edges}
    unused = {
        i
        for i, node in nodes.items()
        if i not in feeding and i not in inputs and node.name.startswith("__getitem__")
    }
    edges = [edge for edge in edges if edge[1] not in unused]
    return [i for i in nodes if i not in inputs and i not in unused], edges


def _depth_first(names: list[str], edges: list[tuple[int, int]]) -> list[int]:
    """The order of the layers: each branch to its end before the next one.

    The successors of a node are followed by name, as PipeDream's program does it:
    published partitions of the chain refer to this order. Shorter than `names`
    where the edges close a circle.
    """
    feeds: list[list[int]] = [[] for _ in names]
    waits = [0] * len(names)
    for source, target in edges:
        feeds[source].append(target)
        waits[target] += 1
    for targets in feeds:
        targets.sort(key=lambda node: (names[node], node))
    finished: list[int] = []
    entered: set[int] = set()
    left: set[int] = set()
    for root in reversed([node for node in range(len(names)) if waits[node] == 0]):
        entered.add(root)
        path = [(root, iter(feeds[root]))]
        while path:
            node, rest = path[-1]
            for target in rest:
                if target not in entered:
                    entered.add(target)
                    path.append((target, iter(feeds[target])))
                    break
                if target not in left:  # the path bites its own tail
                    return []
            else:
                path.pop()
                left.add(node)
                finished.append(node)
    return finished[::-1]


def _closing_edge(pairs: list[tuple[int, int]], count: int) -> int:
    """The last of the edges of a circle: walk back from node to node until one returns."""
    fed_by: list[list[int]] = [[] for _ in range(count)]
    waits = [0] * count
    feeds: list[list[int]] = [[] for _ in range(count)]
    for source, target in pairs:
        fed_by[target].append(source)
        feeds[source].append(target)
        waits[target] += 1
    ready = [node for node in range(count) if waits[node] == 0]
    while ready:
        for target in feeds[ready.pop()]:
            waits[target] -= 1
            if waits[target] == 0:
                ready.append(target)
    node = next(i for i in range(count) if waits[i])  # on a circle or behind one
    path: list[int] = []
    while node not in path:
        path.append(node)
        node = next(source for source in fed_by[node] if waits[source])
    circle = path[path.index(node) :]
    edges = {(circle[(i + 1) % len(circle)], target) for i, target in enumerate(circle)}
    return max(i for i, pair in enumerate(pairs) if pair in edges)


def _plain(value: float, shift: int = 0) -> str:
    """The shortest decimal for a float, moved by some places, without an exponent."""
    return format(Decimal(repr(value)).scaleb(shift), "f")


def _survives(name: str, fed: bool, feeding: bool) -> bool:
    """Whether a layer of this name comes back when PipeDream's text is read."""
    return (
        " -- " not in f" {name} "
        and not re.search(r"[\r\n]", name)
        and name == name.strip()
        and (fed or not name.startswith("Input"))
        and (feeding or not name.startswith("__getitem__"))
    )


def _to_text(profile: Profile) -> str:
    lines = []
    fed = {target for _, target in profile.edges}
    feeding = {source for source, _ in profile.edges}
    for i, layer in enumerate(profile.layers, start=1):
        if not _survives(layer.name, i - 1 in fed, i - 1 in feeding):
            raise ValueError(
                f"layer {layer.name!r}: PipeDream's text cannot hold ' -- ', a line break or "
                "blanks at the ends of a name, and layers named Input* that nobody feeds or "
                "__getitem__* that feed nobody are left out when it is read; rename the layer or "
                "write JSON"
            )
        lines.append(
            f"node{i} -- {layer.name} -- forward_compute_time={_plain(layer.forward, 3)}, "
            f"backward_compute_time={_plain(layer.backward, 3)}, "
            f"activation_size={_plain(layer.activation)}, "
            f"parameter_size={_plain(layer.parameters)}"
        )
    lines += [f"\tnode{a + 1} -- node{b + 1}" for a, b in profile.edges]
    return "\n".join(lines) + "\n"


# --- JSON ---------------------------------------------------------------------------------


def _to_json(profile: Profile) -> str:
    data: dict[str, Any] = {"format": _FORMAT, "version": 1, "name": profile.name}
    data["layers"] = [
        {key: value for key in _KEYS if (value := getattr(layer, key)) is not None}
        for layer in profile.layers
    ]
    if not profile.is_chain:
        data["edges"] = [list(edge) for edge in profile.edges]
    return json.dumps(data, indent=1) + "\n"


def _from_json(text: str, path: Path) -> Profile:
    try:
        data = json.loads(text, object_pairs_hook=_once_each)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}, line {error.lineno}: {error.msg}") from None
    except RecursionError:
        raise ValueError(f"{path}: nested too deeply for a profile") from None
    except ValueError as error:  # a key twice, or a number of thousands of digits
        raise ValueError(f"{path}: {error}") from None
    if data.get("format") != _FORMAT or data.get("version") != 1:
        raise ValueError(
            f'{path}: expected "format": "{_FORMAT}" and "version": 1, got '
            f"{data.get('format')!r} and {data.get('version')!r}"
        )
    rows = data.get("layers")
    if not isinstance(rows, list):
        raise ValueError(f'{path}: "layers" must be a list, got {type(rows).__name__}')
    layers = []
    for i, row in enumerate(rows):
        try:
            layers.append(_json_layer(row))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path}: layers[{i}]: {error}") from None
    edges = data.get("edges")
    if edges is not None and not isinstance(edges, list):
        raise ValueError(f'{path}: "edges" must be a list, got {type(edges).__name__}')
    try:
        return Profile(layers, edges, name=data.get("name", path.stem))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} stands twice in one object")
    return found


def _json_layer(row: Any) -> Layer:
    if not isinstance(row, dict):
        raise TypeError(f"a layer is an object, got {type(row).__name__}")
    for key in row:
        if key not in _KEYS:
            raise ValueError(no_such("key", key, _KEYS))
    for key in ("name", "forward", "backward"):
        if key not in row:
            raise ValueError(f"a layer needs the key {key!r}")
    return Layer(**row)
