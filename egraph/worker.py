"""The thread that all e-graphs live on.

An egglog e-graph panics when it is touched from another thread than its maker's, and leaks when it
is dropped there. So one long-lived thread makes, uses and drops all of them. It is remade in a
forked child, where threads do not survive.
"""

from __future__ import annotations

import threading
import traceback
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
        self._lock = threading.Lock()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="fxsat-engine", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            function, answer = call
            try:
                answer.value = function()
            except BaseException as error:  # a Rust panic is one; the caller gets whatever it is
                _forget_locals(error)
                answer.error = error
            del function, call
            answer.done.release()
            del answer

    def call(self, function: Callable[[], T]) -> T:
        """Run `function` on the thread and return what it returns.

        Raises:
            EngineError: whatever `function` raised, as its cause; or the thread has ended.
        """
        if threading.current_thread() is self._thread:
            return function()
        answer = self._put(function)
        answer.done.acquire()
        if answer.error is not None:
            error = answer.error
            answer.error = None
            raise EngineError(f"{type(error).__name__}: {error}") from error
        value: T = answer.value
        return value

    def post(self, function: Callable[[], object]) -> None:
        """Run `function` on the thread some time after the calls before it; nobody waits.

        Raises:
            EngineError: the thread has ended.
        """
        self._put(function)

    def _put(self, function: Callable[[], Any]) -> _Answer:
        answer = _Answer()
        with self._lock:
            if self._ended:
                raise EngineError("the engine's thread has ended: the process is about to")
            self._calls.put((function, answer))
        return answer

    def stop(self) -> None:
        """Let the thread end after the calls that wait, and wait for it."""
        with self._lock:
            self._ended = True
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


def _forget_locals(error: BaseException) -> None:
    """Clear the frames of an error and of what it came from.

    They hold e-graphs, and the error is going to be dropped on another thread.
    """
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            traceback.clear_frames(each.__traceback__)
            waiting += [each.__cause__, each.__context__]
