"""Every public name is documented, and every example that is shown runs."""

import doctest
import importlib
import inspect
import pkgutil
import re

import numpy as np
import pytest
from conftest import ROOT

import pipesched as ps
from pipesched import exercise

FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS

MODULES = sorted(
    info.name
    for info in pkgutil.walk_packages(ps.__path__, "pipesched.")
    if not re.search(r"\.(torch|__main__|_core)\b", info.name)
)
CALLABLES = sorted(name for name in ps.__all__ if callable(getattr(ps, name)))


def run_examples(found):
    """Run doctests; return how many examples there were."""
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    for test in found:
        test.globs.update(np=np, ps=ps)
        runner.run(test)
    assert runner.failures == 0
    return runner.tries


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_a_module(name):
    run_examples(doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(name)))


@pytest.mark.parametrize("name", exercise.__all__)
def test_examples_of_the_exercise(name):
    call = getattr(ps, name)
    assert run_examples(doctest.DocTestFinder().find(call, name, module=False)) >= 2


def sections(doc):
    """Return a numpydoc docstring's sections, by their underlined titles."""
    parts = re.split(r"^(\w[\w ]*)\n-{3,}$", inspect.cleandoc(doc), flags=re.MULTILINE)
    return {"Summary": parts[0].strip(), **dict(zip(parts[1::2], parts[2::2], strict=True))}


def parameters_of(thing):
    """Return the names of the parameters; none where Python does not know them."""
    try:
        parameters = inspect.signature(thing).parameters.values()
    except ValueError:
        return []
    return [p.name for p in parameters if p.name != "self"]


@pytest.mark.parametrize("name", CALLABLES)
def test_a_public_name_is_documented(name):
    thing = getattr(ps, name)
    parts = sections(thing.__doc__)
    assert re.match(r".+[.:]$", parts["Summary"].splitlines()[0])
    if isinstance(thing, type) and issubclass(thing, Exception):
        return
    given = parameters_of(thing)
    described = parts.get("Parameters", "") + parts.get("Attributes", "")
    for parameter in given:
        pattern = rf"^[\w*, ]*\b{parameter}\b"
        assert re.search(pattern, described, flags=re.MULTILINE), f"{name}: {parameter}"
    assert ">>>" in parts.get("Examples", ""), f"{name} has no example"
    if not isinstance(thing, type):
        assert "Returns" in parts


@pytest.mark.parametrize("name", [n for n in CALLABLES if isinstance(getattr(ps, n), type)])
def test_what_a_class_offers_is_documented(name):
    for attribute, value in vars(getattr(ps, name)).items():
        if attribute.startswith("_"):
            continue
        if isinstance(value, (classmethod, staticmethod)):
            value = value.__func__
        if callable(value) or isinstance(value, property):
            assert (inspect.getdoc(value) or "").strip(), f"{name}.{attribute}"


def blocks(path):
    """Return the Python that a Markdown file shows."""
    text = path.read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)


def test_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = blocks(ROOT / "README.md")
    assert shown
    names = {}
    for block in shown:
        exec(compile(block, "README.md", "exec"), names)


def test_the_readme_maps_files_that_exist():
    _, _, text = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## Map\n")
    mapped = re.findall(r"^\| `([\w./*-]+)`", text, flags=re.MULTILINE)
    assert len(mapped) > 10
    for name in mapped:
        assert list(ROOT.glob(name.rstrip("/"))), name
