"""The terminal drawing says what the timeline says, in the space that there is."""

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pipesched as ps
from pipesched.draw.text import MAX_LINES, MAX_RANKS, Terminal, render

PLAIN = Terminal(width=80, colour=False, unicode=False)
FANCY = Terminal(width=80, colour=False, unicode=True)
COLOUR = Terminal(width=80, colour=True, unicode=True)

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def rows_of(drawing: str) -> list[str]:
    """The part of each rank's line behind the bar."""
    lines = ESCAPE.sub("", drawing).split("\n")
    return [re.split(r"[|│]", line, maxsplit=1)[1] for line in lines if line.startswith("rank")]


def test_one_forward_one_backward_as_it_should_look():
    timeline = ps.generate("1f1b", 2, 3).simulate()
    assert (
        render(timeline, PLAIN)
        == """\
1f1b: 2 ranks, 2 stages, 3 micro-batches
rank 0 |F0----F1----............B0==========F2----B1==========......B2==========
rank 1 |......F0----B0==========F1----B1==========F2----B2==========............
time    0           2           4           6           8           10
F- forward  B= backward  .. idle
makespan 12, bubble_fraction 0.2500 (idle/total), bubble_ratio 0.3333 (idle/ideal), \
peak 2 micro-batches held (rank 0)"""
    )


def test_ascii_streams_get_ascii_and_unicode_streams_more():
    timeline = ps.generate("zb-h1", 3, 4).simulate()
    assert render(timeline, PLAIN).isascii()
    assert "│" in render(timeline, FANCY)
    ascii_rows, fancy_rows = rows_of(render(timeline, PLAIN)), rows_of(render(timeline, FANCY))
    translate = str.maketrans("─═╌┄·", "-=+~.")
    assert [row.translate(translate) for row in fancy_rows] == ascii_rows


@pytest.mark.parametrize("terminal", [PLAIN, FANCY, COLOUR])
@pytest.mark.parametrize("width", [40, 80, 133])
def test_rows_never_exceed_the_width(terminal, width):
    terminal = Terminal(width, terminal.colour, terminal.unicode)
    for name in ("1f1b", "interleaved-1f1b", "zb-h1"):
        drawing = ESCAPE.sub("", render(ps.generate(name, 5, 13).simulate(), terminal))
        for line in drawing.split("\n"):
            if line.startswith(("rank", "time")):
                assert len(line) <= width


@given(
    p=st.integers(1, 5),
    m=st.integers(1, 8),
    forward=st.lists(st.integers(1, 9), min_size=5, max_size=5),
    width=st.integers(30, 200),
)
def test_widths_are_in_proportion_to_time(p, m, forward, width):
    """The columns that are not idle dots are the busy time, at the drawing's scale."""
    timeline = ps.generate("1f1b", p, m).simulate(ps.Costs(forward=forward[:p]))
    drawing = render(timeline, Terminal(width, False, False))
    rows = rows_of(drawing)
    systems = len(rows) // p
    lines = ["".join(rows[i * p + r] for i in range(systems)) for r in range(p)]
    assert len(set(map(len, lines))) == 1
    if "is not drawn" in drawing:
        return
    scale = len(lines[0]) / timeline.makespan
    for rank, line in enumerate(lines):
        busy = len(line) - line.count(".")
        ops = 2 * m
        assert abs(busy - timeline.busy[rank] * scale) <= ops + systems


def test_every_micro_batch_is_named_where_there_is_room():
    rows = rows_of(render(ps.generate("gpipe", 3, 4).simulate(), Terminal(200, False, False)))
    for row in rows:
        assert re.findall(r"[FB]\d+", row) == [f"F{j}" for j in range(4)] + [
            f"B{j}" for j in range(4)
        ]


def test_a_long_schedule_is_folded_without_losing_a_column():
    timeline = ps.generate("1f1b", 3, 30).simulate()
    folded = rows_of(render(timeline, Terminal(60, False, False)))
    wide = rows_of(render(timeline, Terminal(2000, False, False)))
    assert len(folded) > 3
    joined = ["".join(folded[r::3]) for r in range(3)]

    def letters(line):
        return re.sub(r"[0-9]", "", re.sub(r"([-=.])\1*", r"\1", line))

    assert letters(joined[0]).count("F") >= letters(wide[0]).count("F")
    total = len(joined[0])
    assert total % timeline.makespan == 0


@pytest.mark.parametrize("width", range(40, 120, 7))
def test_a_box_that_is_cut_at_a_fold_has_its_label_where_most_of_it_is(width):
    timeline = ps.generate("1f1b", 4, 8).simulate()
    rows = rows_of(render(timeline, Terminal(width, False, False)))
    for rank in range(4):
        words = sorted(re.findall(r"[FB]\d", " ".join(rows[rank::4])))
        assert words == sorted(f"{kind}{j}" for kind in "FB" for j in range(8))


def test_the_rest_of_a_box_after_a_fold_does_not_look_like_a_new_box():
    timeline = ps.generate("1f1b", 4, 8).simulate()
    rows = rows_of(render(timeline, Terminal(40, True, True)))
    edges = [sum(row.count("\N{LEFT ONE EIGHTH BLOCK}") for row in rows[r::4]) for r in range(4)]
    assert edges == [16, 16, 16, 16]


@pytest.mark.parametrize("width", range(60, 200, 20))
@pytest.mark.parametrize("backward", [1.5, 2.3])
def test_no_system_is_a_stub(width, backward):
    costs = ps.Costs(forward=[1.03e-4, 2.41e-4, 1.57e-4, 0.88e-4], backward=backward * 1e-4)
    for name in ("1f1b", "gpipe", "zb-h1"):
        rows = rows_of(render(ps.generate(name, 4, 8).simulate(costs), Terminal(width, True, True)))
        assert min(map(len, rows)) >= max(map(len, rows)) - 1


def test_legends_are_wrapped():
    timeline = ps.generate("dualpipe", 4, 8).simulate()
    for terminal in (PLAIN, FANCY, COLOUR):
        *lines, _summary = ESCAPE.sub("", render(timeline, terminal)).split("\n")
        assert max(map(len, lines)) <= terminal.width
        assert sum("later chunk" in line for line in lines) == 1


@pytest.mark.parametrize("terminal", [PLAIN, FANCY, COLOUR])
def test_a_name_cannot_steer_the_terminal(terminal):
    name = "\x1b]0;owned\x07 a\nb \ud800 é 日"
    timeline = ps.Schedule.from_rows([["0F0", "0B0"]], name=name).simulate()
    drawing = render(timeline, terminal)
    heading = drawing.split("\n")[0]
    assert heading.startswith("\\x1b]0;owned\\x07 a\\nb \\ud800 ")
    assert heading.isascii() != terminal.unicode
    drawing.encode("utf-8")


def test_what_does_not_fit_is_left_out_and_said():
    drawing = render(ps.generate("1f1b", 40, 4000).simulate(), Terminal(100, False, False))
    assert "8 more ranks are not drawn" in drawing
    assert "is not drawn: it does not fit" in drawing
    assert len(rows_of(drawing)) <= MAX_LINES
    assert len({line[:8] for line in drawing.split("\n") if line.startswith("rank")}) == MAX_RANKS


def test_chunks_are_told_apart_with_and_without_colour():
    timeline = ps.generate("interleaved-1f1b", 2, 4, v=2).simulate()
    plain = render(timeline, PLAIN)
    assert "f0" in plain
    assert "F0" in plain
    assert "small letters: a later chunk" in plain
    assert "lighter = a later chunk" in render(timeline, COLOUR)


def test_overlapped_pairs_are_one_box():
    rows = [["0F0", "0F1", "(0F2;0B0)OVERLAP_F_B", "0B1", "0B2"]]
    drawing = render(ps.Schedule.from_rows(rows).simulate(), Terminal(120, False, False))
    assert "F2/B0" in drawing
    assert "a/b overlapped pair" in drawing


def test_a_narrow_pair_shows_its_kinds():
    rows = rows_of(render(ps.generate("dualpipe", 8, 100).simulate(), Terminal(90, False, False)))
    assert re.search(r"F8/B54", rows[0])
    assert re.search(r"F/B-", rows[8])  # F10/B56 has no room


def test_communication_takes_no_column():
    schedule = ps.generate("1f1b", 2, 3)
    assert rows_of(render(schedule.lower().simulate(), PLAIN)) == rows_of(
        render(schedule.simulate(), PLAIN)
    )


def test_instant_timelines_draw():
    instant = ps.generate("1f1b", 2, 2).simulate(ps.Costs(forward=0.0))
    assert "makespan 0" in render(instant, PLAIN)


@pytest.mark.parametrize("factor", [2.0**-30, 2.0**20, 2.0**40])
def test_any_unit_of_time_draws_alike(factor):
    def rows(unit):
        costs = ps.Costs(forward=unit, backward=2 * unit)
        timeline = ps.generate("1f1b", 4, 8).simulate(costs)
        return rows_of(render(timeline, Terminal(120, False, False)))

    assert rows(factor) == rows(16.0)


class Stream(io.StringIO):
    def __init__(self, encoding: str, terminal: bool) -> None:
        super().__init__()
        self._encoding, self._terminal = encoding, terminal

    @property
    def encoding(self) -> str:
        return self._encoding

    def isatty(self) -> bool:
        return self._terminal


def test_the_terminal_is_asked_what_it_can(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "91")
    assert Terminal.of(Stream("utf-8", True)) == Terminal(91, True, True)
    assert Terminal.of(Stream("utf-8", False)) == Terminal(91, False, True)
    assert Terminal.of(Stream("latin-1", True)) == Terminal(91, True, False)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not Terminal.of(Stream("utf-8", True)).colour
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not Terminal.of(Stream("utf-8", True)).colour


def test_print_draws_schedules_and_timelines(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    schedule = ps.generate("1f1b", 2, 3)
    print(schedule)
    first = capsys.readouterr().out
    assert "rank 1" in first
    assert "\x1b" not in first
    print(schedule.simulate())
    assert capsys.readouterr().out == first


def test_printing_never_fails(capsys):
    """A schedule that cannot run says so instead of raising."""
    stuck = ps.Schedule.from_rows([["0B0", "0F0"], ["1F0", "1B0"]])
    print(stuck)
    assert (
        "it cannot run: rank 0, op 0: 0B0 before its forward 0F0 (op 1)" in capsys.readouterr().out
    )
    assert "it cannot run" in stuck._repr_html_()
