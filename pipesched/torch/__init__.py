"""Train a schedule on PyTorch's pipeline runtime (needs the extra ``pipesched[torch]``).

This room is imported by nobody else in the package: ``import pipesched`` never imports torch.

- `split`: cut a list of layers into stages;
- `build`: a ready runtime of this rank for any schedule and any placement;
- `profile`: measured time and bytes of each layer, for the partitioner and for `Costs`.

Tested with torch 2.13.0.  The runtime that executes schedules is still private in torch
(``_PipelineScheduleRuntime``), so another version may need another pipesched.
"""

try:
    import torch  # noqa: F401 - whether it is there is the question
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ImportError(
        "pipesched.torch needs PyTorch, which is not installed: pip install 'pipesched[torch]'"
    ) from error

from .profile import profile
from .runtime import Pipeline, PipelineError, build
from .split import split

__all__ = ["Pipeline", "PipelineError", "build", "profile", "split"]
