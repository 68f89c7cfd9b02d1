import operator

import pytest
import torch
from torch._ops import OpOverload

from lowering.layout_blind import is_layout_blind, is_layout_following
from tests.lowering.layout_blind_calls import recorded_calls
from tests.lowering.make_layout_blind import FILE, verdicts
from tests.processes import in_a_process

aten, prims = torch.ops.aten, torch.ops.prims

LISTED = dict(line.split(" ", 1) for line in FILE.read_text().splitlines())

CATEGORIES = {"blind", "blind if unit_last", "following", "following if row_major"}


MADE_UNDER_THIS_TORCH = torch.__version__.split("+")[0] == "2.13.0"


def overload(name: str) -> OpOverload | None:
    namespace, packet, overload_name = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet, None), overload_name, None)


def test_the_list_is_sorted_and_unique() -> None:
    names = [line.split(" ", 1)[0] for line in FILE.read_text().splitlines()]
    assert names == sorted(set(names))
    assert set(LISTED.values()) <= CATEGORIES


@pytest.mark.parametrize("name", LISTED)
def test_every_listed_name_is_an_overload(name: str) -> None:
    op = overload(name)
    if op is None and not MADE_UNDER_THIS_TORCH:
        pytest.skip("an overload that this torch does not have")
    assert isinstance(op, OpOverload)
    assert str(op) == name
    assert not op._schema.is_mutable
    assert is_layout_blind(op, unit_last=True) is LISTED[name].startswith("blind")
    assert is_layout_following(op, row_major=True) is LISTED[name].startswith("following")
    assert is_layout_blind(op) is (LISTED[name] == "blind")
    assert is_layout_following(op) is (LISTED[name] == "following")


@pytest.mark.parametrize(
    "op",
    [
        aten.mm.default,
        aten.bmm.default,
        aten.addmm.default,
        aten.add.Tensor,
        aten.mul.Tensor,
        aten.cat.default,
        aten.embedding.default,
        aten.index.Tensor,
        aten.sum.dim_IntList,
        aten._softmax.default,
        aten.convolution.default,
        aten.native_layer_norm.default,
        aten._fused_rms_norm.default,
        prims.convert_element_type.default,
    ],
    ids=str,
)
def test_blind_ops_that_graphs_are_full_of(op: OpOverload) -> None:
    assert is_layout_blind(op)
    assert not is_layout_following(op)


@pytest.mark.parametrize(
    "op",
    [
        aten.permute.default,
        aten.slice.Tensor,
        aten.select.int,
        aten.split_with_sizes.default,
        aten.unsqueeze.default,
        aten.squeeze.dim,
        aten.expand.default,
    ],
    ids=str,
)
def test_views_that_follow_their_operand(op: OpOverload) -> None:
    assert is_layout_following(op)
    assert not is_layout_blind(op)


def test_conditions_have_to_be_met() -> None:
    assert is_layout_following(aten.reshape.default, row_major=True)
    assert not is_layout_following(aten.reshape.default)
    assert not is_layout_blind(aten.reshape.default, unit_last=True)
    attention = aten._scaled_dot_product_flash_attention_for_cpu.default
    assert is_layout_blind(attention, unit_last=True)
    assert not is_layout_blind(attention)


@torch.library.custom_op("fxsat_test::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@pytest.mark.parametrize(
    "target",
    [
        aten.view.default,
        aten._unsafe_view.default,
        aten.as_strided.default,
        aten.view_as_complex.default,
        aten.view.dtype,
        aten.slice_scatter.default,
        aten.select_scatter.default,
        aten.diagonal_scatter.default,
        aten.as_strided_scatter.default,
        aten.copy.default,
        aten.copy_.default,
        aten.add_.Tensor,
        aten.rand_like.default,
        aten.bernoulli.p,
        aten.empty_like.default,
        prims.normal.default,
        torch.ops.fxsat_test.double.default,
        torch.ops.higher_order.cond,
        aten.mm,
        operator.getitem,
        torch.mm,
        "aten.mm.default",
        None,
    ],
    ids=str,
)
def test_observers(target: object) -> None:
    assert not is_layout_blind(target, unit_last=True)
    assert not is_layout_following(target, row_major=True)


SAMPLE = [*LISTED][::61]
"""Listed overloads, spread over the list."""

SEEN_TO_NOTICE = [
    "aten.copy.default",
    "aten.select_scatter.default",
    "aten.slice_scatter.default",
    "aten.view_as_complex.default",
]


def test_a_sample_of_the_list_comes_out_again() -> None:
    wanted = {name.split(".")[1] for name in [*SAMPLE, *SEEN_TO_NOTICE, "aten.reshape.default"]}
    recorder = recorded_calls(lambda name: name in wanted)
    found = verdicts(recorder, [*SAMPLE, *SEEN_TO_NOTICE, "aten.reshape.default"])
    assert len(found) > 10
    assert {name: LISTED.get(name) for name in found} == {
        name: category for name, (category, _) in found.items()
    }
    for name in SEEN_TO_NOTICE:
        assert found[name].category is None


MAKE = """
from tests.lowering.make_layout_blind import lines, recorded_calls, verdicts
print(*lines(verdicts(recorded_calls())), sep=chr(10))
"""


@pytest.mark.slow
@pytest.mark.skipif(not MADE_UNDER_THIS_TORCH, reason="the list is made under torch 2.13.0")
def test_the_list_is_what_its_maker_makes() -> None:
    # In a process of its own, as it is made: what other tests import registers further overloads.
    made = in_a_process(MAKE, timeout=1_500)
    assert made.returncode == 0, made.stderr
    assert made.stdout.splitlines() == FILE.read_text().splitlines()
