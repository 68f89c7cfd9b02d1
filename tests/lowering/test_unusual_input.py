"""What is no graph, no graph of aten overloads, or next to nothing."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx

from lowering import Options, SaturatePass, saturate
from tests.lowering.faults import block, state, traced

aten = torch.ops.aten


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
