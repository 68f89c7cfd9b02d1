"""CASES.md 15, 19 and 20: what is merged, by its arguments."""

from __future__ import annotations

import operator

import pytest
import torch
from torch import Tensor

from lowering import Options, capture
from tests.lowering.support import GEOMETRY, Builder, check, targets
from tests.lowering.two_values import DIFFERENT, call, merged, two

aten = torch.ops.aten
prims = torch.ops.prims
END = 2**63 - 1
NAN = float("nan")

SAME = {
    "equal": (call(aten.sin.default), call(aten.sin.default)),
    "default": (call(aten.add.Tensor, 1), call(aten.add.Tensor, 1, alpha=1)),
    "keyword": (call(aten.mul.Tensor, 2), call(aten.mul.Tensor, other=2)),
    "keywords": (
        call(aten.sum.dim_IntList, [1], True, dtype=None),
        call(aten.sum.dim_IntList, keepdim=True, dim=[1]),
    ),
    "list_or_tuple": (call(aten.permute.default, [1, 0]), call(aten.permute.default, (1, 0))),
    "negative_dim": (call(aten._softmax.default, -1, False), call(aten._softmax.default, 1, False)),
    "negative_dims": (call(aten.sum.dim_IntList, [-1]), call(aten.sum.dim_IntList, [1])),
    "mixed_dims": (call(aten.permute.default, [-1, 0]), call(aten.permute.default, [1, -2])),
    "unsqueeze": (call(aten.unsqueeze.default, -1), call(aten.unsqueeze.default, 2)),
    "transpose": (call(aten.transpose.int, 0, -1), call(aten.transpose.int, -2, 1)),
    "infinity": (call(aten.add.Tensor, float("inf")), call(aten.add.Tensor, float("inf"))),
    "nan": (call(aten.mul.Tensor, NAN), call(aten.mul.Tensor, float("nan"))),
    "nan_of_arithmetic": (
        call(aten.clamp.default, float("inf") - float("inf")),
        call(aten.clamp.default, float("inf") - float("inf")),
    ),
    "float_schema": (
        call(aten.threshold.default, 0.5, 1.0),
        call(aten.threshold.default, 0.5, value=1.0),
    ),
    "leaky_relu": (call(aten.leaky_relu.default), call(aten.leaky_relu.default, 0.01)),
    "gelu": (call(aten.gelu.default), call(aten.gelu.default, approximate="none")),
    "dtype": (
        call(prims.convert_element_type.default, torch.float64),
        call(prims.convert_element_type.default, dtype=torch.float64),
    ),
    "slice": (call(aten.slice.Tensor, 1, 2, 5), call(aten.slice.Tensor, -1, -4, -1)),
    "slice_default": (call(aten.slice.Tensor), call(aten.slice.Tensor, 0, 0, END)),
    "select": (call(aten.select.int, 1, -1), call(aten.select.int, -1, 5)),
    "step": (call(aten.slice.Tensor, 1, 0, 6, 2), call(aten.slice.Tensor, 1, 0, 6, step=2)),
    "cat_dim": (
        lambda b, x: b.call(aten.cat.default, [x, x]),
        lambda b, x: b.call(aten.cat.default, (x, x), -2),
    ),
    "cat_keyword": (
        lambda b, x: b.call(aten.cat.default, [x, x], 1),
        lambda b, x: b.call(aten.cat.default, tensors=[x, x], dim=-1),
    ),
    "full": (
        lambda b, x: b.call(aten.full.default, [2], 1.5, dtype=torch.float32),
        lambda b, x: b.call(aten.full.default, (2,), 1.5, dtype=torch.float32),
    ),
    "sum_of_one_dim": (call(aten.amax.default, [1]), call(aten.amax.default, 1)),
    "getitem": (
        lambda b, x: b.call(operator.getitem, b.call(aten.topk.default, x, 3), 0),
        lambda b, x: b.call(operator.getitem, b.call(aten.topk.default, x, 3, -1, True), 0),
    ),
    "chain": (
        lambda b, x: b.call(aten.exp.default, b.call(aten.add.Tensor, x, 1)),
        lambda b, x: b.call(aten.exp.default, b.call(aten.add.Tensor, x, 1, alpha=1)),
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_equal_arguments_in_every_spelling_are_one(name):
    module = two(*SAME[name])
    check(module)
    assert merged(module)


@pytest.mark.parametrize("name", DIFFERENT)
def test_different_arguments_are_two(name):
    module = two(*DIFFERENT[name])
    check(module)
    assert not merged(module)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.bfloat16], ids=str)
def test_numbers_of_three_types_are_three_constants(dtype):
    def function(x: Tensor) -> tuple[Tensor, ...]:
        return (x + 1).sin(), (x + 1.0).sin(), (x + True).sin(), (x + 1).cos()

    (module,) = capture(function, torch.ones(3, dtype=dtype))
    before = targets(module)["aten.add.Tensor"]
    check(module, [torch.ones(3, dtype=dtype)])
    assert before >= targets(module)["aten.add.Tensor"] == 3


def test_nans_of_other_bits_are_two():
    quiet = torch.tensor([0x7FF8000000000001], dtype=torch.int64).view(torch.float64).item()
    module = two(call(aten.mul.Tensor, NAN), call(aten.mul.Tensor, quiet))
    check(module)
    assert not merged(module)


def test_chains_of_duplicates_are_one_chain():
    b = Builder()
    x = b.input(4, 8)
    ends = []
    for _ in range(4):
        y = x
        for target in (aten.sin.default, aten.exp.default, aten.neg.default):
            y = b.call(target, y)
        ends.append(y)
    module = b.output(b.call(aten.cat.default, ends, 1))
    check(module)
    assert targets(module).total() == 4


@pytest.mark.parametrize("family", ["cse", "slice"])
def test_without_cse_duplicates_stay(family):
    module = two(call(aten.sin.default), call(aten.sin.default))
    check(module, None, Options(families=(family,)))
    assert merged(module) == (family == "cse")


@pytest.mark.parametrize("by", ["name", "overload"])
def test_overloads_that_are_kept_apart(by):
    apart = aten.sin.default if by == "overload" else "aten.sin.default"
    module = two(call(aten.sin.default), call(aten.sin.default))
    check(module, None, Options(keep_apart=(apart,)))
    assert not merged(module)
    module = two(call(aten.cos.default), call(aten.cos.default))
    check(module, None, Options(keep_apart=(apart,)))
    assert merged(module)


def test_what_merging_of_pieces_makes_equal_is_merged_too():
    """CASES.md 20: four equal reshapes feed four selects that feed one cat."""
    b = Builder()
    x = b.input(4, 8)
    parts = []
    for i in range(4):
        view = b.call(aten.reshape.default, x, [2, 4, 4])
        parts.append(b.call(aten.unsqueeze.default, b.call(aten.select.int, view, 1, i), 1))
    module = b.output(b.call(aten.sin.default, b.call(aten.cat.default, parts, 1)))
    check(module)
    assert targets(module)["aten.reshape.default"] == 1


@pytest.mark.parametrize("observe", [False, True], ids=["blind", "observed"])
def test_equal_reshapes_each_split(observe):
    """CASES.md 19."""
    b = Builder()
    x = b.input(4, 12)
    results = []
    for i in range(3):
        view = b.call(aten.reshape.default, x, [8, 6])
        split = b.call(aten.split_with_sizes.default, view, [2, 2, 2], 1 - 2 * (i % 2))
        for j in range(3):
            piece = b.call(operator.getitem, split, j)
            results.append(b.call(GEOMETRY if observe else aten.sin.default, piece))
    module = b.output(b.call(aten.stack.default, results))
    check(module)
    assert targets(module)["aten.reshape.default"] == 1
    assert targets(module)["aten.split_with_sizes.default"] == 1
    assert targets(module)["getitem"] == 3
