"""The drop-in for the exercise, with the package and without it."""

from conftest import ROOT

SOLUTION = ROOT / "examples" / "solution.py"

# Runs in a fresh interpreter: prints what every call gives, errors too.
CASES = """
import inspect, runpy, sys
import numpy as np

{before}
names = runpy.run_path({path!r})
table, fraction, formula = (
    names[n] for n in ("gpipe_forward_schedule", "bubble_fraction", "bubble_formula")
)


def show(call, *args, **kwargs):
    try:
        result = call(*args, **kwargs)
    except Exception as error:
        kind = "MemoryError" if isinstance(error, MemoryError) else type(error).__name__
        text = "" if isinstance(error, (MemoryError, OverflowError)) else str(error)
        print(kind, text if "()" not in text else "")
    else:
        if isinstance(result, np.ndarray):
            flags = result.flags
            print(result.dtype, result.shape, flags.c_contiguous, flags.writeable)
            result = result.tolist()
        print(result)


for call in (table, fraction, formula):
    print(inspect.signature(call))
for p in range(1, 9):
    for m in range(1, 9):
        show(table, p, m)
        show(formula, p, m)
        assert fraction(table(p, m)) == formula(p, m)
for call in (table, formula):
    show(call, m=2, p=3)
    show(call, np.int8(3), True)
    for bad in (0, -1, -(2**80), -(10**5000), 2.0, "2", None, [2], np.float64(2)):
        show(call, bad, 2)
        show(call, 2, bad)
    for args in ((), (1,), (1, 2, 3)):
        show(call, *args)
    show(call, 1, n=2)
for p, m in ((2**62, 2**62), (2**63, 1), (1, 2**64), (1, 2**60), (1, 2**60 - 1)):
    show(table, p, m)
    show(formula, p, m)
show(formula, 10**5000, 10**5000)
for good in (
    [[0, -1]],
    ((0, -1), (-1, -1)),
    np.full((2, 3), -1, np.int8).T,
    np.full((2, 3), 255, np.uint8),
    np.array([[-1, 0, 5]], ">i4")[:, ::-1],
):
    show(fraction, good)
    show(fraction, schedule=good)
for bad in (
    [],
    [[]],
    np.empty((0, 3), int),
    [1, 2],
    3,
    np.zeros((1, 2, 3), int),
    [[0.0]],
    [[True]],
    [[None]],
    [[2**64]],
    "table",
    None,
    [[1, 2], [3]],
    np.zeros((2, 2), "m8[s]"),
):
    show(fraction, bad)
show(fraction)
"""


def test_with_the_package_and_without_it(run_python):
    with_package = run_python(CASES.format(before="", path=str(SOLUTION)))
    without = "sys.modules['pipesched'] = None  # cannot be imported"
    assert run_python(CASES.format(before=without, path=str(SOLUTION))) == with_package
    assert "[[0, 1, -1, -1], [-1, 0, 1, -1], [-1, -1, 0, 1]]" in with_package
    assert "ValueError p must be at least 1, got 0" in with_package
    assert "TypeError m must be an integer, got float" in with_package
    assert with_package.count("OverflowError") == 4
    assert with_package.count("MemoryError") == 1


def test_which_one_it_takes(run_python):
    code = f"""
import runpy, sys
{{before}}
call = runpy.run_path({str(SOLUTION)!r})["bubble_fraction"]
print(type(call).__name__, "pipesched" in str(call.__module__))
"""
    assert run_python(code.format(before="")).split() == ["builtin_function_or_method", "True"]
    without = run_python(code.format(before="sys.modules['pipesched'] = None"))
    assert without.split() == ["function", "False"]


def test_as_a_program(run_python):
    printed = run_python(f"import runpy; runpy.run_path({str(SOLUTION)!r}, run_name='__main__')")
    assert printed.split("\n")[-2] == "0.5 0.5"
