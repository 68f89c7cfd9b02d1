"""The thread that all e-graphs live on.

An egglog e-graph panics when it is touched from another thread than its maker's, and leaks when it
is dropped there. So one long-lived thread makes, uses and drops all of them. It is remade in a
forked child, where threads do not survive.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class EngineError(Exception):
    """egglog failed: an error of its own, or a Rust panic, which Python sees as a BaseException."""


class Worker:
    """Runs functions on a thread of its own, one at a time, in the order of the calls."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Callable[[], Any], _Answer] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="fxsat-engine", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            function, answer = call
            try:
                answer.value = function()
            except BaseException as error:  # a Rust panic is one; the caller gets whatever it is
                answer.error = error
            del function, call
            answer.done.release()
            del answer

    def call(self, function: Callable[[], T]) -> T:
        """Run `function` on the thread and return what it returns.

        Raises:
            EngineError: whatever `function` raised, as its cause.
        """
        if threading.current_thread() is self._thread:
            return function()
        answer = _Answer()
        self._calls.put((function, answer))
        answer.done.acquire()
        if answer.error is not None:
            error = answer.error
            answer.error = None
            raise EngineError(f"{type(error).__name__}: {error}") from error
        value: T = answer.value
        return value

    def post(self, function: Callable[[], object]) -> None:
        """Run `function` on the thread some time after the calls before it; nobody waits."""
        self._calls.put((function, _Answer()))

    def stop(self) -> None:
        """Let the thread end after the calls that wait, and wait for it."""
        self._calls.put(None)
        self._thread.join(timeout=5)


class _Answer:
    """What a call on the thread came to."""

    __slots__ = ("done", "error", "value")

    def __init__(self) -> None:
        self.done = threading.Lock()
        self.done.acquire()
        self.value: Any = None
        self.error: BaseException | None = None
