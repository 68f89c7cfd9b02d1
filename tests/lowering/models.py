"""Small models whose graphs hold the patterns that fxsat rewrites, as tables of examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor, fx
from torch.nn.functional import silu

from lowering.graphs import capture

TOKENS = 5
HIDDEN = 6
WIDTHS = {"q": 8, "k": 4, "v": 4}
EQUAL_WIDTHS = {"q": 4, "k": 4, "v": 4}

Function = Callable[..., object]
Cut = Callable[[Tensor, Sequence[int]], tuple[Tensor, ...]]
Rope = Literal["inplace", "op", "op_v1"]
Option = Literal["v_unread", "whole", "twice", "attend_op"]


class Example(NamedTuple):
    """A function, what to call it with, and the Inductor config to compile it under."""

    name: str
    function: Function
    inputs: Callable[[], tuple[Tensor, ...]]  # the same values each time, never the same tensors
    config: Mapping[str, object]

    def capture(
        self, slot: Literal["pre", "post"] = "pre", dynamic: bool = False
    ) -> fx.GraphModule:
        """Return the one graph that the function is captured as."""
        import torch._inductor.config

        with torch._inductor.config.patch(dict(self.config)), torch.no_grad():
            (module,) = capture(self.function, *self.inputs(), slot=slot, dynamic=dynamic)
        return module


def bind(graph: fx.Graph, inputs: Sequence[Tensor]) -> list[object]:
    """Return the arguments that a captured graph takes where its function takes these inputs.

    A graph with symbolic sizes takes their values too. Sizes may differ from those traced with.
    """
    placeholders = graph.find_nodes(op="placeholder")
    values = [node.meta["val"] for node in placeholders]
    symbolic = [value for value in values if isinstance(value, Tensor)]
    sizes = {
        str(size): actual
        for value, tensor in zip(symbolic, inputs, strict=True)
        for size, actual in zip(value.shape, tensor.shape, strict=True)
    }
    tensors = iter(inputs)
    return [next(tensors) if isinstance(value, Tensor) else sizes[str(value)] for value in values]


# Custom ops -----------------------------------------------------------------------------------


@torch.library.custom_op("fxsat_test::rotate_", mutates_args={"q", "k"})
def rotate_op_(q: Tensor, k: Tensor, angle: Tensor) -> None:
    """Rope, in place on q and k, as serving engines write it."""
    rotate_(q, angle)
    rotate_(k, angle)


@rotate_op_.register_fake
def _(q: Tensor, k: Tensor, angle: Tensor) -> None:
    return None


@torch.library.custom_op("fxsat_test::attend", mutates_args=())
def attend_op(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention as an opaque op, which sees its operands' strides."""
    return attend(q, k, v).clone(memory_format=torch.contiguous_format)


@attend_op.register_fake
def _(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.empty_like(q, memory_format=torch.contiguous_format)


# Pieces of a tensor's last dimension ------------------------------------------------------------


def split(x: Tensor, sizes: Sequence[int]) -> tuple[Tensor, ...]:
    pieces: tuple[Tensor, ...] = x.split(list(sizes), -1)
    return pieces


def three_splits(x: Tensor, sizes: Sequence[int]) -> tuple[Tensor, ...]:
    return tuple(x.split(list(sizes), -1)[i] for i in range(len(sizes)))


def slices(x: Tensor, sizes: Sequence[int]) -> tuple[Tensor, ...]:
    first, second, _ = sizes
    return x[:, :first], x[:, first : first + second], x[:, first + second :]


def negative_slices(x: Tensor, sizes: Sequence[int]) -> tuple[Tensor, ...]:
    _, second, third = sizes
    return x[:, : -second - third], x[:, -second - third : -third], x[:, -third:]


def narrow(x: Tensor, sizes: Sequence[int]) -> tuple[Tensor, ...]:
    return tuple(x.narrow(-1, sum(sizes[:i]), sizes[i]) for i in range(len(sizes)))


def tensor_split(x: Tensor, sizes: Sequence[int]) -> tuple[Tensor, ...]:
    first, second, _ = sizes
    return x.tensor_split((first, first + second), -1)


def mixture(x: Tensor, sizes: Sequence[int]) -> tuple[Tensor, ...]:
    first, second, third = sizes
    return *x.split(list(sizes), -1)[:2], x.narrow(1, first + second, third)


def chunk(x: Tensor, sizes: Sequence[int]) -> tuple[Tensor, ...]:
    return x.chunk(len(sizes), -1)


CUTS: dict[str, Cut] = {
    function.__name__: function
    for function in (split, three_splits, slices, negative_slices, narrow, tensor_split, mixture)
}

# Attention --------------------------------------------------------------------------------------


def rotate_(x: Tensor, angle: Tensor) -> None:
    """Turn the pairs (x[:, i], x[:, width / 2 + i]) by a token's angle, in place."""
    half = x.size(-1) // 2
    turned = torch.cat((-x[:, half:], x[:, :half]), -1)
    x.mul_(angle.cos()).add_(turned * angle.sin())


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention of several query heads to one head of keys and values."""
    heads = q.view(q.size(0), -1, k.size(-1)).transpose(0, 1)
    scores = heads @ k.transpose(0, 1) * k.size(-1) ** -0.5
    mixed: Tensor = scores.softmax(-1) @ v
    return mixed.transpose(0, 1).reshape(q.shape)


class QKVBlock(torch.nn.Module):
    """Attention without rope. (A module's own integers stay static where sizes become symbols.)"""

    def __init__(self, cut: Cut) -> None:
        super().__init__()
        self.cut = cut
        self.sizes = list(WIDTHS.values())

    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        return attend(*self.cut(x @ weight, self.sizes))


class RopeBlock(torch.nn.Module):
    """Attention with rope in place on q and k, which lie in `qkv` as `layout` says.

    Options: with "v_unread", nothing reads v; with "whole", qkv is also read whole after the rope;
    with "twice", q is also read before the rope; with "attend_op", an opaque op reads q, k and v.
    """

    def __init__(self, layout: str, cut: Cut, rope: Rope, option: Option | None) -> None:
        super().__init__()
        widths = EQUAL_WIDTHS if cut is chunk else WIDTHS
        self.layout = layout
        self.sizes = [widths[piece] for piece in layout]
        self.cut = cut
        self.rope = rope
        self.option = option
        self.attention = attend_op if option == "attend_op" else attend

    def forward(self, x: Tensor, weight: Tensor, angle: Tensor) -> tuple[Tensor, ...]:
        qkv = x @ weight
        pieces = dict(zip(self.layout, self.cut(qkv, self.sizes), strict=True))
        q, k, v = pieces["q"], pieces["k"], pieces["v"]
        results = [q.relu()] if self.option == "twice" else []
        if self.rope == "inplace":
            rotate_(q, angle)
            rotate_(k, angle)
        else:
            rotate_op_(q, k, angle)
        results.append(self.attention(q, k, k if self.option == "v_unread" else v))
        if self.option == "whole":
            results.append(qkv.tanh())
        return tuple(results)


def _tensors(*shapes: tuple[int, ...]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator) for shape in shapes]


def _frozen(weight: Tensor) -> Tensor:
    """Return a weight whose sizes stay static where the other inputs' become symbols."""
    return torch.nn.Parameter(weight, requires_grad=False)


def _block_inputs(width: int, *, angle: bool) -> Callable[[], tuple[Tensor, ...]]:
    def inputs() -> tuple[Tensor, ...]:
        x, weight, angles = _tensors((TOKENS, HIDDEN), (HIDDEN, width), (TOKENS, 1))
        return (x, _frozen(weight), angles) if angle else (x, _frozen(weight))

    return inputs


def _rope(layout: str, cut: Cut, rope: Rope, option: Option | None = None) -> Example:
    block = RopeBlock(layout, cut, rope, option)
    return Example(
        name="_".join(filter(None, ("attention", layout, cut.__name__, rope, option))),
        function=block,
        inputs=_block_inputs(sum(block.sizes), angle=True),
        # Serving engines functionalize the first way: the op's operands are the pieces themselves,
        # and the results are scattered back. The second way hands the op the whole of qkv.
        config={"enable_auto_functionalized_v2": rope != "op_v1"},
    )


LAYOUTS = ("qkv", "qvk", "vqk")

ATTENTION: tuple[Example, ...] = (
    *(
        _rope(layout, cut, rope)
        for layout in LAYOUTS
        for cut in CUTS.values()
        for rope in ("inplace", "op_v1")
    ),
    *(_rope(layout, chunk, "inplace") for layout in LAYOUTS),
    *(_rope(layout, split, "op") for layout in LAYOUTS),
    *(
        _rope(layout, split, rope, option)
        for layout in LAYOUTS
        for rope in ("inplace", "op_v1")
        for option in ("v_unread", "whole", "twice")
    ),
    *(_rope("qkv", split, rope, "attend_op") for rope in ("inplace", "op", "op_v1")),
)
"""CASES.md 22: rope in place on pieces of qkv."""

QKV: tuple[Example, ...] = tuple(
    Example(
        name=f"qkv_{cut.__name__}",
        function=QKVBlock(cut),
        inputs=_block_inputs(sum(WIDTHS.values()), angle=False),
        config={},
    )
    for cut in CUTS.values()
)
"""Attention without rope: nothing is written, and every cut is one partition."""

# In-place arithmetic on pieces ------------------------------------------------------------------


def pieces_written(
    *, whole: bool = False, v_unread: bool = False, returned: bool = False
) -> Function:
    """Return a function that writes two of three pieces in place and reads them."""

    def function(x: Tensor) -> tuple[Tensor, ...]:
        y = 2 * x
        q, k, v = y.split([8, 4, 4], -1)
        q += 1
        k *= 2
        if returned:
            return q, k, v
        results = [q.sin(), k.cos()]
        if not v_unread:
            results.append(v.exp())
        if whole:
            results.append(y.tanh())
        return tuple(results)

    return function


def _sixteen_wide() -> tuple[Tensor, ...]:
    return tuple(_tensors((TOKENS, 16)))


CASE_7: tuple[Example, ...] = (
    Example("case_7", pieces_written(), _sixteen_wide, {}),
    Example("case_7_whole", pieces_written(whole=True), _sixteen_wide, {}),
    Example("case_7_v_unread", pieces_written(v_unread=True), _sixteen_wide, {}),
    Example("case_7_returned", pieces_written(returned=True), _sixteen_wide, {}),
)
"""CASES.md 7, and the same with other readers."""

# SwiGLU -----------------------------------------------------------------------------------------


def half_chunk(x: Tensor) -> tuple[Tensor, ...]:
    return x.chunk(2, -1)


def half_split(x: Tensor) -> tuple[Tensor, ...]:
    halves: tuple[Tensor, ...] = x.split(x.size(-1) // 2, -1)
    return halves


def half_split_with_sizes(x: Tensor) -> tuple[Tensor, ...]:
    half = x.size(-1) // 2
    halves: tuple[Tensor, ...] = x.split([half, half], -1)
    return halves


def half_slices(x: Tensor) -> tuple[Tensor, ...]:
    half = x.size(-1) // 2
    return x[:, :half], x[:, half:]


def half_negative_slices(x: Tensor) -> tuple[Tensor, ...]:
    half = x.size(-1) // 2
    return x[:, :-half], x[:, -half:]


def swiglu_block(halves: Callable[[Tensor], tuple[Tensor, ...]]) -> Function:
    """Return a gated unit that cuts one product in halves."""

    def block(x: Tensor, weight: Tensor) -> Tensor:
        gate, up = halves(x @ weight)
        return silu(gate) * up

    return block


def _swiglu_inputs(*, frozen: bool) -> Callable[[], tuple[Tensor, ...]]:
    def inputs() -> tuple[Tensor, ...]:
        x, weight = _tensors((TOKENS, HIDDEN), (HIDDEN, 16))
        return x, _frozen(weight) if frozen else weight

    return inputs


_HALVES = (half_chunk, half_split, half_split_with_sizes, half_slices, half_negative_slices)

SWIGLU: tuple[Example, ...] = tuple(
    Example(f"swiglu_{halves.__name__}", swiglu_block(halves), _swiglu_inputs(frozen=True), {})
    for halves in _HALVES
)
"""CASES.md 23. Captured with dynamic sizes, only the number of tokens is a symbol."""

SWIGLU_ANY_WIDTH: tuple[Example, ...] = tuple(
    Example(
        f"swiglu_any_width_{halves.__name__}",
        swiglu_block(halves),
        _swiglu_inputs(frozen=False),
        {},
    )
    for halves in _HALVES
)
"""The same with a weight that isn't frozen: with dynamic sizes, the width is a symbol too."""

EXAMPLES: dict[str, Example] = {
    example.name: example for example in (*CASE_7, *ATTENTION, *QKV, *SWIGLU, *SWIGLU_ANY_WIDTH)
}

DYNAMIC: tuple[Example, ...] = (
    *CASE_7,
    *(
        example
        for example in ATTENTION
        # torch itself fails on dynamic sizes where it scatters into slices (2.13 and 2.15).
        if not example.name.endswith("slices_op_v1")
    ),
    *QKV,
    *SWIGLU,
    *SWIGLU_ANY_WIDTH,
)
"""What can be captured with dynamic sizes."""
