"""CASES.md 15 to 18a: what is merged, and what must not be."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch._ops import OpOverload
from torch.fx.experimental.proxy_tensor import make_fx

from lowering import Options, canonical_text, capture, saturate
from tests.lowering.support import BUMP, GEOMETRY, Builder, calls, check, targets

aten = torch.ops.aten
prims = torch.ops.prims
END = 2**63 - 1
NAN = float("nan")

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


# 15: arguments -----------------------------------------------------------------------------------

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


# 16: never merged --------------------------------------------------------------------------------


def overloads(wanted: Callable[[OpOverload], bool]) -> list[OpOverload]:
    found = []
    for name in sorted(dir(aten)):
        packet = getattr(aten, name)
        for overload in packet.overloads() if hasattr(packet, "overloads") else ():
            if wanted(getattr(packet, overload)):
                found.append(getattr(packet, overload))
    return found


PLACEHOLDER_ARGUMENTS: dict[str, object] = {
    "int": 1,
    "SymInt": 1,
    "float": 0.5,
    "number": 0.5,
    "Scalar": 0.5,
    "bool": False,
    "str": "none",
    "Device": torch.device("cpu"),
    "ScalarType": torch.float32,
    "Layout": torch.strided,
    "MemoryFormat": torch.contiguous_format,
}


def unchecked(b: Builder, target: OpOverload, operand: fx.Node) -> fx.Node:
    """A call that nobody will run, on an operand for each tensor."""
    args: list[object] = []
    kwargs: dict[str, object] = {}
    for argument in target._schema.arguments:
        if argument.has_default_value():
            continue
        kind = str(argument.type)
        value: object = None
        if "Tensor" in kind:
            value = [operand] if kind.startswith("List") else operand
        elif not kind.startswith("Optional"):
            element = kind.removeprefix("List[").removesuffix("]")
            value = PLACEHOLDER_ARGUMENTS.get(element)
            value = [value] if kind.startswith("List") else value
        if argument.kwarg_only:
            kwargs[argument.name] = value
        else:
            args.append(value)
    node = b.graph.call_function(target, tuple(args), kwargs)
    node.meta["val"] = operand.meta["val"].clone()
    return node


def assert_all_stay(found: list[OpOverload]) -> None:
    """Two calls of each overload, on an input of its own, with a user or without, are two."""
    b = Builder()
    operands = [b.input(3) for _ in found]
    results = []
    for target, operand in zip(found, operands, strict=True):
        results += [unchecked(b, target, operand) for _ in range(2)]
    b.graph.output(tuple(results))  # no module: Python can't say `aten.random.from`
    before = targets(b.graph)
    report = saturate(b.graph)
    assert report.stopped == "saturated", report.reason
    after = targets(b.graph)
    assert {name: count for name, count in before.items() if after[name] != count} == {}


def test_every_random_operator_with_the_tag_stays():
    found = overloads(
        lambda op: torch.Tag.nondeterministic_seeded in op.tags and not op._schema.is_mutable
    )
    assert len(found) > 40
    assert_all_stay(found)


UNTAGGED = """
    rand_like.default randn_like.default randint_like.default randint_like.low_dtype rand.default
    randn.default randint.default randint.low randperm.default rand.generator randn.generator
    normal.Tensor_Tensor normal.Tensor_float normal.float_Tensor normal_functional.default
    bernoulli.default bernoulli.p bernoulli.Tensor uniform.default exponential.default
    cauchy.default geometric.default log_normal.default random.default random.from random.to
    poisson.default binomial.default multinomial.default dropout.default native_dropout.default
    _fused_dropout.default alpha_dropout.default feature_dropout.default
    feature_alpha_dropout.default rrelu.default rrelu_with_noise.default _standard_gamma.default
    _sample_dirichlet.default
""".split()


def test_every_random_operator_stays_with_or_without_the_tag():
    found = []
    for name in UNTAGGED:
        packet, overload = name.split(".")
        found.append(getattr(getattr(aten, packet), overload))
    assert_all_stay(found)


def test_random_operators_of_inductor_stay():
    import torch._inductor.inductor_prims

    names = ("inductor_random", "inductor_randint", "inductor_seed", "inductor_seeds")
    names += ("inductor_lookup_seed",)
    found = [getattr(prims, name).default for name in names if hasattr(prims, name)]
    assert len(found) == len(names)
    if hasattr(torch.ops, "rngprims"):
        found += [torch.ops.rngprims.philox_rand.default]
    assert_all_stay(found)


def test_everything_with_a_mutable_schema_stays():
    found = overloads(lambda op: op._schema.is_mutable)
    assert len(found) > 1000
    assert_all_stay(found)


RANDOM: dict[str, Callable[[Tensor], Tensor]] = {
    "rand_like": torch.rand_like,
    "randn_like": torch.randn_like,
    "randint_like": lambda x: torch.randint_like(x, 1000),
    "rand": lambda x: torch.rand(16),
    "randn": lambda x: torch.randn(16),
    "randint": lambda x: torch.randint(1000, (16,)),
    "randperm": lambda x: torch.randperm(16),
    "bernoulli": lambda x: torch.bernoulli(torch.full_like(x, 0.5)),
    "dropout": lambda x: torch.dropout(x, 0.5, True),
    "exponential": lambda x: torch.empty_like(x).exponential_(),
    "uniform": lambda x: torch.empty_like(x).uniform_(),
    "normal": lambda x: torch.normal(x, 1.0),
    "poisson": lambda x: torch.poisson(x.exp() * 100),
    "multinomial": lambda x: torch.multinomial(x.exp(), 9),
    "geometric": lambda x: torch.empty_like(x).geometric_(0.01),
    "rrelu": lambda x: torch.rrelu(-x.exp(), training=True),
}


@pytest.mark.parametrize("name", RANDOM)
@pytest.mark.parametrize("captured", [True, False], ids=["captured", "traced"])
def test_random_values_stay_two_and_in_order(name, captured):
    def function(x: Tensor) -> tuple[Tensor, ...]:
        return RANDOM[name](x).neg(), RANDOM[name](x).abs()

    x = torch.randn(16)
    with torch._inductor.config.patch(fallback_random=False):
        module = capture(function, x)[0] if captured else make_fx(function, tracing_mode="fake")(x)
    before = targets(module)
    check(module, [x])
    random = [name for name in before if "rand" in name or name.startswith(f"aten.{name}")]
    assert {name: targets(module)[name] for name in random} == {n: before[n] for n in random}
    first, second = (calls(module, reader)[0] for reader in READERS)
    assert first.args[0] is not second.args[0]


EMPTY: dict[str, Make] = {
    "empty": lambda b, x: b.call(aten.empty.memory_format, [4, 6]),
    "empty_like": call(aten.empty_like.default),
    "new_empty": call(aten.new_empty.default, [4, 6]),
    "empty_strided": lambda b, x: b.call(aten.empty_strided.default, [4, 6], [6, 1]),
    "empty_permuted": lambda b, x: b.call(aten.empty_permuted.default, [4, 6], [0, 1]),
    "new_empty_strided": call(aten.new_empty_strided.default, [4, 6], [6, 1]),
    "zeros": lambda b, x: b.call(aten.full.default, [4, 6], 0.0),
    "full_like": call(aten.full_like.default, 1.0),
    "clone": call(aten.clone.default),
    "sin": call(aten.sin.default),
}


@pytest.mark.parametrize("name", EMPTY)
def test_factories_that_are_written_stay_two(name):
    b = Builder()
    x = b.input(4, 6)
    first, second = EMPTY[name](b, x), EMPTY[name](b, x)
    b.call(aten.fill_.Scalar, first, 1.0)
    b.call(aten.fill_.Scalar, second, 2.0)
    module = b.output(b.call(aten.neg.default, first), b.call(aten.abs.default, second))
    check(module)
    assert not merged(module)


@pytest.mark.parametrize("name", ["zeros", "full_like", "clone", "sin"])
@pytest.mark.parametrize("written", [0, 1])
@pytest.mark.parametrize("late", [False, True])
def test_what_one_of_two_equal_values_is_written_into_stays_two(name, written, late):
    b = Builder()
    x = b.input(4, 6)
    values = [EMPTY[name](b, x), *([] if late else [EMPTY[name](b, x)])]
    if late:
        b.call(BUMP, values[0])
        values.append(EMPTY[name](b, x))
    else:
        b.call(BUMP, values[written])
    module = b.output(*[b.call(f, v) for f, v in zip(READERS, values, strict=True)])
    check(module)
    assert not merged(module)


@pytest.mark.parametrize("name", [name for name in EMPTY if "empty" in name])
def test_memory_that_nobody_wrote_stays_two(name):
    """Unread bits differ, so what is held against the graph that came in are only the nodes."""
    module = two(EMPTY[name], EMPTY[name])
    report = saturate(module)
    assert (report.stopped, merged(module)) == ("saturated", False)


@pytest.mark.parametrize("key", ["recompute", "partitioner_tag", "custom"])
@pytest.mark.parametrize("make", ["pointwise", "slice", "split", "view"])
def test_nodes_that_differ_in_tags_stay_two(key, make):
    values = {
        "recompute": ("must_recompute", "must_save"),
        "partitioner_tag": ("is_forward", "is_backward"),
        "custom": ({"stream": 1}, {"stream": 2}),
    }[key]
    for tags in ((values[0], values[1]), (values[0], None), (values[0], values[0])):
        b = Builder()
        x = b.call(aten.exp.default, b.input(4, 6))
        results = []
        for tag, reader in zip(tags, READERS, strict=True):
            made = {
                "pointwise": lambda: b.call(aten.sin.default, x),  # noqa: B023
                "slice": lambda: b.call(aten.slice.Tensor, x, 1, 0, 4),  # noqa: B023
                "view": lambda: b.call(aten.reshape.default, x, [6, 4]),  # noqa: B023
                "split": lambda: b.call(  # noqa: B023
                    operator.getitem,
                    b.call(aten.split_with_sizes.default, x, [4, 2], 1),  # noqa: B023
                    0,
                ),
            }[make]()
            parts = [made, made.args[0]] if make == "split" else [made]
            result = b.call(reader, made)
            for node in (*parts, result):
                if tag is not None:
                    node.meta[key] = tag
            results.append(result)
        module = b.output(*results)
        check(module)
        assert merged(module) == (tags[0] == tags[1]), tags


@pytest.mark.parametrize("key", ["seq_nr", "stack_trace", "nn_module_stack", "from_node", "custom"])
def test_nodes_that_differ_in_where_they_come_from_are_one(key):
    values = {
        "seq_nr": (1, 2),
        "stack_trace": ("here", "there"),
        "nn_module_stack": ({"a": ("a", "A")}, {"b": ("b", "B")}),
        "from_node": (["a"], ["b"]),
        "custom": ({}, {}),
    }[key]
    b = Builder()
    x = b.input(4)
    results = []
    for value, reader in zip(values, READERS, strict=True):
        node = b.call(aten.sin.default, x)
        node.meta[key] = value
        results.append(b.call(reader, node))
    module = b.output(*results)
    check(module)
    assert merged(module)


def test_higher_order_operators_stay_two():
    def function(x: Tensor) -> tuple[Tensor, ...]:
        def once() -> Tensor:
            return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))

        return once().neg(), once().abs()

    module = capture(function, torch.randn(3))[-1]
    check(module, [torch.randn(3)])
    assert targets(module)["cond"] == 2


@pytest.mark.parametrize(
    "name",
    ["auto_functionalized", "auto_functionalized_v2", "while_loop", "invoke_subgraph", "print"],
)
def test_higher_order_operators_by_hand_stay_two(name):
    target = getattr(torch.ops.higher_order, name)
    b = Builder()
    x = b.input(3)
    nodes = [b.graph.call_function(target, (x,), {"y": x}) for _ in range(2)]
    for node in nodes:
        node.meta["val"] = (x.meta["val"].clone(),)
    module = b.output(*nodes)
    assert saturate(module).stopped == "saturated"
    assert targets(module) == {name: 2}


def test_triton_kernels_stay_two():
    from torch._higher_order_ops.triton_kernel_wrap import (
        triton_kernel_wrapper_functional,
        triton_kernel_wrapper_mutation,
    )

    b = Builder()
    x = b.input(3)
    for target in (triton_kernel_wrapper_functional, triton_kernel_wrapper_mutation):
        for _ in range(2):
            kwargs = {"kernel_idx": 0, "grid": [(1, 1, 1)], "kwargs": {"x": x}}
            b.graph.call_function(target, (), kwargs).meta["val"] = None
    reads = [b.call(aten.sin.default, x)]
    module = b.output(*reads)
    assert saturate(module).stopped == "saturated"
    assert targets(module).total() == 5


def test_custom_operators_and_asserts_stay_in_order():
    b = Builder()
    x = b.input(3)
    y = b.call(aten.sin.default, x)
    b.call(BUMP, y)
    b.call(BUMP, y)
    b.call(GEOMETRY, y)
    flag = b.call(aten.all.default, b.call(aten.lt.Scalar, x, 1e9))
    b.call(aten._assert_async.msg, flag, "one")
    b.call(aten._assert_async.msg, flag, "two")
    b.call(BUMP, y)
    module = b.output(y)
    order = [node.target for node in module.graph.nodes]
    check(module)
    assert [node.target for node in module.graph.nodes] == order


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
    "plus_zero": lambda x: (x + 0,),
    "times_one": lambda x: (x * 1, x / 1, x - 0),
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


# 18a: what would read a later value --------------------------------------------------------------


def cat_of_pieces(b: Builder, x: fx.Node) -> fx.Node:
    split = b.call(aten.split_with_sizes.default, x, [2, 4], 1)
    return b.call(aten.cat.default, [b.call(operator.getitem, split, i) for i in (0, 1)], 1)


def cat_of_slices(b: Builder, x: fx.Node) -> fx.Node:
    cuts = ((0, 1), (1, 4), (4, 6))
    return b.call(aten.cat.default, [b.call(aten.slice.Tensor, x, -1, *c) for c in cuts], -1)


def scatter_read_back(b: Builder, x: fx.Node) -> fx.Node:
    y = b.call(aten.slice_scatter.default, b.call(aten.exp.default, x), x, 1, 0, 6)
    return b.call(aten.slice.Tensor, y, 1, 0, 6)


def scatter_of_a_part(b: Builder, x: fx.Node) -> fx.Node:
    part = b.call(aten.slice.Tensor, x, 1, 0, 3)
    y = b.call(aten.slice_scatter.default, b.call(aten.exp.default, x), part, 1, 3, 6)
    return b.call(aten.slice.Tensor, y, 1, 3, 6)


def scatter_base(b: Builder, x: fx.Node) -> fx.Node:
    part = b.call(aten.exp.default, b.call(aten.slice.Tensor, x, 1, 0, 3))
    y = b.call(aten.slice_scatter.default, x, part, 1, 3, 6)
    return b.call(aten.slice.Tensor, y, 1, 0, 3)


FRESH: dict[str, Make] = {
    "cat_of_pieces": cat_of_pieces,
    "cat_of_slices": cat_of_slices,
    "cat_of_one": lambda b, x: b.call(aten.cat.default, [x], 1),
    "clone": call(aten.clone.default),
    "pad": call(aten.constant_pad_nd.default, [0, 0]),
    "to_copy": call(aten._to_copy.default),
    "converted": call(prims.convert_element_type.default, torch.float32),
    "add_zero": call(aten.add.Tensor, 0),
    "mul_one": call(aten.mul.Tensor, 1),
    "scatter_read_back": scatter_read_back,
    "scatter_of_a_part": scatter_of_a_part,
    "scatter_base": scatter_base,
    "cat_sliced": lambda b, x: b.call(aten.slice.Tensor, cat_of_pieces(b, x), 1, 0, 3),
    "cat_viewed": lambda b, x: b.call(aten.reshape.default, cat_of_slices(b, x), [24]),
    "reshape": lambda b, x: b.call(
        aten.reshape.default, b.call(aten.permute.default, x, [1, 0]), [24]
    ),
    "contiguous": lambda b, x: b.call(aten.contiguous.default, cat_of_pieces(b, x)),
}


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
