"""What several modules of tests set up."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator

import pytest

from lowering import collector, saturate
from tests.lowering.faults import next_names, outcome, traced


@pytest.fixture(scope="module")
def undisturbed() -> object:
    """What a run comes to where nothing goes wrong, and the names that follow."""
    graph = traced().graph
    report = saturate(graph)
    assert report.changed
    return *outcome(graph, report), next_names(graph)  # type: ignore[misc]


@pytest.fixture
def warnings() -> Iterator[list[logging.LogRecord]]:
    """The records of fxsat's logger, warnings and above."""
    records: list[logging.LogRecord] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    handler = Keep(logging.WARNING)
    logger = logging.getLogger("lowering")
    logger.addHandler(handler)
    yield records
    logger.removeHandler(handler)


@pytest.fixture(autouse=True)
def _collector_on() -> Iterator[None]:
    """A test that fails leaves the collector on for the next one."""
    yield
    collector._pauses.clear()
    gc.enable()
