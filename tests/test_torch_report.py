"""`Schedule.torch_report`: each reason, without torch (tests/with_torch holds it to torch)."""

import subprocess
import sys

import pytest

import pipesched as ps


def reduced(early, late, other=""):
    """Two ranks with transfers, and REDUCE_GRAD before and after the last backward."""
    return [
        f"0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 {early} 0RECV_B1 0B1 {late}",
        f"1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1 {other}",
    ]


# The rows, the code of the first reason, when torch fails, and the op that is named.
REASONS = {
    "idle rank": (["0F0 0B0", ""], "idle-rank", "load", ""),
    "stage on two ranks": (["0F0 0B0", "0F1 0B1"], "two-ranks", "load", "0F1"),
    "forwards only": (["0F0 0F1", "1F0 1F1"], "forward-only", "load", "0B0"),
    "a forward missing": (["0F0 0B0", "1F0 1F1 1B0 1B1"], "missing-forward", "load", "0F1"),
    "a backward missing": (["0F0 0F1 0B1", "1F0 1F1 1B0 1B1"], "missing-backward", "load", "0B0"),
    "W missing": (["0F0 0B0", "1F0 1I0"], "unpaired-split", "load", "1W0"),
    "backward first": (["0F0 0B0", "1B0 1F0"], "order", "load", "1B0"),
    "W first": (["0F0 0W0 0I0", "1F0 1B0"], "order", "load", "0W0"),
    "both backwards": (["0F0 0F1 0B0 0B1 0I0 0W0"], "two-backwards", "load", "0B0"),
    "bookkeeping": (["0UNSHARD 0F0 0B0"], "bookkeeping", "load", "0UNSHARD"),
    "reduced early": (reduced("0REDUCE_GRAD", ""), "reduce-grad", "run", "0REDUCE_GRAD"),
    "reduced twice": (
        reduced("", "0REDUCE_GRAD 0REDUCE_GRAD", "1REDUCE_GRAD"),
        "reduce-grad",
        "run",
        "0REDUCE_GRAD",
    ),
    "reduced in part": (
        reduced("", "", "1REDUCE_GRAD"),
        "reduce-grad",
        "run",
        "0REDUCE_GRAD",
    ),
    "local order": (
        [
            "0F0 0SEND_F0 3RECV_F0 3F0 3B0 3SEND_B0 0RECV_B0 0B0",
            "1RECV_F0 2F0 1F0 2SEND_F0 2RECV_B0 2B0 1B0 1SEND_B0",
        ],
        "order",
        "run",
        "2F0",
    ),
    "waits for nothing": (
        ["0F0 0SEND_F0 0RECV_B0 0B0", "1RECV_F0 1F0 1B0"],
        "stall",
        "run",
        "0B0",
    ),
    "nobody receives": (
        ["0F0 0SEND_F0 0RECV_B0 0B0", "1RECV_F0 1F0 1B0 1SEND_B0 1SEND_B0"],
        "transfer",
        "run",
        "1SEND_B0",
    ),
    "waiting circle": (["0F0 0B0 0F1 0B1", "1F1 1B1 1F0 1B0"], "stall", "load", "0B0"),
    "two of one backward": (["0F0 0F1 0B0 0I0 0W0"], "repeated", "run", "0I0"),
    "repeated": (["0F0 0B0 0B0"], "repeated", "run", "0B0"),
    "loss order": (["0F0 0F1 0B1 0B0", "1F1 1F0 1B1 1B0"], "loss-order", "run", "1F1"),
    "to itself": (["0F0 0SEND_F0 1RECV_F0 1F0 1B0 0B0"], "transfer", "run", "0SEND_F0"),
    "unused": (["0RECV_F0 0F0 0B0"], "transfer", "run", "0RECV_F0"),
    "no send": (["0F0 0B0", "1RECV_F0 1F0 1B0"], "transfer", "run", "0B0"),
    "no receive": (
        ["0F0 0SEND_F0 0B0", "1RECV_F0 1F0 1B0 1SEND_B0"],
        "transfer",
        "run",
        "0B0",
    ),
    "crossed transfers": (
        [
            "0F0 0F1 0SEND_F1 0SEND_F0 0RECV_B0 0B0 0RECV_B1 0B1",
            "1RECV_F0 1F0 1RECV_F1 1F1 1B0 1SEND_B0 1B1 1SEND_B1",
        ],
        "transfer-order",
        "run",
        "1F0",
    ),
}


@pytest.mark.parametrize("name", REASONS)
def test_each_reason_names_its_op(name):
    rows, code, phase, op = REASONS[name]
    report = ps.Schedule.from_rows(rows).torch_report()
    found = {(reason.code, reason.phase, reason.op) for reason in report.reasons}
    assert (code, phase, op) in found
    assert not report
    assert not report.runs
    assert report.loads == (phase == "run")
    for reason in report.reasons:
        assert reason.text in str(report)


def test_a_file_with_huge_numbers_is_reported_on_at_once():
    for rows in (["999999999F0 999999999B0"], ["0F999999999 0B999999999"]):
        report = ps.Schedule.from_rows(rows).torch_report()
        assert not report.loads
        assert 1 <= len(report.reasons) <= 100


def test_a_good_schedule_has_no_reason():
    report = ps.generate("1f1b", 4, 8).torch_report()
    assert report
    assert report.loads
    assert report.reasons == ()
    assert report.format == "compute_only"
    assert str(report) == "torch loads and runs this schedule (format compute_only)"


def test_what_torch_does_otherwise_is_noted():
    pair = ps.Schedule.from_rows(["0F0 (0F1;0B0)OVERLAP_F_B 0I1 0W1"]).torch_report()
    assert len(pair.notes) == 2
    assert "1 overlapped pair" in pair.notes[0]
    assert "stage 0" in pair.notes[1]
    rows = [
        "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1",
        "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1",
    ]
    lowered = ps.Schedule.from_rows(rows).torch_report()
    assert lowered
    assert lowered.format == "compute_comms"
    assert "REDUCE_GRAD" in lowered.notes[0]


def test_the_package_does_not_import_torch():
    code = "import sys, pipesched as ps; ps.generate('1f1b', 2, 2).torch_report(); "
    code += "assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_torch_the_error_names_the_command(tmp_path):
    code = "import sys; sys.modules['torch'] = None; import pipesched.torch"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.returncode == 1
    assert "ImportError: pipesched.torch needs PyTorch" in found.stderr
    assert "pip install 'pipesched[torch]'" in found.stderr


# What torch wants of the published files: all load; those with transfers lack REDUCE_GRAD.
PUBLISHED = {
    "99202767_2-rank": [],
    "99202767_4-rank": [],
    "99202767_8-rank": [],
    "bf3319ac_4-rank": [],
    "dualpipev_4rank_10mb": [],
    "example_interleaved_2ranks_4mb_comms": ["REDUCE_GRAD"],
    "tests_assets_custom_schedule": [],
    "zb1p_2rank_2stagep_comms": ["REDUCE_GRAD"],
    "zb1p_2rank_2stagep_comms_old_dialect_BW": ["REDUCE_GRAD"],
    "zb1p_2rank_2stagep_compute": [],
    "zb1p_2rank_2stagep_compute_old_dialect_BW": [],
}


def test_every_published_file_is_reported_on(data_dir):
    files = sorted((data_dir / "torch_csv").glob("*.csv"))
    assert [file.stem for file in files] == sorted(PUBLISHED)
    for file in files:
        report = ps.read_torch_csv(file).torch_report()
        assert report, f"{file.name}: {report}"
        for word in PUBLISHED[file.stem]:
            assert any(word in note for note in report.notes), file.name
