"""CASES.md 17 and 18a: reads around a write, and what would read a later value."""

from __future__ import annotations

import operator
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, fx

from lowering import canonical_text, capture
from tests.lowering.fresh_tensors import FRESH, cat_of_pieces
from tests.lowering.support import BUMP, GEOMETRY, Builder, check, targets
from tests.lowering.two_values import call, merged

aten = torch.ops.aten


# 17: reads around a write ------------------------------------------------------------------------

Write = Callable[[Builder, fx.Node], object]

WRITES: dict[str, Write] = {
    "copy_": lambda b, x: b.call(aten.copy_.default, x, b.call(aten.exp.default, x)),
    "add_": lambda b, x: b.call(aten.add_.Tensor, x, 1),
    "custom": lambda b, x: b.call(BUMP, x),
    "through_a_view": lambda b, x: b.call(
        aten.add_.Tensor, b.call(aten.slice.Tensor, x, 1, 2, 4), 1
    ),
    "through_views": lambda b, x: b.call(
        BUMP, b.call(aten.select.int, b.call(aten.permute.default, x, [1, 0]), 0, 1)
    ),
    "through_a_piece": lambda b, x: b.call(
        aten.mul_.Tensor,
        b.call(operator.getitem, b.call(aten.split_with_sizes.default, x, [2, 4], 1), 1),
        3,
    ),
    "through_a_reshape": lambda b, x: b.call(
        aten.add_.Tensor, b.call(aten.view.default, x, [24]), 1
    ),
    "out": lambda b, x: b.call(aten.add.out, x, x, out=x),
    "index_put_": lambda b, x: b.call(
        aten.index_put_.default,
        x,
        [b.call(aten.full.default, [1], 2)],
        b.call(aten.full.default, [1, 6], 3.0),
    ),
    "foreach": lambda b, x: b.call(aten._foreach_add_.Scalar, [x], 1),
}


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize(
    "read",
    [
        call(aten.cos.default),
        call(aten.slice.Tensor, 1, 1, 3),
        call(aten.view.default, [6, 4]),
        lambda b, x: b.call(aten.cos.default, b.call(aten.slice.Tensor, x, 1, 3, 6)),
        lambda b, x: b.call(aten.cat.default, [x, x], 1),
        lambda b, x: b.call(aten.cos.default, b.call(aten.select.int, x, 0, 1)),
        lambda b, x: b.call(
            aten.cat.default,
            [
                b.call(operator.getitem, split, i)
                for split in [b.call(aten.split_with_sizes.default, x, [2, 4], 1)]
                for i in (0, 1)
            ],
            1,
        ),
    ],
    ids=["cos", "slice", "view", "cos_of_slice", "cat", "cos_of_select", "cat_of_pieces"],
)
def test_reads_before_and_after_a_write(name, read):
    def module(*, again: bool) -> fx.GraphModule:
        b = Builder()
        x = b.input(4, 6)
        reads = [read(b, x) for _ in range(1 + again)]
        results = [b.call(aten.neg.default, each) for each in reads]
        WRITES[name](b, x)
        reads = [read(b, x) for _ in range(1 + again)]
        results += [b.call(aten.abs.default, each) for each in reads]
        return b.output(*results[:: 1 + again])

    checked = module(again=False)
    check(checked)
    assert not merged(checked)
    doubled = module(again=True)
    check(doubled)
    assert canonical_text(doubled) == canonical_text(checked)


@pytest.mark.parametrize("writes", [1, 2, 3])
def test_reads_between_writes_are_merged_between_writes(writes):
    b = Builder()
    x, y = b.input(4), b.input(4)
    results = []
    for _ in range(writes):
        results += [b.call(aten.cos.default, x), b.call(aten.cos.default, x)]
        b.call(aten.copy_.default, x, b.call(aten.add.Tensor, y, len(results)))
    results += [b.call(aten.cos.default, x), b.call(aten.cos.default, x)]
    module = b.output(b.call(aten.stack.default, results))
    check(module)
    assert targets(module)["aten.cos.default"] == writes + 1


def test_a_write_elsewhere_does_not_keep_reads_apart():
    b = Builder()
    x, y = b.input(4), b.input(4)
    first = b.call(aten.cos.default, x)
    b.call(aten.add_.Tensor, y, 1)
    module = b.output(
        b.call(aten.neg.default, first), b.call(aten.abs.default, b.call(aten.cos.default, x))
    )
    check(module)
    assert merged(module)


def test_inputs_that_share_a_storage_are_written_together():
    b = Builder()
    with b.mode:
        base = torch.empty(2, 8)
        left, right = base[:, :4], base[:, 2:]
    x, y = b.placeholder(left), b.placeholder(right)
    first = b.call(aten.cos.default, x)
    b.call(aten.add_.Tensor, y, 1)
    second = b.call(aten.cos.default, x)
    module = b.output(b.call(aten.neg.default, first), b.call(aten.abs.default, second))
    real = torch.randn(2, 8)
    check(module, [real[:, :4], real[:, 2:]])
    assert not merged(module)


def test_case_17_captured():
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        a = x.cos()
        x.copy_(y)
        return a, x.cos()

    inputs = [torch.randn(4), torch.randn(4)]
    (module,) = capture(function, *inputs)
    check(module, inputs)
    assert targets(module)["aten.cos.default"] == 2


# 18a: what would read a later value --------------------------------------------------------------


@pytest.mark.parametrize("name", FRESH)
@pytest.mark.parametrize("of", ["input", "fresh", "view"])
@pytest.mark.parametrize("reader", ["copy_", "output", "blind", "observer", "writer"])
def test_a_fresh_tensor_keeps_what_its_source_held_before_a_write(name, of, reader):
    b = Builder()
    base, target = b.input(4, 6 if of != "view" else 8), b.input(1)
    x = {
        "input": lambda: base,
        "fresh": lambda: b.call(aten.sin.default, base),
        "view": lambda: b.call(aten.slice.Tensor, base, 1, 1, 7),
    }[of]()
    fresh = FRESH[name](b, x)
    b.call(aten.add_.Tensor, x if of != "view" else base, 1)
    results = [b.call(aten.neg.default, x)]
    if reader == "copy_":
        flat = b.call(aten.sum.default, fresh)
        b.call(aten.copy_.default, target, b.call(aten.reshape.default, flat, [1]))
    elif reader == "output":
        results.append(fresh)
    elif reader == "blind":
        results.append(b.call(aten.cos.default, fresh))
    elif reader == "observer":
        results.append(b.call(GEOMETRY, fresh))
    else:
        b.call(BUMP, fresh)
        results.append(b.call(aten.cos.default, fresh))
        results.append(b.call(aten.exp.default, x))
    check(b.output(*results))


@pytest.mark.parametrize("name", FRESH)
def test_a_copy_that_is_written_out_after_a_write(name):
    """CASES.md 18a as it stands: both reads of x come first."""
    scratch = Builder()
    shape = FRESH[name](scratch, scratch.input(4, 6)).meta["val"].shape
    b = Builder()
    x, rest, out = b.input(4, 6), b.input(4, 6), b.input(*shape)
    fresh = FRESH[name](b, x)
    b.call(aten.add_.Tensor, x, 1)
    b.call(aten.copy_.default, out, fresh)
    check(b.output(b.call(aten.add.Tensor, x, rest)))


@pytest.mark.parametrize("name", FRESH)
def test_a_copy_that_is_written_out_before_its_source_is_written(name):
    """CASES.md 18: `dst.copy_(x); x.add_(1)`, dst read after that."""
    scratch = Builder()
    shape = FRESH[name](scratch, scratch.input(4, 6)).meta["val"].shape
    b = Builder()
    x, out = b.input(4, 6), b.input(*shape)
    b.call(aten.copy_.default, out, FRESH[name](b, x))
    b.call(aten.add_.Tensor, x, 1)
    copied = b.call(aten.clone.default, out)
    check(b.output(copied, b.call(aten.cos.default, out), b.call(aten.exp.default, x)))


def test_new_readers_of_a_written_storage_stand_before_the_write():
    """What reads x through the cat read it before the write; so must what reads x itself."""
    b = Builder()
    x = b.input(4, 6)
    whole = cat_of_pieces(b, x)
    part = b.call(aten.slice.Tensor, whole, 1, 2, 4)
    b.call(aten.add_.Tensor, x, 1)
    late = [b.call(aten.sin.default, part), b.call(aten.cos.default, whole)]
    module = b.output(*late, b.call(aten.exp.default, x))
    check(module)
