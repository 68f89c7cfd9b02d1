"""Ctrl-C at any time: the graph is as it was, and all goes on."""

from __future__ import annotations

import contextlib
import gc
import logging
import signal
import threading
import time
from typing import Any

import pytest
from torch import Tensor

from egraph import engine
from lowering import pipeline, saturate
from tests.lowering.faults import INPUTS, check_fault, failing_at_call, outcome, state, traced


def halves(x: Tensor) -> tuple[Tensor, Tensor]:
    return x[:, :2].cos(), x[:, 2:].cos()


@pytest.mark.parametrize(
    ("module", "least"), [(engine, 10), (pipeline, 50)], ids=["engine", "pipeline"]
)
def test_ctrl_c_anywhere_in(module: Any, least: int) -> None:
    # Also between the end of a session and its reset.
    files = {str(module.__file__)}
    changed = traced(halves, INPUTS[0]).graph
    expected = outcome(changed, saturate(changed))
    with failing_at_call(files, 0, KeyboardInterrupt()) as places:
        saturate(traced(halves, INPUTS[0]))
    assert places[0] > least
    graph = traced(halves, INPUTS[0]).graph
    before = state(graph)
    for number in range(1, places[0] + 1):
        with (
            contextlib.suppress(KeyboardInterrupt),
            failing_at_call(files, number, KeyboardInterrupt()),
        ):
            saturate(graph)
        assert gc.isenabled(), f"at place {number} of {places[0]}"
        if state(graph) != before:
            # Once all is done but to return, the graph may as well stay changed.
            assert graph.python_code("self").src == expected[0], f"at place {number}"
            assert number > places[0] - 10
            graph = traced(halves, INPUTS[0]).graph
            before = state(graph)
        if number % 10 == 0 or number == places[0]:
            again = traced(halves, INPUTS[0]).graph
            assert outcome(again, saturate(again)) == expected, f"at place {number}"


@pytest.mark.parametrize("where", ["read_in", "run"])
def test_ctrl_c_while_the_engine_works(
    where: str,
    undisturbed: object,
    warnings: list[logging.LogRecord],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    method = getattr(engine._Prepared, where)
    interrupted = threading.Event()

    def interrupt(*args: object) -> object:
        if not interrupted.is_set():
            interrupted.set()
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            time.sleep(0.05)
        return method(*args)

    monkeypatch.setattr(engine._Prepared, where, interrupt)
    check_fault(traced(), KeyboardInterrupt, undisturbed, warnings, monkeypatch.undo)
    assert interrupted.is_set()
