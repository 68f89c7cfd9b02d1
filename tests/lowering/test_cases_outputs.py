"""CASES.md 18 and 18b: outputs share storages as they did, and layouts stay."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from lowering import capture
from tests.lowering.fresh_tensors import cat_of_pieces, scatter_read_back
from tests.lowering.support import GEOMETRY, Builder, check, targets
from tests.lowering.two_values import call

aten = torch.ops.aten


# 18: outputs -------------------------------------------------------------------------------------

RETURNED: dict[str, Callable[[Tensor], tuple[Tensor, ...]]] = {
    "sin_twice": lambda x: (x.sin(), x.sin()),
    "sin_thrice_and_used": lambda x: (x.sin(), x.sin(), x.sin().neg(), x.sin()),
    "one_tensor_twice": lambda x: (y := x.sin(), y),
    "view_of_one": lambda x: (x.sin(), x.sin()[:, :2], x.sin().view(-1)),
    "views_of_two": lambda x: (x.sin()[:, :2], x.sin()[:, :2]),
    "views_of_one": lambda x: (y := x.sin(), y[:, :2], y[:, :2], y.t()),
    "pieces": lambda x: x.sin().split([2, 4], 1),
    "pieces_twice": lambda x: (*x.sin().split([2, 4], 1), *x.sin().split([2, 4], 1)),
    "slices_that_tile": lambda x: (y := x.sin(), y[:, :2], y[:, 2:]),
    "plus_zero": lambda x: (x + 0, x.sin()),
    "times_one": lambda x: (x * 1, x / 1, x - 0, x.sin()),
    "cat_of_all": lambda x: (torch.cat(x.split([2, 4], 1), 1),),
    "cat_of_slices": lambda x: (torch.cat([x[:, :2], x[:, 2:]], 1), x.sin()),
    "cat_of_all_twice": lambda x: (
        torch.cat(x.split([2, 4], 1), 1),
        torch.cat(x.split([2, 4], 1), 1),
    ),
    "cat_of_all_of_fresh": lambda x: (y := x.sin(), torch.cat(y.split([2, 4], 1), 1)),
    "cat_of_all_used_and_returned": lambda x: (
        torch.cat(x.split([2, 4], 1), 1).sin(),
        torch.cat(x.split([2, 4], 1), 1),
    ),
    "clone": lambda x: (x.clone(), x.clone()),
    "contiguous_view": lambda x: (x.t().contiguous(), x.t().contiguous()),
    "to_copy": lambda x: (x.double().float(), x.to(torch.float32, copy=True)),
    "scatter_of_all": lambda x: (torch.slice_scatter(x, x.sin(), 1, 0, 6), x.sin()),
    "read_back": lambda x: (torch.slice_scatter(x, x[:, :3].sin(), 1, 0, 3)[:, :3], x[:, :3].sin()),
    "input_itself": lambda x: (x, x.sin()),
    "view_of_input": lambda x: (x[:, :2], x[:, 2:], x.sin()),
    "whole_slice": lambda x: (x[:, 0:6], x.sin()[:, 0:6]),
    "pad_by_none": lambda x: (torch.nn.functional.pad(x, (0, 0)), x.sin()),
    "expanded": lambda x: (x.sin().expand(2, 4, 6), x.sin()),
    "stack_of_unbind": lambda x: (torch.stack(x.unbind(1), 1), torch.stack(x.unbind(0), 0)),
}


@pytest.mark.parametrize("name", RETURNED)
@pytest.mark.parametrize("how", ["captured", "traced", "fresh"])
def test_outputs_share_storages_as_they_did(name, how):
    function = RETURNED[name]
    x = torch.randn(4, 6)
    if how == "fresh":
        check(make_fx(lambda x: function(x.exp()), tracing_mode="fake")(x), [x])
    elif how == "traced":
        check(make_fx(function, tracing_mode="fake")(x), [x])
    else:
        (module,) = capture(function, x)
        check(module, [x], shuffles=(1,))


def test_two_equal_outputs_are_two_nodes():
    (module,) = capture(lambda x: (x.sin(), x.sin(), x.sin().neg()), torch.randn(3))
    check(module)
    assert targets(module)["aten.sin.default"] == 2


# 18b: layouts ------------------------------------------------------------------------------------


def test_select_and_slice_of_a_channels_last_tensor_are_two():
    b = Builder()
    x = b.input(2, 3, 4, 4, stride=(48, 1, 12, 3))
    weight = b.input(3, 3, 1, 1)
    first = b.call(aten.slice.Tensor, x, 0, 0, 1)
    second = b.call(aten.unsqueeze.default, b.call(aten.select.int, x, 0, 0), 0)
    arguments = (weight, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    results = [b.call(aten.convolution.default, each, *arguments) for each in (first, second)]
    check(b.output(*results, first, second))


@pytest.mark.parametrize("stride", [(1, 4), (6, 1), (0, 1), (12, 2), (1, 0)], ids=str)
@pytest.mark.parametrize("observed", [False, True], ids=["blind", "observed"])
def test_a_cat_is_its_source_only_where_the_layout_is_the_same(stride, observed):
    b = Builder()
    whole = cat_of_pieces(b, b.input(4, 6, stride=stride))
    reader = GEOMETRY if observed else aten.sin.default
    module = b.output(b.call(reader, whole), b.call(aten.view.default, whole, [24]))
    check(module)


def test_a_blind_reader_of_a_cat_of_all_reads_the_source():
    b = Builder()
    x = b.input(4, 6)
    module = b.output(b.call(aten.sin.default, cat_of_pieces(b, x)))
    check(module)
    assert targets(module) == {"aten.sin.default": 1}


@pytest.mark.parametrize(
    "of", [cat_of_pieces, call(aten.slice.Tensor, 1, 0, 6), scatter_read_back], ids=lambda f: "of"
)
def test_what_as_strided_reads_stays(of):
    b = Builder()
    x = b.call(aten.exp.default, b.input(4, 6))
    view = b.call(aten.slice.Tensor, of(b, x), 0, 1, 3)
    module = b.output(b.call(aten.as_strided.default, view, [3, 3], [6, 1], 0))
    check(module)
