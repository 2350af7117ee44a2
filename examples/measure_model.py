"""Measure a small transformer layer by layer: how transformer.json and costs.json were made.

    python examples/measure_model.py

needs torch (pip install 'pipesched[torch]'). It runs each layer of a language model forward
and backward on this machine's CPU, on one thread, and takes medians. What it writes beside
itself is the input of ``make demo``:

- transformer.json: seconds and bytes of each layer for one micro-batch (a `Profile`);
- costs.json: the same cut evenly by time into four stages (a `Costs`), with transfers at
  BANDWIDTH.
"""

from pathlib import Path

import torch
from torch import nn

import pipesched as ps
import pipesched.torch

HERE = Path(__file__).resolve().parent
BLOCKS, WIDTH, HEADS, VOCABULARY = 14, 256, 4, 8192
MICRO_BATCH, LENGTH = 4, 128
BANDWIDTH = 1.25e9  # bytes a second: 10 Gbit/s Ethernet


def model() -> list[nn.Module]:
    """Embedding, blocks, output layer: a chain of layers of very different cost."""
    blocks = [
        nn.TransformerEncoderLayer(
            WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
        )
        for _ in range(BLOCKS)
    ]
    return [nn.Embedding(VOCABULARY, WIDTH), *blocks, nn.Linear(WIDTH, VOCABULARY)]


def loss(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Cross entropy of the next word."""
    return nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())


def main() -> None:
    """Measure, and write both files."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    words = torch.randint(VOCABULARY, (MICRO_BATCH, LENGTH))
    found = pipesched.torch.profile(
        model(), words, loss_fn=loss, target=words, warmup=3, repeats=15, name="transformer"
    )
    ps.write_profile(found, HERE / "transformer.json")
    cut = ps.partition_balanced(found, 4)
    note = (
        f"Measured by examples/measure_model.py with torch {torch.__version__} on one CPU thread: "
        f"{BLOCKS} transformer blocks of width {WIDTH}, vocabulary {VOCABULARY}, micro-batches of "
        f"{MICRO_BATCH} x {LENGTH} tokens, float32, cut into 4 stages of even time (layers "
        f"{', '.join(map(str, cut.cuts))}). Seconds and bytes; transfers at {BANDWIDTH:g} bytes/s."
    )
    ps.write_costs(found.costs(cut.cuts, BANDWIDTH), HERE / "costs.json", note=note)
    print(found)
    print(cut)


if __name__ == "__main__":
    main()
