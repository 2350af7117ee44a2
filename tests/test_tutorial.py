"""The tutorial runs from its first cell to its last, in a kernel of its own."""

import json

import pytest
from conftest import ROOT

TUTORIAL = ROOT / "examples" / "tutorial.ipynb"


def cells(kind):
    notebook = json.loads(TUTORIAL.read_text(encoding="utf-8"))
    return [cell for cell in notebook["cells"] if cell["cell_type"] == kind]


@pytest.mark.skipif(not TUTORIAL.exists(), reason="the examples are not beside these tests")
def test_the_tutorial_runs(run_python):
    code = f"""
import nbformat
from nbclient import NotebookClient

notebook = nbformat.read({str(TUTORIAL)!r}, as_version=4)
NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
shown = [
    output
    for cell in notebook.cells
    if cell.cell_type == "code"
    for output in cell.outputs
    if output.output_type in ("display_data", "execute_result")
]
print(sum("<svg" in output.data.get("text/html", "") for output in shown))
print(sum("image/png" in output.data for output in shown))
"""
    pictures, plots = map(int, run_python(code, MPLBACKEND="").split()[-2:])
    assert pictures >= 7
    assert plots >= 3


def test_every_section_asks_a_question_that_code_answers():
    notebook = json.loads(TUTORIAL.read_text(encoding="utf-8"))["cells"]
    text = ["".join(cell["source"]) for cell in notebook]
    sections = [i for i, t in enumerate(text) if t.startswith("## ")][:7]
    ends = [*sections[1:], len(text)]
    for begin, end in zip(sections, ends, strict=True):
        asked = [i for i in range(begin, end) if "**Question.**" in text[i]]
        assert asked, text[begin].split("\n")[0]
        assert notebook[asked[0] + 1]["cell_type"] == "code"


def test_it_is_committed_with_its_outputs_and_without_errors():
    for cell in cells("code"):
        assert cell["execution_count"]
        assert not any(output["output_type"] == "error" for output in cell["outputs"])
