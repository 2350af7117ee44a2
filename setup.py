"""The extension module; everything else stands in pyproject.toml.

Switches from the environment, for developers only (a user's build gets none):
    PIPESCHED_SANITIZE=1   AddressSanitizer and UndefinedBehaviorSanitizer
    PIPESCHED_DEBUG=1      -O0 -g, assertions on, every warning an error
    PIPESCHED_COVERAGE=1   gcov instrumentation
"""

import os
from pathlib import Path

import numpy
from setuptools import Extension, setup

WARNINGS = [
    "-Wall",
    "-Wextra",
    "-Wpedantic",
    "-Wconversion",
    "-Wshadow",
    "-Wstrict-prototypes",
    "-Werror",
]


def switch(name: str) -> bool:
    return os.environ.get(f"PIPESCHED_{name}", "0") not in ("", "0")


compile_args = ["/std:c11"] if os.name == "nt" else ["-std=c11"]
link_args = []
if switch("SANITIZE"):
    flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
    compile_args += [*flags, "-fno-omit-frame-pointer", "-g", "-O1"]
    link_args += flags
if switch("DEBUG"):
    # NumPy's headers as the system's: its warnings are not ours to mend.
    compile_args += ["-O0", "-g", "-UNDEBUG", *WARNINGS, "-isystem", numpy.get_include()]
if switch("COVERAGE"):
    compile_args += ["--coverage", "-O0"]
    link_args += ["--coverage"]

setup(
    ext_modules=[
        Extension(
            "pipesched._core",
            sources=sorted(str(path) for path in Path("csrc").rglob("*.c")),
            depends=sorted(str(path) for path in Path("csrc").rglob("*.h")),
            include_dirs=["csrc"],
            extra_compile_args=compile_args,
            extra_link_args=link_args,
        )
    ],
    include_dirs=[numpy.get_include()],
)
