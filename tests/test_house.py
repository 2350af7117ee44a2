"""The rules of the house, read out of the sources: who may use whom, and how.

They hold for the checkout (csrc, docs, README); what concerns the installed package
is in test_package.py and test_docs.py.
"""

import ast
import importlib.util
import re

import pytest
from conftest import ROOT

CSRC = ROOT / "csrc"
PACKAGE = ROOT / "pipesched"

# Whom each area of the core may include, besides itself.
MAY_USE = {
    "base": set(),
    "table": {"base"},
    "schedule": {"base"},
    "partition": {"base"},
    "generate": {"base", "schedule"},
    "check": {"base", "schedule"},
    "simulate": {"base", "schedule"},
    "lower": {"base", "schedule"},
    "words": {"base", "schedule"},
    "search": {"base", "schedule", "generate", "check", "simulate", "lower"},
}
LIBC = {"float", "inttypes", "limits", "math", "stdbool", "stddef", "stdint", "stdlib", "string"}
# Wider instructions, in the one file that chooses them when it runs.
ALSO = {"ps_table.c": {"immintrin"}}

# The Python modules that may touch the C core.
TOUCH_CORE = {
    "exercise",
    "schedule",
    "generate",
    "check",
    "simulate",
    "lower",
    "words",
    "search",
    "partition",
    "plan",
}

CORE = sorted(path for path in CSRC.rglob("*.[ch]") if "python" not in path.parts)
GLUE = sorted((CSRC / "python").glob("*.[ch]"))
MODULES = sorted(PACKAGE.rglob("*.py"))


def short(path):
    return str(path.relative_to(ROOT))


def code_of(path):
    """Return the C source without comments and strings."""
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
    return re.sub(r'(#include\s*)?"(?:\\.|[^"\\])*"', lambda m: m[0] if m[1] else '""', text)


def area_of(path):
    """Return the area that a file of the core belongs to."""
    folder = path.parent.name
    return folder if folder in ("generate", "partition") else path.stem.removeprefix("ps_")


def test_there_is_something_to_read():
    assert {short(path) for path in CORE} >= {"csrc/ps_base.h", "csrc/ps_table.c"}
    assert len(GLUE) > 3
    assert len(MODULES) > 3


@pytest.mark.parametrize("path", CORE, ids=short)
def test_core_uses_only_what_it_may(path):
    area = area_of(path)
    assert area in MAY_USE, f"{short(path)} is of no known area: say in MAY_USE whom it may use"
    for opened, name in re.findall(r'#include\s*(["<])([^">]+)[">]', code_of(path)):
        if opened == "<":
            assert name.removesuffix(".h") in LIBC | ALSO.get(path.name, set()), name
        else:
            used = (path.parent / name).resolve()
            if not used.exists():  # found by -Icsrc
                used = CSRC / name
            assert used.exists(), name
            assert area_of(used) in MAY_USE[area] | {area}, f"{short(path)} includes {name}"


@pytest.mark.parametrize("path", CORE, ids=short)
def test_core_knows_no_python(path):
    assert not re.findall(r"\bPy\w+", code_of(path))
    assert not re.findall(r"\bnpy_\w+", code_of(path))


@pytest.mark.parametrize("path", CORE, ids=short)
def test_core_has_no_globals_clock_or_output(path):
    code = code_of(path)
    assert not re.findall(r"\b(printf|fprintf|puts|abort|exit|rand|srand|time|clock)\s*\(", code)
    # At file scope only constants stand.
    for line in re.findall(r"^static (?!inline)[^(\n]*[=;].*$", code, flags=re.MULTILINE):
        assert re.match(r"static const |static const\b|static \w+ \*const ", line), line


@pytest.mark.parametrize("path", CORE + GLUE, ids=short)
def test_no_long(path):
    """`long` has 32 bits on Windows; `long long` stands only where CPython asks for it."""
    code = re.sub(r"\blong long\b", "", code_of(path))
    assert not re.findall(r"\blong\b", code)


@pytest.mark.parametrize("path", [path for path in CORE if path.suffix == ".h"], ids=short)
def test_every_header_says_what_it_is(path):
    assert path.read_text(encoding="utf-8").startswith("/* ")


def imports_of(path):
    """Return the full names of what a module imports when it runs, anywhere in it."""
    package = ["pipesched", *path.relative_to(PACKAGE).parts[:-1]]
    names = []
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []  # for type checkers only
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join([*package[: len(package) - node.level + 1], base]).strip(".")
            names += [f"{base}.{alias.name}" for alias in node.names]
    return names


def under(name, package):
    return name == package or name.startswith(package + ".")


@pytest.mark.parametrize("path", MODULES, ids=short)
def test_python_uses_only_what_it_may(path):
    place = path.relative_to(PACKAGE).with_suffix("").parts
    for name in imports_of(path):
        if under(name, "pipesched._core"):
            assert len(place) == 1, f"{short(path)} touches the C core"
            assert place[0] in TOUCH_CORE, f"{short(path)} touches the C core"
        if under(name, "pipesched.torch") or under(name, "torch"):
            assert place[0] == "torch", f"{short(path)} imports {name}"
        if under(name, "matplotlib"):
            assert place[0] == "draw", f"{short(path)} imports {name}"
        assert not under(name, "tests")


@pytest.mark.parametrize("path", sorted((ROOT / "tests").glob("reference*.py")), ids=short)
def test_the_slow_twin_knows_nothing_of_the_package(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            assert not any(under(alias.name, "pipesched") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not under(node.module or "", "pipesched")


def test_every_function_of_the_core_has_its_stub():
    """Names here; `make lint` also compares parameters."""
    from pipesched import _core

    tree = ast.parse((PACKAGE / "_core.pyi").read_text(encoding="utf-8"))
    stub = set()
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            stub.add(node.name)
        elif isinstance(node, ast.AnnAssign):
            stub.add(node.target.id)
    assert stub == {name for name in dir(_core) if not name.startswith("__")}


def test_the_picture_of_the_readme_is_what_its_script_draws():
    path = ROOT / "docs" / "draw_gpipe.py"
    spec = importlib.util.spec_from_file_location("draw_gpipe", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (ROOT / "docs" / "gpipe.svg").read_text() == module.picture(module.P, module.M)
