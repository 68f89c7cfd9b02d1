"""Cases of which a run without the slow tests takes some only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest


def every(step: int, cases: Sequence[Any]) -> list[Any]:
    """Return the cases, all but every `step`-th one marked slow.

    A case that is a plain tuple is the values of several arguments.
    """
    return [
        pytest.param(*(case if type(case) is tuple else (case,)), marks=pytest.mark.slow)
        if i % step
        else case
        for i, case in enumerate(cases)
    ]
