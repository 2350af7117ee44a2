"""Pipeline-parallel training schedules: make, check, time, draw and train them."""

from pipesched.check import KINDS, Fault, ScheduleError
from pipesched.exercise import bubble_formula, bubble_fraction, gpipe_forward_schedule
from pipesched.generate import SCHEDULES, generate
from pipesched.schedule import OP_DTYPE, Schedule

__all__ = [
    "KINDS",
    "OP_DTYPE",
    "SCHEDULES",
    "Fault",
    "Schedule",
    "ScheduleError",
    "bubble_formula",
    "bubble_fraction",
    "generate",
    "gpipe_forward_schedule",
]
