"""The registry, what `generate` refuses and how it says so. Orders themselves: test_twins."""

import itertools
import re
import threading
from dataclasses import FrozenInstanceError
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
import reference
from hypothesis import given
from strategies import to_rows

import pipesched as ps
from pipesched import _core
from pipesched.formulas import FORMULAS

README = Path(__file__).resolve().parent.parent / "README.md"
NAMES = [
    *("naive", "forward", "gpipe", "1f1b", "eager-1f1b", "interleaved-1f1b", "looped-bfs"),
    *("zb-h1", "zb-h2", "zb-1p", "zb-v", "v-half", "v-min", "dualpipe", "dualpipe-v", "chimera"),
    *("hanayo", "pipedream", "seq-1f1b"),
]


def simulated(name, p, m, **options):
    schedule = ps.generate(name, p, m, **options)
    return reference.simulate(to_rows(schedule), schedule.num_stages, schedule.num_microbatches)


# The registry ---------------------------------------------------------------------------------


def test_registry_lists_every_family():
    assert list(ps.SCHEDULES) == NAMES
    assert len(ps.SCHEDULES) == len(NAMES)
    assert "1f1b" in ps.SCHEDULES
    assert "2f2b" not in ps.SCHEDULES


@pytest.mark.parametrize("name", NAMES)
def test_record(name):
    family = ps.SCHEDULES[name]
    assert family.name == name
    assert family.title
    assert family.summary.endswith(".")
    assert family.source
    assert family.placement in ("loop", "v", "snake", "bidirectional")
    for form in (family.bubble, family.peak, family.weights):
        assert form
    for key, option in family.options.items():
        assert option.name == key
        assert option.text
        assert (option.minimum is None) == bool(option.words)
        if option.words:
            assert option.default in option.words


@pytest.mark.parametrize("name", NAMES)
def test_forms_take_the_numbers_that_the_family_takes(name):
    """The closed forms have the family's options, with the family's defaults."""
    numbers = {o.name: o.default for o in ps.SCHEDULES[name].options.values() if not o.words}
    assert dict(FORMULAS[name].options) == numbers


def test_placement_is_as_said():
    placed = {
        name: ps.generate(name, 4, 8).placement
        for name in ("1f1b", "interleaved-1f1b", "zb-v", "hanayo", "dualpipe")
    }
    assert placed["1f1b"] == ((0,), (1,), (2,), (3,))
    assert placed["interleaved-1f1b"] == ((0, 4), (1, 5), (2, 6), (3, 7))
    assert placed["zb-v"] == ((0, 7), (1, 6), (2, 5), (3, 4))
    assert placed["hanayo"] == ((0, 7), (1, 6), (2, 5), (3, 4))
    assert placed["dualpipe"] == ((0, 3), (1, 2), (1, 2), (0, 3))


def test_registry_is_read_only():
    with pytest.raises(TypeError):
        ps.SCHEDULES["mine"] = None
    with pytest.raises(TypeError):
        ps.SCHEDULES["gpipe"].options["mine"] = None
    with pytest.raises(FrozenInstanceError):
        ps.SCHEDULES["gpipe"].name = "mine"


def test_registry_prints_the_family_table():
    table = str(ps.SCHEDULES)
    assert table == ps.SCHEDULES.table()
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines()]
    assert len({len(row) for row in rows}) == 1
    assert [row[0].strip("`") for row in rows[2:]] == NAMES
    assert repr(ps.SCHEDULES).startswith("<SCHEDULES: naive, forward, ")


def test_readme_has_the_family_table():
    _, _, rest = README.read_text().partition("<!-- schedules -->\n")
    table, _, _ = rest.partition("\n<!-- /schedules -->")
    assert table == ps.SCHEDULES.table(), (
        "paste what this prints: python -c 'import pipesched; print(pipesched.SCHEDULES)'"
    )


# What comes out -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_legal_wherever_the_definition_allows(name):
    """One rank, one micro-batch, fewer than ranks, not a multiple: made, and legal; or refused
    with values that work."""
    for p in range(1, 9):
        for m in range(1, 20):
            try:
                schedule = ps.generate(name, p, m)
            except ValueError as error:
                refusal = str(error)
                assert ps.SCHEDULES[name].constraints
                assert "works" in refusal or "take" in refusal
                continue
            assert schedule.check() is schedule
            assert schedule.p == p
            assert schedule.name == name


def test_the_result_is_the_callers_own():
    one, two = ps.generate("1f1b", 2, 3), ps.generate("1f1b", 2, 3)
    assert one == two
    assert not np.shares_memory(one.ops, two.ops)
    assert not one.ops.flags.writeable


def test_numbers_of_any_kind():
    expected = ps.generate("interleaved-1f1b", 4, 8, v=2)
    assert ps.generate("interleaved-1f1b", np.int8(4), np.uint64(8), v=np.int64(2)) == expected
    assert ps.generate("interleaved-1f1b", 4, 8, v=None, group=None, rule=None) == expected
    assert ps.generate(name="interleaved-1f1b", p=4, m=8) == expected


def test_v_1_is_1f1b():
    for p in (1, 2, 5):
        for m in (1, 3, 8):
            for group in (None, 1, 4):
                made = ps.generate("interleaved-1f1b", p, m, v=1, group=group)
                assert made == ps.generate("1f1b", p, m)
            assert ps.generate("zb-1p", p, m, v=1) == ps.generate("zb-h1", p, m)
            assert ps.generate("seq-1f1b", p, m, splits=1) == ps.generate("1f1b", p, m)


def test_megatrons_table():
    rows = ps.generate("interleaved-1f1b", 3, 5, v=2, group=3).rows()
    forwards = [word.split("F") for word in rows[0] if "F" in word]
    assert [int(j) for _, j in forwards] == [0, 1, 2, 0, 1, 2, 3, 4, 3, 4]
    assert [int(stage) // 3 for stage, _ in forwards] == [0, 0, 0, 1, 1, 1, 0, 0, 1, 1]


def test_the_default_group_is_torchs_where_torch_takes_m():
    for p in range(1, 8):
        for m in range(1, 40):
            if m % max(1, m // p) == 0:
                assert ps.generate("interleaved-1f1b", p, m, rule="torch") == ps.generate(
                    "interleaved-1f1b", p, m
                )


@pytest.mark.parametrize(
    ("p", "m", "options", "makespan", "bubble", "peaks"),
    [
        # m against p, and groups: reported for several frameworks
        (4, 10, {"rule": "torch"}, 69, 6 / 46, [12, 10, 8, 6]),
        (4, 10, {"group": 5}, 69, 6 / 46, [12, 10, 8, 6]),
        (4, 10, {"group": 4}, 79, 19 / 79, None),
        (4, 10, {}, 69, 6 / 46, [12, 10, 8, 6]),
        (4, 3, {"rule": "torch"}, 30, 0.4, None),
        (4, 6, {"group": 4}, 55, 19 / 55, None),
        (4, 6, {"group": 6}, 45, 0.2, [12, 11, 9, 7]),
        (4, 6, {"group": 3}, 57, 21 / 57, None),
        (4, 8, {}, 57, 9 / 57, [11, 9, 7, 5]),
        (4, 8, {"group": 8}, 57, 9 / 57, [15, 13, 11, 9]),
        (2, 4, {}, 27, 1 / 9, None),
        (4, 12, {}, 81, 1 / 9, None),
    ],
)
def test_interleaved_as_reported(p, m, options, makespan, bubble, peaks):
    timeline = simulated("interleaved-1f1b", p, m, v=2, **options)
    assert timeline.makespan == makespan
    assert float(timeline.bubble_fraction) == pytest.approx(bubble, abs=1e-12)
    assert peaks in (None, timeline.peak_activations)


@pytest.mark.parametrize(
    ("p", "m", "makespan", "bubble", "peaks"),
    [
        (8, 1, 24, 0.875, [1] * 8),
        (4, 2, 15, 0.6, [2, 2, 2, 1]),
        (2, 1, 6, 0.5, [1, 1]),
        (4, 8, 33, 3 / 11, [4, 3, 2, 1]),
    ],
)
def test_1f1b_as_reported(p, m, makespan, bubble, peaks):
    timeline = simulated("1f1b", p, m)
    assert timeline.makespan == makespan
    assert float(timeline.bubble_fraction) == pytest.approx(bubble, abs=1e-12)
    assert timeline.peak_activations == peaks


def test_live_losses_are_the_last_ranks_peak():
    assert simulated("1f1b", 4, 4).peak_activations[-1] == 1
    assert simulated("gpipe", 4, 4).peak_activations[-1] == 4


def test_seq_1f1b_keeps_the_order_of_the_splits():
    """What the representation does not say: splits of a micro-batch forward in order and
    backward in reverse, on every stage."""
    for p, m, k in ((1, 1, 3), (3, 2, 4), (4, 5, 2), (2, 3, 1)):
        schedule = ps.generate("seq-1f1b", p, m, splits=k)
        assert schedule.num_microbatches == m * k
        for row in to_rows(schedule):
            at = {(kind, unit): i for i, (kind, _, unit, _) in enumerate(row)}
            for j in range(m):
                splits = range(j * k, j * k + k)
                assert sorted(splits, key=lambda unit: at["F", unit]) == list(splits)
                assert sorted(splits, key=lambda unit: -at["B", unit]) == list(splits)


# What is refused ------------------------------------------------------------------------------


def message(error_type, *args, **kwargs):
    with pytest.raises(error_type) as caught:
        ps.generate(*args, **kwargs)
    assert type(caught.value) is error_type
    return str(caught.value)


def test_unknown_family():
    text = message(ValueError, "1fib", 2, 2)
    assert "no schedule is named '1fib'; did you mean '1f1b'?" in text
    assert "zb-h2" in text
    assert "must be a string, got 3" in message(TypeError, 3, 2, 2)


def test_unknown_option():
    assert message(TypeError, "zb-1p", 2, 2, w=2) == "zb-1p has no option 'w' (its options: v)"
    assert "did you mean 'group'?" in message(TypeError, "interleaved-1f1b", 2, 2, groups=2)
    assert "(its options: none)" in message(TypeError, "1f1b", 2, 2, v=2)


def test_unknown_word():
    text = message(ValueError, "gpipe", 2, 2, order="reverse")
    assert text == (
        "order must be one of 'forward', 'reversed', got 'reverse'; did you mean 'reversed'?"
    )
    assert message(TypeError, "gpipe", 2, 2, order=1) == "order must be a string, got 1 of type int"


@pytest.mark.parametrize("bad", [1.0, "1", None, [1], 1j, np.float64(2)])
def test_not_an_integer(bad):
    assert "p must be an integer" in message(TypeError, "1f1b", bad, 2)
    assert "m must be an integer" in message(TypeError, "1f1b", 2, bad)
    if bad is not None:
        assert "v must be an integer" in message(TypeError, "zb-1p", 2, 2, v=bad)


@pytest.mark.parametrize("bad", [0, -1, -(2**31) + 1])
def test_too_small(bad):
    assert message(ValueError, "1f1b", bad, 2) == f"p must be at least 1, got {bad}"
    assert message(ValueError, "1f1b", 2, bad) == f"m must be at least 1, got {bad}"
    assert message(ValueError, "zb-1p", 2, 2, v=bad) == f"v must be at least 1, got {bad}"


@pytest.mark.parametrize("bad", [-(2**31), -(2**63), -(1 << 20000)], ids=["31", "63", "20000"])
def test_far_too_small(bad):
    assert "p must be at least 1" in message(ValueError, "1f1b", bad, 2)


@pytest.mark.parametrize("bad", [2**31, 2**63, 2**64, 1 << 20000], ids=["31", "63", "64", "20000"])
def test_too_large_for_an_id(bad):
    assert "m must be at most 2147483647" in message(OverflowError, "1f1b", 2, bad)
    assert "v must be at most 2147483647" in message(OverflowError, "zb-1p", 2, 2, v=bad)


@pytest.mark.parametrize("name", NAMES)
def test_too_large_is_refused_at_once(name):
    big = 2**31 - 2  # even, which some families ask for
    with pytest.raises((OverflowError, ValueError)):
        ps.generate(name, big, big)
    for options in ({"v": big}, {"splits": big}, {"waves": big}):
        if set(options) <= set(ps.SCHEDULES[name].options):
            with pytest.raises((OverflowError, MemoryError)):
                ps.generate(name, 2, big, **options)
    with pytest.raises((MemoryError, OverflowError, ValueError)):
        ps.generate(name, 2**20, 2**28)


def test_rules_name_what_works():
    assert message(ValueError, "zb-h2", 4, 3) == (
        "zb-h2: the rule needs m >= 2p - 1, got m=3; m=7 works, or take zb-h1"
    )
    text = message(ValueError, "interleaved-1f1b", 4, 9, rule="torch")
    assert 'got m=9; m=8 works, or take rule="megatron"' in text
    text = message(ValueError, "interleaved-1f1b", 4, 8, rule="torch", group=3)
    assert "got group=3; group=4 works, or" in text
    assert message(ValueError, "dualpipe", 9, 14) == (
        "dualpipe: the ranks pair up, so p must be even, got p=9; p=6 works, "
        "or take zb-v, which takes any p and m"
    )
    assert message(ValueError, "dualpipe", 3, 7) == (  # no p has an odd m
        "dualpipe: the ranks pair up, so p must be even, got p=3; "
        "take dualpipe-v, which takes any p"
    )
    assert message(ValueError, "zb-h2", 2**31 - 1, 3) == (  # 2p - 1 is more than m can be
        "zb-h2: the rule needs m >= 2p - 1, got m=3; take zb-h1"
    )
    assert message(ps.ScheduleError, "interleaved-1f1b", 4, 8, group=3).startswith(
        "interleaved-1f1b: a group must be at least p and leave no remainder of m below p, "
        "or be all of m, got group=3; group=4 works (deadlock: "
    )


def choices(name):
    """All words of a family's options, and a few of their numbers."""
    numbers = {"v": (1, 2, 3), "group": (None, 1, 2, 3, 5, 8, 30)}
    values = [
        option.words or numbers.get(option.name, (1, 2))
        for option in ps.SCHEDULES[name].options.values()
    ]
    return [
        dict(zip(ps.SCHEDULES[name].options, chosen, strict=True))
        for chosen in itertools.product(*values)
    ]


@pytest.mark.parametrize("name", NAMES)
def test_advice_works_and_is_the_nearest(name):
    """Who changes what a refusal names, and that alone, is not refused again."""
    for p, m, options in itertools.product(range(1, 10), range(1, 20), choices(name)):
        given = {"p": p, "m": m, **options}
        try:
            ps.generate(name, **given)
            continue
        except ValueError as error:
            text = str(error)
        value = re.search(r"; (\w+)=(\d+) works", text)
        if value:
            argument, nearest = value[1], int(value[2])
            assert ps.generate(name, **{**given, argument: nearest}).check()
            away = abs(nearest - given[argument])
            for other in range(max(1, given[argument] - away + 1), given[argument] + away):
                if argument != "group":  # other groups may run, by luck, at a cost
                    with pytest.raises(ValueError, match=name):
                        ps.generate(name, **{**given, argument: other})
        instead = re.search(r"take (?!rule)([\w-]+)", text)
        if instead:
            assert ps.generate(instead[1], p, m).check()
        elif "take rule" in text:
            assert ps.generate(name, **{**given, "rule": "megatron", "group": None}).check()
        assert value or instead or "take rule" in text


@pytest.mark.parametrize(("p", "v", "m", "group"), [(4, 2, 8, 2), (4, 2, 8, 3), (4, 4, 13, 4)])
def test_a_group_that_waits_in_a_circle_is_refused_with_the_circle(p, v, m, group):
    with pytest.raises(ps.ScheduleError) as caught:
        ps.generate("interleaved-1f1b", p, m, v=v, group=group)
    fault = caught.value.fault
    assert fault.code == "deadlock"
    assert len(fault.cycle) >= 2
    assert f"group={group}" in str(caught.value)
    assert all(word in str(caught.value) for _, _, word in fault.cycle)


NUMBERS = st.one_of(
    st.integers(-3, 40), st.integers(), st.floats(), st.text(max_size=3), st.none(), st.booleans()
)


@given(
    name=st.one_of(st.sampled_from(NAMES), st.text(max_size=8)),
    p=NUMBERS,
    m=NUMBERS,
    options=st.dictionaries(
        st.sampled_from(["v", "group", "rule", "order", "splits", "waves", "x"]),
        st.one_of(NUMBERS, st.sampled_from(["forward", "reversed", "megatron", "torch"])),
        max_size=3,
    ),
)
def test_nothing_but_the_documented_errors(name, p, m, options):
    # Legal sizes that take long or much are not what this is about.
    if all(isinstance(x, int) for x in (p, m)) and 10**6 < p * m < 2**63:
        return
    try:
        schedule = ps.generate(name, p, m, **options)
    except (TypeError, ValueError, OverflowError, MemoryError) as error:
        words = str(error)
        assert words
        return
    schedule.check()


@given(st.tuples(NUMBERS, NUMBERS, NUMBERS, st.one_of(st.none(), st.tuples(NUMBERS))))
def test_the_glue_alone(args):
    if all(isinstance(x, int) for x in args[1:3]) and 10**6 < args[1] * args[2] < 2**63:
        return
    with pytest.raises((TypeError, ValueError, OverflowError, MemoryError)):
        _core.generate(*args)


def test_the_glue_checks_words_and_counts():
    with pytest.raises(ValueError, match="no schedule family or option"):
        _core.generate("gpipe", 2, 2, (7,))
    with pytest.raises(ValueError, match="takes 1 option"):
        _core.generate("gpipe", 2, 2, ())
    with pytest.raises(ValueError, match="no schedule is named"):
        _core.generate("", 2, 2, ())


def test_threads_make_the_same():
    expected = ps.generate("zb-1p", 8, 200, v=2)
    made = []
    threads = [
        threading.Thread(target=lambda: made.append(ps.generate("zb-1p", 8, 200, v=2)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [expected] * 8


def test_p_and_m_are_asked_for():
    with pytest.raises(TypeError, match="m must be an integer, and none was given"):
        ps.generate("1f1b", 4)
    with pytest.raises(TypeError, match="p must be an integer, and none was given"):
        ps.generate("1f1b", m=4)
