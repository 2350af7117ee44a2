"""torch's schedule files: both formats, both dialects, and whatever else a file may hold."""

import os
import re

import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from strategies import legal_rows, to_rows, to_schedule

import pipesched as ps

# File -> p, stages, micro-batches; makespan, bubble_fraction to 4 digits, highest peak
# (F = I = W = 1, B = 2, an overlapped pair 3, no transfer time).
FILES = {
    "99202767_2-rank": ((2, 4, 8), (50, 0.04, 16)),
    "99202767_4-rank": ((4, 8, 6), (39, 0.0769, 12)),
    "99202767_8-rank": ((8, 8, 10), (38, 0.2105, 10)),
    "bf3319ac_4-rank": ((4, 8, 6), (39, 0.0769, 12)),
    "dualpipev_4rank_10mb": ((4, 8, 10), (66, 0.0909, 9)),
    "example_interleaved_2ranks_4mb_comms": ((2, 4, 4), (27, 0.1111, 5)),
    "tests_assets_custom_schedule": ((2, 4, 8), (50, 0.04, 16)),
    "zb1p_2rank_2stagep_comms": ((2, 4, 8), (49, 0.0204, 4)),
    "zb1p_2rank_2stagep_comms_old_dialect_BW": ((2, 4, 8), (49, 0.0204, 4)),
    "zb1p_2rank_2stagep_compute": ((2, 4, 8), (49, 0.0204, 4)),
    "zb1p_2rank_2stagep_compute_old_dialect_BW": ((2, 4, 8), (49, 0.0204, 4)),
}


@pytest.fixture
def folder(data_dir):
    return data_dir / "torch_csv"


@pytest.fixture
def read(tmp_path):
    """Read bytes, or text, as a file."""

    def read(content, **options):
        path = tmp_path / "a.csv"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return ps.read_torch_csv(path, **options)

    return read


def test_every_file_is_listed(folder):
    assert {path.stem for path in folder.glob("*.csv")} == set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_published_file(folder, tmp_path, name):
    sizes, (makespan, bubble, peak) = FILES[name]
    schedule = ps.read_torch_csv(folder / f"{name}.csv")
    assert schedule.name == name
    assert (schedule.p, schedule.num_stages, schedule.num_microbatches) == sizes
    assert schedule.check() is schedule
    assert schedule.has_comms == ("comms" in name)
    rows = to_rows(schedule)
    assert rows == reference.rows_from_text((folder / f"{name}.csv").read_text())
    assert reference.check(rows, *sizes[1:]) is None
    run = reference.simulate(rows, *sizes[1:], overlap=3)
    assert run.makespan == makespan
    assert round(float(run.bubble_fraction), 4) == bubble
    assert max(run.peak_activations) == peak

    path = tmp_path / "out.csv"
    schedule.to_torch_csv(path, comms=True)
    lowered = ps.read_torch_csv(path)
    assert lowered == (schedule if schedule.has_comms else schedule.lower())
    schedule.to_torch_csv(path)
    assert ps.read_torch_csv(path) == schedule.without_comms()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("99202767_2-rank", "tests_assets_custom_schedule"),
        ("bf3319ac_4-rank", "99202767_4-rank"),  # pytorch/torchtitan#682
        ("zb1p_2rank_2stagep_compute", "zb1p_2rank_2stagep_compute_old_dialect_BW"),
        ("zb1p_2rank_2stagep_comms", "zb1p_2rank_2stagep_comms_old_dialect_BW"),
    ],
)
def test_the_same_schedule_in_two_files(folder, one, other):
    assert ps.read_torch_csv(folder / f"{one}.csv") == ps.read_torch_csv(folder / f"{other}.csv")


def test_torch_own_lowering(folder):
    """torch's file with communications is its file without, lowered; ours has the same ones.

    There, a backward without a partner is written whole: I and W that are neighbours as B.
    """
    comms = ps.read_torch_csv(folder / "zb1p_2rank_2stagep_comms.csv")
    compute = ps.read_torch_csv(folder / "zb1p_2rank_2stagep_compute.csv")

    def transfers(schedule):
        return [
            sorted(word for word in row if "SEND" in word or "RECV" in word)
            for row in schedule.rows()
        ]

    assert transfers(compute.lower()) == transfers(comms)
    assert transfers(comms.lower()) == transfers(comms)
    assert comms.lower().check(blocking=True)


def test_dualpipev_is_what_we_make(folder):
    made = ps.generate("dualpipe-v", 4, 10)
    assert made == ps.read_torch_csv(folder / "dualpipev_4rank_10mb.csv")


# What a file may look like -----------------------------------------------------------------------

PLAIN = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"


@pytest.mark.parametrize(
    "content",
    [
        PLAIN,
        PLAIN.rstrip(),
        PLAIN.replace("\n", "\r\n"),
        PLAIN.replace("\n", "\r"),
        "\ufeff" + PLAIN,
        PLAIN + "\n\n \r\n",
        PLAIN.replace(",", " ,\t"),
        PLAIN.replace(",", ",,,"),
        PLAIN.replace(",", ", ,"),
        PLAIN.replace("\n", ",,,,\n"),
        ",," + PLAIN,
        '"0F0","0F1",0B0,"0B1 "\n"1F0",1B0,1F1,1B1,""\n',
    ],
)
def test_layouts(read, content):
    assert read(content).rows() == [line.split(",") for line in PLAIN.split()]


def test_a_rank_without_work(read, tmp_path):
    for rows in ([["0F0"], []], [[], ["0F0"]], [["0F0"], [], ["1F0"], []]):
        schedule = ps.Schedule.from_rows(rows)
        schedule.to_torch_csv(tmp_path / "b.csv")
        assert ps.read_torch_csv(tmp_path / "b.csv") == schedule
    assert read("0F0\n\n1F0\n,,\n").rows() == [["0F0"], [], ["1F0"], []]


def test_files_are_plain(tmp_path):
    path = tmp_path / "c.csv"
    schedule = ps.Schedule.from_rows(["0F0 0F1 (0F2;0B0)OVERLAP_F_B 0B1 0B2", "", "1F0 1F1 1F2"])
    schedule.to_torch_csv(path)
    assert path.read_bytes() == b"0F0,0F1,(0F2;0B0)OVERLAP_F_B,0B1,0B2\n,\n1F0,1F1,1F2\n"
    schedule.to_torch_csv(str(path))
    assert ps.read_torch_csv(os.fspath(path)) == schedule


def test_comms_are_written_on_demand(tmp_path):
    path = tmp_path / "d.csv"
    schedule = ps.Schedule.from_rows(["0F0", "1F0"])
    schedule.to_torch_csv(path, comms=True)
    assert path.read_text() == "0F0,0SEND_F0\n1RECV_F0,1F0\n"
    ps.read_torch_csv(path).to_torch_csv(path)
    assert path.read_text() == "0F0\n1F0\n"
    with pytest.raises(ps.ScheduleError, match="1F1 is missing"):
        ps.Schedule.from_rows(["0F0 0F1", "1F0"]).to_torch_csv(path, comms=True)


# Dialects ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "dialect", "kinds"),
    [
        ("0F0,0B0", "auto", "FB"),
        ("0F0,0B0", "new", "FB"),
        ("0F0,0B0", "old", "FI"),
        ("0F0,0I0,0W0", "auto", "FIW"),
        ("0F0,0B0,0W0", "auto", "FIW"),
        ("0F0,0B0,0W0", "new", "FBW"),
        ("0F0,0BW0", "auto", "FB"),
        ("0F0,0BW0", "old", "FB"),
        ("0F0,0F1,0B0,0I1,0W1", "auto", "FFBIW"),
        ("0F0,0F1,0BW0,0B1,0W1", "auto", "FFBIW"),
        ("0F0,0F1,(0F2;0B0)OVERLAP_F_B,0W0,0BW1,0BW2", "auto", "FFFIWBB"),
        ("0F0,0W0", "auto", "FW"),
    ],
)
def test_dialects(read, content, dialect, kinds):
    ops = read(content, dialect=dialect).ops
    assert "".join(ps.KINDS[kind] for kind in ops["kind"]) == kinds


@pytest.mark.parametrize(
    ("content", "dialect", "text"),
    [
        ("0F0\n0F1,,0BW1", "new", "row 2 (rank 1), column 3: '0BW1' is not in today's words"),
        ("0F0,0I0,0W0", "old", "row 1 (rank 0), column 2: '0I0' is not in the old words"),
        ("0F0,0I0,0BW1", "auto", "column 2: '0I0' is not in the old words, where B is the input"),
        ("0F0", "newest", "dialect must be 'auto', 'new' or 'old', got 'newest'"),
    ],
)
def test_bad_dialects(read, content, dialect, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        read(content, dialect=dialect)


# What a file may not hold ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("0F0,0X0", "row 1 (rank 0), column 2: '0X0' is not an action"),
        ("0F0\r\n\r\n0F1, 0F ,", "row 3 (rank 2), column 2: '0F' is not an action"),
        ("0F0 0F1", "row 1 (rank 0), column 1: '0F0 0F1' is not an action"),
        ("0F0;0F1", "'0F0;0F1' is not an action"),
        (b"0F0\0", "is not an action"),
        (b"0F0,\xff\xfe", "row 1 (rank 0), column 2: '\\\\xff\\\\xfe' is not an action"),
        ("0F0".encode("utf-16"), "row 1 (rank 0), column 1:"),
        ("0F99999999999", "'0F99999999999' has a number above 2147483646"),
        ("", "a schedule must have at least one op, got none"),
        ("\ufeff\n,,\n", "a schedule must have at least one op, got none"),
        (
            "0F0,,0F1\n0F2,(0F3;0B1)OVERLAP_F_B,,0F1",
            "row 2 (rank 1), column 4: '0F1' stands already at row 1 (rank 0), column 3",
        ),
        (
            "0F0,(0F1;0B0)OVERLAP_F_B,0B0",
            "row 1 (rank 0), column 3: '0B0' stands already at row 1 (rank 0), column 2",
        ),
        (
            "0F0,0SEND_F0,0SEND_F0",
            "column 3: '0SEND_F0' stands already at row 1 (rank 0), column 2",
        ),
        (
            "0F0,0BW0\r0BW0",
            "row 2 (rank 1), column 1: '0BW0' stands already at row 1 (rank 0), column 2",
        ),
    ],
)
def test_bad_files(read, content, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        read(content)


def test_a_stage_may_be_sharded_twice(read):
    assert len(read("0UNSHARD,0F0,0RESHARD,0UNSHARD,0F1,0RESHARD")) == 6


def test_huge_numbers_cost_nothing(read):
    schedule = read("2147483646F2147483646")
    assert schedule.num_stages == schedule.num_microbatches == 2**31 - 1
    with pytest.raises(ps.ScheduleError, match="0F0 is missing"):
        schedule.check()


def test_no_such_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        ps.read_torch_csv(tmp_path / "none.csv")
    with pytest.raises(TypeError):
        ps.read_torch_csv(None)


@given(st.one_of(st.binary(max_size=40), st.text('0123FBIWSEND_V(;),"\r\n ', max_size=40)))
def test_any_bytes(read_any, content):
    content = content.encode() if isinstance(content, str) else content
    for dialect in ("auto", "new", "old"):
        try:
            schedule = read_any(content, dialect)
        except ValueError:
            continue
        again = read_any(schedule._to_text().encode(), "new")
        assert np.array_equal(again.ops, schedule.ops)


@pytest.fixture(scope="module")
def read_any(tmp_path_factory):
    path = tmp_path_factory.mktemp("any") / "any.csv"

    def read(content, dialect):
        path.write_bytes(content)
        return ps.read_torch_csv(path, dialect)

    return read


@given(legal_rows(), st.booleans())
def test_writing_then_reading_gives_an_equal_schedule(folder_any, case, comms):
    schedule = to_schedule(*case)
    try:
        expected = schedule.lower() if comms else schedule
    except ps.ScheduleError:
        return  # the overlapped pairs that were drawn wait in a circle
    schedule.to_torch_csv(folder_any / "x.csv", comms=comms)
    assert ps.read_torch_csv(folder_any / "x.csv") == expected


@pytest.fixture(scope="module")
def folder_any(tmp_path_factory):
    return tmp_path_factory.mktemp("written")


def test_every_family_written_and_read(tmp_path):
    for name in ps.SCHEDULES:
        schedule = ps.generate(name, 4, 8)
        for comms in (False, True):
            schedule.to_torch_csv(tmp_path / "f.csv", comms=comms)
            expected = schedule.lower() if comms else schedule
            assert ps.read_torch_csv(tmp_path / "f.csv") == expected
            assert np.array_equal(ps.read_torch_csv(tmp_path / "f.csv").offsets, expected.offsets)
