"""The exercise: GPipe's forward schedule as a table, and the bubble in it."""

from pipesched._core import bubble_formula, bubble_fraction, gpipe_forward_schedule

__all__ = ["bubble_formula", "bubble_fraction", "gpipe_forward_schedule"]
