"""CASES.md 16: what must stay two, and in order."""

from __future__ import annotations

import operator
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, fx
from torch._ops import OpOverload
from torch.fx.experimental.proxy_tensor import make_fx

from lowering import capture, saturate
from tests.lowering.support import BUMP, GEOMETRY, Builder, calls, check, targets
from tests.lowering.two_values import READERS, Make, call, merged, two

aten = torch.ops.aten
prims = torch.ops.prims


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
