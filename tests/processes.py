"""Code that runs in a process of its own; free of torch, so that tests/egraph runs without it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[1]


def in_a_process(
    code: str, *, timeout: float = 60, check: bool = False, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run Python code that may import the packages and the tests of this tree.

    Args:
        code: the code; it may be indented as a whole.
        timeout: in seconds; then the process is killed, and the test fails.
        check: whether an exit status other than 0 is an error.
        environment: what to change in the variables of this process.
    """
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": path, **environment},
        cwd=ROOT,
        timeout=timeout,
        capture_output=True,
        text=True,
        check=check,
    )
