"""CASES.md 12: odd but right graphs, what cannot be read, odd outputs and names."""

from __future__ import annotations

import operator

import pytest
import torch
from torch import fx

from lowering import canonical_text, saturate
from tests.lowering.spellings import (
    getitems,
    read,
    sized,
    sliced,
    slices_in,
    splits_in,
)
from tests.lowering.support import Builder, calls, check

aten = torch.ops.aten


def cat_with_a_getitem_of_topk(b: Builder) -> list[fx.Node]:
    x = b.input(4, 8)
    top = b.call(aten.topk.default, x, 3)
    values = b.call(operator.getitem, top, 0)
    pieces = sized(b, x, (4, 4), 1)
    return [b.call(aten.cat.default, [pieces[0], values, pieces[1]], 1)]


def cat_of_a_node(b: Builder) -> list[fx.Node]:
    split = b.call(aten.split_with_sizes.default, b.input(4, 8), [4, 4], -1)
    return [b.call(aten.cat.default, split, 1)]


def cat_of_a_node_and_its_pieces(b: Builder) -> list[fx.Node]:
    split = b.call(aten.split_with_sizes.default, b.input(4, 8), [4, 4], -1)
    return [b.call(aten.cat.default, split), *getitems(b, split, (0, 1))]


def dim_that_is_a_node(b: Builder) -> list[fx.Node]:
    x, d = b.input(4, 8), b.symbol(1, least=0, most=1)
    split = b.graph.call_function(aten.split_with_sizes.default, (x, [4, 4], d))
    split.meta["val"] = [x.meta["val"][:, :4], x.meta["val"][:, 4:]]
    pieces = []
    for i in (0, 1):
        pieces.append(b.graph.call_function(operator.getitem, (split, i)))
        pieces[i].meta["val"] = split.meta["val"][i]
    cat = b.graph.call_function(aten.cat.default, (pieces, d))
    cat.meta["val"] = x.meta["val"].clone()
    return [cat]


def sizes_that_are_nodes(b: Builder) -> list[fx.Node]:
    s = b.symbol(3, least=1, most=4)
    rest = b.call(operator.sub, 8, s)
    split = b.call(aten.split_with_sizes.default, b.input(4, 8), [s, rest], -1)
    return [b.call(aten.sin.default, each) for each in getitems(b, split, (0, 1))]


def view_of_a_cat(b: Builder) -> list[fx.Node]:
    tensors = [b.input(2, 3), b.input(2, 5)]
    view = b.call(aten.view.default, b.call(aten.cat.default, tensors, 1), [4, 4])
    return sized(b, view, (1, 3), 0)


def list_that_is_returned(b: Builder) -> list[fx.Node]:
    return [b.call(aten.split_with_sizes.default, b.input(4, 8), [4, 4], 1)]


def list_for_a_foreach(b: Builder) -> list[fx.Node]:
    split = b.call(aten.split_with_sizes.default, b.input(4, 8), [4, 4], -1)
    return [b.call(operator.getitem, b.call(aten._foreach_sin.default, split), 1)]


def part_of_a_list(b: Builder) -> list[fx.Node]:
    split = b.call(aten.split_with_sizes.default, b.input(4, 8), [2, 2, 4], -1)
    return [b.call(aten.cat.default, b.call(operator.getitem, split, slice(0, 2)), 1)]


def length_of_a_list(b: Builder) -> list[fx.Node]:
    split = b.call(aten.split_with_sizes.default, b.input(4, 8), [2, 2, 4], -1)
    return [b.call(len, split), *getitems(b, split, (0, 1, 2))]


def cat_of_two_dtypes(b: Builder) -> list[fx.Node]:
    left, right = sized(b, b.input(4, 8), (4, 4), 1)
    right = b.call(aten._to_copy.default, right, dtype=torch.float64)
    return [b.call(aten.cat.default, [left, right], 1)]


def cat_with_an_old_empty(b: Builder) -> list[fx.Node]:
    return [b.call(aten.cat.default, [*sized(b, b.input(4, 8), (4, 4), 1), b.input(0)], 1)]


def scalar_tensors(b: Builder) -> list[fx.Node]:
    x = b.input()
    return [b.call(aten.stack.default, [x, x]), b.call(aten.unsqueeze.default, x, -1)]


def select_by_a_node(b: Builder) -> list[fx.Node]:
    return [b.call(aten.select.int, b.input(4, 8), 1, b.symbol(3, least=0, most=7))]


def several_results(b: Builder) -> list[fx.Node]:
    norm = b.call(aten.native_layer_norm.default, b.input(4, 8), [8], None, None, 1e-5)
    return getitems(b, norm, (0, 1, 2))


def copies(b: Builder) -> list[fx.Node]:
    x = b.input(4, 8)
    split = b.call(aten.split_with_sizes_copy.default, x, [4, 4], -1)
    return [*getitems(b, split, (0, 1)), b.call(aten.slice_copy.Tensor, x, 1, 0, 4)]


ODD = (
    cat_with_a_getitem_of_topk,
    cat_of_a_node,
    cat_of_a_node_and_its_pieces,
    dim_that_is_a_node,
    sizes_that_are_nodes,
    view_of_a_cat,
    list_that_is_returned,
    list_for_a_foreach,
    part_of_a_list,
    length_of_a_list,
    cat_of_two_dtypes,
    cat_with_an_old_empty,
    scalar_tensors,
    select_by_a_node,
    several_results,
    copies,
)


@pytest.mark.parametrize("make", ODD, ids=lambda f: f.__name__)
def test_odd_but_right_graphs_stay_as_they_are(make):
    b = Builder()
    module = b.output(*make(b))
    text = canonical_text(module)
    check(module)
    assert canonical_text(module) == text


def with_wrong_keyword() -> fx.Graph:
    b = Builder()
    x = b.input(4, 8)
    cat = b.graph.call_function(aten.cat.default, ([x, x],), {"axis": 1})
    cat.meta["val"] = torch.empty(4, 16)
    return b.output(cat).graph


def with_too_many_arguments() -> fx.Graph:
    b = Builder()
    x = b.input(4, 8)
    part = b.graph.call_function(aten.slice.Tensor, (x, 1, 0, 4, 1, 7))
    part.meta["val"] = torch.empty(4, 4)
    return b.output(part).graph


def without_vals() -> fx.Graph:
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(aten.slice.Tensor, (x, 1, 0, 4)))
    return graph


def without_a_source_val() -> fx.Graph:
    b = Builder()
    x = b.input(4, 8)
    module = read(b, sliced(b, x, (4, 4), 1))
    del x.meta["val"]
    return module.graph


def with_torch_functions() -> fx.Graph:
    graph = fx.symbolic_trace(lambda x, y: torch.cat([x, y], axis=1)).graph
    for node in graph.nodes:
        node.meta["val"] = torch.empty(2, 2)
    return graph


def with_methods() -> fx.Graph:
    return fx.symbolic_trace(lambda x: x.split(4, dim=-1)).graph


def with_dim_out_of_range() -> fx.Graph:
    b = Builder()
    x = b.input(4, 8)
    part = b.graph.call_function(aten.slice.Tensor, (x, 5, 0, 4))
    part.meta["val"] = x.meta["val"]
    return b.output(part).graph


def empty() -> fx.Graph:
    return fx.Graph()


def without_output() -> fx.Graph:
    graph = fx.Graph()
    graph.placeholder("x").meta["val"] = torch.empty(3)
    return graph


@pytest.mark.parametrize(
    "make",
    [
        with_wrong_keyword,
        with_too_many_arguments,
        without_vals,
        without_a_source_val,
        with_torch_functions,
        with_methods,
        with_dim_out_of_range,
        empty,
        without_output,
    ],
    ids=lambda f: f.__name__,
)
def test_what_cannot_be_read_is_left_and_nothing_is_raised(make):
    graph = make()
    before = str(graph)
    report = saturate(graph)
    assert not report.changed
    assert str(graph) == before
    assert report.reason or report.stopped == "saturated"


@pytest.mark.parametrize("which", [0, 1])
def test_a_slice_without_a_val(which):
    b = Builder()
    module = read(b, sliced(b, b.input(4, 8), (4, 4), 1))
    del calls(module, aten.slice.Tensor)[which].meta["val"]
    check(module)


def test_outputs_of_every_shape():
    b = Builder()
    x = b.input(4, 8)
    left, right = sliced(b, x, (4, 4), 1)
    b.graph.output({"a": [left, None, 3], "b": (right, {"c": x, "d": left}), "e": "text"})
    module = fx.GraphModule({}, b.graph)
    check(module)
    assert (splits_in(module), slices_in(module)) == (1, 0)


@pytest.mark.parametrize(
    "names", [("split_with_sizes", "getitem"), ("split_with_sizes_default", "getitem_1")], ids=str
)
def test_names_that_new_nodes_would_take(names):
    b = Builder()
    x, _ = (b.placeholder(torch.empty(4, 8), name) for name in names)
    module = read(b, sliced(b, x, (4, 4), 1))
    check(module)
    assert splits_in(module) == 1
