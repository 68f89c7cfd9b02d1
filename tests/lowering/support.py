"""What tests of saturate share: graphs made by hand, and what has to hold for every graph.

`check` is the one to call: it saturates a graph and holds the result against all that is promised
of it. The other functions are its parts, and ways to make graphs that no tracer makes.
"""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import sympy  # type: ignore[import-untyped]
import torch
from torch import SymInt, Tensor, fx
from torch._dispatch.python import enable_python_dispatcher
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv, statically_known_true
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves
from torch.utils._sympy.value_ranges import ValueRanges

from lowering import Options, Report, canonical_text, saturate

SHUFFLES = (1, 2, 3)
"""Seeds of the shuffled copies that `check` compares."""


# Custom ops that see what compiled code would see ------------------------------------------------


@torch.library.custom_op("fxsat_test::geometry", mutates_args=())
def _geometry_of(x: Tensor) -> Tensor:
    """Return the strides and the storage offset of `x`, so that outputs tell of operands."""
    return torch.tensor([*x.stride(), x.storage_offset()])


@_geometry_of.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty(x.dim() + 1, dtype=torch.int64)


@torch.library.custom_op("fxsat_test::bump_", mutates_args={"x"})
def _bump(x: Tensor) -> None:
    """Add one, in place."""
    x.add_(1)


@_bump.register_fake
def _(x: Tensor) -> None:
    return None


GEOMETRY = torch.ops.fxsat_test.geometry.default
BUMP = torch.ops.fxsat_test.bump_.default


# Graphs made by hand -----------------------------------------------------------------------------


class Builder:
    """A graph made node by node, each with the val that fake tensor propagation gives it."""

    def __init__(self) -> None:
        self.environment = ShapeEnv()
        self.mode = FakeTensorMode(shape_env=self.environment, allow_non_fake_inputs=True)
        self.graph = fx.Graph()

    def input(
        self,
        *sizes: int | fx.Node,
        dtype: torch.dtype = torch.float32,
        stride: Sequence[int] | None = None,
    ) -> fx.Node:
        """Add a tensor input; a size may be a node that `symbol` made."""
        shape = [size.meta["val"] if isinstance(size, fx.Node) else size for size in sizes]
        with self.mode:
            val = (
                torch.empty(shape, dtype=dtype)
                if stride is None
                else torch.empty_strided(shape, stride, dtype=dtype)
            )
        return self.placeholder(val)

    def placeholder(self, val: object, name: str | None = None) -> fx.Node:
        """Add an input of any kind; a real tensor becomes a fake one."""
        node = self.graph.placeholder(name or f"arg{len(self.graph.nodes)}")
        node.meta["val"] = (
            self.mode.from_tensor(val, static_shapes=True) if type(val) is Tensor else val
        )
        return node

    def symbol(self, hint: int, least: int = 2, most: int = 1 << 20) -> fx.Node:
        """Add an input that holds a size between `least` and `most`."""
        symbol = sympy.Symbol(f"s{len(self.graph.nodes)}", integer=True, positive=least > 0 or None)
        self.environment.add_backed_var_to_val(symbol, hint)
        self.environment.var_to_range[symbol] = ValueRanges(least, most)
        return self.placeholder(self.environment.create_symintnode(symbol, hint=hint))

    def call(self, target: Callable[..., Any], /, *args: Any, **kwargs: Any) -> fx.Node:
        """Add a call."""
        node = self.graph.call_function(target, args, kwargs)
        arguments = map_arg((args, kwargs), lambda each: each.meta["val"])
        with self.mode, enable_python_dispatcher(), self.environment.suppress_guards():
            node.meta["val"] = target(*arguments[0], **arguments[1])
        return node

    def output(self, *results: Any) -> fx.GraphModule:
        """Add the output, and return the graph as a module."""
        self.graph.output(tuple(results))
        return fx.GraphModule({}, self.graph)


def example_inputs(module: fx.GraphModule, seed: int = 0) -> list[Any]:
    """Return random inputs in the layouts, and of the sizes, that a graph was made with."""
    generator = torch.Generator().manual_seed(seed)
    return [_example(node.meta["val"], generator) for node in _placeholders(module.graph)]


def _example(val: Any, generator: torch.Generator) -> Any:
    if not isinstance(val, Tensor):
        return _hint(val)
    shape, strides = [_hint(n) for n in val.shape], [_hint(n) for n in val.stride()]
    offset = _hint(val.storage_offset())
    reach = [(n - 1) * stride for n, stride in zip(shape, strides, strict=True)]
    length = offset + (0 if 0 in shape else 1 + sum(reach))
    if val.dtype.is_floating_point or val.dtype.is_complex:
        data = torch.randn(length, dtype=torch.float32, generator=generator).to(val.dtype)
    else:
        data = torch.randint(0, 2 if val.dtype == torch.bool else 9, (length,), generator=generator)
    return data.to(val.dtype).as_strided(shape, strides, offset)


def _hint(number: Any) -> Any:
    return number.node.hint if isinstance(number, SymInt) else number


def copy_of(module: fx.GraphModule) -> fx.GraphModule:
    """Copy a graph; vals and attributes are shared."""
    return fx.GraphModule(module, copy.deepcopy(module.graph))


# Running -----------------------------------------------------------------------------------------


class Outcome(NamedTuple):
    """What came out of a run, and what became of the inputs."""

    outputs: tuple[Any, ...]
    inputs: tuple[Any, ...]


def run(module: fx.GraphModule, inputs: Sequence[Any]) -> Outcome:
    """Run a graph on copies of inputs that lie in memory as the inputs do."""
    storages: dict[int, torch.UntypedStorage] = {}
    arguments = [_copied(each, storages) for each in inputs]
    torch.manual_seed(0)
    with torch.no_grad():
        results = fx.Interpreter(module).run(*arguments)
    return Outcome(tuple(tree_leaves(results)), tuple(arguments))


def _copied(each: Any, storages: dict[int, torch.UntypedStorage]) -> Any:
    if not isinstance(each, Tensor):
        return each
    storage = each.untyped_storage()
    fresh = storages.setdefault(storage._cdata, storage.clone())
    return torch.empty(0, dtype=each.dtype).set_(
        fresh, each.storage_offset(), each.shape, each.stride()
    )


def assert_same_outcome(before: Outcome, after: Outcome) -> None:
    """Assert equal values, dtypes, strides, offsets, and equal sharing of storages."""
    assert len(before.outputs) == len(after.outputs)
    for i, (old, new) in enumerate(zip(before.outputs, after.outputs, strict=True)):
        assert type(old) is type(new), f"output {i}"
        if isinstance(old, Tensor):
            assert _geometry(old) == _geometry(new), f"output {i}"
        _assert_same_value(old, new, f"output {i}")
    for i, (old, new) in enumerate(zip(before.inputs, after.inputs, strict=True)):
        _assert_same_value(old, new, f"input {i} after the run")
    assert _sharing(_tensors(before)) == _sharing(_tensors(after)), "aliasing"


def _geometry(x: Tensor) -> tuple[object, ...]:
    return (x.dtype, x.shape, x.stride(), x.storage_offset(), x.is_conj(), x.is_neg())


def _assert_same_value(old: Any, new: Any, where: str) -> None:
    if not isinstance(old, Tensor):
        assert old == new, where
        return
    # Kernels may differ in the last bit on operands that lie otherwise in memory.
    torch.testing.assert_close(old, new, equal_nan=True, msg=lambda m: f"{where}: {m}")
    if old.dtype.is_floating_point:
        old, new = old.double(), new.double()
        zero = (old == 0) & (new == 0)
        assert torch.equal(old.signbit() & zero, new.signbit() & zero), f"{where}: sign of zero"


def _tensors(outcome: Outcome) -> list[Tensor]:
    return [each for each in (*outcome.inputs, *outcome.outputs) if isinstance(each, Tensor)]


def _sharing(tensors: Sequence[Tensor]) -> list[int]:
    """For each tensor, the number of the first one with the same storage."""
    first: dict[int, int] = {}
    return [first.setdefault(x.untyped_storage()._cdata, i) for i, x in enumerate(tensors)]


# Vals --------------------------------------------------------------------------------------------


# C++ and Python kernels of these give different offsets, and torch calls either.
_STRIDES_OF_THE_FIRST_OPERAND = (
    torch.ops.aten.copy.default,
    torch.ops.aten.slice_scatter.default,
    torch.ops.aten.select_scatter.default,
    torch.ops.aten.diagonal_scatter.default,
    torch.ops.aten.as_strided_scatter.default,
)


class _Propagation(fx.Interpreter):
    """Runs a graph on the vals of its inputs and keeps what each node gives."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.found: dict[fx.Node, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        val = n.meta.get("val")
        known = n.op == "get_attr" and isinstance(val, Tensor)
        result = val if known or "unbacked_bindings" in n.meta else super().run_node(n)
        if n.target in _STRIDES_OF_THE_FIRST_OPERAND and isinstance(val, Tensor):
            assert isinstance(result, Tensor)
            assert val.stride() == result.stride(), n.name
            result = val
        self.found[n] = result
        return result


def assert_vals(module: fx.GraphModule) -> None:
    """Assert that each val is what propagation gives: size, stride, offset, dtype, and sharing."""
    propagation = _Propagation(module)
    mode = _mode(module.graph)
    with ExitStack() as stack:
        if mode is not None:
            stack.enter_context(mode)
            if mode.shape_env is not None:
                stack.enter_context(mode.shape_env.suppress_guards())
        inputs = [node.meta["val"] for node in _placeholders(module.graph)]
        if any(isinstance(val, SymInt) for val in inputs):
            # Some C++ kernels guard on symbolic sizes where their Python versions don't.
            stack.enter_context(enable_python_dispatcher())
        propagation.run(*inputs)
    names: list[str] = []
    pairs: list[tuple[Tensor, Tensor]] = []
    for node, fresh in propagation.found.items():
        if "val" not in node.meta or node.op == "output":
            continue
        kept, found = tree_leaves(node.meta["val"]), tree_leaves(fresh)
        assert len(kept) == len(found), f"val of {node.name} has {len(kept)} parts"
        for old, new in zip(kept, found, strict=True):
            if isinstance(new, Tensor):
                _assert_same_val(old, new, node)
                names.append(node.name)
                pairs.append((old, new))
            elif isinstance(new, (int, SymInt)):
                assert statically_known_true(old == new), f"{node.name}: {old} != {new}"
    sharing = [_sharing(each) for each in zip(*pairs, strict=True)] or [[], []]
    for name, kept_with, found_with in zip(names, *sharing, strict=True):
        assert kept_with == found_with, (
            f"the val of {name} shares its storage with that of {names[kept_with]}, "
            f"not of {names[found_with]}"
        )


def _assert_same_val(kept: Any, found: Tensor, node: fx.Node) -> None:
    assert isinstance(kept, Tensor), f"{node.name}: {kept}"
    assert (kept.dtype, kept.device) == (found.dtype, found.device), node.name
    for what in ("size", "stride"):
        old, new = getattr(kept, what)(), getattr(found, what)()
        assert len(old) == len(new), f"{what} of {node.name}: {old} != {new}"
        same = all(statically_known_true(a == b) for a, b in zip(old, new, strict=True))
        assert same, f"{what} of {node.name}: {old} != {new}"
    old, new = kept.storage_offset(), found.storage_offset()
    assert statically_known_true(old == new), f"offset of {node.name}: {old} != {new}"


def _mode(graph: fx.Graph) -> FakeTensorMode | None:
    vals = tree_leaves([node.meta.get("val") for node in graph.nodes])
    return next((val.fake_mode for val in vals if hasattr(val, "fake_mode")), None)


def _placeholders(graph: fx.Graph) -> list[fx.Node]:
    return list(graph.find_nodes(op="placeholder"))


# Graphs as text ----------------------------------------------------------------------------------


def code_of(graph: fx.Graph) -> str:
    """Return a graph as Python code, names included."""
    return str(graph.python_code("self").src)


def targets(graph: fx.Graph | fx.GraphModule) -> Counter[str]:
    """Return how often each target is called."""
    graph = graph.graph if isinstance(graph, fx.GraphModule) else graph
    calls = [node for node in graph.nodes if node.op == "call_function"]
    return Counter(
        str(node.target) if isinstance(node.target, OpOverload) else node.target.__name__
        for node in calls
    )


def calls(graph: fx.Graph | fx.GraphModule, target: object) -> list[fx.Node]:
    """Return the calls of a target, in order."""
    graph = graph.graph if isinstance(graph, fx.GraphModule) else graph
    return [node for node in graph.nodes if node.op == "call_function" and node.target is target]


# Another order -----------------------------------------------------------------------------------


def shuffle(graph: fx.Graph, seed: int) -> fx.Graph:
    """Return a copy in a random order in which it still does the same.

    Inputs stay first, effects keep their order, and what touches a storage that is written stays on
    its side of each write.
    """
    nodes = list(graph.nodes)
    after = _order(nodes)
    missing = {node: len(befores) for node, befores in after.items()}
    users: dict[fx.Node, list[fx.Node]] = {node: [] for node in nodes}
    for node, befores in after.items():
        for each in befores:
            users[each].append(node)
    shuffled = fx.Graph()
    copied: dict[fx.Node, fx.Node] = {}
    chance = random.Random(seed)
    ready = [node for node in nodes if not missing[node]]
    while ready:
        node = ready.pop(chance.randrange(len(ready)))
        copied[node] = shuffled.node_copy(node, copied.__getitem__)
        for user in users[node]:
            missing[user] -= 1
            if not missing[user]:
                ready.append(user)
    assert len(copied) == len(nodes)
    return shuffled


def _order(nodes: list[fx.Node]) -> dict[fx.Node, dict[fx.Node, None]]:
    """For each node, those that have to stand in front of it."""
    after = {node: dict.fromkeys(node.all_input_nodes) for node in nodes}
    last: fx.Node | None = None
    inputs = _placeholders(nodes[0].graph) if nodes else []
    touched: dict[int, list[fx.Node]] = {}
    writer: dict[int, fx.Node] = {}
    for node in nodes:
        if node.op == "output":
            after[node].update(dict.fromkeys(nodes[:-1]))
            continue
        if inputs and node is not inputs[0]:
            before = inputs[inputs.index(node) - 1] if node.op == "placeholder" else inputs[-1]
            after[node][before] = None
        if _has_effect(node):
            if last is not None:
                after[node][last] = None
            last = node
        written = {s for each in _written(node) for s in _storages(each)}
        for storage in sorted(_touched(node)):
            if storage in writer:
                after[node][writer[storage]] = None
            if storage in written:
                after[node].update(dict.fromkeys(touched.get(storage, ())))
                writer[storage] = node
            touched.setdefault(storage, []).append(node)
        after[node].pop(node, None)
    return after


def _touched(node: fx.Node) -> set[int]:
    return _storages(node).union(*(_storages(each) for each in node.all_input_nodes))


def _storages(node: fx.Node) -> set[int]:
    leaves = tree_leaves(node.meta.get("val"))
    return {each.untyped_storage()._cdata for each in leaves if isinstance(each, Tensor)}


def _written(node: fx.Node) -> Iterator[fx.Node]:
    """Operands whose storage the node writes, or may write."""
    target: Any = node.target
    if isinstance(target, HigherOrderOperator):
        yield from () if "functionalized" in target.name() else node.all_input_nodes
    elif isinstance(target, OpOverload):
        for i, argument in enumerate(target._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                given = node.args[i] if i < len(node.args) else node.kwargs.get(argument.name)
                yield from (each for each in tree_leaves(given) if isinstance(each, fx.Node))


_UNTAGGED_RANDOM = ("rand", "exponential", "inductor_", "dropout", "bernoulli", "normal", "assert")


def _has_effect(node: fx.Node) -> bool:
    """Whether a node has to keep its place among those that have an effect."""
    target: Any = node.target
    if node.op != "call_function" or not isinstance(target, OpOverload):
        return isinstance(target, HigherOrderOperator)
    return (
        target._schema.is_mutable
        or target.namespace not in ("aten", "prims")
        or torch.Tag.nondeterministic_seeded in target.tags
        or any(each in target._schema.name for each in _UNTAGGED_RANDOM)
        or "unbacked_bindings" in node.meta
    )


# All together ------------------------------------------------------------------------------------


def check(
    module: fx.GraphModule,
    inputs: Sequence[Any] | None = None,
    options: Options = Options(),
    *,
    shuffles: Sequence[int] = SHUFFLES,
) -> Report:
    """Saturate a graph in place and hold it against all that is promised of every graph.

    It gives what a copy of the graph as it came in gives, on the same inputs: values, dtypes,
    strides, offsets, who shares whose storage, and what becomes of the inputs. It is well-formed,
    its vals are right, nothing was guarded, saturating it again changes nothing, and shuffled
    copies of it become the same graph.

    Args:
        module: the graph.
        inputs: what to run it on; random ones where none are given.
        options: passed on to `saturate`.
        shuffles: seeds of the shuffled copies.
    """
    before = copy_of(module)
    old_nodes, old_code = set(module.graph.nodes), code_of(module.graph)
    guards = _guards(module.graph)
    report = saturate(module, options)
    assert report.stopped == "saturated", report.reason
    assert not report.fallback, report.fallback
    assert _guards(module.graph) == guards
    module.graph.lint()
    code, text = code_of(module.graph), canonical_text(module)
    assert report.changed or code == old_code
    assert sum(report.after.values()) == targets(module).total()
    _assert_new_nodes(module.graph, old_nodes)
    assert_vals(module)
    if inputs is None:
        inputs = example_inputs(module)
    assert_same_outcome(run(before, inputs), run(module, inputs))
    again = saturate(module, options)
    assert not again.changed, again
    assert (code_of(module.graph), canonical_text(module)) == (code, text)
    for seed in shuffles:
        shuffled = shuffle(before.graph, seed)
        assert saturate(shuffled, options).stopped == "saturated"
        assert canonical_text(shuffled) == text, f"shuffled with seed {seed}"
    return report


def _assert_new_nodes(graph: fx.Graph, old: set[fx.Node]) -> None:
    traced = all(node.stack_trace for node in old if node.op == "call_function")
    for node in graph.nodes:
        if node in old:
            continue
        assert "val" in node.meta, node.name
        assert node.stack_trace or not traced, node.name
        source = node.args[0]
        if node.target.__name__ == "getitem" and source not in old:
            assert isinstance(source.meta["val"], list)
            assert node.meta["val"] is source.meta["val"][node.args[1]], node.name


def _guards(graph: fx.Graph) -> object:
    """All that a ShapeEnv was made to believe."""
    mode = _mode(graph)
    if mode is None or mode.shape_env is None:
        return None
    environment = mode.shape_env
    return (
        [str(guard.expr) for guard in environment.guards],
        {str(key): str(value) for key, value in environment.var_to_range.items()},
        {str(key): str(value) for key, value in environment.replacements.items()},
        {str(key): len(value) for key, value in environment.deferred_runtime_asserts.items()},
    )
