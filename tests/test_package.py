"""What `import pipesched` gives, takes and leaves alone."""

import ast
import pickle
from pathlib import Path

import pytest

import pipesched as ps


def test_every_public_name_is_there():
    for name in ps.__all__:
        assert getattr(ps, name) is not None
        assert name in dir(ps)
    assert len(set(ps.__all__)) == len(ps.__all__)


def test_a_star_import_gives_them_all():
    names = {}
    exec("from pipesched import *", names)
    assert set(ps.__all__) <= set(names)


def test_public_modules(run_python):
    for name in ps._MODULES:
        assert name in dir(ps)
        run_python(f"import types, pipesched; assert type(pipesched.{name}) is types.ModuleType")


def test_no_such_name():
    with pytest.raises(AttributeError, match="module 'pipesched' has no attribute 'nothing'"):
        ps.nothing  # noqa: B018


def test_the_stub_names_the_same():
    tree = ast.parse(Path(ps.__file__).with_name("__init__.pyi").read_text())
    stub = {
        alias.asname: node.module
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    exercise = ("bubble_formula", "bubble_fraction", "gpipe_forward_schedule")
    assert stub == {
        **{name: f"pipesched.{home}" for name, home in ps._HOME.items()},
        **dict.fromkeys(exercise, "pipesched.exercise"),
        **dict.fromkeys(ps._MODULES, "pipesched"),
    }


def test_a_name_is_never_its_module(run_python):
    code = """
import importlib, types
import pipesched
for home in sorted(set(pipesched._HOME.values())):
    importlib.import_module(f"pipesched.{home}")
for name in pipesched.__all__:
    assert not isinstance(getattr(pipesched, name), types.ModuleType), name
from pipesched import generate
assert pipesched.generate is generate
import pipesched.generate
assert pipesched.generate is generate
"""
    run_python(code)


def test_the_functions_pickle():
    for name in ("bubble_formula", "bubble_fraction", "gpipe_forward_schedule"):
        call = getattr(ps, name)
        assert pickle.loads(pickle.dumps(call)) is call


def test_it_brings_nothing_but_numpy(run_python):
    code = """
import sys
import numpy
before = set(sys.modules)
import pipesched
new = {name.split(".")[0] for name in set(sys.modules) - before}
print(*sorted(new))
"""
    assert set(run_python(code).split()) - {"numpy"} == {"pipesched"}


def test_all_of_it_brings_neither_torch_nor_matplotlib(run_python):
    code = """
import sys
import numpy
from pipesched import *
third_party = {
    name.split(".")[0] for name, module in sys.modules.items()
    if "site-packages" in (getattr(module, "__file__", None) or "")
}
print(*sorted(third_party - {"pipesched"}))
"""
    brought = run_python(code).split()
    assert not {"torch", "matplotlib", "PIL", "pandas"} & set(brought)
    assert [name for name in brought if "editable" not in name and "distutils" not in name] == [
        "numpy"
    ]


def test_subinterpreters_are_answered_as_numpy_answers(run_python):
    code = """
import sys
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
import numpy


def outcome(module):
    # One that shares the GIL and one that does not, where Python has both.
    answers = []
    for isolated in (False, True):
        if sys.version_info >= (3, 13):
            made = interpreters.create("isolated" if isolated else "legacy")
        else:
            made = interpreters.create(isolated=isolated)
        code = (
            "import warnings; warnings.simplefilter('ignore')\\n"
            f"import {module}\\n"
        )
        try:
            failed = interpreters.run_string(made, code)
        except Exception as error:
            failed = error
        answers.append(failed is not None)
        interpreters.destroy(made)
    return answers


assert outcome("pipesched") == outcome("numpy"), (outcome("pipesched"), outcome("numpy"))
"""
    run_python(code)
