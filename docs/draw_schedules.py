"""Draw the README's first picture: two schedules of one model as docs/schedules.svg.

python docs/draw_schedules.py
"""

from pathlib import Path

import matplotlib as mpl

mpl.use("svg")
# The same file from every run, with its words as words.
mpl.rcParams.update({"svg.hashsalt": "pipesched", "svg.fonttype": "none"})

import matplotlib.pyplot as plt  # noqa: E402

import pipesched as ps  # noqa: E402


def main():
    """Write the picture beside this file."""
    gpipe = ps.generate("gpipe", 4, 8).simulate()
    zb_v = ps.generate("zb-v", 4, 8).simulate(ps.Costs(forward=0.5))  # half as long a stage
    _, axes = plt.subplots(2, 1, sharex=True, figsize=(10, 3.9), layout="constrained")
    ps.plot_comparison([gpipe, zb_v], axes)
    path = Path(__file__).resolve().parent / "schedules.svg"
    axes[0].figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
