"""Real training on several ranks: the example, and the checks of worker.py, under torchrun."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
EXAMPLE = HERE.parent.parent / "examples" / "train_torch.py"


def torchrun(ranks, script, *arguments, timeout=300, **options):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCHELASTIC_ERROR_FILE": ""}
    return subprocess.run(
        [*command, "--standalone", str(script), *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        **options,
    )


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("worker")
    done = torchrun(2, HERE / "worker.py", folder)
    path = folder / "results.json"
    assert path.exists(), f"{done.stdout}\n{done.stderr}"
    return json.loads(path.read_text())


CHECKS = re.findall(r"^@check\ndef (\w+)", (HERE / "worker.py").read_text(), re.MULTILINE)


@pytest.mark.parametrize("name", CHECKS)
def test_on_two_ranks(results, name):
    assert results[name] == "", results[name]


FAMILIES = {"gpipe", "1f1b", "eager-1f1b", "interleaved-1f1b", "looped-bfs", "zb-h1", "zb-h2"}
FAMILIES |= {"zb-1p", "zb-v", "v-half", "v-min", "dualpipe-v", "handwritten"}


@pytest.mark.parametrize("ranks", [2, 4])
def test_every_family_trains_as_one_process_does(ranks):
    done = torchrun(ranks, EXAMPLE)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    rows = [line.split() for line in done.stdout.splitlines()]
    trained = {row[0] for row in rows if len(row) == 6 and row[1].isdigit()}
    assert trained == FAMILIES
    for row in rows:
        if row[0] in FAMILIES and row[2] != "left":
            assert float(row[3]) <= 1e-10
            assert float(row[4]) <= 1e-10


def test_a_schedule_from_a_file_trains(tmp_path, data_dir):
    path = data_dir / "torch_csv" / "zb1p_2rank_2stagep_compute_old_dialect_BW.csv"
    done = torchrun(2, EXAMPLE, "--csv", path, "--steps", 1)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "all gradients and losses are those of one process" in done.stdout


DIES = """
import os, signal, sys, torch, torch.distributed as dist
from datetime import timedelta
from torch import nn
import pipesched as ps, pipesched.torch

class Dies(nn.Linear):
    calls = 0
    def forward(self, x):
        Dies.calls += 1
        if Dies.calls > 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(x)

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(hours=1))
schedule = ps.generate("1f1b", 2, 4)
modules = [nn.Linear(4, 4), Dies(4, 4)]
pipeline = pipesched.torch.build(schedule, modules, nn.MSELoss(), timeout=20)
batch = torch.randn(8, 4)
try:
    pipeline.step(*([batch] if dist.get_rank() == 0 else []), target=batch)
except pipesched.torch.PipelineError as error:
    print(f"CAUGHT {error}", flush=True)
    raise
"""


def test_a_rank_that_dies_ends_the_others(tmp_path):
    """The group would wait for an hour, so an end at all is that of `build`'s timeout."""
    script = tmp_path / "dies.py"
    script.write_text(DIES)
    done = torchrun(2, script)
    assert done.returncode != 0
    assert f"Signal {int(signal.SIGKILL)}" in done.stderr or "SIGKILL" in done.stderr
    if "CAUGHT" in done.stdout:  # torchrun may be faster than the rank that is left
        assert "rank 0 stopped at action" in done.stdout
        assert "stage 1 on rank 1" in done.stdout


def test_the_closed_loop_tells_prediction_and_measurement(tmp_path):
    """A row for each run, whose errors are those of its times, and a reason where one is large.

    How large is not tested: a machine that is busy with other work makes every run slower.
    """
    arguments = ["--sleep", "--microbatches", "4", "--steps", "2", "--schedules", "1f1b", "zb-v"]
    done = subprocess.run(
        [sys.executable, EXAMPLE.with_name("closed_loop.py"), *arguments, "--folder", tmp_path],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    rows = [line.split() for line in done.stdout.splitlines()]
    table = [row for row in rows if len(row) == 9 and row[0] in ("even", "balanced")]
    assert [row[1] for row in table] == ["1f1b", "zb-v"] * 2
    _, _, told = done.stdout.partition("where the prediction is off by more than a tenth:")
    for layers, name, *cells in table:
        numbers = [float(cell.rstrip("%")) for cell in cells]
        predicted, measured, error, replayed, again, *bubbles = numbers
        assert error == pytest.approx(100 * (predicted / measured - 1), abs=0.1)
        assert again == pytest.approx(100 * (replayed / measured - 1), abs=0.1)
        assert all(0 < bubble < 100 for bubble in bubbles)
        if abs(error) != 10:  # as printed, this may be either side of a tenth
            assert (f"{layers} {name}: " in told) == (abs(error) > 10), done.stdout
    assert is_measured(tmp_path / "profile.json")


def is_measured(path):
    layers = json.loads(path.read_text())["layers"]
    return all({"backward_input", "backward_weight", "held"} <= set(layer) for layer in layers)
