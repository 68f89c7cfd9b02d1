"""Graphs out of `torch.compile`: what a custom pass in one of Inductor's post-grad slots sees."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import fx
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge
from torch.utils._pytree import tree_leaves

Slot = Literal["pre", "post"]

_SLOTS = {"pre": "post_grad_custom_pre_pass", "post": "post_grad_custom_post_pass"}

# Passes of the user's that would change the graph, or stand beside ours in its slot.
_NO_CUSTOM_PASSES: dict[str, object] = dict.fromkeys(
    (
        "pre_grad_custom_pass",
        "joint_custom_pre_pass",
        "joint_custom_post_pass",
        *_SLOTS.values(),
    )
)

# A hit in the cache of AOTAutograd would give compiled code back without running a pass.
_NO_AUTOGRAD_CACHE: dict[str, object] = {
    "enable_autograd_cache": False,
    "enable_remote_autograd_cache": False,
    "bundled_autograd_cache": False,
}


def capture(
    fn: Callable[..., object],
    *inputs: object,
    slot: Slot = "pre",
    dynamic: bool = False,
) -> list[fx.GraphModule]:
    """Return the graphs that a custom post-grad pass would be called with, without making kernels.

    `torch.compile` traces `fn` as it does for Inductor, Inductor's own passes run up to and after
    the slot, and there it stops. `fn` is run once on `inputs` (eagerly, through the traced graph),
    and so is its backward if an output requires grad; no `.grad` is written. Custom passes that are
    configured don't run, and no cache of compiled graphs is read or written.

    The whole process's Dynamo caches are reset before and after, so functions that are compiled
    already will be compiled again when they are next called.

    Args:
        fn: a function or a module, called as `fn(*inputs)`.
        inputs: what to trace it with. Mark single dimensions as static or dynamic on them with
            `torch._dynamo.mark_static` and `torch._dynamo.mark_dynamic`.
        slot: "pre" for `post_grad_custom_pre_pass`, "post" for `post_grad_custom_post_pass`.
        dynamic: trace sizes of inputs (not those of parameters) as symbols.

    Returns:
        One graph module a call of the pass, in order: subgraphs before the graph that holds them,
        backward graphs after the forward ones. Each is a copy with its nodes' `meta`, fake tensors
        included, and runs on real tensors; after "post", unless Inductor put functions of its own
        lowering in it.

    Raises:
        TypeError: `fn` can't be called.
        ValueError: there's no such slot.
        RuntimeError: `torch.compile` made no graph that Inductor would run passes on.
    """
    if slot not in _SLOTS:
        raise ValueError(f"slot must be 'pre' or 'post', not {slot!r}")
    if not callable(fn):
        raise TypeError(f"fn must be a function or a module, not {type(fn).__name__}")

    # These take seconds to import, and only those who capture need them.
    import torch._dynamo
    import torch._functorch.config
    from torch._inductor.compile_fx import compile_fx

    graphs: list[fx.GraphModule] = []

    def keep(graph: fx.Graph) -> None:
        graphs.append(_snapshot(graph))

    # Declared to return Inductor's compiled code, but any callable will do.
    inner_compile: Any = _run_post_grad_passes

    def backend(module: fx.GraphModule, examples: Sequence[Any]) -> Any:
        patches = _NO_CUSTOM_PASSES | {_SLOTS[slot]: keep}
        return compile_fx(module, examples, inner_compile, patches)

    torch._dynamo.reset()
    try:
        with (
            torch._dynamo.config.patch(suppress_errors=False),
            torch._functorch.config.patch(_NO_AUTOGRAD_CACHE),
        ):
            _run(torch.compile(fn, backend=backend, dynamic=dynamic), inputs)
    finally:
        torch._dynamo.reset()
    if not graphs:
        raise RuntimeError(
            "torch.compile made no graph that Inductor would run passes on: fn calls no operator on"
            " a tensor, or compiling is disabled (TORCH_COMPILE_DISABLE, TORCHDYNAMO_DISABLE)"
        )
    return graphs


def _run_post_grad_passes(
    module: fx.GraphModule, examples: Sequence[Any], **options: Any
) -> Callable[[list[Any]], Any]:
    """Do what Inductor does to one graph before code generation; return an eager replacement.

    The steps and their order are those of `_InProcessFxCompile.codegen_and_compile` in
    torch/_inductor/compile_fx.py, which runs only on graphs that call something.
    """
    from torch._functorch.aot_autograd import make_boxed_func
    from torch._inductor import compile_fx
    from torch._inductor.virtualized import V

    # Inductor's passes may put into the graph what only Inductor can run.
    eager = _snapshot(module.graph)
    if any(node.op.startswith("call_") for node in module.graph.nodes):
        compile_fx.view_to_reshape(module)
        with torch.no_grad():
            fake_mode = compile_fx.fake_tensor_prop(module, examples)
        compile_fx._recursive_record_original_output_strides(module)
        with V.set_fake_mode(fake_mode):
            compile_fx._recursive_post_grad_passes(
                module, is_inference=options.get("is_inference", False)
            )
    return make_boxed_func(eager.forward)


def _snapshot(graph: fx.Graph) -> fx.GraphModule:
    """Copy a graph, its nodes' `meta` and its subgraphs; vals and constants are shared."""
    owner = graph.owning_module
    module = fx.GraphModule(torch.nn.Module() if owner is None else owner, copy.deepcopy(graph))
    for node in module.graph.find_nodes(op="get_attr"):
        attribute = operator.attrgetter(node.target)(module)
        if isinstance(attribute, fx.GraphModule):
            module.add_submodule(node.target, _snapshot(attribute.graph))
    return module


def _run(fn: Callable[..., object], inputs: Sequence[object]) -> None:
    """Call fn, and the backward of its outputs as far as its inputs and its parameters."""
    starts = [get_gradient_edge(tensor) for tensor in _differentiable(inputs)]
    outputs = _differentiable(fn(*inputs))
    ends = _ends(outputs, starts)
    if ends:
        ones = [torch.ones_like(tensor) for tensor in outputs]
        torch.autograd.grad(outputs, ends, ones, allow_unused=True)


def _differentiable(tree: object) -> list[torch.Tensor]:
    leaves = tree_leaves(tree)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]


def _ends(outputs: Sequence[torch.Tensor], starts: Sequence[GradientEdge]) -> list[GradientEdge]:
    """Return where to stop the backward of outputs: at these starts, and at the leaves.

    A graph that led to fn's inputs before fn was called is the caller's, and must not be freed.
    """
    ends = list(starts)
    seen: set[Node] = {start.node for start in starts}
    stack = [get_gradient_edge(tensor).node for tensor in outputs]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        nodes = [child for child, _ in node.next_functions if child is not None]
        if not nodes:
            ends.append(GradientEdge(node, 0))
        stack.extend(nodes)
    return ends
