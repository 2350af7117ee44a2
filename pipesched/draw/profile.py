"""A profile as a matplotlib picture: time, outputs and weights of every layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pipesched.draw import palette
from pipesched.draw.plot import new_axes
from pipesched.profile import Profile

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_profile"]


def plot_profile(profile: Profile, ax: Axes | None = None) -> Axes:
    """Draw a profile; see :meth:`pipesched.Profile.plot`."""
    ax = new_axes(ax, 9, 3.6)
    x = np.arange(len(profile))
    forward, backward = profile.forward * 1e3, profile.backward * 1e3
    ax.bar(x, forward, color=palette.FILLS[0], label="forward")
    ax.bar(x, backward, bottom=forward, color=palette.FILLS[1], label="backward")
    ax.set(xlabel="layer", ylabel="ms a mini-batch", title=f"{profile.name}: profile")
    ax.margins(x=0.01)
    size = ax.twinx()
    size.plot(x, profile.activation / 1e6, color=palette.LINES[2], marker=".", lw=1, label="output")
    held = np.flatnonzero(profile.parameters)
    size.plot(held, profile.parameters[held] / 1e6, "x", color=palette.LINES[4], label="weights")
    # Linear below 1 MB, so that layers without output have a place, too.
    size.set_yscale("symlog", linthresh=1.0)
    size.set_ylim(bottom=0.0)
    size.set_ylabel("MB")
    handles, labels = ax.get_legend_handles_labels()
    more_handles, more_labels = size.get_legend_handles_labels()
    ax.legend(
        handles + more_handles,
        labels + more_labels,
        ncols=4,
        fontsize="small",
        loc="lower center",
        bbox_to_anchor=(0.5, -0.32),
        frameon=False,
    )
    return ax
