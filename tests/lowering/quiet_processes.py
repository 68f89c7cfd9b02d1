"""Processes that saturate and must end well, in time, quietly, and with no folder left behind."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

from tests.lowering.thread_graphs import LIMIT_S
from tests.processes import in_a_process

PRELUDE = """
import gc, os, sys, tempfile, threading

def recorded(*args, make=tempfile.mkdtemp, **kwargs):
    made = make(*args, **kwargs)
    with open(os.environ["MADE_FOLDERS"], "a") as file:
        file.write(made + chr(10))
    return made

tempfile.mkdtemp = recorded
from torch import fx
from lowering import saturate
from tests.lowering.thread_graphs import *
"""


def output_of(code: str, tmp_path: Path, **environment: str) -> str:
    """Run code that may use what stands in `thread_graphs`; its output.

    It has to end well, in time, with nothing on stderr and no folder left behind.
    """
    folders = tmp_path / "folders"
    folders.touch()
    done = in_a_process(
        PRELUDE + textwrap.dedent(code),
        timeout=LIMIT_S,
        MADE_FOLDERS=str(folders),
        **environment,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [each for each in folders.read_text().split() if os.path.exists(each)] == []
    return done.stdout


def resident_mb() -> float:
    """Resident memory of this process in megabytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
