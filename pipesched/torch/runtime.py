"""`build`: a torch pipeline runtime for any schedule, whatever its placement.

torch's `_PipelineScheduleRuntime` interprets lists of actions.  It is taken as it is; `Pipeline`
changes only what a schedule of free order and free placement needs and torch does not give:

- a loss is kept under its micro-batch, where torch numbers the losses as they come;
- evaluation, and schedules of forwards only, run on any placement;
- an error names the rank, the action, and the rank that it waited for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

try:
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import (
        _Action,
        _ComputationType,
        _PipelineScheduleRuntime,
    )
except ImportError as error:
    raise ImportError(
        f"torch {torch.__version__} has not the pipeline runtime that pipesched.torch drives; "
        "it was tested with torch 2.13.0: pip install 'torch==2.13.0'"
    ) from error

from pipesched.check import KINDS
from pipesched.schedule import Schedule

FORWARD = _ComputationType.FORWARD
INPUT = _ComputationType.BACKWARD_INPUT
WEIGHT = _ComputationType.BACKWARD_WEIGHT
FULL = _ComputationType.FULL_BACKWARD
UNSHARD = _ComputationType.UNSHARD
RESHARD = _ComputationType.RESHARD
REDUCE_GRAD = _ComputationType.REDUCE_GRAD
SEND_F = _ComputationType.SEND_F
RECV_F = _ComputationType.RECV_F

_FULL_KIND, _INPUT_KIND = KINDS.index("B"), KINDS.index("I")

# What `Pipeline` mends and torch's own runtime does not; see Schedule.torch_report.
MENDED = frozenset({"forward-only", "loss-order", "bookkeeping"})


class _Stage(PipelineStage):
    """A stage whose outputs own their memory: torch's I detaches them, which a view forbids."""

    def forward_maybe_with_nosync(self, *args: Any, **kwargs: Any) -> Any:
        return owned(super().forward_maybe_with_nosync(*args, **kwargs))


def owned(output: Any) -> Any:
    """The output, or a copy of it where it is a view."""
    if isinstance(output, torch.Tensor):
        return output.clone() if output._is_view() else output
    if isinstance(output, (tuple, list)):
        return type(output)(owned(part) for part in output)
    return output


class PipelineError(RuntimeError):
    """A step that did not end: its rank, the position in that rank's actions, and the action.

    Attributes
    ----------
    rank : int
        Rank in the pipeline's group.
    position : int or None
        Index into the rank's list of actions (with transfers); None outside of the list.
    action : str or None
        The action in torch's words, such as ``"2F0"``.
    """

    def __init__(self, message: str, rank: int, position: int | None, action: str | None):
        super().__init__(message)
        self.rank = rank
        self.position = position
        self.action = action


class Pipeline(_PipelineScheduleRuntime):
    """torch's pipeline runtime, holding one pipesched schedule; made by `build`.

    ``step(*args, target=..., losses=[...])`` runs forward and backward on one batch and
    ``eval(*args)`` the forwards alone.  The rank with stage 0 passes the batch, the rank with the
    last stage the target; the others pass nothing.

    Attributes
    ----------
    schedule : Schedule
        What runs.
    modules : dict of int to torch.nn.Module
        This rank's stages.
    """

    def __init__(
        self,
        schedule: Schedule,
        stages: list[PipelineStage],
        loss_fn: Callable[..., torch.Tensor] | None,
        timeout: float | None,
        **options: Any,
    ):
        super().__init__(stages, schedule.num_microbatches, loss_fn=loss_fn, **options)
        self.schedule = schedule
        self.modules = {stage.stage_index: stage.submod for stage in stages}
        self._timeout = timeout
        self._has_last = any(stage.is_last for stage in stages)
        actions = _actions(schedule)
        self._forward_only = not any(
            part.computation_type in (FULL, INPUT) for row in actions for part in _parts(row)
        )
        if self._forward_only:
            self._has_backward = False
        self._load(actions)
        own = self.pipeline_order_with_comms[self.rank]
        self._forward_actions = _forwards(own)
        self._last_forwards = [
            action.microbatch_index
            for action in self._forward_actions
            if action.computation_type == FORWARD and action.stage_index == self._num_stages - 1
        ]

    def _load(self, actions: list[list[_Action]]) -> None:
        """Give torch the order of all ranks, with transfers."""
        if not self.schedule.has_comms and not self._forward_only:
            compute = [[action for action in row if action.is_compute_op] for row in actions]
            self.pipeline_order = dict(enumerate(compute))
            self._prepare_schedule_with_comms({rank: list(row) for rank, row in enumerate(compute)})
            return
        # torch lowers and validates only schedules that train, and takes transfers as they stand.
        self.stage_index_to_group_rank = {
            stage: rank for rank, row in enumerate(self.schedule.placement) for stage in row
        }
        for stage in self._stages:
            stage.stage_index_to_group_rank = self.stage_index_to_group_rank
        if not self.schedule.has_comms:
            actions = _actions(self.schedule.lower())
        self.pipeline_order_with_comms = {
            rank: _with_bookkeeping(row, self._n_microbatches) for rank, row in enumerate(actions)
        }

    # The loss of micro-batch j belongs to j in whatever order the last stage runs.

    def _maybe_compute_loss(self, stage, output, target_mbs, mb_index, loss_kwargs=None):
        if not stage.is_last or self._loss_fn is None or target_mbs is None:
            return
        if not self._internal_losses:
            self._internal_losses.extend([None] * self._n_microbatches)
        self._internal_losses[mb_index] = self._compute_loss(
            output, target_mbs[mb_index], loss_kwargs
        )

    def _update_losses(self, stages, losses):
        if self._has_last and losses is not None and not self._internal_losses:
            losses.clear()  # an evaluation without a target has no losses to hand over
            return
        super()._update_losses(stages, losses)

    def _merge_outputs(self, output_chunks):
        by_microbatch = dict(zip(self._last_forwards, output_chunks, strict=True))
        return super()._merge_outputs([by_microbatch[j] for j in sorted(by_microbatch)])

    def _split_inputs(self, args, kwargs=None):
        args_mbs, kwargs_mbs = super()._split_inputs(args, kwargs)
        for name, index in [(f"argument {i}", i) for i in range(len(args))]:
            sizes = {mb[index].shape for mb in args_mbs if isinstance(mb[index], torch.Tensor)}
            if len(sizes) > 1:
                shapes = " and ".join(str(tuple(size)) for size in sorted(sizes, reverse=True))
                raise ValueError(
                    f"{name} of the batch does not divide into {self._n_microbatches} equal "
                    f"micro-batches (they would be {shapes}); torch receives into buffers of one "
                    f"size, so give a batch that is a multiple of {self._n_microbatches}"
                )
        return args_mbs, kwargs_mbs

    def _step_microbatches(
        self,
        arg_mbs=None,
        kwarg_mbs=None,
        target_mbs=None,
        losses=None,
        return_outputs=True,
        loss_kwargs=None,
    ):
        if self._has_backward and self._has_last and target_mbs is None:
            raise ValueError(
                f"rank {self.rank} holds the last stage: step(target=...) needs the target there"
            )
        whole = self.pipeline_order_with_comms
        run = super()._step_microbatches
        try:
            if self._has_backward:
                run(arg_mbs, kwarg_mbs, target_mbs, losses, return_outputs, loss_kwargs)
                return
            # The backward actions are left out: torch would run them, and fail on a V placement.
            self.pipeline_order_with_comms = {**whole, self.rank: self._forward_actions}
            with torch.no_grad():
                run(arg_mbs, kwarg_mbs, target_mbs, losses, return_outputs, loss_kwargs)
        except Exception as error:
            raise self._explained(error) from error
        finally:
            self.pipeline_order_with_comms = whole

    def _explained(self, error: Exception) -> PipelineError:
        """The error with the place in the schedule, which torch only writes to its log."""
        position = action = None
        trace = error.__traceback__
        while trace is not None:
            names = trace.tb_frame.f_locals
            if isinstance(names.get("action"), _Action) and "time_step" in names:
                position, action = names["time_step"], names["action"]
            trace = trace.tb_next
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        if action is None:
            where = "outside of its actions (exchange of shapes, or the last transfers)"
            advice = ""
        else:
            where = f"at action {position}, {action}"
            peers = sorted(
                {
                    (stage, self.stage_index_to_group_rank[stage])
                    for stage in map(_source, _parts([action]))
                    if stage is not None and 0 <= stage < self._num_stages
                }
            )
            advice = "".join(
                f"; its input comes from stage {stage} on rank {rank}"
                for stage, rank in peers
                if rank != self.rank
            )
        limit = "as long as its group says" if self._timeout is None else f"{self._timeout:g} s"
        return PipelineError(
            f"rank {self.rank} stopped {where}: {first}{advice} (a transfer is waited for "
            f"{limit} at most; a rank that died or stands still shows in its own output)",
            self.rank,
            position,
            None if action is None else str(action),
        )


def build(
    schedule: Schedule,
    stage_modules: Sequence[nn.Module] | Mapping[int, nn.Module],
    loss_fn: Callable[..., torch.Tensor] | None = None,
    *,
    device: torch.device | str | None = None,
    group: dist.ProcessGroup | None = None,
    timeout: float | None = None,
    scale_grads: bool = True,
    args_chunk_spec: tuple | None = None,
    kwargs_chunk_spec: dict | None = None,
    output_merge_spec: Any = None,
) -> Pipeline:
    """Make this rank's runtime for ``schedule``; every rank of the group calls it.

    Parameters
    ----------
    schedule : Schedule
        Any schedule with each stage on one rank: loop, V or free placement, split or full
        backwards, overlapped pairs (which torch runs one after the other), with or without its
        transfers.  A schedule of forwards only gives a pipeline for inference.
    stage_modules : sequence or mapping of torch.nn.Module
        All stages in order, or a mapping that holds at least this rank's own stages.
    loss_fn : callable, optional
        ``loss_fn(output, target) -> scalar tensor`` of one micro-batch; needed to train.
    device : torch.device or str, optional
        Where the stages run; by default where the first parameter of this rank's stages is.
    group : ProcessGroup, optional
        The pipeline's group, the default group if not given.  Rank r of it runs row r.
    timeout : float, optional
        Seconds that one transfer may be waited for before the step fails with `PipelineError`.
        Given, the transfers go over a group of their own; not given, the group's timeout holds.
    scale_grads : bool
        True where ``loss_fn`` is a mean: gradients are divided by the number of micro-batches.
        To accumulate gradients over K steps give False and divide once, by K * m, before the
        optimizer's step: a step with True divides again what earlier steps have left.
    args_chunk_spec, kwargs_chunk_spec, output_merge_spec
        Passed to torch: how the batch is cut and the output put together.

    Returns
    -------
    Pipeline

    Raises
    ------
    ScheduleError
        The schedule is not legal.
    ValueError
        torch cannot run it (`Schedule.torch_report` says why), the group has another size than
        the schedule, ranks came with different schedules, or a stage's module is missing.

    Examples
    --------
    On each of two ranks, under ``torchrun --nproc-per-node 2``::

        schedule = ps.generate("zb-v", p=2, m=4)
        stages = pipesched.torch.split(layers, 4)
        pipeline = pipesched.torch.build(schedule, stages, loss_fn)
        pipeline.step(*([batch] if rank == 0 else []), target=target, losses=losses)
    """
    if not dist.is_initialized():
        raise ValueError(
            "torch.distributed is not initialised: call torch.distributed.init_process_group() "
            "first (torchrun sets the variables that it reads)"
        )
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    # All ranks fail together or not at all, so that none is left waiting for the others.
    problem, own = _prepared(schedule, stage_modules, loss_fn, rank, size, timeout)
    _agree(schedule, problem, group, size)
    if device is None:
        parameters = (p for module in own.values() for p in module.parameters())
        first = next(parameters, None)
        device = torch.device("cpu") if first is None else first.device
    if timeout is not None:
        group = dist.new_group(
            dist.get_process_group_ranks(group or dist.group.WORLD),
            timeout=timedelta(seconds=timeout),
            use_local_synchronization=group is not None,
        )
    splits = bool((schedule.ops["kind"] == _INPUT_KIND).any())
    stages = [
        (_Stage if splits else PipelineStage)(
            module, stage, schedule.num_stages, torch.device(device), group=group
        )
        for stage, module in sorted(own.items())
    ]
    return Pipeline(
        schedule,
        stages,
        loss_fn,
        timeout,
        scale_grads=scale_grads,
        args_chunk_spec=args_chunk_spec,
        kwargs_chunk_spec=kwargs_chunk_spec,
        output_merge_spec=output_merge_spec,
    )


def _prepared(
    schedule: Schedule,
    stage_modules: Sequence[nn.Module] | Mapping[int, nn.Module],
    loss_fn: Callable[..., torch.Tensor] | None,
    rank: int,
    size: int,
    timeout: float | None,
) -> tuple[Exception | None, dict[int, nn.Module]]:
    """This rank's own modules, and what is wrong with the arguments here (None if nothing)."""
    try:
        if not isinstance(schedule, Schedule):
            raise TypeError(
                f"schedule must be a Schedule, such as ps.generate makes, "
                f"got {type(schedule).__name__}"
            )
        if schedule.p != size:
            raise ValueError(
                f"the schedule has {schedule.p} ranks and the group {size}: start "
                f"{schedule.p} processes or make the schedule for p={size}"
            )
        if timeout is not None and not isinstance(timeout, (int, float)):
            raise TypeError(f"timeout must be a number of seconds, got {timeout!r}")
        if timeout is not None and not 0 < timeout < float("inf"):
            raise ValueError(f"timeout must be a positive number of seconds, got {timeout}")
        schedule.check()
        reasons = [r for r in schedule.torch_report().reasons if r.code not in MENDED]
        if reasons:
            raise ValueError("torch cannot run this schedule: " + "; ".join(map(str, reasons)))
        trains = _trains(schedule)
        if trains and loss_fn is None:
            raise ValueError(
                "loss_fn must be given, since the schedule has backwards; for inference take a "
                'schedule of forwards only, such as generate("forward", p, m)'
            )
        if loss_fn is not None and not callable(loss_fn):
            raise TypeError(f"loss_fn must be callable, got {loss_fn!r}")
        return None, _own_modules(schedule, stage_modules, rank)
    except (TypeError, ValueError) as error:
        return error, {}


def _trains(schedule: Schedule) -> bool:
    """Whether the schedule has a backward (kinds B and I)."""
    kinds = schedule.ops["kind"]
    return bool(((kinds == _FULL_KIND) | (kinds == _INPUT_KIND)).any())


def _own_modules(
    schedule: Schedule, stage_modules: Sequence[nn.Module] | Mapping[int, nn.Module], rank: int
) -> dict[int, nn.Module]:
    own = schedule.placement[rank]
    if isinstance(stage_modules, Mapping):
        missing = [stage for stage in own if stage not in stage_modules]
        if missing:
            raise ValueError(
                f"stage_modules has no module for stage {missing[0]}: rank {rank} runs stages "
                f"{list(own)}, and it holds {sorted(stage_modules)}"
            )
    elif not isinstance(stage_modules, Sequence | nn.Sequential | nn.ModuleList):
        raise TypeError(
            "stage_modules must be a sequence of all stages' modules, or a mapping from stages to "
            f"modules, got {type(stage_modules).__name__}: see pipesched.torch.split"
        )
    elif len(stage_modules) != schedule.num_stages:
        raise ValueError(
            f"stage_modules must hold one module for each of the {schedule.num_stages} stages, "
            f"got {len(stage_modules)}: see pipesched.torch.split"
        )
    modules = {stage: stage_modules[stage] for stage in own}
    for stage, module in modules.items():
        if not isinstance(module, nn.Module):
            raise TypeError(f"stage {stage} must be a torch.nn.Module, got {type(module).__name__}")
    return modules


def _agree(
    schedule: Schedule, problem: Exception | None, group: dist.ProcessGroup | None, size: int
) -> None:
    """Raise on every rank what is wrong on any, and when the schedules are not the same."""
    digest = hashlib.sha256()
    if problem is None:
        for part in (schedule.ops, schedule.offsets):
            digest.update(part.tobytes())
    mine = (digest.hexdigest(), None if problem is None else str(problem))
    every: list[Any] = [None] * size
    dist.all_gather_object(every, mine, group=group)
    if problem is not None:
        raise problem
    for rank, (_, text) in enumerate(every):
        if text is not None:
            raise ValueError(f"rank {rank} could not build its pipeline: {text}")
    for rank, (other, _) in enumerate(every):
        if other != every[0][0]:
            raise ValueError(
                f"rank {rank} was given another schedule than rank 0: all must build the same one"
            )


def _actions(schedule: Schedule) -> list[list[_Action]]:
    return [[_Action.from_str(word) for word in row if word] for row in schedule.rows()]


def _parts(row):
    """The actions of a row with overlapped pairs opened."""
    for action in row:
        yield from action.sub_actions or (action,)


def _forwards(row: list[_Action]) -> list[_Action]:
    """The part of a rank's actions that inference needs."""
    keep = (FORWARD, SEND_F, RECV_F, UNSHARD, RESHARD)
    return [part for part in _parts(row) if part.computation_type in keep]


def _source(action: _Action) -> int | None:
    """The stage whose output an action needs."""
    if action.computation_type in (FORWARD, RECV_F):
        return action.stage_index - 1
    if action.computation_type in (FULL, INPUT, _ComputationType.RECV_B):
        return action.stage_index + 1
    return None


def _with_bookkeeping(row: list[_Action], num_microbatches: int) -> list[_Action]:
    """A row with transfers, and with what FSDP and the scaling of gradients need, if it has none.

    torch's lowering adds these actions; files from before it had them, and our own lowering, do
    not hold them.  Without REDUCE_GRAD the gradients would silently miss the division by m.
    """
    kinds = {action.computation_type for action in row}
    shards = not kinds & {UNSHARD, RESHARD}
    reduces = REDUCE_GRAD not in kinds
    finished: dict[int, int] = {}
    stages = sorted({part.stage_index for part in _parts(row)})
    result = [_Action(stage, UNSHARD) for stage in stages] if shards else []
    for action in row:
        result.append(action)
        if not reduces:
            continue
        for part in _parts([action]):
            if part.computation_type in (FULL, WEIGHT):
                done = finished[part.stage_index] = finished.get(part.stage_index, 0) + 1
                if done == num_microbatches:
                    result.append(_Action(part.stage_index, REDUCE_GRAD))
    if shards:
        result += [_Action(stage, RESHARD) for stage in stages]
    return result
