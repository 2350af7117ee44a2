"""The whole loop: profile, partition, predict, train, trace, read back, compare.

    python examples/closed_loop.py                 two ranks, a small transformer, on the CPU
    python examples/closed_loop.py --ranks 4       more ranks than this machine may have cores
    python examples/closed_loop.py --sleep         stages that sleep for calibrated times

A model with uneven layers is profiled by all ranks at once, so that the profile knows what sharing
a machine costs; it is cut evenly and balanced, and each cut is trained under several schedules by
torch's pipeline runtime, one process a rank (gloo).  Each run's time is predicted from the
profile; afterwards the traces of its ranks tell what happened.  With `--sleep` the layers do not
compute but sleep, so that ranks do not take each other's cores: a clean check of the prediction
on any machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist
from torch import nn
from train_torch import Block, Embedding

import pipesched as ps
import pipesched.torch

SCHEDULES = ("gpipe", "1f1b", "zb-h1", "zb-v")
VOCABULARY, LENGTH, WIDTH, HEADS = 64, 32, 128, 4
# How many transformer blocks each layer of the model is made of; milliseconds that one sleeps.
BLOCKS = (1, 1, 1, 1, 2, 2, 4, 4)
SLEEPS = (5, 5, 5, 5, 10, 10, 20, 20, 5, 5, 5, 5, 5, 5, 5, 5)


class _SleepBack(torch.autograd.Function):
    """The identity, with a backward that sleeps."""

    @staticmethod
    def forward(ctx, x, seconds):
        ctx.seconds = seconds
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(ctx.seconds)
        return gradient, None


class Sleep(nn.Module):
    """A layer that takes its times asleep: forward, backward for the input, and for the weight."""

    def __init__(self, forward: float, backward_input: float, backward_weight: float):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.seconds = forward, backward_input, backward_weight

    def forward(self, x):
        forward, backward_input, backward_weight = self.seconds
        time.sleep(forward)
        return _SleepBack.apply(x, backward_input) + _SleepBack.apply(self.weight, backward_weight)


def make_model(sleep: bool) -> list[nn.Module]:
    torch.manual_seed(0)
    if sleep:
        return [Sleep(t * 1e-3, t * 1e-3, t * 0.8e-3) for t in SLEEPS]
    layers = [nn.Sequential(*(Block(WIDTH, HEADS) for _ in range(n))) for n in BLOCKS]
    head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY))
    return [Embedding(VOCABULARY, LENGTH, WIDTH), *layers, head]


def make_batch(sleep: bool, size: int):
    torch.manual_seed(1)
    if sleep:
        return torch.randn(size, 8), torch.randn(size, 8)
    tokens = torch.randint(0, VOCABULARY, (size, LENGTH + 1))
    return tokens[:, :-1], tokens[:, 1:]


def make_loss(sleep: bool):
    if sleep:
        return nn.functional.mse_loss
    return lambda out, target: nn.functional.cross_entropy(out.flatten(0, 1), target.flatten())


# ---- what each rank runs, started by `train` ---------------------------------------------------


def measured_link(tensor: torch.Tensor, rounds: int = 20) -> float:
    """Seconds of one transfer between ranks 0 and 1, as half of a round trip."""
    times, rank = [], dist.get_rank()
    for _ in range(rounds):
        dist.barrier()
        began = time.perf_counter()
        if rank == 0:
            dist.send(tensor, 1)
            dist.recv(tensor, 1)
        elif rank == 1:
            dist.recv(tensor, 0)
            dist.send(tensor, 0)
        times.append((time.perf_counter() - began) / 2)
    return sorted(times)[len(times) // 2]


def profile_rank(folder: Path) -> None:
    """Profile the model while the other ranks do."""
    plan = json.loads((folder / "plan.json").read_text())
    batch, target = make_batch(plan["sleep"], plan["size"])
    dist.barrier()
    profile = pipesched.torch.profile(
        make_model(plan["sleep"]),
        batch,
        loss_fn=make_loss(plan["sleep"]),
        target=target,
        repeats=20,
    )
    ps.write_profile(profile, folder / f"profile-rank{dist.get_rank()}.json")
    dist.barrier()


def train_rank(folder: Path) -> None:
    """Measure the link, and train each run of the plan under the profiler."""
    plan = json.loads((folder / "plan.json").read_text())
    rank, sleep, m = dist.get_rank(), plan["sleep"], plan["m"]
    batch, target = make_batch(sleep, m * plan["size"])
    sample = batch[: plan["size"]]
    width = sample.shape[-1:] if sleep else (LENGTH, WIDTH)
    link = measured_link(torch.zeros(plan["size"], *width))
    if rank == 0:
        (folder / "link.json").write_text(json.dumps(link))
    for index, run in enumerate(plan["runs"]):
        schedule = ps.Schedule.from_rows(run["rows"], run["name"])
        sizes = [b - a for a, b in zip(run["cuts"], run["cuts"][1:], strict=False)]
        stages = pipesched.torch.split(make_model(sleep), sizes=sizes)
        pipeline = pipesched.torch.build(schedule, stages, make_loss(sleep))
        own = list(pipeline.modules.values())
        optimizer = torch.optim.SGD([p for s in own for p in s.parameters()], lr=1e-3)
        first, last = 0 in pipeline.modules, schedule.num_stages - 1 in pipeline.modules
        activities = [torch.profiler.ProfilerActivity.CPU]
        when = torch.profiler.schedule(
            wait=0, warmup=plan["warmup"], active=plan["steps"], repeat=1
        )
        path = str(folder / f"run{index}-rank{rank}.json.gz")
        with torch.profiler.profile(
            activities=activities,
            schedule=when,
            on_trace_ready=lambda profiler, path=path: profiler.export_chrome_trace(path),
        ) as profiler:
            for _ in range(plan["warmup"] + plan["steps"]):
                optimizer.zero_grad()
                pipeline.step(*([batch] if first else []), target=target if last else None)
                optimizer.step()
                profiler.step()
        dist.barrier()


def launch(phase: str, folder: Path, ranks: int) -> None:
    """Run a phase of the plan in the folder, one process a rank."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(ranks), __file__, "--phase", phase, "--folder", str(folder)]
    done = subprocess.run(
        command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"the ranks failed ({phase}):\n{done.stdout}\n{done.stderr}")


# ---- the loop ----------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--microbatches", type=int, default=8, metavar="M")
    parser.add_argument("--size", type=int, default=4, help="sequences in a micro-batch")
    parser.add_argument("--steps", type=int, default=5, help="steps that are traced")
    parser.add_argument("--schedules", nargs="+", default=SCHEDULES, metavar="NAME")
    parser.add_argument("--sleep", action="store_true", help="layers that sleep, not compute")
    parser.add_argument("--folder", type=Path, help="keep profile, plan and traces here")
    parser.add_argument("--phase", choices=["profile", "train"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.phase:
        torch.set_num_threads(1)
        dist.init_process_group("gloo", timeout=timedelta(seconds=120))
        (profile_rank if options.phase == "profile" else train_rank)(options.folder)
        dist.destroy_process_group()
        return
    if options.folder is None:
        with tempfile.TemporaryDirectory() as folder:
            loop(options, Path(folder))
    else:
        options.folder.mkdir(parents=True, exist_ok=True)
        loop(options, options.folder)


def together(profiles: list[ps.Profile]) -> ps.Profile:
    """One profile of the medians over the ranks."""
    layers = []
    for same in zip(*(profile.layers for profile in profiles), strict=True):
        times = {
            name: median(getattr(layer, name) for layer in same)
            for name in ("forward", "backward", "backward_input", "backward_weight")
        }
        layers.append(replace(same[0], **times))
    return ps.Profile(layers, name="closed loop")


def loop(options: argparse.Namespace, folder: Path) -> None:
    p, m = options.ranks, options.microbatches
    plan: dict = {"sleep": options.sleep, "m": m, "size": options.size}
    (folder / "plan.json").write_text(json.dumps(plan))
    launch("profile", folder, p)
    profile = together([ps.read_profile(folder / f"profile-rank{rank}.json") for rank in range(p)])
    ps.write_profile(profile, folder / "profile.json")
    print(profile, end="\n\n")

    runs, schedules = [], []
    for split in ("equal-first", "balanced"):
        for name in options.schedules:
            schedule = ps.generate(name, p, m)
            cuts = ps.partition_balanced(profile, schedule.num_stages, split=split).cuts
            runs.append({"name": name, "split": split, "cuts": cuts, "rows": schedule.rows()})
            schedules.append(schedule)
    plan |= {"runs": runs, "steps": options.steps, "warmup": 2}
    (folder / "plan.json").write_text(json.dumps(plan))
    launch("train", folder, p)
    link = json.loads((folder / "link.json").read_text())

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    print(
        f"{p} ranks on {cores} cores, m = {m}, transfer {1e3 * link:.2f} ms; "
        f"step time in ms, bubble_fraction, 'replayed' from the costs in the run's own trace:"
    )
    head = f"{'layers':<9}{'schedule':<10}{'predicted':>10}{'measured':>10}{'error':>8}"
    print(head + f"{'replayed':>10}{'error':>8}{'bubble predicted':>18}{'measured':>10}")
    reasons: dict[str, str] = {}
    for index, (run, schedule) in enumerate(zip(runs, schedules, strict=True)):
        bandwidth = profile.activation[0] / link
        costs = profile.costs(run["cuts"], bandwidth, first_whole=True)
        predicted = schedule.simulate(costs)
        paths = [folder / f"run{index}-rank{rank}.json.gz" for rank in range(p)]
        measured = ps.read_torch_trace(paths)
        replayed = schedule.simulate(measured.costs())
        found = ps.compare_timelines(predicted, measured)
        again = ps.compare_timelines(replayed, measured)
        layers = "even" if run["split"] == "equal-first" else "balanced"
        print(
            f"{layers:<9}{run['name']:<10}{1e3 * predicted.makespan:>10.1f}"
            f"{1e3 * measured.makespan:>10.1f}{100 * found.error:>+7.1f}%"
            f"{1e3 * replayed.makespan:>10.1f}{100 * again.error:>+7.1f}%"
            f"{100 * predicted.bubble_fraction:>17.1f}%{100 * measured.bubble_fraction:>9.1f}%"
        )
        if found.reasons:
            reasons[f"{layers} {run['name']}"] = "; ".join(found.reasons)
    if reasons:
        print("\nwhere the prediction is off by more than a tenth:")
        for run_name, reason in reasons.items():
            print(f"  {run_name}: {reason}")
    if not options.sleep and cores is not None and cores < p:
        print(
            f"\n{p} ranks share {cores} cores: while one computes another must wait for a core, "
            "which the simulator does not know; --sleep shows the prediction without that"
        )


if __name__ == "__main__":
    main()
