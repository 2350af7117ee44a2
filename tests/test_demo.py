"""The main job of `make demo`: what it prints and what it leaves to open."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest
from conftest import ROOT

import pipesched as ps

EXAMPLES = ROOT / "examples"


def run(folder, *arguments):
    return subprocess.run(
        [sys.executable, EXAMPLES / "demo.py", *map(str, arguments)],
        cwd=folder,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    done = run(folder, 4, 8)
    assert done.returncode == 0, done.stderr
    return done.stdout, folder / "demo_output"


def test_it_compares_all_families_and_draws_the_fastest(demo):
    out, _ = demo
    table = out.split("times in ms:\n\n")[1].split("\n\n")[0].splitlines()
    names = [line.split()[0] for line in table[1:]]
    assert set(names) == set(ps.SCHEDULES) - {"forward"}
    assert f"The fastest: {names[0]}\n" in out
    times = [float(line.split()[1]) for line in table[1:]]
    assert times == sorted(times)


def test_it_checks_a_file_that_torch_wrote(demo):
    out, _ = demo
    assert "zero_bubble_by_torch: 4 ranks" in out.replace("<Schedule '", "").replace("'", "")
    assert "no deadlock, buffered or blocking" in out
    assert "torch loads and runs this schedule" in out
    schedule = ps.read_torch_csv(EXAMPLES / "zero_bubble_by_torch.csv")
    assert schedule == ps.generate("zb-1p", 4, 8)


def test_everything_it_names_can_be_opened(demo):
    out, folder = demo
    named = re.findall(r"^  (\S+)  ", out.split("Left to open\n")[1], flags=re.MULTILINE)
    assert len(named) == 6
    for name in named:
        path = folder.parent / name
        content = path.read_bytes()
        begins = {
            ".png": b"\x89PNG",
            ".html": b"<!DOCTYPE html>",
            ".json": b"{",
            ".csv": b"0F0",
        }[path.suffix]
        assert content.startswith(begins), name
    events = json.loads((folder / "winner.trace.json").read_text())["traceEvents"]
    best = re.search(r"The fastest: (\S+)", out)[1]
    made = ps.generate(best, 4, 8)
    assert sum(e["ph"] == "X" for e in events) == len(made) - np.count_nonzero(made.ops["fuse"])
    assert ps.read_torch_csv(folder / "winner.csv") == made


@pytest.mark.parametrize(("p", "m"), [(1, 1), (5, 3), (16, 4), (17, 4)])
def test_any_number_of_ranks(tmp_path, p, m):
    done = run(tmp_path, p, m)
    assert done.returncode == 0, done.stderr
    assert ("at most as many ranks" in done.stdout) == (p > 16)


def test_the_measured_files_belong_together():
    """costs.json is transformer.json cut as its note says."""
    model = ps.read_profile(EXAMPLES / "transformer.json")
    cut = ps.partition_balanced(model, 4)
    assert ps.read_costs(EXAMPLES / "costs.json") == model.costs(cut.cuts, 1.25e9)
    note = json.loads((EXAMPLES / "costs.json").read_text())["note"]
    assert f"layers {', '.join(map(str, cut.cuts))}" in note
    assert "measure_model.py" in note
