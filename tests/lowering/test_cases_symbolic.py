"""CASES.md 10: cuts at symbols, and of symbolic sizes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, fx

from lowering import canonical_text, capture
from tests.lowering.spellings import (
    END,
    Pieces,
    read,
    single,
    sized,
    slices_in,
    splits_in,
)
from tests.lowering.support import Builder, calls, check

aten = torch.ops.aten


AT_A_SYMBOL: dict[str, Callable[[Builder, fx.Node, fx.Node], Pieces]] = {
    "slices": lambda b, s, x: [
        b.call(aten.slice.Tensor, x, 1, 0, s),
        b.call(aten.slice.Tensor, x, 1, s, END),
    ],
    "sizes": lambda b, s, x: sized(b, x, [s, b.call(operator.sub, 10, s)], 1),
    "split_and_slice": lambda b, s, x: [
        sized(b, x, [s, b.call(operator.sub, 10, s)], 1)[0],
        b.call(aten.slice.Tensor, x, -1, s, 10),
    ],
    "narrow": lambda b, s, x: [
        b.call(aten.narrow.default, x, 1, 0, s),
        b.call(aten.narrow.default, x, 1, s, b.call(operator.sub, 10, s)),
    ],
    "late": lambda b, s, x: [
        b.call(aten.slice.Tensor, x, 1, 0, s),
        b.call(aten.slice.Tensor, x, 1, b.call(operator.neg, b.call(operator.sub, 10, s)), END),
    ],
}


@pytest.mark.parametrize(("least", "most"), [(2, 8), (0, 10), (1, 10)])
def test_cuts_at_a_symbol_that_is_known_to_lie_inside(least, most):
    texts = []
    for name, cut in AT_A_SYMBOL.items():
        if name == "late" and most == 10:
            continue  # a start of s - 10 is the beginning where s is 10
        b = Builder()
        s, x = b.symbol(3, least, most), b.input(4, 10)
        module = read(b, cut(b, s, x))
        check(module)
        (split,) = calls(module, aten.split_with_sizes.default)
        assert (split.args[1][0], split.args[2], slices_in(module)) == (s, -1, 0)
        texts.append(canonical_text(module))
    assert len(set(texts)) == 1


@pytest.mark.parametrize(("least", "most"), [(0, 11), (2, 100), (-3, 4), (-10, -1)])
def test_cuts_at_a_symbol_that_may_lie_outside_stay(least, most):
    b = Builder()
    s, x = b.symbol(3, least, most), b.input(4, 10)
    slices = [
        b.call(aten.slice.Tensor, x, 1, 0, s),
        b.call(aten.slice.Tensor, x, 1, s, END),
    ]
    module = read(b, slices)
    text = canonical_text(module)
    assert not check(module, [3 if least >= 0 else most, torch.randn(4, 10)]).changed
    assert canonical_text(module) == text


OF_A_SYMBOLIC_SIZE: dict[str, list[Callable[[Tensor], Sequence[Tensor]]]] = {
    "one_first": [
        lambda x: (x[:, :1], x[:, 1:]),
        lambda x: (x.narrow(1, 0, 1), x.narrow(1, 1, x.size(1) - 1)),
        lambda x: x.split([1, x.size(1) - 1], 1),
        lambda x: x.tensor_split((1,), 1),
    ],
    "one_last": [
        lambda x: (x[:, :-1], x[:, -1:]),
        lambda x: (x[:, : x.size(1) - 1], x[:, x.size(1) - 1 :]),
        lambda x: x.split([x.size(1) - 1, 1], -1),
    ],
    "both_ends": [
        lambda x: (x[:, :1], x[:, 1:-1], x[:, -1:]),
        lambda x: x.split([1, x.size(1) - 2, 1], 1),
    ],
    "twice_a_symbol": [
        lambda x: (torch.cat([x, x], 1)[:, : x.size(1)], torch.cat([x, x], 1)[:, x.size(1) :]),
        lambda x: torch.cat([x, x], 1).split(x.size(1), 1),
    ],
}


@pytest.mark.parametrize("name", OF_A_SYMBOLIC_SIZE)
def test_pieces_of_a_symbolic_size(name):
    texts = []
    for cut in OF_A_SYMBOLIC_SIZE[name]:
        x = torch.randn(4, 10)
        torch._dynamo.mark_static(x, 0)
        module = single(lambda x: [piece.sin() for piece in cut(x)], x, dynamic=True)  # noqa: B023
        check(module, [10, x], shuffles=(1,))
        texts.append(canonical_text(module))
        if name != "twice_a_symbol":
            assert (splits_in(module), slices_in(module)) == (1, 0)
    assert len(set(texts)) == 1


def test_cuts_at_an_unbacked_symbol_stay():
    def function(x: Tensor, n: Tensor) -> tuple[Tensor, ...]:
        cut = n.item()
        return x[:, :cut].sin(), x[:, cut:].cos()

    x, n = torch.randn(4, 10), torch.tensor(3)
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        (module,) = capture(function, x, n)
    inputs = [
        n if node.meta["val"].dim() == 0 else x
        for node in module.graph.find_nodes(op="placeholder")
    ]
    text = canonical_text(module)
    check(module, inputs)
    assert canonical_text(module) == text


def test_a_size_that_is_computed_twice_may_be_returned_twice():
    b = Builder()
    s, x = b.symbol(3, 2, 8), b.input(4, 10)
    doubled = b.call(operator.mul, s, 2)
    one = b.call(operator.mul, doubled, s)
    other = b.call(operator.mul, b.call(operator.mul, s, s), 2)
    module = b.output(one, other, x)
    check(module)
    assert len(calls(module, operator.mul)) == 2
