"""Views that are what they view."""

from __future__ import annotations

import operator
from collections.abc import Callable

import pytest
import torch
from torch import fx

from lowering import Options, saturate
from tests.lowering.support import BUMP, GEOMETRY, Builder, calls, check, targets

aten = torch.ops.aten

View = Callable[[Builder, fx.Node], fx.Node]


def chain(*steps: tuple[object, ...]) -> View:
    """The views of each other that the steps make, each an overload and its other arguments."""

    def make(b: Builder, x: fx.Node) -> fx.Node:
        for target, *arguments in steps:
            x = b.call(target, x, *arguments)
        return x

    return make


# Of x[4, 1, 6].
SAME: dict[str, View] = {
    "reshape to the same shape": chain((aten.reshape.default, [4, 1, 6])),
    "view to the same shape": chain((aten.view.default, [4, 1, 6])),
    "expand to the same shape": chain((aten.expand.default, [4, 1, 6])),
    "expand by -1": chain((aten.expand.default, [-1, -1, -1])),
    "permute of nothing": chain((aten.permute.default, [0, 1, 2])),
    "transpose of one dimension": chain((aten.transpose.int, 1, 1)),
    "alias": chain((aten.alias.default,)),
    "detach": chain((aten.detach.default,)),
    "squeeze of another dimension": chain((aten.squeeze.dim, 0)),
    "whole slice": chain((aten.slice.Tensor, 2, 0, 6)),
    "as_strided as it is": chain((aten.as_strided.default, [4, 1, 6], [6, 6, 1], 0)),
    "two permutes": chain((aten.permute.default, [2, 0, 1]), (aten.permute.default, [1, 2, 0])),
    "two transposes": chain((aten.transpose.int, 0, 2), (aten.transpose.int, 2, 0)),
    "there and back": chain((aten.reshape.default, [24]), (aten.reshape.default, [4, 1, 6])),
    "unsqueeze and squeeze": chain((aten.unsqueeze.default, 2), (aten.squeeze.dim, 2)),
    "a way around": chain(
        (aten.permute.default, [0, 2, 1]),
        (aten.unsqueeze.default, 0),
        (aten.expand.default, [1, 4, 6, 1]),
        (aten.squeeze.dim, 0),
        (aten.transpose.int, -1, -2),
    ),
    "negative of a negative": chain((aten._neg_view.default,), (aten._neg_view.default,)),
}

OTHER: dict[str, View] = {
    "reshape": chain((aten.reshape.default, [4, 6])),
    "expand": chain((aten.expand.default, [4, 3, 6])),
    "permute": chain((aten.permute.default, [1, 0, 2])),
    "two permutes that make a third": chain(*[(aten.permute.default, [2, 0, 1])] * 2),
    "select and unsqueeze": chain((aten.select.int, 0, 0), (aten.unsqueeze.default, 0)),
    "negative view": chain((aten._neg_view.default,)),
    "as_strided elsewhere": chain((aten.as_strided.default, [3, 1, 6], [6, 6, 1], 6)),
    "copy": chain((aten.permute.default, [2, 1, 0]), (aten.reshape.default, [4, 1, 6])),
    "clone": chain((aten.clone.default,)),
}


@pytest.mark.parametrize("name", SAME)
def test_a_view_that_is_what_it_views_goes(name: str) -> None:
    b = Builder()
    x = b.input(4, 1, 6)
    module = b.output(b.call(aten.sin.default, SAME[name](b, x)), b.call(aten.sin.default, x))
    check(module)
    assert targets(module) == {"aten.sin.default": 2}
    assert [node.args[0].op for node in calls(module, aten.sin.default)] == ["placeholder"] * 2


@pytest.mark.parametrize("name", OTHER)
def test_another_view_stays(name: str) -> None:
    b = Builder()
    x = b.input(4, 1, 6)
    module = b.output(b.call(aten.sin.default, OTHER[name](b, x)), b.call(aten.sin.default, x))
    before = targets(module)
    check(module)
    assert targets(module) == before


@pytest.mark.parametrize("name", SAME)
def test_an_observer_reads_what_it_views(name: str) -> None:
    b = Builder()
    x = b.input(4, 1, 6)
    module = b.output(b.call(GEOMETRY, SAME[name](b, x)))
    check(module)
    assert [node.target for node in module.graph.nodes if node.op == "call_function"] == [GEOMETRY]


@pytest.mark.parametrize("name", SAME)
def test_one_that_is_returned_stays_a_tensor_of_its_own(name: str) -> None:
    b = Builder()
    x = b.input(4, 1, 6)
    module = b.output(SAME[name](b, x), x)
    check(module)
    (one, other) = module.graph.output_node().args[0]
    assert one is not other


@pytest.mark.parametrize("name", SAME)
def test_one_that_is_read_after_a_write_stays(name: str) -> None:
    b = Builder()
    x = b.input(4, 1, 6)
    view = SAME[name](b, x)
    first = b.call(aten.sin.default, view)
    b.call(BUMP, x)
    check(b.output(first, b.call(aten.sin.default, view), b.call(aten.cos.default, x)))


# Of x[4, 1, 6]: what is reshaped to [8, 3] in the end, and how many calls are left.
RESHAPED: dict[str, tuple[View, int]] = {
    "reshape": (chain((aten.reshape.default, [24])), 1),
    "view": (chain((aten.view.default, [2, 12])), 1),
    "two reshapes": (chain((aten.reshape.default, [24]), (aten.reshape.default, [2, 12])), 1),
    "unsqueeze": (chain((aten.unsqueeze.default, 0)), 1),
    "permute of a dimension of one": (chain((aten.permute.default, [1, 0, 2])), 1),
    "permute": (chain((aten.permute.default, [2, 1, 0])), 2),
    "clone": (chain((aten.reshape.default, [24]), (aten.clone.default,)), 3),
    "slice": (chain((aten.reshape.default, [24]), (aten.slice.Tensor, 0, 0, 24)), 1),
    "copy": (chain((aten.permute.default, [2, 1, 0]), (aten.reshape.default, [24])), 3),
}


@pytest.mark.parametrize("name", RESHAPED)
def test_a_reshape_of_a_view(name: str) -> None:
    make, left = RESHAPED[name]
    b = Builder()
    view = b.call(aten.reshape.default, make(b, b.input(4, 1, 6)), [8, 3])
    module = b.output(view, b.call(aten.sin.default, view))
    check(module)
    assert len([node for node in module.graph.nodes if node.op == "call_function"]) == left + 1


def test_a_reshape_of_a_view_keeps_its_val() -> None:
    b = Builder()
    flat = b.call(aten.reshape.default, b.input(4, 3, 6), [12, 6])
    view = b.call(aten.reshape.default, flat, [12, 2, 3])
    module = b.output(b.call(aten.sin.default, view))
    val = view.meta["val"]
    check(module)
    assert view.args[0].op == "placeholder"
    assert view.meta["val"] is val


def test_a_reshape_of_a_view_that_has_other_users() -> None:
    b = Builder()
    x = b.input(4, 6)
    flat = b.call(aten.reshape.default, x, [24])
    module = b.output(
        b.call(aten.sin.default, flat),
        b.call(aten.sin.default, b.call(aten.reshape.default, flat, [8, 3])),
        b.call(aten.sin.default, b.call(aten.reshape.default, x, [8, 3])),
    )
    check(module)
    reshapes = calls(module, aten.reshape.default)
    assert [node.args[0].op for node in reshapes] == ["placeholder"] * 2


def test_what_a_view_is_may_only_come_out_when_other_rules_are_done() -> None:
    b = Builder()
    flat = b.call(aten.reshape.default, b.input(4, 6), [24])
    pieces = b.call(aten.split_with_sizes.default, flat, [9, 15])
    items = [b.call(operator.getitem, pieces, i) for i in range(2)]
    whole = b.call(aten.cat.default, items)
    module = b.output(
        b.call(aten.sin.default, b.call(aten.reshape.default, whole, [8, 3])),
        b.call(aten.sin.default, b.call(aten.reshape.default, whole, [4, 6])),
    )
    check(module)
    assert targets(module) == {"aten.reshape.default": 1, "aten.sin.default": 2}


def test_a_budget_that_was_used_up_is_told_though_the_graph_was_read_again() -> None:
    b = Builder()
    flat = b.call(aten.reshape.default, b.input(4, 6), [24])
    pieces = b.call(aten.split_with_sizes.default, flat, [9, 15])
    items = [b.call(operator.getitem, pieces, i) for i in range(2)]
    whole = b.call(aten.cat.default, items)
    module = b.output(b.call(aten.sin.default, b.call(aten.reshape.default, whole, [8, 3])))
    report = saturate(module, Options(max_iterations=1))
    assert targets(module) == {"aten.reshape.default": 1, "aten.sin.default": 1}
    assert (report.stopped, "max_iterations=1" in report.reason) == ("iterations", True)


def test_a_reshape_of_a_view_of_what_is_written() -> None:
    b = Builder()
    x = b.input(4, 6)
    flat = b.call(aten.reshape.default, x, [24])
    before = b.call(aten.sin.default, b.call(aten.reshape.default, flat, [8, 3]))
    b.call(BUMP, x)
    late = b.call(aten.sin.default, b.call(aten.reshape.default, flat, [8, 3]))
    check(b.output(before, late, b.call(aten.sin.default, flat)))


def test_of_symbolic_sizes_without_a_guard() -> None:
    b = Builder()
    s = b.symbol(5)
    x = b.input(s, 6)
    there = b.call(aten.reshape.default, b.call(aten.permute.default, x, [1, 0]), [6, s])
    back = b.call(aten.permute.default, there, [1, 0])
    again = b.call(aten.expand.default, back, [s, 6])
    module = b.output(b.call(aten.sin.default, again))
    check(module)
    assert targets(module) == {"aten.sin.default": 1}


def test_a_reshape_of_symbolic_sizes_follows_what_it_views() -> None:
    b = Builder()
    s = b.symbol(5)
    x = b.input(s, 6)
    first = b.call(aten.neg.default, b.call(aten.slice.Tensor, x, 1, 0, 3))
    written = b.call(aten.slice_scatter.default, x, first, 1, 0, 3)
    rest = b.call(aten.slice.Tensor, written, 1, 3, 6)
    there = b.call(aten.unsqueeze.default, rest, 0)
    back = b.call(aten.reshape.default, there, [s, 3, 1])
    module = b.output(b.call(aten.sin.default, back), first)
    check(module)
    assert targets(module)["aten.slice_scatter.default"] == 0


def test_a_product_of_what_comes_back_is_merged_with_that_of_the_tensor() -> None:
    b = Builder()
    x, w = b.input(4, 1, 6), b.input(6, 6)
    flat = b.call(aten.reshape.default, x, [4, 6])
    again = b.call(aten.reshape.default, SAME["a way around"](b, x), [4, 6])
    products = [b.call(aten.mm.default, each, w) for each in (flat, again)]
    module = b.output(b.call(aten.add.Tensor, *products))
    check(module)
    assert targets(module) == {
        "aten.reshape.default": 1,
        "aten.mm.default": 1,
        "aten.add.Tensor": 1,
    }


def test_without_the_family_of_slices_it_stays() -> None:
    b = Builder()
    module = b.output(
        b.call(aten.sin.default, SAME["reshape to the same shape"](b, b.input(4, 1, 6)))
    )
    report = saturate(module, Options(families=("cse",)))
    assert not report.changed


def test_a_long_way_back_and_forth() -> None:
    b = Builder()
    x = b.input(4, 6)
    at = x
    for _ in range(300):
        at = b.call(aten.permute.default, at, [1, 0])
    module = b.output(b.call(aten.sin.default, at))
    check(module)
    assert targets(module) == {"aten.sin.default": 1}
