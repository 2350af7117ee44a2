"""`profile`: what each layer really costs, for the partitioner and for `Costs`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from numbers import Integral
from statistics import median
from typing import Any

import torch
from torch import nn

try:
    from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight
except ImportError as error:
    raise ImportError(
        f"torch {torch.__version__} has not the split backward that pipesched.torch measures; "
        "it was tested with torch 2.13.0: pip install 'torch==2.13.0'"
    ) from error

from pipesched.profile import Layer, Profile

from .runtime import owned
from .split import list_of_layers

__all__ = ["profile"]


def profile(
    layers: nn.Sequential | Iterable[nn.Module],
    sample: torch.Tensor,
    *,
    loss_fn: Callable[[torch.Tensor, Any], torch.Tensor] | None = None,
    target: Any = None,
    warmup: int = 3,
    repeats: int = 10,
    name: str = "profile",
) -> Profile:
    """Run each layer forward and backward, and measure its time and bytes.

    The layers are left as they were: their gradients, buffers and the random state are put back.
    The backward is measured whole, and in the two parts that torch's pipeline runtime runs as
    ``I`` and ``W``.

    Parameters
    ----------
    layers : nn.Sequential or iterable of nn.Module
        The model as a chain: each layer takes what the one before gives, one tensor.
    sample : torch.Tensor
        One micro-batch of input of the first layer, on the device that is to be measured.
    loss_fn : callable, optional
        With ``target`` the loss of the last layer's output; its time counts with that layer.
    target : optional
        What ``loss_fn`` takes besides the output.
    warmup, repeats : int
        Runs that are not measured, and runs of which the median is taken.
    name : str
        Name of the profile.

    Returns
    -------
    Profile
        Seconds and bytes of one micro-batch. ``write_profile`` saves it as JSON, ``partition``
        and ``partition_balanced`` take it, and ``costs`` of it gives `Costs` for given cuts.

    Examples
    --------
    >>> import torch, pipesched.torch
    >>> layers = [torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2)]
    >>> found = pipesched.torch.profile(layers, torch.randn(4, 8), repeats=2)
    >>> [layer.name for layer in found.layers]
    ['0 Linear', '1 ReLU', '2 Linear']
    >>> found.activation.tolist(), found.parameters.tolist()
    ([512.0, 512.0, 32.0], [1152.0, 0.0, 264.0])
    """
    modules = list_of_layers(layers)
    if not isinstance(sample, torch.Tensor):
        raise TypeError(f"sample must be a torch.Tensor, got {type(sample).__name__}")
    for count, value in (("warmup", warmup), ("repeats", repeats)):
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise TypeError(f"{count} must be an int, got {value!r}")
    if warmup < 0 or repeats < 1:
        raise ValueError(
            f"warmup must be at least 0 and repeats at least 1, got {warmup} and {repeats}"
        )
    found = []
    with _as_they_were(modules, sample.device):
        given = sample.detach()
        for index, module in enumerate(modules):
            last = index == len(modules) - 1
            run = _Run(module, given, index > 0, loss_fn if last else None, target)
            output = run.forward()
            if not isinstance(output, torch.Tensor):
                raise TypeError(
                    f"layer {index} ({type(module).__name__}) must give one tensor, "
                    f"got {type(output).__name__}"
                )
            held = run.held_bytes()
            for _ in range(warmup):
                run.measure()
            rounds = [run.measure() for _ in range(repeats)]
            forward, backward, into, weight = (
                median(column) for column in zip(*rounds, strict=True)
            )
            found.append(
                Layer(
                    name=f"{index} {type(module).__name__}",
                    forward=forward,
                    backward=backward,
                    activation=output.numel() * output.element_size(),
                    parameters=sum(p.numel() * p.element_size() for p in module.parameters()),
                    backward_input=into,
                    backward_weight=weight,
                    held=held,
                )
            )
            given = output.detach()
    return Profile(found, name=name)


class _Run:
    """One layer with its input, to be run again and again."""

    def __init__(
        self,
        module: nn.Module,
        given: torch.Tensor,
        differentiable: bool,
        loss_fn: Callable[[torch.Tensor, Any], torch.Tensor] | None,
        target: Any,
    ) -> None:
        self.module, self.loss_fn, self.target = module, loss_fn, target
        # The model's own input gets no gradient, as in training.
        self.differentiable = differentiable and given.is_floating_point()
        self.given = given.detach().clone().requires_grad_(self.differentiable)
        self.parameters = [p for p in module.parameters() if p.requires_grad]

    def forward(self) -> Any:
        with torch.enable_grad():
            return self.module(self.given)

    def _forward_with_loss(self) -> torch.Tensor:
        output = self.forward()
        return output if self.loss_fn is None else self.loss_fn(output, self.target)

    def _clear(self) -> None:
        self.given.grad = None
        for parameter in self.parameters:
            parameter.grad = None

    def held_bytes(self) -> int:
        """Bytes that the graph keeps from forward to backward, the parameters not among them."""
        own = {p.untyped_storage().data_ptr() for p in self.module.parameters()}
        held: dict[int, int] = {}

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in own:
                held[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            self._forward_with_loss()
        return sum(held.values())

    def measure(self) -> tuple[float, float, float, float]:
        """Seconds of the forward, of the whole backward, and of its two parts."""
        self._clear()
        began = _now(self.given.device)
        output = self._forward_with_loss()
        forward = _now(self.given.device) - began
        if not output.requires_grad:  # nothing to go back through
            return forward, 0.0, 0.0, 0.0
        gradient = torch.ones_like(output)
        began = _now(self.given.device)
        torch.autograd.backward(output, gradient)
        backward = _now(self.given.device) - began
        if not self.differentiable:
            # The runtime does nothing in the I of the first stage, and all in its W.
            return forward, backward, 0.0, backward
        self._clear()
        output = owned(self._forward_with_loss())
        began = _now(self.given.device)
        _, groups = stage_backward_input([output], [gradient], [self.given], iter(self.parameters))
        into = _now(self.given.device) - began
        began = _now(self.given.device)
        stage_backward_weight(iter(self.parameters), groups)
        return forward, backward, into, _now(self.given.device) - began


def _now(device: torch.device) -> float:
    """The time once all that was given to the device is done."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
    return time.perf_counter()


@contextmanager
def _as_they_were(modules: list[nn.Module], device: torch.device) -> Iterator[None]:
    """Put gradients, buffers and the random state back at the end."""
    chain = nn.ModuleList(modules)
    gradients = [(p, p.grad) for p in chain.parameters()]
    buffers = [(b, b.detach().clone()) for b in chain.buffers()]
    devices = [] if device.type == "cpu" else [device]
    kind = None if device.type == "cpu" else device.type
    with torch.random.fork_rng(devices=devices, device_type=kind or "cuda"):
        try:
            yield
        finally:
            for parameter, gradient in gradients:
                parameter.grad = gradient
            with torch.no_grad():
                for buffer, before in buffers:
                    buffer.copy_(before)
