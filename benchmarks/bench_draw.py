"""How long drawings, traces and the command line take."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
import tracemalloc
from functools import partial
from pathlib import Path

from timing import human

import pipesched as ps
from pipesched.draw import svg, text
from pipesched.formats import chrome_trace


def best(run, times=5):
    """The shortest of a few runs, in seconds."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return min(found)


def drawings():
    for p, m in ((4, 512), (8, 512), (64, 1024), (256, 4096)):
        timeline = ps.generate("1f1b", p, m).simulate()
        ops = len(timeline.schedule)
        terminal = text.Terminal(width=160, colour=True, unicode=True)
        wide = text.Terminal(width=100_000, colour=True, unicode=True)
        picture = svg.render(timeline)
        kind = "overview" if "overview" in picture else "every op"
        print(
            f"{ops:>9,} ops: terminal {human(best(partial(text.render, timeline, terminal)))}, "
            f"unfolded {human(best(partial(text.render, timeline, wide)))}, "
            f"notebook {human(best(partial(svg.render, timeline)))} "
            f"({kind}, {len(picture) / 1e6:.2f} MB)"
        )


def trace():
    timeline = ps.generate("1f1b", 64, 7813).simulate()
    ops = len(timeline.schedule)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        took = best(lambda: chrome_trace.write(timeline, path), times=1)
        size = path.stat().st_size
        tracemalloc.start()
        chrome_trace.write(ps.generate("1f1b", 64, 781).simulate(), path)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    print(f"Chrome trace of {ops:,} ops: {human(took)}, {size / 1e6:.0f} MB")
    print(f"Chrome trace of {ops // 10:,} ops: at most {peak / 1e6:.1f} MB of memory")


def shell():
    command = [sys.executable, "-m", "pipesched", "show", "1f1b", "-p", "4", "-m", "8"]
    quiet = {"stdout": subprocess.DEVNULL, "check": True}
    print(f"pipesched show: {human(best(lambda: subprocess.run(command, **quiet), 10))}")
    numpy = [sys.executable, "-c", "import numpy"]
    print(f"  of which Python and NumPy: {human(best(lambda: subprocess.run(numpy, **quiet), 10))}")


def browser():
    """How long Chromium takes to draw pictures of more and more boxes: sets svg.MAX_BOXES."""
    chromium = shutil.which("chromium")
    if chromium is None:
        print("browser: Chromium is not installed, so not measured")
        return
    limit, svg.MAX_BOXES = svg.MAX_BOXES, 1 << 30
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
    flags += ["--disable-background-networking", "--disable-component-update"]
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "page.html")
        for m in (16, 256, 512, 1024, 2048, 4096, 8192):
            timeline = ps.generate("1f1b", 8, m).simulate()
            page.write_text(svg.page(timeline), encoding="utf-8")
            size = page.stat().st_size / 1e6
            command = [chromium, *flags, f"--user-data-dir={folder}/profile"]
            command += [f"--screenshot={folder}/shot.png", page.as_uri()]
            took = best(
                lambda c=command: subprocess.run(
                    c, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True
                ),
                times=2,
            )
            print(f"browser, {16 * m:>7,} boxes, {size:5.1f} MB: {human(took)} from start to shot")
    svg.MAX_BOXES = limit


if __name__ == "__main__":
    os.environ.setdefault("COLUMNS", "120")
    drawings()
    trace()
    shell()
    browser()
