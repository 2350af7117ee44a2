"""The notebook's picture: whole, safe, self-contained, and small when the schedule is large."""

import base64
import re
import struct
import zlib
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pipesched as ps
from pipesched.draw import palette, svg

SVG = "{http://www.w3.org/2000/svg}"


def parse(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text)


def boxes(root: ElementTree.Element) -> list[ElementTree.Element]:
    return [g for g in root.iter(f"{SVG}g") if g.find(f"{SVG}title") is not None]


@pytest.mark.parametrize("name", [n for n in ps.SCHEDULES if n not in ("dualpipe", "chimera")])
def test_every_op_has_a_box_that_tells_what_it_is(name):
    timeline = ps.generate(name, 4, 8).simulate()
    groups = boxes(parse(svg.render(timeline)))
    ops = timeline.schedule.ops
    assert len(groups) == len(ops) - np.count_nonzero(ops["fuse"])
    first = groups[0].find(f"{SVG}title").text
    assert first == "0F0 on rank 0\n0 to 1\nwaited for nothing"


def test_hover_tells_what_an_op_waited_for():
    timeline = ps.generate("1f1b", 2, 2).simulate()
    titles = [g.find(f"{SVG}title").text for g in boxes(parse(svg.render(timeline)))]
    assert "1F0 on rank 1\n1 to 2\nwaited for 0F0 on rank 0" in titles
    assert "0F1 on rank 0\n1 to 2\nafter 0F0 on its own rank" in titles


def test_a_wait_for_a_send_is_told():
    timeline = ps.generate("1f1b", 2, 2).lower().simulate(ps.Costs(transfer=0.5))
    titles = [g.find(f"{SVG}title").text for g in boxes(parse(svg.render(timeline)))]
    assert "1F0 on rank 1\n1.5 to 2.5\nwaited for 0SEND_F0 on rank 0" in titles


def test_boxes_stand_where_their_times_are():
    timeline = ps.generate("zb-h1", 3, 5).simulate(ps.Costs(forward=[1, 2, 3], transfer=0.5))
    root = parse(svg.render(timeline))
    rects = [g.find(f"{SVG}rect") for g in boxes(root)]
    left = np.array([float(r.get("x")) for r in rects]) - svg.LEFT
    width = np.array([float(r.get("width")) for r in rects])
    scale = (float(root.get("width")) - svg.LEFT - 16) / timeline.makespan
    np.testing.assert_allclose(left, timeline.start * scale, atol=0.01)
    np.testing.assert_allclose(width, (timeline.end - timeline.start) * scale, atol=0.61)


def test_an_overlapped_pair_is_one_box_of_two_halves():
    rows = [["0F0", "0F1", "(0F2;0B0)OVERLAP_F_B", "0B1", "0B2"]]
    groups = boxes(parse(svg.render(ps.Schedule.from_rows(rows).simulate())))
    pair = [g for g in groups if "&" in g.find(f"{SVG}title").text]
    assert len(pair) == 1
    assert len(pair[0].findall(f"{SVG}rect")) == 2


def test_nothing_comes_from_elsewhere_and_there_is_no_script():
    text = svg.page(ps.generate("1f1b", 4, 8).simulate())
    assert re.findall(r"https?://[^\"]*", text) == ["http://www.w3.org/2000/svg"]
    assert "<script" not in text
    assert "@import" not in text
    assert "url(" not in text


@given(name=st.text(max_size=30))
def test_any_name_is_safe(name):
    schedule = ps.Schedule.from_rows([["0F0", "0B0"]], name=name)
    text = svg.render(schedule.simulate())
    headings = [e for e in parse(text).iter(f"{SVG}text") if e.get("class") == "h"]
    assert len(headings) == 1
    assert "<script" not in text


def test_a_hostile_name_stays_text():
    name = "</text><script>alert(1)</script>&<!--"
    text = svg.page(ps.Schedule.from_rows([["0F0", "0B0"]], name=name).simulate())
    assert "<script" not in text
    assert "&lt;script&gt;" in text


def decode_png(text: str) -> np.ndarray:
    data = base64.b64decode(re.search(r"base64,([^\"]*)", text).group(1))
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    at, pixels = 8, b""
    while at < len(data):
        length, tag = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length : at + 12 + length])[0] == zlib.crc32(
            tag + body
        )
        pixels += body if tag == b"IDAT" else b""
        at += 12 + length
    rows = np.frombuffer(zlib.decompress(pixels), np.uint8).reshape(height, 1 + 4 * width)
    return rows[:, 1:].reshape(height, width, 4)


def test_a_large_schedule_becomes_an_overview_with_the_right_idle_share():
    timeline = ps.generate("1f1b", 16, 1024).simulate()
    text = svg.render(timeline)
    assert "overview of 32,768 ops" in text
    assert len(text) < 200_000
    alpha = decode_png(text)[:, :, 3] / 255
    np.testing.assert_allclose(1 - alpha.mean(), timeline.bubble_fraction, atol=0.003)
    np.testing.assert_allclose(alpha.mean(axis=1), timeline.busy / timeline.makespan, atol=0.005)


def test_an_overview_mixes_the_colours_of_overlapped_pairs():
    rows = ["0F0 " + " ".join(f"(0F{j + 1};0B{j})OVERLAP_F_B" for j in range(9000)) + " 0B9000"]
    pixels = decode_png(svg.render(ps.Schedule.from_rows(rows).simulate()))
    forward, backward = (np.array(palette.channels(palette.FILLS[kind])) for kind in (0, 1))
    np.testing.assert_allclose(pixels[0, 400, :3], (forward + backward) / 2, atol=1)
    assert pixels[0, 400, 3] == 255


def test_a_long_name_stays_in_the_picture():
    root = parse(svg.render(ps.Schedule.from_rows([["0F0", "0B0"]], name="x" * 999).simulate()))
    heading = next(e.text for e in root.iter(f"{SVG}text") if e.get("class") == "h")
    assert len(heading) * 9 <= float(root.get("width"))
    assert heading.endswith("x\N{HORIZONTAL ELLIPSIS}")


def test_the_limit_of_the_overview_is_exact():
    p, m = 4, svg.MAX_BOXES // 8
    assert "overview" not in svg.render(ps.generate("1f1b", p, m).simulate())
    assert "overview" in svg.render(ps.generate("1f1b", p, m + 1).simulate())


def luminance(colour):
    c = np.array(palette.channels(colour)) / 255
    c = np.where(c <= 0.03928, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
    return c @ [0.2126, 0.7152, 0.0722]


def test_kinds_keep_apart_in_grey():
    """By their CIE lightness, in the order W, I, F, B that the palette states."""
    lightness = [116 * luminance(palette.FILLS[kind]) ** (1 / 3) - 16 for kind in (3, 2, 0, 1)]
    assert np.all(-np.diff(lightness) > 5)


def test_labels_can_be_read_on_their_colours():
    """WCAG contrast of at least 4.5 between a box and its number."""
    for kind in range(4):
        for chunk in range(4):
            fill = palette.fill(kind, chunk, 4)
            a, b = sorted([luminance(fill), luminance(palette.ink(fill))])
            assert (b + 0.05) / (a + 0.05) >= 4.5


def test_notebooks_show_schedules_and_timelines():
    schedule = ps.generate("1f1b", 2, 3)
    assert schedule._repr_html_() == schedule.simulate()._repr_html_()
    assert schedule._repr_html_().startswith("<div")


def test_instant_timelines_draw():
    parse(svg.render(ps.generate("1f1b", 2, 2).simulate(ps.Costs(forward=0.0))))
