"""Whatever goes wrong, wherever: the graph is as it was, one warning says so, and all goes on."""

from __future__ import annotations

import contextlib
import gc
import importlib
import itertools
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch._inductor.utils import fresh_cache
from torch.fx.experimental.proxy_tensor import make_fx

from egraph import engine
from egraph.engine import Session
from lowering import (
    Options,
    Report,
    SaturatePass,
    canonical_text,
    collector,
    pipeline,
    reports,
    saturate,
)
from lowering import journal as journal_module
from lowering.graph_pass import clear_reports
from lowering.journal import Journal

aten = torch.ops.aten

INPUTS = (torch.randn(3, 5), torch.randn(5, 16), torch.randn(3, 8))


def block(x: Tensor, w: Tensor, s: Tensor) -> tuple[Tensor, ...]:
    """Rewritten by edits of every kind: nodes are made, moved, rewired, revalued and erased."""
    qkv = x @ w
    early = qkv[:, 8:12].sin()
    q, _, v = qkv.split([8, 4, 4], -1)
    again = qkv[:, :8]
    written = torch.slice_scatter(qkv, s, 1, 0, 8)
    k = written[:, 8:12].reshape(-1)
    halves = x[:, :2].cos(), x[:, 2:].cos()
    middle = torch.cat([w[:3], w[3:]])[1:4].sin()
    return (
        early,
        q.sin() + again.sin(),
        written[:, 12:].cos(),
        k,
        v.sin(),
        written[:, :8],
        middle,
        *halves,
    )


def traced(function: Callable[..., object] = block, *inputs: Tensor) -> fx.GraphModule:
    module = make_fx(function, tracing_mode="fake")(*(inputs or INPUTS))
    assert isinstance(module, fx.GraphModule)
    return module


class RustPanic(BaseException):
    """As pyo3's PanicException: not an Exception."""


# What a graph is


def state(graph: fx.Graph) -> dict[str, object]:
    """Everything about a graph that anybody could notice, nodes and vals by identity."""
    nodes = list(graph.nodes)
    names = graph._graph_namespace
    return {
        "code": graph.python_code("self").src,
        "text": str(graph),
        "nodes": nodes,
        "backwards": list(reversed(graph.nodes)),
        "length": len(graph.nodes),
        "calls": [(node.name, node.op, node.target, node.type, node._erased) for node in nodes],
        "arguments": [(node.args, node.kwargs) for node in nodes],
        "operands": [list(node.all_input_nodes) for node in nodes],
        "users": [list(node.users) for node in nodes],
        "meta": [[(key, id(value)) for key, value in node.meta.items()] for node in nodes],
        "ordered": all(a < b and not b < a for a, b in itertools.pairwise(nodes)),
        "names in use": set(names._used_names),
        "numbers of names": {base: n for base, n in names._base_count.items() if n},
        "named": list(names._obj_to_name),
        "found": {
            key: graph.find_nodes(op=key[0], target=key[1], sort=False)
            for key in sorted({(node.op, node.target) for node in nodes}, key=str)
            if key[0] == "call_function"
        },
        "insert point": graph._insert,
    }


def next_names(graph: fx.Graph) -> list[str]:
    """The names that the next nodes of some targets get; adds those nodes."""
    x = next(iter(graph.nodes))
    targets = (aten.split_with_sizes.default, aten.slice.Tensor, aten.sin.default)
    with graph.inserting_before(next(iter(reversed(graph.nodes)))):
        return [graph.call_function(target, (x,)).name for target in targets for _ in range(2)]


def outcome(graph: fx.Graph, report: Report) -> tuple[str, Report]:
    """What a run came to, apart from its time."""
    return graph.python_code("self").src, replace(report, seconds={})


@pytest.fixture(scope="module")
def expected() -> object:
    """What a run comes to where nothing goes wrong, and the names that follow."""
    graph = traced().graph
    report = saturate(graph)
    assert report.changed
    return *outcome(graph, report), next_names(graph)  # type: ignore[misc]


@pytest.fixture
def warnings() -> Iterator[list[logging.LogRecord]]:
    """The records of fxsat's logger, warnings and above."""
    records: list[logging.LogRecord] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    handler = Keep(logging.WARNING)
    logger = logging.getLogger("lowering")
    logger.addHandler(handler)
    yield records
    logger.removeHandler(handler)


@pytest.fixture(autouse=True)
def _collector_on() -> Iterator[None]:
    """A test that fails leaves the collector on for the next one."""
    yield
    collector._pauses = 0
    gc.enable()


# Faults


class Fault:
    """Raises once, at the n-th call of a function, before or after the call is done."""

    def __init__(self, error: BaseException, number: int = 1, *, after: bool = False) -> None:
        self.error = error
        self.number = number
        self.after = after
        self.calls = 0
        self.raised = False

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def faulty(*args: object, **kwargs: object) -> Any:
            self.calls += 1
            due = self.calls == self.number
            if due and not self.after:
                self.fail()
            result = function(*args, **kwargs)
            if due:
                self.fail()
            return result

        return faulty

    def fail(self) -> None:
        self.raised = True
        raise self.error


PASSES_THROUGH = (KeyboardInterrupt, SystemExit)


def check_fault(
    module: fx.GraphModule,
    error: type[BaseException],
    expected: Any,
    warnings: list[logging.LogRecord],
    repair: Callable[[], None],
    reason: str = "boom",
) -> None:
    """Saturate where a fault waits; then, after the repair, once more as if nothing had been."""
    graph = module.graph
    before = state(graph)
    forward = module.forward.__code__  # type: ignore[attr-defined]
    if issubclass(error, PASSES_THROUGH):
        with pytest.raises(error):
            saturate(module)
        assert warnings == []
    else:
        report = saturate(module)
        assert (report.stopped, report.changed) == ("failed", False)
        assert reason in report.reason
        assert report.before == report.after
        assert [record.levelname for record in warnings] == ["WARNING"]
        assert report.reason in warnings[0].getMessage()
    assert state(graph) == before
    assert module.forward.__code__ is forward  # type: ignore[attr-defined]
    assert gc.isenabled()
    graph.lint()
    repair()
    again = saturate(module)
    assert outcome(graph, again) == expected[:2]
    assert next_names(graph) == expected[2]
    assert len(warnings) == (not issubclass(error, PASSES_THROUGH))


ERRORS = [ValueError, RustPanic, KeyboardInterrupt]

# Where a run can fail: what to replace, in which call, before or after it is done.
PLACES: dict[str, tuple[object, str, int]] = {
    "count": (pipeline, "_count", 1),
    "read": (pipeline, "read", 1),
    "load": (pipeline, "load", 1),
    "session": (pipeline, "session", 1),
    "saturate": (Session, "saturate", 1),
    "tile": (Session, "tile", 1),
    "choices": (pipeline, "choices", 1),
    "extract": (pipeline, "extract", 1),
    "named": (pipeline, "named", 1),
    "plan": (pipeline, "plan", 1),
    "rewrites": (pipeline, "rewrites", 1),
    "write": (pipeline, "write", 1),
    "count of the result": (pipeline, "_count", 2),
    "report": (pipeline, "Report", 1),
    # On the engine's own thread, where neither of KeyboardInterrupt and SystemExit is raised.
    "prepare": (engine._Prepared, "__init__", 1),
    "read in": (engine._Prepared, "read_in", 1),
    "run": (engine._Prepared, "run", 1),
    "run later": (engine._Prepared, "run", 3),
    "read back": (engine, "_read_back", 1),
}
ON_THE_THREAD = ("prepare", "read in", "run", "run later", "read back")


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("place", "error"),
    [
        *[
            (place, error)
            for place in PLACES
            for error in (ERRORS[:2] if place in ON_THE_THREAD else ERRORS)
        ],
        ("write", SystemExit),
    ],
)
def test_a_fault_leaves_the_graph_as_it_was(
    place: str,
    error: type[BaseException],
    after: bool,
    expected: object,
    warnings: list[logging.LogRecord],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owner, name, number = PLACES[place]
    if place == "prepare":
        engine._current().worker.call(lambda: None)  # what the last session left to do is done
        current = engine._current()
        current.worker.call(lambda: [current.discard(key) for key in list(current._prepared)])
    fault = Fault(error("boom"), number, after=after)
    monkeypatch.setattr(owner, name, fault.wrap(getattr(owner, name)))
    check_fault(traced(), error, expected, warnings, monkeypatch.undo)
    assert fault.raised


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
    expected: Any,
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
            assert outcome(graph, report) == expected[:2]
    assert fault.raised
    assert report.stopped == "saturated"


def test_a_fault_of_recompiling_leaves_the_graph_as_it_was(
    expected: object, warnings: list[logging.LogRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = traced()
    fault = Fault(ValueError("boom"))
    monkeypatch.setattr(fx.GraphModule, "recompile", fault.wrap(fx.GraphModule.recompile))
    check_fault(module, ValueError, expected, warnings, monkeypatch.undo)
    assert fault.raised


# Edits

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
    expected: object,
    warnings: list[logging.LogRecord],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fault = Fault(error("boom"), after=after)
    monkeypatch.setattr(Journal, edit, fault.wrap(getattr(Journal, edit)))
    check_fault(traced(), error, expected, warnings, monkeypatch.undo)
    assert fault.raised


@contextlib.contextmanager
def failing_at_call(files: set[str], number: int, error: BaseException) -> Iterator[list[int]]:
    """Raise at the n-th place in any of the files where Python looks for signals.

    Those are where a function starts, and where a call of a built-in one has come back. Gives the
    number of places so far.
    """
    places = [0]

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event in ("call", "c_return") and frame.f_code.co_filename in files:
            places[0] += 1
            if places[0] == number:
                sys.setprofile(None)
                raise error

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield places
    finally:
        sys.setprofile(before)


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
    expected: object,
    warnings: list[logging.LogRecord],
    unraisable: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pipeline, "load", facts)
    check_fault(traced(), ValueError, expected, warnings, monkeypatch.undo, reason)
    gc.collect()
    assert unraisable == []


def test_a_panic_of_egglog_leaves_the_graph_as_it_was(
    expected: object,
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
    check_fault(traced(), ValueError, expected, warnings, monkeypatch.undo, "PanicException")
    gc.collect()
    assert unraisable == []
    assert "panicked" in capfd.readouterr().err  # egglog's own message, which can't be kept quiet


@pytest.fixture
def unraisable(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What goes to sys.unraisablehook, as text: the arguments themselves must not be kept."""
    gc.collect()
    seen: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: seen.append(str(args.exc_value)))
    return seen


# Ctrl-C


@pytest.mark.parametrize("where", ["read_in", "run"])
def test_ctrl_c_while_the_engine_works(
    where: str,
    expected: object,
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
    check_fault(traced(), KeyboardInterrupt, expected, warnings, monkeypatch.undo)
    assert interrupted.is_set()


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


# Inside torch.compile


def product(x: Tensor, w: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    # Matrix products call a library: there's no kernel for a C++ compiler to build.
    h = x @ w
    return h[:, :4] @ u, h[:, 4:] @ u


PRODUCT_INPUTS = (torch.randn(3, 5), torch.randn(5, 8), torch.randn(4, 2))


@pytest.fixture
def compiled() -> Iterator[Callable[..., Any]]:
    """The product compiled with the pass, with no compiled code to be found anywhere."""
    torch._dynamo.reset()
    clear_reports()
    with fresh_cache():
        yield torch.compile(product, options={"post_grad_custom_pre_pass": SaturatePass()})
    torch._dynamo.reset()


@pytest.mark.parametrize("error", [ValueError, RustPanic])
@pytest.mark.parametrize("place", ["count", "read", "tile", "extract", "write"])
def test_a_compile_goes_on(
    place: str,
    error: type[BaseException],
    compiled: Callable[..., Any],
    warnings: list[logging.LogRecord],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owner, name, number = PLACES[place]
    fault = Fault(error("boom"), number, after=True)
    monkeypatch.setattr(owner, name, fault.wrap(getattr(owner, name)))
    torch.testing.assert_close(compiled(*PRODUCT_INPUTS), product(*PRODUCT_INPUTS))
    assert fault.raised
    assert [report.stopped for report in reports()] == ["failed"]
    assert len(warnings) == 1
    monkeypatch.undo()
    torch._dynamo.reset()
    with fresh_cache():
        torch.testing.assert_close(compiled(*PRODUCT_INPUTS), product(*PRODUCT_INPUTS))
    assert [(report.stopped, report.changed) for report in reports()] == [
        ("failed", False),
        ("saturated", True),
    ]


def test_a_compile_is_interrupted(
    compiled: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = Fault(KeyboardInterrupt("boom"), after=True)
    monkeypatch.setattr(pipeline, "write", fault.wrap(pipeline.write))
    with pytest.raises(KeyboardInterrupt):
        compiled(*PRODUCT_INPUTS)
    assert gc.isenabled()
    monkeypatch.undo()
    torch.testing.assert_close(compiled(*PRODUCT_INPUTS), product(*PRODUCT_INPUTS))
    assert [report.stopped for report in reports()] == ["saturated"]


# Misuse


@pytest.mark.parametrize("wrong", [None, "graph", block, [], torch.nn.Linear(2, 2), fx.Node])
def test_what_is_no_graph_is_a_type_error(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"torch\.fx\.Graph or GraphModule, not \w+; .*capture"):
        saturate(wrong)


@pytest.mark.parametrize("wrong", [None, {}, {"prefer": "slices"}, Options, SaturatePass()])
def test_what_is_no_options_is_a_type_error(wrong: Any) -> None:
    module = traced()
    before = state(module.graph)
    with pytest.raises(TypeError, match=r"options must be lowering\.Options, not \w+"):
        saturate(module, wrong)
    assert state(module.graph) == before


# Graphs of another kind


class Layers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)  # type: ignore[no-any-return]


def methods(x: Tensor) -> Tensor:
    return x.narrow(0, 0, 1)


def functions(x: Tensor) -> Tensor:
    return torch.cat([x, torch.nn.functional.relu(x)])


def by_hand() -> fx.Graph:
    graph = fx.Graph()
    x = graph.placeholder("x")
    first = graph.call_function(aten.slice.Tensor, (x, 0, 0, 2))
    rest = graph.call_function(aten.slice.Tensor, (x, 0, 2, 4))
    graph.output((first, rest))
    return graph


def without_some_vals() -> fx.Graph:
    graph = traced().graph
    for node in graph.find_nodes(op="call_function", target=aten.slice.Tensor):
        del node.meta["val"]
    return graph


@pytest.mark.parametrize(
    ("make", "advice"),
    [
        pytest.param(lambda: fx.symbolic_trace(methods).graph, "capture", id="methods"),
        pytest.param(lambda: fx.symbolic_trace(functions).graph, "make_fx", id="functions"),
        pytest.param(lambda: fx.symbolic_trace(Layers()).graph, "post_grad", id="modules"),
        pytest.param(by_hand, "FakeTensorProp", id="no val"),
    ],
)
def test_a_graph_of_another_kind_is_left_as_it_was(
    make: Callable[[], fx.Graph], advice: str, warnings: list[logging.LogRecord]
) -> None:
    graph = make()
    before = state(graph)
    report = saturate(graph)
    assert (report.stopped, report.changed) == ("unsupported", False)
    assert advice in report.reason
    assert report.before == report.after
    assert state(graph) == before
    assert warnings == []
    assert gc.isenabled()


def test_a_graph_with_some_vals_missing_is_no_failure(warnings: list[logging.LogRecord]) -> None:
    graph = without_some_vals()
    report = saturate(graph)
    assert report.stopped in ("saturated", "unsupported")
    assert warnings == []
    graph.lint()


def test_the_advice_for_a_graph_without_vals_helps() -> None:
    from torch.fx.passes.fake_tensor_prop import FakeTensorProp

    module = fx.GraphModule(torch.nn.Module(), by_hand())
    assert saturate(module).stopped == "unsupported"
    FakeTensorProp(module).propagate(torch.randn(4, 3))
    report = saturate(module)
    assert (report.stopped, report.changed) == ("saturated", True)


@pytest.mark.parametrize("nodes", [0, 1, 2])
def test_a_graph_of_next_to_nothing_is_left_as_it_was(nodes: int) -> None:
    graph = fx.Graph()
    if nodes > 0:
        x = graph.placeholder("x")
        x.meta["val"] = torch.empty(3, device="meta")
    if nodes > 1:
        graph.output(x)
    before = state(graph)
    report = saturate(graph)
    assert (report.stopped, report.changed, report.reason) == ("saturated", False, "")
    assert state(graph) == before


# Budgets


def deep(x: Tensor) -> tuple[Tensor, ...]:
    """Slices of slices, and pieces of each."""
    found = []
    for _ in range(6):
        a, b = x.split([1, x.size(-1) - 1], -1)
        found.append(a.sin())
        x = b
    return (*found, x.cos())


@pytest.mark.parametrize(
    ("options", "stopped", "reason"),
    [
        (Options(max_enodes=1), "enodes", "max_enodes=1"),
        (Options(max_enodes=30), "enodes", "max_enodes=30"),
        (Options(max_iterations=1), "iterations", "max_iterations=1"),
    ],
)
@pytest.mark.parametrize(
    ("function", "inputs"), [(block, INPUTS), (deep, (torch.randn(2, 16),))], ids=["block", "deep"]
)
def test_a_budget_that_ends_it_is_sound_and_reported(
    function: Callable[..., Any],
    inputs: tuple[Tensor, ...],
    options: Options,
    stopped: str,
    reason: str,
    warnings: list[logging.LogRecord],
) -> None:
    module = traced(function, *inputs)
    want = module(*inputs)
    report = saturate(module, options)
    assert report.stopped == stopped
    assert reason in report.reason
    assert warnings == []
    module.graph.lint()
    for got, wanted in zip(module(*inputs), want, strict=True):
        assert torch.equal(got, wanted)
        assert got.stride() == wanted.stride()
    whole = traced(function, *inputs)
    saturate(whole)
    assert saturate(module).stopped == "saturated"
    assert canonical_text(module.graph) == canonical_text(whole.graph)
