"""What holds for all tests; free of torch, so that tests/egraph runs without it."""

from __future__ import annotations

import gc
import sys

import pytest
from hypothesis import settings

# Helpers' asserts show as much as tests' do.
pytest.register_assert_rewrite("tests.egraph", "tests.lowering")

# The same examples in every run, and none fails for being slow.
settings.register_profile("fxsat", derandomize=True, deadline=None)
settings.load_profile("fxsat")


def pytest_collection_finish() -> None:
    """Have the collector pass over what was imported, in every collection of the tests."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def unraisable(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What goes to sys.unraisablehook, as text: the arguments themselves must not be kept."""
    gc.collect()
    seen: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: seen.append(str(args.exc_value)))
    return seen
