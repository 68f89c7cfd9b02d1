"""Processes whose graphs came from threads: their end, and their memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lowering.quiet_processes import output_of


def test_a_process_whose_graphs_came_from_threads_ends_cleanly(tmp_path: Path) -> None:
    code = """
        found = [graphs() for _ in range(3)]
        first, *others = in_threads([lambda each=each: results(each) for each in found])
        assert all(other == first for other in others)
        print("done")
    """
    assert output_of(code, tmp_path) == "done\n"


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
    assert output_of(code, tmp_path) == "done\n"


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
    assert output_of(code, tmp_path) == "True\n"


# Memory

LEAK = """
    import copy
    seen = []
    sys.unraisablehook = lambda args: seen.append(str(args.exc_value))
    threading.excepthook = lambda args: seen.append(str(args.exc_value))
    from tests.lowering.quiet_processes import resident_mb
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
    grown = float(output_of(code, tmp_path))
    # An e-graph takes half a megabyte: a leak of one a graph would be hundreds.
    assert grown < 8


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads memory from /proc")
def test_many_failures_leave_memory_flat(tmp_path: Path) -> None:
    prepare = """
    import logging
    from egraph import engine
    logging.disable()

    def failing(*args):
        raise RuntimeError("boom")

    engine.read_back = failing
    """
    code = LEAK.format(prepare=prepare, stopped="failed", warm=20, count=60)
    assert float(output_of(code, tmp_path)) < 20
