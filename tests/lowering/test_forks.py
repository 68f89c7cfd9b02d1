"""Forks: the child saturates as its parent does, whatever the parent was doing."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.lowering.quiet_processes import output_of

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
    assert output_of(FORK + textwrap.dedent(code), tmp_path) == "done\n"


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
    assert output_of(FORK + textwrap.dedent(code), tmp_path) == "done\n"


@pytest.mark.slow
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
    assert output_of(code, tmp_path, RAYON_NUM_THREADS="4") == "done\n"


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

        fork_inside(engine.Session, "saturate")
        fork_inside(engine._Prepared, "read_in")
        fork_inside(engine._Prepared, "run")
        fork_inside(engine, "read_back")
        fork_inside(pipeline, "read")
        fork_inside(pipeline, "write")
        print("done")
    """
    assert output_of(FORK + textwrap.dedent(code), tmp_path) == "done\n"


@pytest.mark.slow
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
    assert output_of(FORK + textwrap.dedent(code), tmp_path) == "done\n"


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
    assert output_of(code, tmp_path) == "done\n"
