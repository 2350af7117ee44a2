"""`split`: cut a list of layers into the modules of the stages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from numbers import Integral

from torch import nn

from pipesched.partition import partition_balanced
from pipesched.profile import Profile

__all__ = ["list_of_layers", "split"]


def list_of_layers(layers: nn.Sequential | Iterable[nn.Module]) -> list[nn.Module]:
    """The layers as a list; refused by name where they are no modules, or none at all."""
    if not isinstance(layers, Iterable):
        raise TypeError(
            "layers must be an nn.Sequential or a list of modules, "
            f"got {type(layers).__name__}; [layer] makes a list of one"
        )
    modules = list(layers)
    if not modules:
        raise ValueError("layers must hold at least one layer, got none")
    for index, module in enumerate(modules):
        if not isinstance(module, nn.Module):
            raise TypeError(f"layer {index} must be a torch.nn.Module, got {type(module).__name__}")
    return modules


def split(
    layers: nn.Sequential | Iterable[nn.Module],
    num_stages: int | None = None,
    *,
    sizes: Sequence[int] | None = None,
    costs: Sequence[float] | Profile | None = None,
) -> list[nn.Sequential]:
    """Cut layers into consecutive stages, each an ``nn.Sequential`` of the very same layers.

    Parameters
    ----------
    layers : nn.Sequential or iterable of nn.Module
        The model, layer by layer.
    num_stages : int, optional
        How many stages to make; balanced by ``costs``, by number of layers where there are none.
    sizes : sequence of int, optional
        How many layers each stage takes, instead of ``num_stages``.
    costs : sequence of float or Profile, optional
        Cost of each layer, or what `profile` found; the largest stage is made as small as it can
        be.

    Examples
    --------
    >>> from torch import nn
    >>> import pipesched.torch
    >>> layers = [nn.Linear(8, 8) for _ in range(5)]
    >>> [len(stage) for stage in pipesched.torch.split(layers, 2)]
    [3, 2]
    >>> [len(stage) for stage in pipesched.torch.split(layers, 2, costs=[9, 1, 1, 1, 1])]
    [1, 4]
    >>> [len(stage) for stage in pipesched.torch.split(layers, sizes=[1, 3, 1])]
    [1, 3, 1]
    """
    modules = list_of_layers(layers)
    if (num_stages is None) == (sizes is None):
        raise TypeError("give one of num_stages and sizes: the number of stages, or their layers")
    if num_stages is not None:
        if isinstance(num_stages, bool) or not isinstance(num_stages, Integral):
            raise TypeError(f"num_stages must be an int, got {num_stages!r}")
        if not 1 <= num_stages <= len(modules):
            raise ValueError(
                f"num_stages must be at least 1 and at most the {len(modules)} layers, "
                f"got {num_stages}"
            )
        if costs is None:
            cuts = partition_balanced([1.0] * len(modules), num_stages, split="equal-first").cuts
        elif len(costs) != len(modules):
            raise ValueError(
                f"costs must give one number for each of the {len(modules)} layers, "
                f"got {len(costs)}"
            )
        else:
            cuts = partition_balanced(costs, num_stages).cuts
        bounds = list(cuts)
    elif sizes is not None:
        if costs is not None:
            raise TypeError("costs balance a number of stages: give num_stages, not sizes")
        refusal = TypeError(f"sizes must be a sequence of ints, got {sizes!r}")
        if not isinstance(sizes, Iterable):
            raise refusal
        taken = list(sizes)
        if not all(isinstance(size, Integral) for size in taken):
            raise refusal
        if any(size < 1 for size in taken) or sum(taken) != len(modules):
            raise ValueError(
                f"sizes must be at least 1 each and add up to the {len(modules)} layers, "
                f"got {taken}, which add up to {sum(taken)}"
            )
        bounds = [0]
        for size in taken:
            bounds.append(bounds[-1] + size)
    return [nn.Sequential(*modules[a:b]) for a, b in pairwise(bounds)]
