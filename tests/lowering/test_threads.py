"""Threads: results are those of one thread, nothing hangs or complains."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from egraph import engine
from lowering import Options, collector
from tests.lowering.thread_graphs import LIMIT_S, graphs, in_threads, results


@pytest.fixture(scope="module")
def expected() -> list[tuple[str, str, bool]]:
    found = results(graphs())
    assert all(row[1:] == ("saturated", True) for row in found)
    return found


@pytest.fixture(scope="module", autouse=True)
def _only_garbage_of_these_tests_is_looked_for() -> None:
    """What the tests before have left would take seconds to go through, each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def complaints(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What goes to the hooks for exceptions that nobody catches; nothing may."""
    seen: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: seen.append(str(args.exc_value)))
    monkeypatch.setattr(threading, "excepthook", lambda args: seen.append(str(args.exc_value)))
    yield seen
    gc.collect()
    assert seen == []


# Threads


def test_from_a_thread(expected: object) -> None:
    found = graphs()
    assert in_threads([lambda: results(found)]) == [expected]


def test_from_the_main_thread_after_a_thread_has_ended(expected: object) -> None:
    found = graphs()
    in_threads([lambda: results(found)])
    assert results(graphs()) == expected


def test_from_eight_threads_at_once(expected: object) -> None:
    found = [graphs() for _ in range(8)]
    jobs: list[Callable[[], Any]] = [lambda each=each: results(each) for each in found]  # type: ignore[misc]
    assert in_threads(jobs) == [expected] * 8


def test_from_threads_with_several_options() -> None:
    options = [Options(), Options(prefer="slices"), Options(("slice", "split")), Options(("cse",))]
    wanted = [results(graphs(), each) for each in options]
    found = [graphs() for _ in options]
    jobs: list[Callable[[], Any]] = [
        lambda each=each, option=option: results(each, option)  # type: ignore[misc]
        for each, option in zip(found, options, strict=True)
    ]
    assert in_threads(jobs) == wanted


def test_threads_beside_one_whose_graphs_fail(
    expected: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_back = engine.read_back
    turn = iter(range(1_000_000))

    def often_failing(*args: Any) -> Any:
        if next(turn) % 3 == 0:
            raise RuntimeError("boom")
        return read_back(*args)

    monkeypatch.setattr(engine, "read_back", often_failing)
    found = [graphs() for _ in range(4)]
    answers = in_threads([lambda each=each: results(each) for each in found])  # type: ignore[misc]
    stopped = [row for answer in answers for row in answer if row[1] == "failed"]
    right = [row for answer in answers for row in answer if row[1] != "failed"]
    assert stopped
    assert right
    assert set(right) <= set(expected)  # type: ignore[call-overload]
    monkeypatch.undo()
    assert results(graphs()) == expected


def test_a_thread_that_saturates_while_the_main_thread_is_interrupted(expected: object) -> None:
    found = graphs()
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(results(found)), daemon=True)

    def interrupted() -> None:
        with engine.session(("slice", "split", "scatter", "cat")):
            thread.start()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    thread.join(LIMIT_S)
    assert answers == [expected]


# Python's garbage collector


def test_the_collector_runs_again_once_the_last_pause_is_over() -> None:
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with collector.paused():
            inside.set()
            assert leave.wait(LIMIT_S)

    thread = threading.Thread(target=other, daemon=True)
    with collector.paused():
        thread.start()
        assert inside.wait(LIMIT_S)
        assert not gc.isenabled()
    # The first to pause was the first to leave: the other one still needs it off.
    assert not gc.isenabled()
    leave.set()
    thread.join(LIMIT_S)
    assert gc.isenabled()


def test_pauses_nest() -> None:
    with collector.paused():
        with collector.paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_pause_leaves_a_collector_off_that_was_off() -> None:
    gc.disable()
    try:
        with collector.paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_the_collector_runs_after_eight_threads_have_paused_it_often() -> None:
    def often() -> None:
        for _ in range(300):
            with collector.paused():
                pass

    in_threads([often] * 8)
    assert gc.isenabled()
