"""The HTML picture in headless Chromium: it loads, draws every op, hover works, nothing is fetched.

Run by ``make test-browser``, which needs Chromium and its driver on the machine.
"""

import shutil

import numpy as np
import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By

import pipesched as ps
from pipesched.draw import svg

FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"]
FLAGS += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
FLAGS += ["--disable-quic", "--disable-dev-shm-usage", "--window-size=1200,800"]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    assert chromium, "Chromium is not installed (Debian: apt-get install chromium)"
    assert driver, "chromedriver is not installed (Debian: apt-get install chromium-driver)"
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in [*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    started = webdriver.Chrome(options, webdriver.ChromeService(driver))
    yield started
    started.quit()


@pytest.fixture
def show(browser, tmp_path):
    def run(timeline):
        path = tmp_path / "picture.html"
        path.write_text(svg.page(timeline), encoding="utf-8")
        browser.get_log("performance")
        browser.get(path.as_uri())
        return browser

    return run


@pytest.mark.parametrize("name", list(ps.SCHEDULES))
def test_every_schedule_loads_whole_and_quietly(show, name):
    timeline = ps.generate(name, 4, 8).simulate(ps.Costs(transfer=0.2))
    browser = show(timeline)
    ops = timeline.schedule.ops
    boxes = browser.execute_script("return document.querySelectorAll('svg .b > g').length")
    assert boxes == len(ops) - np.count_nonzero(ops["fuse"])
    seen = browser.execute_script(
        "return [...document.querySelectorAll('svg .b rect')]"
        ".filter(r => r.getBoundingClientRect().width > 0).length"
    )
    assert seen == len(ops)
    assert browser.get_log("browser") == []


def test_nothing_is_fetched(show):
    browser = show(ps.generate("zb-v", 4, 8).simulate())
    requested = [
        entry["message"]
        for entry in browser.get_log("performance")
        if '"Network.requestWillBeSent"' in entry["message"]
    ]
    urls = [m.split('"url":"')[1].split('"')[0] for m in requested]
    assert [u for u in urls if not u.startswith(("file:", "data:"))] == []
    assert len([u for u in urls if u.startswith("file:")]) == 1


def test_hover_marks_the_op_and_tells_its_story(show):
    browser = show(ps.generate("1f1b", 4, 8).simulate())
    box = browser.find_elements(By.CSS_SELECTOR, "svg .b > g")[20]
    rect = box.find_element(By.CSS_SELECTOR, "rect")
    assert rect.value_of_css_property("stroke-width") != "2px"
    ActionChains(browser).move_to_element(rect).perform()
    assert rect.value_of_css_property("stroke-width") == "2px"
    # What the mouse is over is the box whose title the browser shows.
    title = browser.execute_script(
        "const r = arguments[0].getBoundingClientRect();"
        "const e = document.elementFromPoint(r.x + r.width / 2, r.y + r.height / 2);"
        "return e.closest('g').querySelector('title').textContent",
        rect,
    )
    assert "waited for" in title or "after" in title
    assert " to " in title


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_light_and_dark(show, theme):
    browser = show(ps.generate("1f1b", 2, 4).simulate())
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": theme}]},
    )
    background = browser.find_element(By.CSS_SELECTOR, "svg .bg").value_of_css_property("fill")
    assert background == {"light": "rgb(255, 255, 255)", "dark": "rgb(22, 24, 29)"}[theme]


def test_two_pictures_on_one_page_do_not_disturb_each_other(browser, tmp_path):
    first = svg.notebook(ps.generate("1f1b", 2, 4).simulate())
    second = svg.notebook(ps.generate("gpipe", 2, 4).simulate())
    path = tmp_path / "two.html"
    path.write_text(f"<!DOCTYPE html><meta charset=utf-8>{first}{second}", encoding="utf-8")
    browser.get(path.as_uri())
    classes = [e.get_attribute("class") for e in browser.find_elements(By.TAG_NAME, "svg")]
    assert len(set(classes)) == 2


def test_a_large_schedule_is_an_overview(show):
    browser = show(ps.generate("1f1b", 64, 1024).simulate())
    assert browser.execute_script("return document.querySelectorAll('*').length") < 1000
    loaded = browser.execute_script(
        "return document.querySelector('svg image').getBoundingClientRect().width"
    )
    assert loaded > 500
    assert browser.get_log("browser") == []


def test_a_hostile_name_runs_nothing(show):
    name = "</text></svg><script>document.title = 'owned'</script><img src=x onerror=alert(1)>"
    browser = show(ps.Schedule.from_rows([["0F0", "0B0"]], name=name).simulate())
    assert "owned" not in browser.execute_script("return document.title.split(' - ')[1]")
    assert browser.execute_script("return document.querySelectorAll('script, img').length") == 0
