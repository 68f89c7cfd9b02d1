"""What tests of saturate share: graphs made by hand, and what has to hold for every graph.

`check` is the one to call: it saturates a graph and holds the result against all that is promised
of it. The other functions make graphs that no tracer makes, and tell what stands in a graph.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch import SymInt, Tensor, fx
from torch._dispatch.python import enable_python_dispatcher
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.fx.node import map_arg
from torch.utils._sympy.value_ranges import ValueRanges

from lowering import Options, Report, canonical_text, saturate
from tests.lowering.outcomes import assert_same_outcome, run
from tests.lowering.shuffling import shuffle
from tests.lowering.vals import assert_vals, mode_of

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
    return [
        _example(node.meta["val"], generator) for node in module.graph.find_nodes(op="placeholder")
    ]


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
        if node.target.__name__ == "getitem" and node.args[0] not in old:
            source = node.args[0]
            assert isinstance(source.meta["val"], list)
            assert node.meta["val"] is source.meta["val"][node.args[1]], node.name


def _guards(graph: fx.Graph) -> object:
    """All that a ShapeEnv was made to believe."""
    mode = mode_of(graph)
    if mode is None or mode.shape_env is None:
        return None
    environment = mode.shape_env
    return (
        [str(guard.expr) for guard in environment.guards],
        {str(key): str(value) for key, value in environment.var_to_range.items()},
        {str(key): str(value) for key, value in environment.replacements.items()},
        {str(key): len(value) for key, value in environment.deferred_runtime_asserts.items()},
    )
