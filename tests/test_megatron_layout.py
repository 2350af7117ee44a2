"""Megatron's layout strings: what stands where, and what is no layout."""

import pytest

import pipesched as ps


def test_what_stands_where():
    layout = ps.megatron_layout("E t*2 | (t, t |)*2 m*2 L", p=2)
    assert layout.stages == ("Ett", "tt", "tt", "mmL")
    assert layout.layers == (2, 2, 2, 0)
    assert (layout.p, layout.v, layout.num_layers, layout.empty) == (2, 2, 6, ())


@pytest.mark.parametrize("text", ["EtL", "Et|L", "E|t*4|L", "E|()|(t)*4|L", "E,,|\t|L"])
def test_one_rank_takes_any_number_of_stages(text):
    assert ps.megatron_layout(text, 1).v == text.count("|") + 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "E must stand once, as the first symbol"),
        ("tEL", "E must stand once"),
        ("EtLL", "L must stand once"),
        ("EtL|t", "L must stand once, as the last symbol"),
        ("Et|x|L", "column 3: 'x"),
        ("E((t)*2)*2L", "column 1: '\\(\\(t"),
        ("Et*L", "column 2: '\\*L'"),
        ("Et * 2L", "column 3: '\\* 2L'"),
        ("E(t|*2L", "column 1:"),
        ("Et*1000001L", "more than 1000000 symbols"),
        ("Et|t|L", "3 stages, which p=2 does not divide"),
    ],
)
def test_what_is_no_layout(text, message):
    with pytest.raises(ValueError, match=message):
        ps.megatron_layout(text, 2)


def test_wrong_types():
    with pytest.raises(TypeError, match="text must be a string, got int"):
        ps.megatron_layout(3, 1)
    with pytest.raises(ValueError, match="p must be at least 1, got 0"):
        ps.megatron_layout("EL", 0)
