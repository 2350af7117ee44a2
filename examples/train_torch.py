"""Train a small transformer language model with any schedule, and prove the gradients.

    torchrun --nproc-per-node 4 examples/train_torch.py
    torchrun --nproc-per-node 2 examples/train_torch.py --schedules zb-v 1f1b --microbatches 3 5

Every family is trained for a few steps on the CPU (gloo), in float64, next to one process that
takes the whole batch.  The losses and the gradients of all stages must agree to 1e-10; the exit
status says whether they did.  `--csv FILE` trains a schedule from a file in torch's format.
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

import pipesched as ps
import pipesched.torch

TEXT = """
The first rank reads the first part of the batch, and while it reads the second part the second
rank already works on the first. So the pipeline fills, one rank after the other, until all of them
are busy. When the last part has gone through, it drains again, and who waits then, waits in the
bubble. A schedule says who does what in which order: all forwards before all backwards, or one
forward and one backward in turn, or the backward in two halves, of which the second can wait and
fill the bubble. The order changes the time and the memory. It must never change the gradient.
"""

FAMILIES = (
    "gpipe",
    "1f1b",
    "eager-1f1b",
    "interleaved-1f1b",
    "looped-bfs",
    "zb-h1",
    "zb-h2",
    "zb-1p",
    "zb-v",
    "v-half",
    "v-min",
    "dualpipe-v",
    "handwritten",
)

# Written by hand, by number of ranks: stage 0 and the last stage share a rank, the backwards of
# some stages are split, and those of one stage run in reverse.
HANDWRITTEN = {
    1: ["0F0 0F1 1F0 1B0 1F1 1B1 0I1 0B0 0W1"],
    2: [
        "0F0 0F1 0F2 2F0 2B0 2F1 2I1 2F2 2W1 2B2 0B2 0I0 0B1 0W0",
        "1F0 1F1 1F2 1I0 1I1 1B2 1W0 1W1",
    ],
    4: [
        "0F0 0F1 4F0 4B0 4F1 4I1 4W1 0B1 0B0",
        "1F0 1F1 1I0 1B1 1W0",
        "2F0 2F1 2B0 2B1",
        "3F0 3F1 3I0 3I1 3W0 3W1",
    ],
}


class Embedding(nn.Module):
    """Tokens and positions to vectors."""

    def __init__(self, vocabulary: int, length: int, width: int):
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Parameter(torch.randn(length, width) * 0.02)

    def forward(self, tokens):
        return self.token(tokens) + self.position


class Block(nn.Module):
    """Causal self-attention and a feed-forward part, each after a norm and beside a shortcut."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).chunk(3, dim=-1)
        )
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


def language_model(vocabulary: int, length: int, width: int = 16, heads: int = 2, blocks: int = 8):
    """The model as a list of layers, which `pipesched.torch.split` cuts into stages."""
    head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, vocabulary))
    middle = [Block(width, heads) for _ in range(blocks)]
    return [Embedding(vocabulary, length, width), *middle, head]


def loss_fn(logits, target):
    return nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())


def batches(size: int, length: int, steps: int):
    """Batches of consecutive characters, and the characters that follow them."""
    alphabet = sorted(set(TEXT))
    codes = torch.tensor([alphabet.index(c) for c in TEXT])
    for _ in range(steps):
        starts = torch.randint(0, len(codes) - length, (size,))
        window = codes[starts[:, None] + torch.arange(length + 1)]
        yield window[:, :-1], window[:, 1:]


def make_schedule(name: str, p: int, m: int) -> ps.Schedule:
    if name == "handwritten":
        if p not in HANDWRITTEN:
            raise ValueError(f"no handwritten schedule for p={p}: there are {sorted(HANDWRITTEN)}")
        return ps.Schedule.from_rows(HANDWRITTEN[p], "handwritten")
    return ps.generate(name, p, m)


def train(schedule: ps.Schedule, length: int, steps: int, rate: float = 0.1) -> tuple[float, float]:
    """Train; return the largest difference in a loss and in a gradient from one process."""
    m = schedule.num_microbatches
    torch.manual_seed(0)
    layers = language_model(len(set(TEXT)), length)
    alone = nn.Sequential(*copy.deepcopy(layers))
    stages = pipesched.torch.split(layers, schedule.num_stages)
    twins = pipesched.torch.split(alone, schedule.num_stages)
    pipeline = pipesched.torch.build(schedule, stages, loss_fn)
    loss_error = gradient_error = 0.0
    for tokens, target in batches(2 * m, length, steps):
        for module in (alone, *stages):
            module.zero_grad()
        losses: list[torch.Tensor] = []
        first, last = 0 in pipeline.modules, schedule.num_stages - 1 in pipeline.modules
        pipeline.step(*([tokens] if first else []), target=target if last else None, losses=losses)

        whole = loss_fn(alone(tokens), target)
        whole.backward()
        if last:
            with torch.no_grad():
                parts = zip(tokens.chunk(m), target.chunk(m), strict=True)
                expected = torch.stack([loss_fn(alone(t), y) for t, y in parts])
            got = torch.stack([loss.detach() for loss in losses])
            loss_error = max(loss_error, float((got - expected).abs().max()))
            loss_error = max(loss_error, float((got.mean() - whole.detach()).abs()))
        for stage in pipeline.modules:
            for mine, twin in zip(
                stages[stage].parameters(), twins[stage].parameters(), strict=True
            ):
                difference = (mine.grad - twin.grad).abs().max()
                gradient_error = max(gradient_error, float(difference))
        with torch.no_grad():
            for module in (alone, *pipeline.modules.values()):
                for parameter in module.parameters():
                    parameter -= rate * parameter.grad
    errors = torch.tensor([loss_error, gradient_error])
    dist.all_reduce(errors, dist.ReduceOp.MAX)
    return float(errors[0]), float(errors[1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--schedules", nargs="+", default=FAMILIES, metavar="NAME")
    parser.add_argument("--microbatches", nargs="+", type=int, metavar="M")
    parser.add_argument("--csv", help="train the schedule of this file instead")
    parser.add_argument("--length", type=int, default=8, help="characters in a sequence")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--tolerance", type=float, default=1e-10)
    options = parser.parse_args()
    unknown = sorted(set(options.schedules) - {"handwritten", *ps.SCHEDULES})
    if unknown:
        parser.error(f"no schedule is named {unknown[0]}; there are {', '.join(ps.SCHEDULES)}")

    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank, p = dist.get_rank(), dist.get_world_size()

    def say(text: str) -> None:
        if rank == 0:
            print(text, flush=True)

    # Fewer than p, not divisible by p, and enough for the families that want 2p.
    counts = options.microbatches or [max(1, p - 1), p + 1, 2 * p + 1]
    cases = [(name, m) for name in options.schedules for m in counts]
    if options.csv:
        cases = [(options.csv, 0)]
    say(f"{'schedule':<18}{'m':>3}{'stages':>8}{'loss error':>13}{'gradient error':>16}{'s':>7}")
    wrong = 0
    for name, m in cases:
        try:
            schedule = ps.read_torch_csv(name) if options.csv else make_schedule(name, p, m)
        except ValueError as error:
            say(f"{name:<18}{m:>3}  left out: {error}")
            continue
        if name == "handwritten" and m != counts[0]:
            continue  # it has its own number of micro-batches
        began = time.perf_counter()
        loss_error, gradient_error = train(schedule, options.length, options.steps)
        took = time.perf_counter() - began
        good = max(loss_error, gradient_error) <= options.tolerance
        wrong += not good
        say(
            f"{name:<18}{schedule.num_microbatches:>3}{schedule.num_stages:>8}"
            f"{loss_error:>13.1e}{gradient_error:>16.1e}{took:>7.2f}{'' if good else '  WRONG'}"
        )
    say(f"{wrong} wrong" if wrong else "all gradients and losses are those of one process")
    dist.destroy_process_group()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
