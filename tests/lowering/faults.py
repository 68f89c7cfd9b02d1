"""A graph, faults to meet while it is saturated, and what has to hold then."""

from __future__ import annotations

import contextlib
import gc
import itertools
import logging
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from egraph import engine
from egraph.engine import Session
from lowering import Report, pipeline, saturate
from tests.rust_panic import RustPanic

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
    undisturbed: Any,
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
    assert outcome(graph, again) == undisturbed[:2]
    assert next_names(graph) == undisturbed[2]
    assert len(warnings) == (not issubclass(error, PASSES_THROUGH))


def check_faulty_call(
    owner: object,
    name: str,
    fault: Fault,
    undisturbed: Any,
    warnings: list[logging.LogRecord],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Do that where the fault waits in calls of a function or a method."""
    module = traced()
    monkeypatch.setattr(owner, name, fault.wrap(getattr(owner, name)))
    check_fault(module, type(fault.error), undisturbed, warnings, monkeypatch.undo)
    assert fault.raised


ERRORS = [ValueError, RustPanic, KeyboardInterrupt]

# Where a run can fail: what to replace, in which call, before or after it is done.
PLACES: dict[str, tuple[object, str, int]] = {
    "count": (pipeline, "_count", 1),
    "read": (pipeline, "read", 1),
    "load": (pipeline, "load", 1),
    "session": (pipeline, "session", 1),
    "saturate": (Session, "saturate", 1),
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
    "fresh": (engine._Engine, "fresh", 1),
    "read in": (engine._Prepared, "read_in", 1),
    "run": (engine._Prepared, "run", 1),
    "run later": (engine._Prepared, "run", 3),
    "read back": (engine, "read_back", 1),
}


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
