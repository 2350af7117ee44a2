"""The demo of the exercise: what it prints, what it writes, and what it says to nonsense."""

import os
import re
import subprocess
import sys

import pytest
from conftest import ROOT

import pipesched as ps

DEMO = ROOT / "examples" / "demo_exercise.py"


def run(folder, *arguments, columns=100, **environment):
    return subprocess.run(
        [sys.executable, DEMO, *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "COLUMNS": str(columns), "PYTHONIOENCODING": "utf-8", **environment},
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )


def test_the_schedule_and_its_bubble(tmp_path):
    done = run(tmp_path, 4, 8)
    assert done.returncode == 0, done.stderr
    assert "rank 0  0  1  2  3  4  5  6  7  ·  ·  ·\n" in done.stdout
    assert "rank 3  ·  ·  ·  0  1  2  3  4  5  6  7\n" in done.stdout
    assert "12 of 44 cells = 0.2727272727272727" in done.stdout
    assert "3 / 11 = 0.2727272727272727" in done.stdout
    assert re.search(r"m =  8 +27\.3%.*<- here", done.stdout)
    assert "\x1b" not in done.stdout  # not a terminal: no colour
    path = tmp_path / re.search(r"Wrote the same to (.*)", done.stdout)[1]
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("p", "m"), [(1, 1), (40, 3), (3, 500), (100, 1000)])
def test_any_size_fits_the_terminal(tmp_path, p, m):
    done = run(tmp_path, p, m, columns=60)
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 90
    rows = [line for line in done.stdout.splitlines() if line.startswith("rank ")]
    assert rows
    assert all(len(row) <= 60 for row in rows)
    assert repr(ps.bubble_formula(p, m)) in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("0", "8"), "p must be at least 1, got 0"),
        (("x", "8"), "'x'"),
        (("4", "1.5"), "'1.5'"),
        (("3", str(2**70)), "cannot be addressed"),
        (("1", str(2**59)), "Unable to allocate"),
        (("4",), "RANKS MICRO_BATCHES"),
        ((), "RANKS MICRO_BATCHES"),
    ],
)
def test_nonsense_is_answered_in_one_line(tmp_path, arguments, says):
    done = run(tmp_path, *arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_colour_where_the_terminal_has_it(monkeypatch):
    import importlib.util

    spec = importlib.util.spec_from_file_location("demo_exercise", DEMO)
    demo = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(demo)

    class Terminal:
        def isatty(self):
            return True

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert demo.has_colour(Terminal())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not demo.has_colour(Terminal())
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not demo.has_colour(Terminal())

    table = ps.gpipe_forward_schedule(2, 3)
    plain = demo.picture(table, 80, 10, colour=False)
    coloured = demo.picture(table, 80, 10, colour=True)
    # One colour a micro-batch, the same on every rank.
    found = re.findall(r"48;5;(\d+)m\s*(\d)", coloured)
    assert len(found) == 6
    assert len(set(found)) == len({colour for colour, _ in found}) == 3
    bare = re.sub(r"\x1b\[[\d;]*m", "", coloured)
    assert [row.rstrip() for row in bare.splitlines()] == plain.splitlines()
