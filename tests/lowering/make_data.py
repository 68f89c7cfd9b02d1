"""Captures examples under the torch that runs this, for tests that run under another.

From the repository's root, once in an environment of each torch version:

    python -m tests.lowering.make_data

writes `tests/lowering/data/<torch version>/<example>[.dynamic].json.gz`, the graphs that a pass in
the pre slot sees, in place of that version's old ones. Running it again writes the same bytes.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import torch

from tests.lowering import fxjson
from tests.lowering.models import (
    ATTENTION,
    CASE_7,
    DYNAMIC,
    QKV,
    SWIGLU,
    Example,
)

DATA = Path(__file__).parent / "data"

# A few stand for the others: what differs with dynamic sizes doesn't differ by layout and cut.
_DYNAMIC_ATTENTION = (
    "attention_qkv_split_inplace",
    "attention_qkv_mixture_inplace",
    "attention_qvk_slices_inplace",
    "attention_vqk_split_inplace",
    "attention_qkv_split_op",
    "attention_qkv_split_op_v1",
)


def write(example: Example, folder: Path, *, dynamic: bool) -> None:
    """Capture an example and write its graph to a folder."""
    info = {"torch": torch.__version__, "example": example.name, "slot": "pre"}
    name = f"{example.name}.dynamic.json.gz" if dynamic else f"{example.name}.json.gz"
    fxjson.save(example.capture(dynamic=dynamic).graph, folder / name, info)


def main() -> None:
    """Write the data of the running torch version."""
    folder = DATA / torch.__version__.split("+")[0]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for example in (*CASE_7, *ATTENTION, *QKV, *SWIGLU):
        write(example, folder, dynamic=False)
    for example in DYNAMIC:
        if example not in ATTENTION or example.name in _DYNAMIC_ATTENTION:
            write(example, folder, dynamic=True)
    sizes = [path.stat().st_size for path in folder.iterdir()]
    print(f"{folder}: {len(sizes)} graphs, {sum(sizes) / 1000:.0f} kB")


if __name__ == "__main__":
    main()
