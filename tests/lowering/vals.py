"""What the vals of a graph have to be, by propagation."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import torch
from torch import SymInt, Tensor, fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils._pytree import tree_leaves

from tests.lowering.outcomes import sharing

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
    mode = mode_of(module.graph)
    with ExitStack() as stack:
        if mode is not None:
            stack.enter_context(mode)
            if mode.shape_env is not None:
                stack.enter_context(mode.shape_env.suppress_guards())
        inputs = [node.meta["val"] for node in module.graph.find_nodes(op="placeholder")]
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
    shared = [sharing(each) for each in zip(*pairs, strict=True)] or [[], []]
    for name, kept_with, found_with in zip(names, *shared, strict=True):
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


def mode_of(graph: fx.Graph) -> FakeTensorMode | None:
    vals = tree_leaves([node.meta.get("val") for node in graph.nodes])
    return next((val.fake_mode for val in vals if hasattr(val, "fake_mode")), None)
