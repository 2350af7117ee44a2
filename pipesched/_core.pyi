"""The C core. Checked against the module by `make lint`."""

from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

OP_DTYPE: np.dtype[Any]

def gpipe_forward_schedule(p: SupportsIndex, m: SupportsIndex) -> npt.NDArray[np.int64]: ...
def bubble_fraction(schedule: npt.ArrayLike) -> float: ...
def bubble_formula(p: SupportsIndex, m: SupportsIndex) -> float: ...
def _table_kernels(name: str | None = None, /) -> list[str]: ...
def families() -> tuple[
    tuple[
        str,
        str,
        str,
        str,
        str,
        str,
        tuple[tuple[str, int | None, int, list[str] | None, str], ...],
    ],
    ...,
]: ...
def generate(
    name: str, p: SupportsIndex, m: SupportsIndex, options: tuple[SupportsIndex | None, ...], /
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64], int, int, str | None]: ...
def check(schedule: Any, blocking: bool, /) -> Any: ...
def check_form(schedule: Any, /) -> Any: ...
def lower(schedule: Any, /) -> Any: ...
def slot_table(schedule: Any, /) -> Any: ...
def simulate(schedule: Any, tables: tuple[Any, ...], serial: bool, /) -> Any: ...
def simulate_batch(
    schedule: Any,
    tables: tuple[Any, ...],
    serial: bool,
    begin: int,
    stop: int,
    sums: npt.NDArray[np.float64],
    /,
) -> npt.NDArray[np.int64]: ...
def look_back(
    schedule: Any,
    tables: tuple[Any, ...],
    serial: bool,
    end: npt.NDArray[np.float64],
    cause: bool,
    /,
) -> Any: ...
def check_unique(schedule: Any, /) -> Any: ...
def parse_words(text: bytes, /) -> Any: ...
def format_words(schedule: Any, /) -> bytes: ...
def balance(
    costs: npt.ArrayLike,
    k: int,
    chunks: int,
    first: float,
    last: float,
    cut_bytes: npt.ArrayLike | None,
    /,
) -> tuple[npt.NDArray[np.int64], float, float]: ...
def partition_compat(
    compute: npt.ArrayLike,
    activation: npt.ArrayLike,
    parameters: npt.ArrayLike,
    edges: npt.ArrayLike,
    counts: npt.ArrayLike,
    bandwidth: npt.ArrayLike,
    straight: bool,
    fewer: bool,
    memory: float,
    compressed: float,
    limit: int,
    /,
) -> Any: ...
def partition_plan(
    compute: npt.ArrayLike,
    activation: npt.ArrayLike,
    parameters: npt.ArrayLike,
    edges: npt.ArrayLike,
    counts: npt.ArrayLike,
    bandwidth: npt.ArrayLike,
    overlap: bool,
    minimise_memory: bool,
    max_replicas: int,
    num_stages: int,
    limit: int,
    memory: float,
    optimizer: float,
    /,
) -> Any: ...
def replicated(
    replicas: npt.ArrayLike, in_flight: npt.ArrayLike, m: SupportsIndex, /
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]: ...
