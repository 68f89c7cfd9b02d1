"""Every notebook runs from top to bottom, and holds outputs of the kinds that a run gives."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
TIMEOUT = 300
"""Seconds that a cell may take."""
LARGEST = 100_000
"""Bytes that a notebook may have, outputs included."""


def kinds(cell: NotebookNode) -> list[tuple[str, ...]]:
    """Return the kind of each output of a cell: of a stream its name, of data its MIME types."""
    return [
        (output.output_type, output.get("name", ""), *sorted(output.get("data", {})))
        for output in cell.get("outputs", [])
    ]


def test_there_are_notebooks() -> None:
    assert [path.name for path in NOTEBOOKS][:1] == ["01_quickstart.ipynb"]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_and_gives_outputs_of_the_kinds_it_holds(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The kernel imports the packages of this tree, installed or not.
    paths = filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    held = nbformat.read(path, as_version=4)
    run = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(path.parent)}}
    NotebookClient(run, timeout=TIMEOUT, kernel_name="python3", resources=resources).execute()
    for number, (old, new) in enumerate(zip(held.cells, run.cells, strict=True)):
        assert kinds(new) == kinds(old), f"cell {number} of {path.name}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_was_run_in_order_and_is_small(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert path.stat().st_size < LARGEST
    # What was committed names no place on the machine where it ran, and no time.
    text = path.read_text(encoding="utf-8")
    assert not [word for word in ("/home/", "/root/", "/tmp/", "iopub") if word in text]
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
