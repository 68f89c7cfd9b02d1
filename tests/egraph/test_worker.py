"""The thread that e-graphs live on: its calls, their errors, and its end."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from egraph.worker import EngineError, Worker
from tests.processes import in_a_process
from tests.rust_panic import RustPanic


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker()
    yield made
    made.stop()


def test_a_call_returns_what_the_function_returns(worker: Worker) -> None:
    assert worker.call(lambda: [1, 2]) == [1, 2]
    assert worker.call(lambda: None) is None


def test_all_calls_run_on_one_thread_which_is_not_the_callers(worker: Worker) -> None:
    threads = {worker.call(threading.get_ident) for _ in range(10)}
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_a_call_from_the_thread_itself_runs_at_once(worker: Worker) -> None:
    inner, outer = worker.call(lambda: (worker.call(threading.get_ident), threading.get_ident()))
    assert inner == outer


def test_calls_run_in_their_order(worker: Worker) -> None:
    seen: list[int] = []
    for i in range(100):
        worker.post(lambda i=i: seen.append(i))  # type: ignore[misc]
    worker.call(lambda: seen.append(100))
    assert seen == list(range(101))


def test_a_call_waits_for_its_own_answer(worker: Worker) -> None:
    results: list[tuple[int, int]] = []

    def ask(number: int) -> None:
        results.extend((number, worker.call(lambda: number)) for _ in range(200))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 800
    assert all(asked == got for asked, got in results)


def raising(error: BaseException) -> Callable[[], Any]:
    def function() -> None:
        raise error

    return function


@pytest.mark.parametrize(
    "error",
    [
        ValueError("boom"),
        RustPanic("boom"),
        KeyboardInterrupt("boom"),
        SystemExit("boom"),
        StopIteration("boom"),
        EngineError("boom"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_is_raised_is_an_engine_error(worker: Worker, error: BaseException) -> None:
    with pytest.raises(EngineError, match=f"{type(error).__name__}: boom"):
        worker.call(raising(error))
    assert worker.call(lambda: 1) == 1


def test_what_is_raised_by_a_post_ends_nothing(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[object] = []
    monkeypatch.setattr(threading, "excepthook", seen.append)
    worker.post(raising(RustPanic("boom")))
    assert worker.call(lambda: 1) == 1
    assert seen == []


class Kept:
    """Something that must go on the thread that made it, as an e-graph must."""

    def __init__(self, gone: list[int]) -> None:
        self._gone = gone

    def __del__(self) -> None:
        self._gone.append(threading.get_ident())


def test_what_a_call_made_goes_on_its_thread(worker: Worker) -> None:
    gone: list[int] = []

    def work() -> None:
        Kept(gone)

    worker.call(work)
    assert gone == [worker.call(threading.get_ident)]


def test_what_a_failed_call_made_goes_on_its_thread(worker: Worker) -> None:
    gone: list[int] = []

    def work() -> None:
        kept = Kept(gone)
        raise ValueError(f"boom {len(vars(kept))}")

    with pytest.raises(EngineError) as caught:
        worker.call(work)
    # The traceback would hold the frame of `work`, and it is the caller who drops it.
    del caught
    gc.collect()
    assert gone == [worker.call(threading.get_ident)]


def test_what_a_failed_call_within_a_call_made_goes_on_its_thread(worker: Worker) -> None:
    gone: list[int] = []

    def inner() -> None:
        kept = Kept(gone)
        raise ValueError(f"boom {len(vars(kept))}")

    def work() -> None:
        kept = Kept(gone)
        try:
            inner()
        except ValueError as error:
            raise KeyError(f"boom {len(vars(kept))}") from error

    with pytest.raises(EngineError) as caught:
        worker.call(work)
    del caught
    gc.collect()
    assert gone == [worker.call(threading.get_ident)] * 2


def test_the_thread_keeps_nothing_of_a_call(worker: Worker) -> None:
    class Result:
        pass

    result = worker.call(Result)
    gone = weakref.ref(result)
    del result
    assert gone() is None


def test_it_ends_after_the_calls_that_wait() -> None:
    worker = Worker()
    seen: list[int] = []
    blocked = threading.Event()
    worker.post(blocked.wait)
    for i in range(3):
        worker.post(lambda i=i: seen.append(i))  # type: ignore[misc]
    threading.Timer(0.05, blocked.set).start()
    worker.stop()
    assert seen == [0, 1, 2]
    assert not worker._thread.is_alive()


def test_it_may_be_stopped_twice() -> None:
    worker = Worker()
    worker.stop()
    worker.stop()
    assert not worker._thread.is_alive()


def test_a_call_after_the_end_fails_instead_of_waiting() -> None:
    worker = Worker()
    worker.stop()
    outcome: list[object] = []

    def ask() -> None:
        try:
            worker.call(lambda: None)
        except EngineError as error:
            outcome.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(timeout=5)
    assert len(outcome) == 1, "the call waits for a thread that has ended"


@pytest.mark.parametrize("end", ["", "worker.stop()", "worker.post(time.sleep)"])
def test_it_does_not_keep_the_process_alive(end: str) -> None:
    code = f"import time; from egraph.worker import Worker; worker = Worker(); {end}"
    done = in_a_process(code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
