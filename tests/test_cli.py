"""The command line, run as a person runs it."""

import io
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from conftest import ROOT

import pipesched as ps
from pipesched.cli import main

README = ROOT / "README.md"
FILE = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"


@pytest.fixture
def schedule_file(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text(FILE)
    return str(path)


def run(capsys, *argv: str) -> tuple[int, str, str]:
    status = main(argv)
    out, err = capsys.readouterr()
    return status, out, err


def test_show_draws(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    status, out, err = run(capsys, "show", "1f1b", "-p", "4", "-m", "8")
    assert (status, err) == (0, "")
    assert "rank 3" in out
    assert "makespan 33, bubble_fraction 0.2727" in out


def test_options_of_the_family(capsys):
    status, out, _ = run(capsys, "show", "interleaved-1f1b", "-p", "2", "-m", "4", "--v", "3")
    assert status == 0
    assert "6 stages" in out


def test_show_a_file_and_standard_input(capsys, monkeypatch, schedule_file):
    first = run(capsys, "show", schedule_file)[1]
    assert first.startswith("mine: 2 ranks")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(FILE.encode())))
    assert run(capsys, "show", "-")[1].split("\n")[1:] == first.split("\n")[1:]


@pytest.mark.parametrize(
    ("name", "begins"),
    [
        ("a.png", b"\x89PNG"),
        ("a.svg", b"<svg"),
        ("a.html", b"<!DOCTYPE html>"),
        ("a.txt", b"1f1b"),
        ("a.csv", b"0F0"),
        ("a.json", b"{"),
        ("a.trace.json", b'{"displayTimeUnit"'),
    ],
)
def test_the_output_tells_the_format(capsys, tmp_path, name, begins):
    path = tmp_path / name
    assert run(capsys, "show", "1f1b", "-p", "2", "-m", "4", "-o", str(path))[0] == 0
    assert path.read_bytes().startswith(begins)


@pytest.mark.skipif(not README.exists(), reason="the README is not beside these tests")
def test_the_readme_shows_what_is_printed(run_python):
    out = run_python(
        "import sys; from pipesched.cli import main\nmain(['show', 'zb-h1', '-p', '3', '-m', '4'])",
        COLUMNS="90",
        PYTHONIOENCODING="utf-8",
    )
    assert f"$ pipesched show zb-h1 -p 3 -m 4\n{out}" in README.read_text(encoding="utf-8")


def test_check(capsys, tmp_path, schedule_file):
    assert run(capsys, "check", schedule_file)[:2] == (
        0,
        "legal: 2 ranks, 2 stages, 2 micro-batches, 8 ops\n",
    )
    bad = tmp_path / "bad.csv"
    bad.write_text("0F0,0B0\n1B0,1F0\n")
    status, out, err = run(capsys, "check", str(bad))
    assert (status, out) == (1, "")
    assert err == "pipesched: rank 1, op 0: 1B0 before its forward 1F0 (op 1)\n"
    status, out, err = run(capsys, "check", str(bad), "--json")
    assert (status, err) == (1, "")
    assert json.loads(out)["legal"] is False
    assert json.loads(out)["rank"] == 1


@pytest.mark.parametrize(
    "text",
    [
        FILE,
        FILE.replace(",", " "),
        FILE.replace(",", " , ").replace("\n", "\r\n"),
        "\ufeff" + FILE,
        '[["0F0","0F1","0B0","0B1"],["1F0","1B0","1F1","1B1"]]',
        '\ufeff{"name": "x", "rows": ["0F0 0F1 0B0 0B1", "1F0,1B0,1F1,1B1"]}',
    ],
)
def test_rows_are_read_in_all_their_forms(capsys, tmp_path, text):
    path = tmp_path / "rows"
    path.write_text(text, encoding="utf-8", newline="")
    assert run(capsys, "convert", str(path)) == (0, FILE, "")


def test_one_of_each_is_not_many(capsys, tmp_path):
    path = tmp_path / "rows"
    path.write_text("0F0")
    assert run(capsys, "check", str(path))[1] == "legal: 1 rank, 1 stage, 1 micro-batch, 1 op\n"


def test_check_tells_the_whole_fault_as_json(capsys, tmp_path):
    stuck = tmp_path / "stuck.csv"
    stuck.write_text("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n")
    status, out, err = run(capsys, "check", str(stuck))
    assert (status, out, err.count("\n")) == (1, "", 1)
    found = json.loads(run(capsys, "check", str(stuck), "--json")[1])
    assert (found["code"], found["rank"], found["position"], found["op"]) == (
        "deadlock", 0, 1, "0B0",
    )  # fmt: skip
    assert found["cycle"] == [[0, 1, "0B0"], [1, 0, "1F1"]]
    assert found["message"] in err


def test_simulate_with_costs(capsys, tmp_path, schedule_file):
    costs = tmp_path / "costs.json"
    costs.write_text('{"forward": [1, 3], "transfer": 0.5, "note": "made up"}')
    status, out, _ = run(capsys, "simulate", schedule_file, "--costs", str(costs), "--json")
    assert status == 0
    found = json.loads(out)
    expected = ps.Schedule.from_rows(FILE.splitlines()).simulate(
        ps.Costs(forward=[1, 3], transfer=0.5)
    )
    assert found["makespan"] == expected.makespan
    assert found["peak_activations"] == expected.peak_activations.tolist()


def test_convert_there_and_back(capsys, tmp_path, schedule_file):
    rows, back, comms = (str(tmp_path / n) for n in ("a.json", "b.csv", "c.csv"))
    assert run(capsys, "convert", schedule_file, "--format", "rows", "-o", rows)[0] == 0
    assert run(capsys, "convert", rows, "-o", back)[0] == 0
    original = ps.Schedule.from_rows(FILE.splitlines())
    assert ps.read_torch_csv(back) == original
    assert run(capsys, "convert", schedule_file, "--comms", "-o", comms)[0] == 0
    assert ps.read_torch_csv(comms) == original.lower()


def test_convert_writes_csv_to_standard_output(capsys):
    status, out, _ = run(capsys, "convert", "1f1b", "-p", "2", "-m", "2")
    assert status == 0
    assert out.split() == FILE.split()


def test_compare(capsys):
    status, out, _ = run(capsys, "compare", "-p", "4", "-m", "8")
    assert status == 0
    assert "vs 1f1b" in out
    status, out, _ = run(capsys, "compare", "-p", "4", "-m", "8", "--schedules", "1f1b", "--json")
    assert json.loads(out)["rows"][0]["makespan"] == 33


def test_the_output_tells_the_format_of_a_report(capsys, tmp_path, schedule_file):
    for argv in (["compare", "-p", "2", "-m", "4"], ["check", schedule_file], ["schedules"],
                 ["simulate", schedule_file], ["versions", "stash", schedule_file]):  # fmt: skip
        by_name, text = tmp_path / "a.json", tmp_path / "a.txt"
        assert run(capsys, *argv, "-o", str(by_name))[0] == 0
        assert by_name.read_text() == run(capsys, *argv, "--json")[1]
        assert run(capsys, *argv, "-o", str(text))[0] == 0
        assert text.read_text() == run(capsys, *argv)[1]
    table = tmp_path / "a.csv"
    assert run(capsys, "compare", "-p", "2", "-m", "4", "-o", str(table))[0] == 0
    head, *rows = (line.split(",") for line in table.read_text().splitlines())
    found = ps.compare(2, 4)
    assert head == list(found.to_dict())
    assert [row[0] for row in rows] == [row.name for row in found]
    assert [float(row[1]) for row in rows] == [row.makespan for row in found]
    status, _, err = run(capsys, "check", schedule_file, "-o", str(tmp_path / "a.png"))
    assert (status, err.count("\n")) == (2, 1)
    assert "this command writes text, json" in err


def test_convert_to_json_and_back(capsys, tmp_path, schedule_file):
    path = tmp_path / "a.json"
    path.write_text(run(capsys, "convert", schedule_file, "--json")[1])
    assert run(capsys, "convert", str(path))[1] == FILE


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_any_name_in_any_encoding(tmp_path, encoding):
    (tmp_path / "日本 é.csv").write_text(FILE)
    for format in ("text", "svg", "html", "json", "rows", "csv", "trace"):
        done = subprocess.run(
            [sys.executable, "-m", "pipesched", "show", "日本 é.csv", "--format", format],
            capture_output=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONIOENCODING": encoding},
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, b"")
        text = done.stdout.decode(encoding)
        shown = {"text": "日本 é" if encoding == "utf-8" else "\\u65e5\\u672c \\xe9",
                 "svg": "&#26085;&#26412; &#233;", "html": "&#26085;&#26412; &#233;",
                 "csv": "0F0"}  # fmt: skip
        assert shown.get(format, "\\u65e5\\u672c \\u00e9") in text


PROFILE = """node1 -- Conv -- forward_compute_time=10.000, backward_compute_time=20.000, \
activation_size=1000000.000, parameter_size=1000000.000
node2 -- Linear -- forward_compute_time=4.000, backward_compute_time=6.000, \
activation_size=100000.000, parameter_size=400000000.000
\tnode1 -- node2
"""


def test_partition(capsys, tmp_path):
    path = tmp_path / "graph.txt"
    path.write_text(PROFILE)
    argv = ["partition", str(path), "--workers", "4", "--bandwidth", "1e9"]
    status, out, _ = run(capsys, *argv)
    assert status == 0
    assert "data parallel:" in out
    found = json.loads(run(capsys, *argv, "--json")[1])
    plan = ps.partition(ps.read_profile(path), 4, 1e9)
    assert (found["config"], found["seconds"]) == (plan.config, plan.time) == ("3-1", plan.time)
    assert [stage["ranks"] for stage in found["stages"]] == [list(s.ranks) for s in plan.stages]
    levels = ["partition", str(path), "--workers", "2,2", "--bandwidth", "10e9,1e9", "--json"]
    plan = ps.partition(ps.read_profile(path), (2, 2), (10e9, 1e9))
    assert json.loads(run(capsys, *levels)[1])["seconds"] == plan.time


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        (["--workers", "4", "--bandwidth", "fast"], "--bandwidth is a number"),
        (["--workers", "0", "--bandwidth", "1e9"], "workers"),
        (["--workers", "4", "--bandwidth", "1e9", "--memory", "1e3"], "bytes"),
        (["--workers", "4,4", "--bandwidth", "1e9"], "bandwidth"),
    ],
)
def test_bad_partitions(capsys, tmp_path, extra, says):
    path = tmp_path / "graph.txt"
    path.write_text(PROFILE)
    status, out, err = run(capsys, "partition", str(path), *extra)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert says in err


def test_versions(capsys):
    argv = ["versions", "stash", "pipedream", "-p", "3", "-m", "5"]
    expected = ps.weight_versions(ps.generate("pipedream", 3, 5), "stash")
    assert run(capsys, *argv) == (0, f"{expected}\n", "")
    assert json.loads(run(capsys, *argv, "--json")[1])["held"] == expected.held.tolist()
    status, _, err = run(capsys, "versions", "stach", *argv[2:])
    assert status == 2
    assert "did you mean 'stash'" in err


@pytest.mark.parametrize("columns", [64, 80, 100, 160])
def test_plans_and_versions_fit_the_terminal(capsys, tmp_path, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    path = tmp_path / "graph.txt"
    path.write_text(PROFILE)
    for argv in (
        ["partition", str(path), "--workers", "4", "--bandwidth", "1e9"],
        ["versions", "2bw", "pipedream", "-p", "4", "-m", "300"],
        ["versions", "naive", "pipedream", "-p", "12", "-m", "300"],
    ):
        status, out, _ = run(capsys, *argv)
        assert status == 0
        assert columns - 20 <= max(map(len, out.splitlines())) <= columns


def test_schedules(capsys):
    listed = run(capsys, "schedules")[1]
    for name in ps.SCHEDULES:
        assert f"\n{name} " in "\n" + listed
        assert ps.SCHEDULES[name].summary in run(capsys, "schedules", name)[1]
    assert len(json.loads(run(capsys, "schedules", "--json")[1])) == len(ps.SCHEDULES)


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["show", "1f1b"], "1f1b needs -p RANKS and -m MICROBATCHES"),
        (["show", "1f1b", "-p", "0", "-m", "4"], "p must be at least 1, got 0"),
        (["show", "1f1b", "-p", "99999999999999999999", "-m", "4"], "p"),
        (["show", "1f1", "-p", "2", "-m", "4"], "did you mean '1f1b'"),
        (["show", "no-such-file.csv"], "neither a file nor a schedule"),
        (["show", "1f1b", "-p", "2", "-m", "4", "--v", "2"], "v"),
        (["show", "1f1b", "-p", "2", "-m", "4", "-o", "a.bmp"], "cannot tell a format"),
        (["show", "1f1b", "-p", "2", "-m", "4", "-o", "no/such/folder/a.svg"], "No such file"),
        (["show", "1f1b", "-p", "2", "-m", "4", "--costs", "none.json"], "No such file"),
        (
            ["show", "hanayo", "-p", "2", "-m", "4", "--waves", "x"],
            "--waves is a whole number, got",
        ),
        (["show", "gpipe", "-p", "2", "-m", "4", "--order", "3"], "order must be one of"),
        (["show", str(ROOT / "tests")], "tests: Is a directory"),
        (["compare", "-p", "2", "-m", "4", "--schedules", ""], "no schedule is named ''"),
        (["compare", "-p", "2", "-m", "4", "--schedules", "x"], "no schedule is named 'x'"),
        (["schedules", "x"], "no schedule is named 'x'"),
    ],
)
def test_bad_input_is_one_line_and_status_2(capsys, argv, says):
    status, out, err = run(capsys, *argv)
    assert status == 2
    assert out == ""
    assert err.startswith("pipesched: ")
    assert err.count("\n") == 1
    assert says in err


@pytest.mark.parametrize(
    "argv", [[], ["sho"], ["show"], ["show", "1f1b", "-p", "x"], ["compare", "-p", "2"]]
)
def test_wrong_words_are_one_line_and_status_2(capsys, argv):
    with pytest.raises(SystemExit) as stop:
        main(argv)
    out, err = capsys.readouterr()
    assert (stop.value.code, out) == (2, "")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0F0,0Q1\n", "0Q1"),
        ("[[1,2]]", "row 1 (rank 0), column 1"),
        ('{"rows": 3}', "no list of rows"),
        ("[[", "not JSON"),
        ("\x00\x01", ""),
        ("", ""),
    ],
)
def test_bad_files(capsys, tmp_path, text, says):
    path = tmp_path / "bad"
    path.write_text(text)
    status, out, err = run(capsys, "show", str(path))
    assert (status, out) == (2, "")
    assert says in err
    assert err.startswith(f"pipesched: {path}: ")
    assert err.count("\n") == 1


def test_one_standard_input_for_two(capsys):
    status, _, err = run(capsys, "show", "-", "--costs", "-")
    assert status == 2
    assert "cannot both come from standard input" in err


def test_binary_files(capsys, tmp_path):
    path = tmp_path / "bad"
    path.write_bytes(b"\xff\xfe\x00\x80")
    assert run(capsys, "show", str(path))[0] == 2


@pytest.mark.parametrize(
    "text", ["[]", "{", '{"forwards": 1}', '{"forward": -1}', '{"forward": "x"}', "[" * 100000]
)
def test_bad_costs(capsys, tmp_path, text):
    path = tmp_path / "costs.json"
    path.write_text(text)
    status, _, err = run(capsys, "show", "1f1b", "-p", "2", "-m", "2", "--costs", str(path))
    assert status == 2
    assert "costs.json" in err
    assert err.count("\n") == 1


def test_help_shows_examples(capsys):
    for argv in (["--help"], ["show", "--help"], ["compare", "--help"]):
        with pytest.raises(SystemExit) as stop:
            main(argv)
        assert stop.value.code == 0
        assert "example" in capsys.readouterr().out


def test_missing_extra_names_the_command(run_python):
    out = run_python(
        "import sys; sys.modules['matplotlib'] = None\n"
        "from pipesched.cli import main\n"
        "sys.stderr = sys.stdout\n"
        "print(main(['show', '1f1b', '-p', '2', '-m', '2', '-o', 'a.png']))"
    )
    assert "pip install 'pipesched[plot]'" in out
    assert out.endswith("2\n")


def test_a_closed_pipe_is_quiet():
    command = [sys.executable, "-m", "pipesched", "convert", "gpipe", "-p", "64", "-m", "2000"]
    reader, writer = os.pipe()
    process = subprocess.Popen(command, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    os.read(reader, 10)
    os.close(reader)
    _, err = process.communicate(timeout=60)
    assert err == b""


def test_a_small_picture_loads_nothing_slow(run_python):
    out = run_python(
        "import sys, numpy\nby_numpy = set(sys.modules)\n"
        "from pipesched.cli import main\nmain(['show', '1f1b', '-p', '4', '-m', '8'])\n"
        "print(sorted(sys.modules.keys() - by_numpy & {'numpy.ma', 'concurrent.futures', 'difflib',"
        " 'hashlib', 'logging', 'matplotlib', 'pipesched.compare', 'pipesched.partition',"
        " 'html.entities'}))"
    )
    assert out.endswith("\n[]\n")


@pytest.mark.skipif(os.name != "posix", reason="signals and closed descriptors are POSIX's")
def test_ctrl_c_is_quiet():
    # What a shell starts in the background ignores the signal, and so do its children.
    command = [sys.executable, "-c", "import signal, sys; from pipesched.cli import main\n"
               "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
               "print('ready', flush=True)\nsys.exit(main())",
               "compare", "-p", "64", "-m", "4000"]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    time.sleep(0.5)  # it is at work
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, b"", b"")


@pytest.mark.skipif(os.name != "posix", reason="signals and closed descriptors are POSIX's")
@pytest.mark.parametrize("format", ["text", "trace", "png"])
def test_a_closed_standard_output_is_said(format):
    command = [sys.executable, "-m", "pipesched", "show", "1f1b", "-p", "2", "-m", "2"]
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *command, "--format", format],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (2, b"pipesched: standard output is closed\n")


def test_the_installed_command(tmp_path):
    script = os.path.join(os.path.dirname(sys.executable), "pipesched")
    for command in ([script], [sys.executable, "-m", "pipesched"]):
        done = subprocess.run(
            [*command, "show", "1f1b", "-p", "2", "-m", "2"],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0
        assert "rank 1" in done.stdout
