"""Pipeline-parallel training schedules: make, check, time, draw and train them."""

import importlib
import sys
from types import ModuleType

from pipesched.exercise import bubble_formula, bubble_fraction, gpipe_forward_schedule

# Where each other public name lives. A module is loaded when the first of its names
# is used, so that `import pipesched` takes no longer for all that it offers. Each name
# also stands in __init__.pyi, for type checkers and editors.
_HOME = {
    "KINDS": "check",
    "OP_DTYPE": "schedule",
    "SCHEDULES": "generate",
    "BalancedPartition": "partition",
    "Comparison": "compare",
    "ComparisonRow": "compare",
    "Costs": "costs",
    "Fault": "check",
    "Layer": "profile",
    "MeasuredTimeline": "measured",
    "MegatronLayout": "formats.megatron_layout",
    "Plan": "plan",
    "Profile": "profile",
    "Schedule": "schedule",
    "ScheduleError": "check",
    "Timeline": "timeline",
    "Timelines": "timeline",
    "WeightVersions": "versions",
    "baselines": "partition",
    "compare": "compare",
    "compare_timelines": "measured",
    "generate": "generate",
    "megatron_layout": "formats.megatron_layout",
    "microbatches_for": "formulas",
    "partition": "partition",
    "partition_balanced": "partition",
    "plot_bubble": "compare",
    "plot_comparison": "compare",
    "read_costs": "formats.costs_json",
    "read_profile": "formats.pipedream_profile",
    "read_torch_csv": "formats.torch_csv",
    "read_torch_trace": "formats.torch_trace",
    "weight_versions": "versions",
    "write_costs": "formats.costs_json",
    "write_profile": "formats.pipedream_profile",
}
# Modules that are public as they are, loaded in the same way.
_MODULES = ("formulas",)

__all__ = ["bubble_formula", "bubble_fraction", "gpipe_forward_schedule", *_HOME]


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})


class _Package(ModuleType):
    """Keeps a public name from being taken by the module of the same name.

    Python hangs each module that is loaded on its package: `pipesched.generate` would
    be the module once anything has imported it. It is always the function.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
