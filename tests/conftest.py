"""What all tests share: data, fresh interpreters, and how hard hypothesis tries."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent

# PIPESCHED_PROFILE chooses one. All give the same examples in every run, so that a
# failure is a failure for everybody; "explore" draws new ones.
_COMMON = {"deadline": None, "derandomize": True, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("dev", max_examples=50, **_COMMON)
settings.register_profile("ci", max_examples=100, **_COMMON)
settings.register_profile("sanitize", max_examples=15, **_COMMON)
settings.register_profile("explore", max_examples=500, **{**_COMMON, "derandomize": False})
settings.load_profile(os.environ.get("PIPESCHED_PROFILE", "dev"))


def assert_read_only(array: np.ndarray) -> None:
    """Nobody can write to an array, nor to those it is a view of."""
    if array.ndim:
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    while isinstance(array, np.ndarray):
        assert not array.flags.writeable
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True
        array = array.base


# Tests that need what is large (torch, a browser) run where their folder is named, which is
# what these make targets do.
_APART = {"with_torch": "make test-torch", "with_browser": "make test-browser"}


def _asked_for(folder: str, config: pytest.Config) -> bool:
    return any(folder in argument for argument in config.args)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    name = collection_path.name
    return True if name in _APART and not _asked_for(name, config) else None


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if any(_asked_for(folder, config) for folder in _APART):
        return
    for folder, command in _APART.items():
        terminalreporter.write_line(f"not run: tests/{folder}; `{command}` runs them")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of published schedules, profiles and numbers; skips where it is absent."""
    path = Path(os.environ.get("PIPESCHED_DATA", ROOT.parent / "shared" / "data"))
    if not path.is_dir():
        pytest.skip(f"no data folder at {path}; set PIPESCHED_DATA")
    return path


@pytest.fixture
def run_python(tmp_path):
    """Run code in a fresh interpreter, in an empty folder, and return what it printed."""

    def run(code: str, *, timeout: float = 120, **environment: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run
