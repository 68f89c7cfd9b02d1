"""Graphs that read two values, and whether the two have become one."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from tests.lowering.support import Builder, calls

aten = torch.ops.aten

Make = Callable[[Builder, fx.Node], fx.Node]


def call(target: Any, *args: Any, **kwargs: Any) -> Make:
    """A call on the one input, as a table holds it."""
    return lambda b, x: b.call(target, x, *args, **kwargs)


def two(first: Make, second: Make, *shape: int, **tensor: Any) -> fx.GraphModule:
    """A graph that reads two values, each by an operator of its own."""
    b = Builder()
    x = b.input(*(shape or (4, 6)), **tensor)
    values = [first(b, x), second(b, x)]
    return b.output(*[b.call(f, value) for f, value in zip(READERS, values, strict=True)])


READERS: tuple[Any, Any] = (aten.neg.default, aten.abs.default)


def merged(module: fx.GraphModule) -> bool:
    first, second = (calls(module, reader)[0] for reader in READERS)
    return first.args[0] is second.args[0]


DIFFERENT = {
    "int_or_float": (call(aten.add.Tensor, 1), call(aten.add.Tensor, 1.0)),
    "int_or_bool": (call(aten.add.Tensor, 1), call(aten.add.Tensor, True)),
    "float_or_bool": (call(aten.add.Tensor, 1.0), call(aten.add.Tensor, True)),
    "zero_or_false": (call(aten.mul.Tensor, 0), call(aten.mul.Tensor, False)),
    "zero_or_float_zero": (call(aten.mul.Tensor, 0), call(aten.mul.Tensor, 0.0)),
    "sign_of_zero": (call(aten.mul.Tensor, 0.0), call(aten.mul.Tensor, -0.0)),
    "alpha": (call(aten.add.Tensor, 1, alpha=1), call(aten.add.Tensor, 1, alpha=2)),
    "other_overload": (call(aten.pow.Tensor_Scalar, 2), call(aten.mul.Tensor, 2)),
    "dim": (call(aten.amax.default, [0], True), call(aten.amax.default, [1], True)),
    "keepdim": (call(aten.amax.default, [0], True), call(aten.amax.default, [0], False)),
    "order_of_dims": (call(aten.permute.default, [0, 1]), call(aten.permute.default, [1, 0])),
    "mode": (call(aten.gelu.default), call(aten.gelu.default, approximate="tanh")),
    "dtype": (
        call(aten._to_copy.default, dtype=torch.float64),
        call(aten._to_copy.default, dtype=torch.float16),
    ),
    "memory_format": (
        call(aten.clone.default),
        call(aten.clone.default, memory_format=torch.contiguous_format),
    ),
    "none_or_zero": (call(aten.clamp.default, None, 1.0), call(aten.clamp.default, 0.0, 1.0)),
    "infinities": (
        call(aten.add.Tensor, float("inf")),
        call(aten.add.Tensor, -float("inf")),
    ),
    "full_dtype": (
        lambda b, x: b.call(aten.full.default, [2], 1, dtype=torch.float32),
        lambda b, x: b.call(aten.full.default, [2], 1, dtype=torch.int64),
    ),
    "full_value": (
        lambda b, x: b.call(aten.full.default, [2], 1),
        lambda b, x: b.call(aten.full.default, [2], True, dtype=torch.int64),
    ),
    "step": (call(aten.slice.Tensor, 1, 0, 6, 2), call(aten.slice.Tensor, 1, 0, 6, 3)),
    "getitem": (
        lambda b, x: b.call(operator.getitem, b.call(aten.aminmax.default, x), 0),
        lambda b, x: b.call(operator.getitem, b.call(aten.aminmax.default, x), 1),
    ),
}
"""Pairs of calls whose arguments look alike and mean something else."""
