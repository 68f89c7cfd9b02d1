"""canonical_text: what it is free of, and what it tells apart."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx

from lowering import canonical_text
from tests.lowering import two_values
from tests.lowering.shuffling import shuffle
from tests.lowering.support import BUMP, GEOMETRY, Builder

aten = torch.ops.aten
END = 2**63 - 1

Make = Callable[[Builder, fx.Node], list[Any]]


def text(make: Make, **tensor: Any) -> str:
    b = Builder()
    return canonical_text(b.output(*make(b, b.input(4, 6, **tensor))))


def call(target: Any, *args: Any, **kwargs: Any) -> Make:
    return lambda b, x: [b.call(target, x, *args, **kwargs)]


def test_of_a_small_graph():
    b = Builder()
    x = b.input(4, 6)
    split = b.call(aten.split_with_sizes.default, x, [2, 4], -1)
    first, second = (b.call(operator.getitem, split, i) for i in (0, 1))
    module = b.output(b.call(aten.mul.Tensor, b.call(aten.sin.default, second), 2.0), first)
    expected = """\
%0 = input float32[4, 6] strides [6, 1]
%1 = aten.split_with_sizes.default(%0, [2, 4], 1)
%2 = _operator.getitem(%1, 1)
%3 = aten.sin.default(%2)
%4 = aten.mul.Tensor(%3, 2.0)
%5 = _operator.getitem(%1, 0)
output [%4, %5]
"""
    assert canonical_text(module) == expected
    assert canonical_text(module.graph) == expected


@pytest.mark.parametrize("other", [None, "graph", torch.nn.Linear(1, 1), [fx.Graph()]], ids=str)
def test_anything_but_a_graph_is_refused(other):
    with pytest.raises(TypeError, match=f"needs a torch.fx.Graph .*, not {type(other).__name__}"):
        canonical_text(other)


def test_it_changes_nothing():
    b = Builder()
    x = b.input(4, 6)
    module = b.output(b.call(aten.slice.Tensor, x, -1, -2), b.call(aten.sin.default, x))
    metas = [dict(node.meta) for node in module.graph.nodes]
    before = str(module.graph)
    assert canonical_text(module) == canonical_text(module)
    assert str(module.graph) == before
    assert [dict(node.meta) for node in module.graph.nodes] == metas


def test_graphs_without_much_in_them():
    assert canonical_text(fx.Graph()) == "\n"
    b = Builder()
    assert canonical_text(b.output()) == "output []\n"
    graph = fx.Graph()
    graph.output(graph.placeholder("x"))
    assert canonical_text(graph) == "%0 = input\noutput %0\n"


# Free of -----------------------------------------------------------------------------------------


def diamond(b: Builder, x: fx.Node) -> list[Any]:
    left = b.call(aten.sin.default, b.call(aten.slice.Tensor, x, 1, 0, 3))
    right = b.call(aten.cos.default, b.call(aten.slice.Tensor, x, 1, 3, 6))
    b.call(GEOMETRY, left)
    y = b.call(aten.exp.default, x)
    b.call(BUMP, y)
    return [b.call(aten.cat.default, [left, right], 1), y, b.call(aten.neg.default, right)]


def test_names():
    b = Builder()
    module = b.output(*diamond(b, b.input(4, 6)))
    renamed = fx.Graph()
    copied: dict[fx.Node, fx.Node] = {}
    for i, node in enumerate(module.graph.nodes):
        copied[node] = renamed.node_copy(node, copied.__getitem__)
        copied[node]._rename(f"n{100 - i}")
    renamed.lint()
    assert str(renamed) != str(module.graph)
    assert canonical_text(renamed) == canonical_text(module)


@pytest.mark.parametrize("seed", range(10))
def test_the_order_of_independent_nodes(seed):
    b = Builder()
    module = b.output(*diamond(b, b.input(4, 6)))
    assert canonical_text(shuffle(module.graph, seed)) == canonical_text(module)


def test_what_nothing_reaches():
    def dead(b: Builder, x: fx.Node) -> list[Any]:
        b.call(aten.sin.default, b.call(aten.cos.default, x))
        b.call(operator.getitem, b.call(aten.split_with_sizes.default, x, [2, 4], 1), 0)
        return [b.call(aten.exp.default, x)]

    assert text(dead) == text(call(aten.exp.default))


def test_where_nodes_come_from():
    def traced(b: Builder, x: fx.Node) -> list[Any]:
        (node,) = call(aten.sin.default)(b, x)
        node.meta.update(stack_trace="here", seq_nr=3, nn_module_stack={"a": ("a", "A")})
        return [node]

    assert text(traced) == text(call(aten.sin.default))


SPELLINGS: dict[str, tuple[Make, ...]] = {
    "keyword": (
        call(aten.mul.Tensor, 2),
        call(aten.mul.Tensor, other=2),
        lambda b, x: [b.call(aten.mul.Tensor, other=2, self=x)],
    ),
    "default": (
        call(aten.add.Tensor, 1),
        call(aten.add.Tensor, 1, alpha=1),
        call(aten.add.Tensor, other=1, alpha=1),
    ),
    "dim": (
        call(aten.amax.default, [-1]),
        call(aten.amax.default, [1], False),
        call(aten.amax.default, (1,)),
        call(aten.amax.default, 1),
    ),
    "one_dim": (
        call(aten._softmax.default, -1, False),
        call(aten._softmax.default, 1, False),
        call(aten._softmax.default, half_to_float=False, dim=1),
    ),
    "two_dims": (call(aten.transpose.int, 0, 1), call(aten.transpose.int, -2, -1)),
    "default_dim": (call(aten.sort.default), call(aten.sort.default, 1, False)),
    "list": (call(aten.permute.default, [1, 0]), call(aten.permute.default, (-1, -2))),
    "slice": (
        call(aten.slice.Tensor, 1, 2, 6),
        call(aten.slice.Tensor, -1, 2, END),
        call(aten.slice.Tensor, 1, -4),
        call(aten.slice.Tensor, 1, -4, None, 1),
        call(aten.slice.Tensor, dim=1, start=2),
        call(aten.slice.Tensor, 1, 2, 100),
        call(aten.narrow.default, 1, 2, 4),
        call(aten.narrow.default, -1, -4, 4),
    ),
    "whole_slice": (
        call(aten.slice.Tensor),
        call(aten.slice.Tensor, 0, None, None),
        call(aten.slice.Tensor, -2, -4, 4),
        call(aten.slice.Tensor, 0, 0, END),
    ),
    "select": (call(aten.select.int, 1, -1), call(aten.select.int, -1, 5)),
    "split": (
        call(aten.split_with_sizes.default, [2, 4], 1),
        call(aten.split_with_sizes.default, (2, 4), -1),
        call(aten.split_with_sizes.default, dim=-1, split_sizes=[2, 4]),
    ),
    "scatter": (
        lambda b, x: [b.call(aten.slice_scatter.default, x, b.input(4, 2), 1, 4, 6)],
        lambda b, x: [b.call(aten.slice_scatter.default, x, b.input(4, 2), -1, -2)],
        lambda b, x: [b.call(aten.slice_scatter.default, x, b.input(4, 2), start=4, dim=1)],
    ),
    "cat": (
        lambda b, x: [b.call(aten.cat.default, [x, x])],
        lambda b, x: [b.call(aten.cat.default, (x, x), 0)],
        lambda b, x: [b.call(aten.cat.default, tensors=[x, x], dim=-2)],
    ),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_spellings_of_arguments(name):
    assert len({text(make) for make in SPELLINGS[name]}) == 1


# Tells apart -------------------------------------------------------------------------------------


def two_of(target: Any) -> Make:
    return lambda b, x: [b.call(target, x), b.call(target, x)]


def one_twice(target: Any) -> Make:
    return lambda b, x: [b.call(target, x)] * 2


def effects(*order: Any) -> Make:
    def make(b: Builder, x: fx.Node) -> list[Any]:
        y = b.call(aten.exp.default, x)
        for target in order:
            b.call(target, y)
        return []

    return make


def around_a_write(before: bool, twice: bool = False) -> Make:
    def make(b: Builder, x: fx.Node) -> list[Any]:
        reads = [b.call(aten.sin.default, x)] if before else []
        b.call(BUMP, x)
        if twice:
            b.call(BUMP, x)
        return reads or [b.call(aten.sin.default, x)]

    return make


def between_writes(at: int) -> Make:
    def make(b: Builder, x: fx.Node) -> list[Any]:
        results = []
        for i in range(3):
            if i == at:
                results.append(b.call(aten.sin.default, b.call(aten.view.default, x, [24])))
            b.call(aten.add_.Tensor, x, 1)
        return results

    return make


DIFFERENT: dict[str, tuple[Make, ...]] = {
    "sharing": (two_of(aten.sin.default), one_twice(aten.sin.default)),
    "sharing_below": (
        lambda b, x: [b.call(aten.mul.Tensor, *[b.call(aten.sin.default, x)] * 2)],
        lambda b, x: [b.call(aten.mul.Tensor, *[b.call(aten.sin.default, x) for _ in (0, 1)])],
    ),
    "sharing_of_a_split": (
        lambda b, x: [
            b.call(operator.getitem, b.call(aten.split_with_sizes.default, x, [2, 4], 1), i)
            for i in (0, 1)
        ],
        lambda b, x: [
            b.call(operator.getitem, split, i)
            for split in [b.call(aten.split_with_sizes.default, x, [2, 4], 1)]
            for i in (0, 1)
        ],
    ),
    "numbers": tuple(
        call(aten.add.Tensor, number) for number in (1, 1.0, True, 0, 0.0, -0.0, False, 1 + 0j)
    ),
    "not_numbers": (call(aten.add.Tensor, float("nan")), call(aten.add.Tensor, float("inf"))),
    "alpha": (call(aten.add.Tensor, 1), call(aten.add.Tensor, 1, alpha=2)),
    "overload": (call(aten.add.Tensor, 1), call(aten.add.Scalar, 1)),
    "dim": (call(aten.amax.default, [0]), call(aten.amax.default, [1])),
    "none": (call(aten.clamp.default, None, 0.0), call(aten.clamp.default, 0.0, None)),
    "bounds": (call(aten.slice.Tensor, 1, 2, 6), call(aten.slice.Tensor, 1, 2, 5)),
    "step": (call(aten.slice.Tensor, 1, 0, 6, 2), call(aten.slice.Tensor, 1, 0, 6)),
    "select_or_slice": (call(aten.select.int, 1, 0), call(aten.slice.Tensor, 1, 0, 1)),
    "index": (call(aten.select.int, 1, 0), call(aten.select.int, 1, 1)),
    "sizes": (
        call(aten.split_with_sizes.default, [2, 4], 1),
        call(aten.split_with_sizes.default, [4, 2], 1),
        call(aten.split_with_sizes.default, [2, 2, 2], 1),
        call(aten.split_with_sizes.default, [2, 2], 0),
    ),
    "order_of_outputs": (
        lambda b, x: [b.call(aten.sin.default, x), b.call(aten.cos.default, x)],
        lambda b, x: [b.call(aten.sin.default, x), b.call(aten.cos.default, x)][::-1],
    ),
    "structure_of_outputs": (
        lambda b, x: [x, x],
        lambda b, x: [[x, x]],
        lambda b, x: [{"a": x}, x],
        lambda b, x: [x, None, x],
        lambda b, x: [x],
    ),
    "order_of_operands": (
        lambda b, x: [b.call(aten.sub.Tensor, x, b.call(aten.sin.default, x))],
        lambda b, x: [b.call(aten.sub.Tensor, b.call(aten.sin.default, x), x)],
    ),
    "order_of_effects": (effects(BUMP, GEOMETRY), effects(GEOMETRY, BUMP)),
    "number_of_effects": (effects(BUMP), effects(BUMP, BUMP)),
    "read_and_write": (
        around_a_write(before=True),
        around_a_write(before=False),
        around_a_write(before=True, twice=True),
        around_a_write(before=False, twice=True),
    ),
    "between_writes": (between_writes(0), between_writes(1), between_writes(2)),
    "random": (
        lambda b, x: [b.call(aten.rand_like.default, x)] * 2,
        two_of(aten.rand_like.default),
    ),
    "order_of_random": (
        lambda b, x: [b.call(aten.rand_like.default, x), b.call(aten.randn_like.default, x)],
        lambda b, x: [b.call(aten.randn_like.default, x), b.call(aten.rand_like.default, x)][::-1],
    ),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_graphs_that_differ(name):
    texts = [text(make) for make in DIFFERENT[name]]
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("name", two_values.DIFFERENT)
def test_arguments_that_differ(name):
    def of(make: two_values.Make) -> str:
        return text(lambda b, x: [make(b, x)])

    first, second = two_values.DIFFERENT[name]
    assert of(first) != of(second)


def test_a_view_after_a_write_of_its_base():
    def late(*, through: bool) -> Make:
        def make(b: Builder, x: fx.Node) -> list[Any]:
            view = b.call(aten.slice.Tensor, x, 1, 0, 3)
            early = None if through else b.call(aten.sin.default, view)
            b.call(BUMP, x)
            return [early or b.call(aten.sin.default, view)]

        return make

    assert text(late(through=True)) != text(late(through=False))


@pytest.mark.parametrize(
    "tensors",
    [
        ({"dtype": torch.float32}, {"dtype": torch.float64}),
        ({"stride": (6, 1)}, {"stride": (1, 4)}),
    ],
    ids=["dtype", "stride"],
)
def test_inputs_that_differ(tensors):
    first, second = (text(call(aten.sin.default), **each) for each in tensors)
    assert first != second


def test_inputs_are_counted_and_in_order():
    def of(first: tuple[int, ...], second: tuple[int, ...]) -> str:
        b = Builder()
        return canonical_text(b.output(b.call(aten.sin.default, b.input(*first)), b.input(*second)))

    assert of((2,), (3,)) != of((3,), (2,))


# Symbols -----------------------------------------------------------------------------------------


def symbolic(make: Callable[[Builder, fx.Node, fx.Node], list[Any]]) -> str:
    b = Builder()
    s = b.symbol(5)
    return canonical_text(b.output(*make(b, s, b.input(s, 10))))


def test_symbols_stand_as_expressions():
    def held(b: Builder, s: fx.Node, x: fx.Node) -> list[Any]:
        return [b.call(aten.slice.Tensor, x, 0, 0, b.call(operator.sub, s, 1))]

    def measured(b: Builder, s: fx.Node, x: fx.Node) -> list[Any]:
        size = b.call(aten.sym_size.int, x, 0)
        return [b.call(aten.slice.Tensor, x, 0, 0, b.call(operator.add, -1, size))]

    def from_the_end(b: Builder, s: fx.Node, x: fx.Node) -> list[Any]:
        return [b.call(aten.slice.Tensor, x, 0, 0, -1)]

    texts = [symbolic(make) for make in (held, measured, from_the_end)]
    assert "s0 - 1" in texts[0]
    assert len(set(texts)) == 1


def test_symbolic_bounds_that_differ():
    def upto(less: int) -> Callable[[Builder, fx.Node, fx.Node], list[Any]]:
        return lambda b, s, x: [b.call(aten.slice.Tensor, x, 0, 0, b.call(operator.sub, s, less))]

    assert symbolic(upto(1)) != symbolic(upto(2))


def test_an_end_at_a_symbolic_size():
    def upto(end: Any) -> Callable[[Builder, fx.Node, fx.Node], list[Any]]:
        return lambda b, s, x: [b.call(aten.slice.Tensor, x, 0, 1, s if end is None else end)]

    assert symbolic(upto(None)) == symbolic(upto(END))


def test_returned_symbols():
    first = symbolic(lambda b, s, x: [s, x])
    assert first == symbolic(lambda b, s, x: [b.call(aten.sym_size.int, x, 0), x])
    assert first != symbolic(lambda b, s, x: [b.call(operator.mul, s, 2), x])


@pytest.mark.parametrize("seed", range(3))
def test_arithmetic_on_symbols_in_any_order(seed):
    def parts(b: Builder, s: fx.Node, x: fx.Node) -> list[Any]:
        less, more = b.call(operator.sub, s, 1), b.call(operator.mul, s, 2)
        return [
            b.call(aten.slice.Tensor, x, 0, 0, less),
            b.call(aten.full.default, [more], 1.0),
            b.call(aten.sin.default, x),
        ]

    b = Builder()
    s = b.symbol(5)
    module = b.output(*parts(b, s, b.input(s, 10)))
    assert canonical_text(shuffle(module.graph, seed)) == canonical_text(module)
