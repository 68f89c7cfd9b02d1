"""Whatever goes wrong, wherever: the graph is as it was, one warning says so, and all goes on."""

from __future__ import annotations

import contextlib
import gc
import logging
from collections.abc import Callable
from typing import Any

import pytest
from torch import fx

from egraph import engine
from egraph.engine import Session
from lowering import pipeline, saturate
from tests.lowering.faults import (
    ERRORS,
    PLACES,
    Fault,
    check_fault,
    check_faulty_call,
    outcome,
    state,
    traced,
)
from tests.rust_panic import RustPanic

ON_THE_THREAD = ("prepare", "fresh", "read in", "run", "run later", "read back")


ANYWHERE = [
    *[
        (place, error)
        for place in PLACES
        for error in (ERRORS[:2] if place in ON_THE_THREAD else ERRORS)
    ],
    ("write", SystemExit),
]


@pytest.mark.parametrize(
    ("place", "error", "after"),
    [
        pytest.param(
            *(place, error, after),
            id=f"{place}-{error.__name__}-{'after' if after else 'before'}",
            marks=[pytest.mark.slow] if after and error is not ValueError else [],
        )
        for place, error in ANYWHERE
        for after in (False, True)
    ],
)
def test_a_fault_leaves_the_graph_as_it_was(
    place: str,
    error: type[BaseException],
    after: bool,
    undisturbed: object,
    warnings: list[logging.LogRecord],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owner, name, number = PLACES[place]
    if place == "prepare":
        engine._current().worker.call(lambda: None)  # what the last session left to do is done
        current = engine._current()
        current.worker.call(lambda: [current.discard(key) for key in list(current._prepared)])
    fault = Fault(error("boom"), number, after=after)
    check_faulty_call(owner, name, fault, undisturbed, warnings, monkeypatch)


# What empties an e-graph of one graph's facts before the next one's come.
BETWEEN = [
    (owner, name)
    for owner, name in [
        (engine._Engine, "reset"),
        (engine._Prepared, "pop"),
        (engine._Prepared, "push"),
        (engine._Prepared, "empty"),
    ]
    if hasattr(owner, name)
]


@pytest.mark.parametrize("error", [ValueError, RustPanic])
@pytest.mark.parametrize(("owner", "name"), BETWEEN, ids=[name for _, name in BETWEEN])
def test_a_fault_between_two_graphs_reaches_neither(
    owner: type,
    name: str,
    error: type[BaseException],
    undisturbed: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fault = Fault(error("boom"))
    monkeypatch.setattr(owner, name, fault.wrap(getattr(owner, name)))
    for _ in range(4):
        graph = traced().graph
        before = state(graph)
        report = saturate(graph)
        if report.stopped == "failed":
            assert state(graph) == before
            assert "boom" in report.reason
        else:
            assert outcome(graph, report) == undisturbed[:2]
    assert fault.raised
    assert report.stopped == "saturated"


def test_a_fault_of_recompiling_leaves_the_graph_as_it_was(
    undisturbed: object, warnings: list[logging.LogRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = Fault(ValueError("boom"))
    check_faulty_call(fx.GraphModule, "recompile", fault, undisturbed, warnings, monkeypatch)


# Real failures of the engine


def conflicting(reading: Any) -> Any:
    loaded = load(reading)
    x, d, size = loaded.facts.size[0]
    loaded.facts.size.append((x, d, size + 1))
    return loaded


def too_large(reading: Any) -> Any:
    loaded = load(reading)
    loaded.facts.slice.append((loaded.facts.slice[0][0], 0, 0, 0, 2**63))
    return loaded


load = pipeline.load


@pytest.mark.parametrize(
    ("facts", "reason"), [(conflicting, "EggSmolError"), (too_large, "EggSmolError")]
)
def test_an_error_of_egglog_leaves_the_graph_as_it_was(
    facts: Callable[[Any], Any],
    reason: str,
    undisturbed: object,
    warnings: list[logging.LogRecord],
    unraisable: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pipeline, "load", facts)
    check_fault(traced(), ValueError, undisturbed, warnings, monkeypatch.undo, reason)
    gc.collect()
    assert unraisable == []


def test_a_panic_of_egglog_leaves_the_graph_as_it_was(
    undisturbed: object,
    warnings: list[logging.LogRecord],
    unraisable: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    saturate = Session.saturate

    def from_the_wrong_thread(self: Session, *args: Any) -> None:
        saturate(self, *args)
        prepared = self._engine.prepared(self._families)
        prepared.raw.run_program(prepared.sizes)

    monkeypatch.setattr(Session, "saturate", from_the_wrong_thread)
    check_fault(traced(), ValueError, undisturbed, warnings, monkeypatch.undo, "PanicException")
    gc.collect()
    assert unraisable == []
    assert "panicked" in capfd.readouterr().err  # egglog's own message, which can't be kept quiet


# Python's garbage collector


@pytest.mark.parametrize("error", [ValueError, RustPanic, KeyboardInterrupt])
def test_a_collector_that_was_off_stays_off(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "plan", Fault(error("boom")).wrap(pipeline.plan))
    gc.disable()
    try:
        with contextlib.suppress(KeyboardInterrupt):
            saturate(traced())
        assert not gc.isenabled()
    finally:
        gc.enable()
