"""Pipeline-parallel training schedules: make, check, time, draw and train them."""

from pipesched.generate import SCHEDULES, generate

__all__ = ["SCHEDULES", "generate"]
