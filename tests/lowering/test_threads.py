"""Threads and forks: results are those of one thread, nothing hangs, leaks or complains."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from egraph import engine
from lowering import Options, collector, saturate

ROOT = Path(__file__).parents[2]
LIMIT_S = 50


# Graphs


def qkv(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    y = x @ w
    q, k, v = y.split([8, 4, 4], -1)
    return q.sin(), k.cos(), v.tan(), y[:, 8:12].exp(), y[:, :8].sin()


def halves(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    y = x @ w
    return y[:, :8].sin(), y[:, 8:].cos()


def written(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    y = x @ w
    z = torch.slice_scatter(y, y[:, :4].sin(), 1, 0, 4)
    return z[:, :4].cos(), z[:, 4:10].cos(), z[:, 10:].cos()


def rows(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    return tuple(w.select(0, i).sin() for i in range(5))


def whole(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    return (torch.cat(x.split(1)).sin(),)


FUNCTIONS = (qkv, halves, written, rows, whole)


def graph_of(function: Callable[..., object]) -> fx.Graph:
    module = make_fx(function, tracing_mode="fake")(torch.ones(3, 5), torch.ones(5, 16))
    assert isinstance(module, fx.GraphModule)
    return module.graph


def graphs() -> list[fx.Graph]:
    """One graph of each kind. Tracing isn't made for several threads at once."""
    return [graph_of(function) for function in FUNCTIONS]


def results(found: list[fx.Graph], options: Options = Options()) -> list[tuple[str, str, bool]]:
    """Saturate each graph: its code, and how that ended."""
    done = []
    for graph in found:
        report = saturate(graph, options)
        done.append((graph.python_code("self").src, report.stopped, report.changed))
    return done


@pytest.fixture(scope="module")
def expected() -> list[tuple[str, str, bool]]:
    found = results(graphs())
    assert all(row[1:] == ("saturated", True) for row in found)
    return found


@pytest.fixture(scope="module", autouse=True)
def _only_garbage_of_these_tests_is_looked_for() -> Iterator[None]:
    """What the tests before have left would take seconds to go through, each time."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def complaints(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What goes to the hooks for exceptions that nobody catches; nothing may."""
    seen: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: seen.append(str(args.exc_value)))
    monkeypatch.setattr(threading, "excepthook", lambda args: seen.append(str(args.exc_value)))
    yield seen
    gc.collect()
    assert seen == []


def in_threads(functions: list[Callable[[], Any]]) -> list[Any]:
    """Run each in a thread of its own, all starting at once; what they return."""
    barrier = threading.Barrier(len(functions))
    answers: list[Any] = [None] * len(functions)

    def run(number: int) -> None:
        barrier.wait(LIMIT_S)
        answers[number] = functions[number]()

    threads = [
        threading.Thread(target=run, args=(number,), daemon=True)
        for number in range(len(functions))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
        assert not thread.is_alive(), "a thread hangs"
    return answers


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
    read_back = engine._read_back
    turn = iter(range(1_000_000))

    def often_failing(*args: Any) -> Any:
        if next(turn) % 3 == 0:
            raise RuntimeError("boom")
        return read_back(*args)

    monkeypatch.setattr(engine, "_read_back", often_failing)
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


# Processes of their own


RECORD_FOLDERS = """
import os, tempfile

def recorded(*args, make=tempfile.mkdtemp, **kwargs):
    made = make(*args, **kwargs)
    with open(os.environ["MADE_FOLDERS"], "a") as file:
        file.write(made + chr(10))
    return made

tempfile.mkdtemp = recorded
from tests.lowering.test_threads import *
"""


def in_a_process(code: str, tmp_path: Path, **environment: str) -> str:
    """Run code that may use what stands in this module; its output.

    It has to end well, in time, with nothing on stderr and no folder left behind.
    """
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    folders = tmp_path / "folders"
    folders.touch()
    done = subprocess.run(
        [sys.executable, "-c", RECORD_FOLDERS + textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": path, "MADE_FOLDERS": str(folders), **environment},
        cwd=ROOT,
        timeout=LIMIT_S,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [each for each in folders.read_text().split() if os.path.exists(each)] == []
    return done.stdout


def test_a_process_whose_graphs_came_from_threads_ends_cleanly(tmp_path: Path) -> None:
    code = """
        found = [graphs() for _ in range(3)]
        first, *others = in_threads([lambda each=each: results(each) for each in found])
        assert all(other == first for other in others)
        print("done")
    """
    assert in_a_process(code, tmp_path) == "done\n"


def test_a_process_that_ends_while_a_thread_saturates_ends_cleanly(tmp_path: Path) -> None:
    code = """
        import logging
        logging.disable()  # what the thread still begins may fail, and says so
        found = [graph_of(halves) for _ in range(100)]
        started = threading.Event()

        def work():
            for graph in found:
                saturate(graph)
                started.set()

        threading.Thread(target=work, daemon=True).start()
        started.wait()
        print("done")
    """
    assert in_a_process(code, tmp_path) == "done\n"


def test_saturating_in_an_exit_handler_does_not_hang(tmp_path: Path) -> None:
    # Handlers run last registered first: this one runs after the engine's own.
    code = """
        import atexit
        import logging
        logging.disable()
        found = graphs()
        ended = {"saturated", "failed"}
        atexit.register(lambda: print({row[1] for row in results(found)} <= ended))
        results(graphs())
    """
    assert in_a_process(code, tmp_path) == "True\n"


# Forks

FORK = """
import pickle
import signal

def child_says(function):
    # What the function returns in a forked child, which gets ten seconds.
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            signal.alarm(10)
            os.write(write, pickle.dumps(function()))
            status = 0
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        answer = pipe.read()
    assert os.waitpid(pid, 0)[1] == 0, "the child failed or hung"
    return pickle.loads(answer)
"""


def test_after_a_fork(tmp_path: Path) -> None:
    code = """
        first, second, third, own = graphs(), graphs(), graphs(), graphs()
        untouched = child_says(lambda: results(first))
        parent = results(own)
        assert untouched == parent
        assert child_says(lambda: results(first)) == parent
        assert child_says(lambda: child_says(lambda: results(first))) == parent
        assert results(second) == parent
        assert child_says(lambda: in_threads([lambda: results(third)])) == [parent]
        print("done")
    """
    assert in_a_process(FORK + textwrap.dedent(code), tmp_path) == "done\n"


def test_a_forked_child_ends_cleanly(tmp_path: Path) -> None:
    # By running exit handlers and tearing modules down, as a worker that is forked early does.
    code = """
        parent, found = results(graphs()), graphs()
        pid = os.fork()
        if pid == 0:
            signal.alarm(10)
            assert results(found) == parent
            gc.collect()
            sys.exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
        print("done")
    """
    assert in_a_process(FORK + textwrap.dedent(code), tmp_path) == "done\n"


def test_after_a_fork_of_a_process_that_lets_egglog_have_threads(tmp_path: Path) -> None:
    # They aren't there in the child: it may leave the graphs as they were, but not wait for them.
    code = """
        import logging
        logging.disable()
        own, other = graphs(), graphs()
        as_it_was = [(graph.python_code("self").src, "failed", False) for graph in own]
        parent = results(own)
        assert child_says(lambda: results(other)) in (parent, as_it_was)
        print("done")
    """
    code = FORK + textwrap.dedent(code)
    assert in_a_process(code, tmp_path, RAYON_NUM_THREADS="4") == "done\n"


def test_after_a_fork_while_a_thread_is_inside(tmp_path: Path) -> None:
    code = """
        from egraph import engine
        from lowering import pipeline
        parent = results(graphs())
        own_pid = os.getpid()

        class Impatient:
            # A fork waits ten seconds for the engine's lock, which is in vain here.
            def __init__(self, lock):
                self.lock, self.release = lock, lock.release

            def acquire(self, timeout=-1):
                return self.lock.acquire(timeout=min(timeout, 0.1))

            def __enter__(self):
                self.lock.acquire()

            def __exit__(self, *error):
                self.lock.release()

        engine._current().lock = Impatient(engine._current().lock)

        def fork_inside(owner, name):
            inside, leave = threading.Event(), threading.Event()
            function = getattr(owner, name)

            def waiting(*args, **kwargs):
                if os.getpid() == own_pid:
                    inside.set()
                    leave.wait()
                return function(*args, **kwargs)

            setattr(owner, name, waiting)
            answers, one, child = [], graphs(), graphs()
            thread = threading.Thread(target=lambda: answers.append(results(one)), daemon=True)
            thread.start()
            inside.wait()
            assert child_says(lambda: (results(child), gc.isenabled())) == (parent, True), name
            leave.set()
            thread.join()
            assert answers == [parent]
            assert gc.isenabled()
            setattr(owner, name, function)

        fork_inside(engine.Session, "tile")
        fork_inside(engine._Prepared, "read_in")
        fork_inside(engine._Prepared, "run")
        fork_inside(engine, "_read_back")
        fork_inside(pipeline, "read")
        fork_inside(pipeline, "write")
        print("done")
    """
    assert in_a_process(FORK + textwrap.dedent(code), tmp_path) == "done\n"


def test_after_forks_at_any_time_while_threads_saturate(tmp_path: Path) -> None:
    code = """
        parent = results(graphs())
        stop = threading.Event()
        found = [[graph_of(halves) for _ in range(60)] for _ in range(2)]

        def work(own):
            for graph in own:
                if stop.is_set():
                    return
                saturate(graph)

        threads = [threading.Thread(target=work, args=(own,), daemon=True) for own in found]
        children = [graphs() for _ in range(6)]
        for thread in threads:
            thread.start()
        for each in children:
            assert child_says(lambda: (results(each), gc.isenabled())) == (parent, True)
        stop.set()
        for thread in threads:
            thread.join()
        assert results(graphs()) == parent
        print("done")
    """
    assert in_a_process(FORK + textwrap.dedent(code), tmp_path) == "done\n"


def test_workers_of_multiprocessing_leave_nothing_behind(tmp_path: Path) -> None:
    # They end without running exit handlers.
    code = """
        import multiprocessing
        import signal
        parent, found = results(graphs()), graphs()

        def work(queue):
            signal.alarm(10)
            queue.put(results(found))

        context = multiprocessing.get_context("fork")
        queue = context.SimpleQueue()
        process = context.Process(target=work, args=(queue,))
        process.start()
        process.join(20)
        assert process.exitcode == 0
        assert queue.get() == parent
        print("done")
    """
    assert in_a_process(code, tmp_path) == "done\n"


# Memory


def resident_mb() -> float:
    """Resident memory of this process in megabytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


LEAK = """
    import copy
    seen = []
    sys.unraisablehook = lambda args: seen.append(str(args.exc_value))
    threading.excepthook = lambda args: seen.append(str(args.exc_value))
    {prepare}
    modules = [fx.GraphModule({{}}, graph) for graph in graphs()]

    def one(number):
        module = modules[number % len(modules)]
        graph = fx.Graph()
        graph.output(graph.graph_copy(module.graph, {{}}))
        report = saturate(graph)
        assert report.stopped == "{stopped}", report.reason

    def many(count):
        for number in range(count):
            thread = threading.Thread(target=one, args=(number,))
            thread.start()
            thread.join()
        gc.collect()
        return resident_mb()

    many({warm})
    before = resident_mb()
    grown = many({count}) - before
    assert seen == []
    assert threading.active_count() <= 2
    print(grown)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads memory from /proc")
@pytest.mark.parametrize(
    ("warm", "count"), [(100, 200), pytest.param(400, 1_000, marks=pytest.mark.slow)]
)
def test_graphs_from_short_lived_threads_leave_memory_flat(
    warm: int, count: int, tmp_path: Path
) -> None:
    code = LEAK.format(prepare="", stopped="saturated", warm=warm, count=count)
    grown = float(in_a_process(code, tmp_path))
    # An e-graph takes half a megabyte: a leak of one a graph would be hundreds.
    assert grown < 8


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads memory from /proc")
def test_many_failures_leave_memory_flat(tmp_path: Path) -> None:
    prepare = """
    import logging
    from egraph import engine
    logging.disable()

    def failing(*args):
        raise RuntimeError("boom")

    engine._read_back = failing
    """
    code = LEAK.format(prepare=prepare, stopped="failed", warm=20, count=60)
    assert float(in_a_process(code, tmp_path)) < 20
