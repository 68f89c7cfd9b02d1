"""Whatever goes wrong while a graph is edited, the edits are taken back."""

from __future__ import annotations

import contextlib
import importlib
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from lowering import journal as journal_module
from lowering import pipeline, saturate
from lowering.journal import Journal
from tests.lowering.faults import ERRORS, Fault, check_faulty_call, failing_at_call, state, traced

EDITS = ("create", "set_args", "set_val", "move", "erase")


class Replay:
    """The edits that a graph takes, to be made and taken back as often as wanted."""

    def __init__(self) -> None:
        self.graph = traced().graph
        self.before = state(self.graph)
        plans: list[Any] = []

        def keep(plan: object, journal: Journal) -> None:
            plans.append(plan)
            raise Boom

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pipeline, "write", keep)
            saturate(self.graph)
        (self.plan,) = plans

    def attempt(self, trap: contextlib.AbstractContextManager[Any]) -> None:
        """Make the edits, in a trap, and take them back."""
        journal = Journal(self.graph)
        with contextlib.suppress(Boom, KeyboardInterrupt), trap:
            pipeline.write(self.plan, journal)
        journal.undo()


class Boom(Exception):
    pass


def at_edits(wrap: Callable[[str, Callable[..., Any]], Callable[..., Any]]) -> Any:
    """Have all edits of a journal wrapped."""
    patch = pytest.MonkeyPatch()
    for name in EDITS:
        patch.setattr(Journal, name, wrap(name, getattr(Journal, name)))
    return contextlib.closing(SimpleNamespace(close=patch.undo))


def count_edits() -> int:
    """How many edits the block takes, with at least one of each kind."""
    counts = dict.fromkeys(EDITS, 0)

    def counting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: object) -> Any:
            counts[name] += 1
            return function(*args)

        return counted

    Replay().attempt(at_edits(counting))
    assert all(counts.values()), counts
    return sum(counts.values())


def test_each_edit_is_taken_back() -> None:
    replay = Replay()
    for number in range(1, count_edits() + 1):
        for after in (False, True):
            fault = Fault(Boom(), number, after=after)
            replay.attempt(at_edits(lambda _, function, fault=fault: fault.wrap(function)))
            assert fault.raised
            assert state(replay.graph) == replay.before, number


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("edit", EDITS)
def test_a_fault_of_an_edit_leaves_the_graph_as_it_was(
    edit: str,
    error: type[BaseException],
    after: bool,
    undisturbed: object,
    warnings: list[logging.LogRecord],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fault = Fault(error("boom"), after=after)
    check_faulty_call(Journal, edit, fault, undisturbed, warnings, monkeypatch)


WRITERS = {str(importlib.import_module("lowering.write").__file__), str(journal_module.__file__)}


def test_ctrl_c_anywhere_in_the_writing() -> None:
    # Also between an edit and its entry in the journal.
    replay = Replay()
    with failing_at_call(WRITERS, 0, KeyboardInterrupt()) as places:
        replay.attempt(contextlib.nullcontext())
    count = places[0]
    assert count > 100
    for number in range(1, count + 1):
        replay.attempt(failing_at_call(WRITERS, number, KeyboardInterrupt()))
        assert state(replay.graph) == replay.before, f"at place {number} of {count}"
