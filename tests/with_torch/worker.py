"""What several ranks check together; run under torchrun by test_with_torch_training.

Each check is a function that raises where it fails; rank 0 gathers what happened on all ranks
into one JSON file: {name of the check: "" or the errors}.
"""

import copy
import gzip
import itertools
import json
import sys
import time
import traceback
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

import pipesched as ps
import pipesched.torch

CHECKS = {}


def check(function):
    CHECKS[function.__name__] = function
    return function


def raises(kind, *texts):
    """A context that wants the error, and returns it as `.error`."""

    class Expect:
        error = None

        def __enter__(self):
            return self

        def __exit__(self, found, error, trace):
            if found is None:
                raise AssertionError(f"no {kind.__name__} was raised")
            if not issubclass(found, kind):
                return False
            self.error = error
            for text in texts:
                assert text in str(error), f"{text!r} is not in {error}"
            return True

    return Expect()


def model(stages, seed=0):
    torch.manual_seed(seed)
    return [nn.Sequential(nn.Linear(6, 6), nn.Tanh()) for _ in range(stages)]


def data(m, seed=1):
    torch.manual_seed(seed)
    return torch.randn(2 * m, 6), torch.randn(2 * m, 6)


def group(seconds=60.0):
    """A group of its own, since one that timed out is of no more use."""
    return dist.new_group(timeout=timedelta(seconds=seconds))


def step(pipeline, batch, target, **options):
    first = 0 in pipeline.modules
    last = pipeline.schedule.num_stages - 1 in pipeline.modules
    return pipeline.step(*([batch] if first else []), target=target if last else None, **options)


def gradients_agree(pipeline, modules, batch, target, tolerance=1e-12):
    alone = nn.Sequential(*copy.deepcopy(modules))
    alone.zero_grad()
    nn.MSELoss()(alone(batch), target).backward()
    for stage in pipeline.modules:
        for mine, twin in zip(modules[stage].parameters(), alone[stage].parameters(), strict=True):
            assert torch.allclose(mine.grad, twin.grad, rtol=0, atol=tolerance), stage


@check
def losses_and_outputs_stand_under_their_microbatch():
    """Also where the last stage takes the micro-batches in another order."""
    schedule = ps.Schedule.from_rows(
        [["0F0 0F1 0F2 0B2 0B0 0B1"], ["1F2 1B2 1F0 1F1 1B0 1B1"]][0] + ["1F2 1B2 1F0 1F1 1B0 1B1"]
    )
    modules, (batch, target) = model(2), data(3)
    pipeline = pipesched.torch.build(schedule, modules, nn.MSELoss())
    losses = []
    output = step(pipeline, batch, target, losses=losses)
    gradients_agree(pipeline, modules, batch, target)
    if 1 in pipeline.modules:
        everything = nn.Sequential(*model(2))
        with torch.no_grad():
            expected = everything(batch)
        assert torch.allclose(output.detach(), expected, atol=1e-12)
        parts = zip(losses, expected.chunk(3), target.chunk(3), strict=True)
        for loss, one, wanted in parts:
            assert abs(float(loss) - float(nn.MSELoss()(one, wanted))) < 1e-12


@check
def evaluation_before_and_after_a_step():
    """On a loop and on a V, whose evaluation torch's own runtime cannot run."""
    for name in ("interleaved-1f1b", "zb-v", "dualpipe-v"):
        schedule = ps.generate(name, 2, 4)
        modules, (batch, target) = model(4), data(4)
        pipeline = pipesched.torch.build(schedule, modules, nn.MSELoss())
        with torch.no_grad():
            expected = nn.Sequential(*modules)(batch)
        for round in range(2):
            got = pipeline.eval(*([batch] if 0 in pipeline.modules else []))
            if 3 in pipeline.modules:
                assert torch.allclose(got, expected, atol=1e-12), (name, round)
            losses = []
            pipeline.eval(
                *([batch] if 0 in pipeline.modules else []),
                target=target if 3 in pipeline.modules else None,
                losses=losses,
            )
            if 3 in pipeline.modules:
                mean = torch.stack(losses).mean()
                assert abs(float(mean) - float(nn.MSELoss()(expected, target))) < 1e-12
            assert all(p.grad is None for m in pipeline.modules.values() for p in m.parameters())
            step(pipeline, batch, target)
            gradients_agree(pipeline, modules, batch, target)
            for module in modules:
                module.zero_grad()


@check
def stages_that_give_views_train_with_split_backwards():
    """torch detaches a stage's output in its I, which it cannot do to a view."""
    for name in ("zb-v", "v-half"):
        schedule = ps.generate(name, 2, 4)
        modules, (batch, target) = [nn.Linear(6, 6) for _ in range(4)], data(4)
        torch.manual_seed(2)
        for module in modules:
            nn.init.normal_(module.weight, std=0.5)
            nn.init.zeros_(module.bias)
        batch, target = batch.reshape(4, 2, 6), target.reshape(4, 2, 6)
        pipeline = pipesched.torch.build(schedule, modules, nn.MSELoss())
        step(pipeline, batch, target)
        gradients_agree(pipeline, modules, batch, target)


@check
def actions_of_sharding_are_put_in_by_torch():
    """Without transfers torch wants compute only; the others of the schedule are left out."""
    schedule = ps.Schedule.from_rows(["0UNSHARD 0F0 0B0 0REDUCE_GRAD 0RESHARD", "1F0 1B0"])
    assert not schedule.torch_report()
    modules, (batch, target) = model(2), data(1)
    pipeline = pipesched.torch.build(schedule, modules, nn.MSELoss())
    step(pipeline, batch, target)
    gradients_agree(pipeline, modules, batch, target)


@check
def forward_only_schedules_run_on_any_placement():
    loop = ps.generate("forward", 2, 5)
    v = ps.Schedule.from_rows(["0F0 0F1 3F0 3F1", "1F0 2F0 1F1 2F1"])
    for schedule in (loop, v):
        modules, (batch, _) = model(schedule.num_stages), data(schedule.num_microbatches)
        pipeline = pipesched.torch.build(schedule, modules)
        with torch.no_grad():
            expected = nn.Sequential(*modules)(batch)
        got = pipeline.step(*([batch] if 0 in pipeline.modules else []))
        if schedule.num_stages - 1 in pipeline.modules:
            assert torch.allclose(got, expected, atol=1e-12)


@check
def a_schedule_with_its_transfers_trains():
    """Our lowering; without REDUCE_GRAD in it the gradients must be divided all the same."""
    for name in ("1f1b", "zb-v", "dualpipe-v"):
        schedule = ps.generate(name, 2, 5).lower()
        modules, (batch, target) = model(schedule.num_stages), data(5)
        pipeline = pipesched.torch.build(schedule, modules, nn.MSELoss())
        step(pipeline, batch, target)
        gradients_agree(pipeline, modules, batch, target)


@check
def accumulated_gradients_are_scaled_once():
    """pytorch/torchtitan#1733: K steps of m micro-batches, divided by K m at the end."""
    schedule, rounds = ps.generate("1f1b", 2, 4), 3
    modules, (batch, target) = model(2), data(4 * rounds)
    pipeline = pipesched.torch.build(schedule, modules, nn.MSELoss(), scale_grads=False)
    for part, wanted in zip(batch.chunk(rounds), target.chunk(rounds), strict=True):
        step(pipeline, part, wanted)
    for stage in pipeline.modules:
        for parameter in modules[stage].parameters():
            parameter.grad /= rounds * schedule.num_microbatches
    gradients_agree(pipeline, modules, batch, target)


@check
def a_mapping_of_own_stages_is_enough_and_sums_are_not_divided():
    schedule = ps.generate("zb-v", 2, 4)
    modules, (batch, target) = model(4), data(4)
    own = {s: modules[s] for s in schedule.placement[dist.get_rank()]}
    pipeline = pipesched.torch.build(
        schedule, own, nn.MSELoss(reduction="sum"), scale_grads=False, timeout=60
    )
    step(pipeline, batch, target)
    alone = nn.Sequential(*copy.deepcopy(modules))
    alone.zero_grad()
    nn.MSELoss(reduction="sum")(alone(batch), target).backward()
    for stage in own:
        for mine, twin in zip(modules[stage].parameters(), alone[stage].parameters(), strict=True):
            assert torch.allclose(mine.grad, twin.grad, rtol=0, atol=1e-11)


@check
def arguments_are_refused_on_all_ranks():
    build, loss, rank = pipesched.torch.build, nn.MSELoss(), dist.get_rank()
    schedule = ps.generate("1f1b", 2, 4)
    with raises(ValueError, "4 ranks", "group 2"):
        build(ps.generate("1f1b", 4, 4), model(4), loss)
    with raises(ValueError, "2 stages", "got 3", "split"):
        build(schedule, model(3), loss)
    with raises(ValueError, "loss_fn must be given"):
        build(schedule, model(2))
    with raises(ValueError, "timeout", "-1"):
        build(schedule, model(2), loss, timeout=-1)
    with raises(TypeError, "timeout", "'soon'"):
        build(schedule, model(2), loss, timeout="soon")
    with raises(TypeError, "stage_modules", "sequence", "got Linear"):
        build(schedule, nn.Linear(6, 6), loss)
    with raises(TypeError, "loss_fn must be callable"):
        build(schedule, model(2), "mse")
    with raises((ValueError, TypeError)[rank], "schedule must be a Schedule", "got str"):
        build("1f1b" if rank else schedule, model(2), loss)
    with raises(ValueError, "second rank"):
        build(ps.Schedule.from_rows(["0F0 0B0", "0F1 0B1"]), model(1), loss)
    with raises(ps.ScheduleError):
        build(ps.Schedule.from_rows(["0F0 0B0 0F1 0B1", "1F1 1B1 1F0 1B0"]), model(2), loss)
    with raises((TypeError, ValueError)[rank == 0], "stage 1"):
        build(schedule, [model(2)[0], "not a module"], loss)
    with raises(ValueError, "no module for stage 1" if rank else "rank 1 could not build"):
        build(schedule, {0: model(2)[0]}, loss)
    with raises(ValueError, "rank 1", "another schedule than rank 0"):
        build(schedule if rank == 0 else ps.generate("gpipe", 2, 4), model(2), loss)


@check
def a_batch_that_does_not_divide_is_refused():
    pipeline = pipesched.torch.build(
        ps.generate("1f1b", 2, 4), model(2), nn.MSELoss(), group=group(3)
    )
    batch, target = torch.randn(6, 6), torch.randn(6, 6)
    # The other rank cannot know, and gives up when its group's time is over.
    with raises(Exception, "4 equal micro-batches" if dist.get_rank() == 0 else ""):
        step(pipeline, batch, target)


class Asleep(nn.Module):
    def __init__(self, seconds):
        super().__init__()
        self.line, self.seconds, self.calls = nn.Linear(6, 6), seconds, 0

    def forward(self, x):
        self.calls += 1
        if self.calls > 2:  # the first call only finds out the shapes
            time.sleep(self.seconds)
        return self.line(x)


@check
def a_rank_that_stands_still_ends_the_step_in_time():
    modules = [model(1)[0], Asleep(8)]
    schedule = ps.generate("1f1b", 2, 4)
    pipeline = pipesched.torch.build(schedule, modules, nn.MSELoss(), timeout=2)
    batch, target = data(4)
    # Without the timeout it would get its input after the sleep, and no error.
    with raises(pipesched.torch.PipelineError, "rank ") as caught:
        step(pipeline, batch, target)
    if dist.get_rank() == 0:
        assert "stage 1 on rank 1" in str(caught.error), caught.error
        assert "2 s at most" in str(caught.error)
        assert caught.error.action == "0B1"
        assert pipeline.pipeline_order_with_comms[0][caught.error.position].microbatch_index == 1


class Fails(nn.Module):
    def __init__(self):
        super().__init__()
        self.line, self.calls = nn.Linear(6, 6), 0

    def forward(self, x):
        self.calls += 1
        if self.calls > 2:
            raise ZeroDivisionError("the layer's own fault")
        return self.line(x)


@check
def an_error_in_a_layer_names_the_action():
    pipeline = pipesched.torch.build(
        ps.generate("gpipe", 2, 4), [model(1)[0], Fails()], nn.MSELoss(), timeout=2
    )
    with raises(pipesched.torch.PipelineError) as caught:
        step(pipeline, *data(4))
    if dist.get_rank() == 1:
        assert caught.error.action == "1F1"
        assert isinstance(caught.error.__cause__.__cause__, ZeroDivisionError)


@check
def a_profiled_run_is_read_back():
    """Also after the profile began within a step, and with the clock of one rank put wrong."""
    schedule = ps.generate("dualpipe-v", 2, 4)
    modules, (batch, target) = model(4), data(4)
    pipeline = pipesched.torch.build(schedule, modules, nn.MSELoss())
    step(pipeline, batch, target)
    rank = dist.get_rank()
    paths = [Path(FOLDER) / f"trace{r}.json.gz" for r in range(2)]
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        for _ in range(3):
            step(pipeline, batch, target)
            profiler.step()
    profiler.export_chrome_trace(str(paths[rank]))
    dist.barrier()
    measured = ps.read_torch_trace(paths)
    assert measured.schedule == schedule
    assert len(measured.steps) == 3
    assert measured.notes == (), measured.notes
    assert (measured.end > measured.start).all()
    kinds = {cost.kind for cost in measured.stage_costs}
    assert {"F", "B", "I", "W", "OVERLAP_F_B"} <= kinds, kinds
    assert 0 < measured.waited.sum() < measured.idle.sum()
    predicted = measured.schedule.simulate(measured.costs())
    assert abs(ps.compare_timelines(predicted, measured).error) < 0.6
    if rank == 0:
        document = json.loads(gzip.decompress(paths[1].read_bytes()))
        for event in document["traceEvents"]:
            if "ts" in event:
                event["ts"] += 5e6
        moved = Path(FOLDER) / "moved.json"
        moved.write_text(json.dumps(document))
        aligned = ps.read_torch_trace([paths[0], moved])
        assert abs(aligned.clock_offsets[1] - aligned.clock_offsets[0] + 5) < 0.01
        assert aligned.notes


# What `torch_report` says does not run, on torch's own runtime.

CROSSED = [
    "0F0 0F1 0SEND_F1 0SEND_F0 0RECV_B0 0B0 0RECV_B1 0B1 0REDUCE_GRAD",
    "1RECV_F0 1F0 1RECV_F1 1F1 1B0 1SEND_B0 1B1 1SEND_B1 1REDUCE_GRAD",
]
MISRUNS = {
    "transfer-order": CROSSED,
    "transfer": ["0F0 0SEND_F0 0B0", "1RECV_F0 1F0 1B0 1SEND_B0"],
    "stall": ["0F0 0SEND_F0 0RECV_B0 0B0", "1RECV_F0 1F0 1B0"],
    "repeated": ["0F0 0SEND_F0 0RECV_B0 0B0", "1RECV_F0 1F0 1B0 1B0 1SEND_B0"],
    "order": [
        "0F0 0SEND_F0 3RECV_F0 3F0 3B0 3SEND_B0 0RECV_B0 0B0",
        "1RECV_F0 2F0 1F0 2SEND_F0 2RECV_B0 2B0 1B0 1SEND_B0",
    ],
    "reduce-grad": [
        "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0REDUCE_GRAD 0RECV_B1 0B1",
        "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1 1REDUCE_GRAD",
    ],
}
# A transfer of a rank to itself, and one too many at the end.
TO_ITSELF = [
    "0F0 0SEND_F0 1RECV_F0 1F0 1SEND_F0 1RECV_B0 1B0 1SEND_B0 0RECV_B0 0B0",
    "2RECV_F0 2F0 2B0 2SEND_B0",
]
NOBODY_RECEIVES = ["0F0 0SEND_F0 0RECV_B0 0B0", "1RECV_F0 1F0 1SEND_B0 1B0 1SEND_B0"]
UNUSED = ["0F0 0SEND_F0 0RECV_B0 0RECV_F0 0B0", "1RECV_F0 1F0 1B0 1SEND_B0"]
MISRUNS = [
    *MISRUNS.items(),
    ("transfer", TO_ITSELF),
    ("transfer", NOBODY_RECEIVES),
    ("transfer", UNUSED),
]


def torchs_own(schedule, folder, pipe_group):
    """Two steps of torch's own runtime on the file; the largest difference in a gradient."""
    path = Path(folder) / f"own-{dist.get_rank()}.csv"
    schedule.to_torch_csv(path, comms=True)
    modules, m = model(schedule.num_stages), schedule.num_microbatches
    device, rank = torch.device("cpu"), dist.get_rank()
    stages = [
        PipelineStage(modules[s], s, len(modules), device, group=pipe_group)
        for s in schedule.placement[rank]
    ]
    runtime = _PipelineScheduleRuntime(stages, m, loss_fn=nn.MSELoss())
    runtime._load_csv(str(path), format="compute_comms")
    batch, target = data(m)
    first, last = 0 in schedule.placement[rank], len(modules) - 1 in schedule.placement[rank]
    alone = nn.Sequential(*copy.deepcopy(modules))
    nn.MSELoss()(alone(batch), target).backward()
    worst = 0.0
    for _ in range(2):  # what is left over from one step can trip the next
        nn.Sequential(*modules).zero_grad()
        runtime.step(*([batch] if first else []), target=target if last else None)
        for s in schedule.placement[rank]:
            for mine, twin in zip(modules[s].parameters(), alone[s].parameters(), strict=True):
                worst = max(worst, float((mine.grad - twin.grad).abs().nan_to_num(1.0).max()))
    return worst


@check
def what_is_said_not_to_run_fails_on_torchs_own_runtime():
    for code, rows in MISRUNS:
        schedule = ps.Schedule.from_rows(rows)
        report = schedule.torch_report()
        assert report.loads, code
        assert code in [reason.code for reason in report.reasons], code
        try:
            wrong = torchs_own(schedule, FOLDER, group(1.5)) > 1e-6
        except Exception:
            wrong = True
        wrongs = [None] * dist.get_world_size()
        dist.all_gather_object(wrongs, wrong)
        assert any(wrongs), code


@check
def what_is_said_to_run_runs_on_torchs_own_runtime():
    for name in ("1f1b", "zb-v", "dualpipe-v"):
        schedule = ps.generate(name, 2, 4)
        rows = [list(row) for row in schedule.lower().rows()]
        for stages, row in zip(schedule.placement, rows, strict=True):
            row += [f"{stage}REDUCE_GRAD" for stage in stages]
        schedule = ps.Schedule.from_rows(rows)
        assert schedule.torch_report(), name
        assert torchs_own(schedule, FOLDER, None) < 1e-12, name


def main():
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    results = {}
    for name, function in CHECKS.items():
        problem = ""
        try:
            function()
        except BaseException:
            problem = f"rank {dist.get_rank()}:\n{traceback.format_exc()}"
        problems = [None] * dist.get_world_size()
        dist.all_gather_object(problems, problem)
        results[name] = "".join(itertools.chain(problems))
    if dist.get_rank() == 0:
        (Path(FOLDER) / "results.json").write_text(json.dumps(results))
    dist.destroy_process_group()


if __name__ == "__main__":
    FOLDER = sys.argv[1]
    main()
