"""Random aten programs: what one is, how its graph is built, how hypothesis draws it.

A program is numbers only. Each step names an operation of the table `OPERATIONS` and gives it numbers,
which the operation reads one by one: which of the values so far, which dimension, where to cut, which
of the ways to write it. All numbers mean something for any count of choices, and a step that has
nothing to work on is left out, so that a program with a step less is a program too. That is what
makes a failing one shrink to few steps.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from hypothesis import strategies as st
from torch import Tensor, fx
from torch._dispatch.python import enable_python_dispatcher
from torch.fx.node import map_arg

from lowering.signature import signature
from tests.lowering.support import BUMP, GEOMETRY, Builder

aten = torch.ops.aten
END = 2**63 - 1

DTYPES = (torch.float32, torch.int64, torch.bfloat16, torch.bool)
LAYOUTS = ("contiguous", "reversed", "channels_last", "padded", "expanded", "alias")


class Input(NamedTuple):
    """One input: its sizes, the number of its dtype, and how it lies in memory.

    An "alias" is a view of the input before it, whose sizes it gets from there.
    """

    sizes: tuple[int, ...]
    dtype: int = 0
    layout: str = "contiguous"


class Step(NamedTuple):
    """One operation, and the numbers that it reads; where they end, zeros follow."""

    operation: str
    numbers: tuple[int, ...] = ()


class Program(NamedTuple):
    """A program.

    Attributes:
        inputs: the inputs.
        steps: what is computed of them.
        outputs: which values are returned, counted from the last one back.
        nested: how outputs are returned: 0 as a flat tuple, else in lists, with None and a number.
        special: inputs hold NaNs and negative zeros.
    """

    inputs: tuple[Input, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...] = (0,)
    nested: int = 0
    special: bool = False


class Inapplicable(Exception):
    """A step has nothing to work on."""


class Writer(Builder):
    """Builds the graph of a program.

    Args:
        respell: write everything in other ways that mean the same: the ways of `spelling` are turned
            by so many, and values are computed again for a use where that can't be told.
    """

    def __init__(self, respell: int = 0) -> None:
        super().__init__()
        # torch's cache gives a scatter, with some offsets of its operand, an offset that it hasn't.
        self.mode.cache_enabled = False
        self.respell = respell
        self.values: list[fx.Node] = []
        self.numbers: list[int] = []
        self.writes = False

    def call(self, target: Callable[..., Any], /, *args: Any, **kwargs: Any) -> fx.Node:
        """Add a call; what torch refuses is Inapplicable, and adds none."""
        vals = map_arg((args, kwargs), lambda each: each.meta["val"])
        try:
            with self.mode, enable_python_dispatcher():
                val = target(*vals[0], **vals[1])
        except (RuntimeError, ValueError, IndexError, NotImplementedError) as error:
            raise Inapplicable(str(error)) from error
        node = self.graph.call_function(target, args, kwargs)
        node.meta["val"] = val
        return node

    def keep(self, *nodes: fx.Node) -> None:
        self.values.extend(nodes)

    # Numbers

    def take(self, count: int) -> int:
        """The step's next number, below `count`."""
        if count < 1:
            raise Inapplicable("nothing to choose from")
        return (self.numbers.pop(0) if self.numbers else 0) % count

    def spelling(self, count: int) -> int:
        return (self.take(count) + self.respell) % count

    def pick(
        self, suitable: Callable[[Tensor], bool] = lambda val: True, *, blind: bool = False
    ) -> fx.Node:
        """One of the suitable values, counted from the last one back.

        Args:
            suitable: which values are suitable.
            blind: nobody can tell whether the value was computed once more.
        """
        found = [node for node in reversed(self.values) if suitable(node.meta["val"])]
        node = found[self.take(len(found))]
        return self.again(node, blind) if self.respell and not self.writes else node

    def again(self, node: fx.Node, blind: bool) -> fx.Node:
        """Compute a value again, as far as its storage stays: a kernel's result only if `blind`."""
        if node.op != "call_function" or not signature(node.target).merge:
            return node
        target: Any = node.target
        first = node.args[0] if node.args else None
        if target is operator.getitem:
            assert isinstance(first, fx.Node)
            return self.call(target, self.call(first.target, *first.args, **first.kwargs), node.args[1])
        if not blind and not (isinstance(first, fx.Node) and _shares(node, first)):
            return node
        return self.call(target, *node.args, **node.kwargs)

    def is_partly_filled(self, node: fx.Node) -> bool:
        """Whether a node holds memory that nobody wrote."""
        return any(each.target is aten.empty.memory_format for each in node.all_input_nodes)

    def pick_dim(self, x: fx.Node) -> int:
        return self.take(x.meta["val"].dim())

    def interval(self, size: int) -> tuple[int, int]:
        """An interval of a dimension: now and then an empty one."""
        if size == 0 or self.take(8) == 7:
            a = self.take(size + 1)
            return a, a
        a = self.take(size)
        return a, a + 1 + self.take(size - a)

    def cuts(self, size: int) -> list[int]:
        """Where a dimension is cut: now and then at its start or end, or twice at one place."""
        if size < 2 or self.take(8) == 7:
            cuts = [self.take(size + 1) for _ in range(1 + self.take(3))]
            return [0, *sorted(cuts), size]
        count = self.take(3)
        return [0, *sorted({1 + self.take(size - 1) for _ in range(1 + count)}), size]


def _shares(a: fx.Node, b: fx.Node) -> bool:
    vals = a.meta["val"], b.meta["val"]
    return isinstance(vals[1], Tensor) and len({v.untyped_storage()._cdata for v in vals}) == 1


def build(program: Program, respell: int = 0) -> fx.GraphModule:
    """Return the graph of a program, each node with its val."""
    w = Writer(respell)
    for spec in program.inputs:
        w.keep(_input(w, spec))
    for step in program.steps:
        w.numbers = list(step.numbers)
        try:
            OPERATIONS[step.operation](w)
        except Inapplicable:
            continue
    nodes = [w.values[-1 - number % len(w.values)] for number in program.outputs]
    if program.nested == 0:
        return w.output(*nodes)
    middle = len(nodes) // 2
    return w.output(nodes[:middle], None, (nodes[middle:], program.nested))


def _input(w: Writer, spec: Input) -> fx.Node:
    sizes, dtype = list(spec.sizes), DTYPES[spec.dtype % len(DTYPES)]
    with w.mode:
        if spec.layout == "alias" and w.values:
            before = w.values[-1].meta["val"]
            return w.placeholder(before.transpose(0, -1)[before.size(-1) // 2 :])
        val = torch.empty(sizes, dtype=dtype)
        if spec.layout == "reversed":
            val = torch.empty(sizes[::-1], dtype=dtype).permute(*range(len(sizes))[::-1])
        elif spec.layout == "channels_last" and len(sizes) == 4:
            val = val.contiguous(memory_format=torch.channels_last)
        elif spec.layout == "padded":
            val = torch.empty([*sizes[:-1], sizes[-1] + 3], dtype=dtype)[..., 1:-2]
        elif spec.layout == "expanded":
            val = torch.empty([1, *sizes[1:]], dtype=dtype).expand(sizes)
    return w.placeholder(val)


def inputs_of(module: fx.GraphModule, special: bool) -> list[Tensor]:
    """Return inputs for a graph: no two elements equal, and laid out, and shared, as its vals are."""
    storages: dict[int, Tensor] = {}
    found = []
    for node in module.graph.find_nodes(op="placeholder"):
        val = node.meta["val"]
        storage = val.untyped_storage()
        length = storage.nbytes() // val.dtype.itemsize
        data = storages.get(storage._cdata)
        if data is None:
            data = storages[storage._cdata] = _data(length, val.dtype, len(storages), special)
        found.append(data.as_strided(val.size(), val.stride(), val.storage_offset()))
    return found


def _data(length: int, dtype: torch.dtype, seed: int, special: bool) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    if not dtype.is_floating_point:
        return torch.randperm(length + 2, generator=generator)[:length].sub(2).relu().to(dtype)
    data = torch.randn(length, generator=generator)
    if special:
        data[::3] = -0.0
        data[1::5] = float("nan")
    return data.to(dtype)


# Cuts -------------------------------------------------------------------------------------------


WAYS = 10
"""In how many ways an interval can be written."""


def _interval(w: Writer, x: fx.Node, d: int, a: int, b: int, way: int) -> fx.Node:
    """Elements a, ..., b - 1 of x along d, in one of the ways to write that."""
    rank, size = x.meta["val"].dim(), x.meta["val"].size(d)
    match way % WAYS:
        case 0:
            return w.call(aten.slice.Tensor, x, d, a, b)
        case 1:
            return w.call(aten.slice.Tensor, x, d - rank, a, END if b == size else b)
        case 2:
            start = a - size if a < size else a
            return w.call(aten.slice.Tensor, x, d, start, b - size if b < size else b + 2)
        case 3:
            start = -END if a == 0 else a
            return w.call(aten.slice.Tensor, self=x, end=b, start=start, dim=d)
        case 4 if b == size:
            return w.call(aten.slice.Tensor, x, d, a)
        case 5 if d == 0:
            return w.call(aten.slice.Tensor, x, start=a or None, end=b)
        case 6:
            return w.call(aten.narrow.default, x, d - rank, a, b - a)
        case 7:
            sizes = [a, b - a, size - b]
            split = w.call(aten.split_with_sizes.default, x, sizes, d - rank)
            return w.call(operator.getitem, split, 1)
        case 8:
            return w.call(operator.getitem, w.call(aten.tensor_split.indices, x, [a, b], d), -2)
        case 9 if a % max(b - a, 1) == 0 and (b == size or b - a) and 0 < b - a:
            split = w.call(aten.split.Tensor, x, b - a, d)
            return w.call(operator.getitem, split, a // (b - a))
        case _:
            return w.call(aten.slice.Tensor, x, d, a, b, 1)


def _index(w: Writer, x: fx.Node, d: int, i: int) -> fx.Node:
    """Element i of x along d, in one of the ways to write that."""
    rank, size = x.meta["val"].dim(), x.meta["val"].size(d)
    match w.spelling(4):
        case 0:
            return w.call(aten.select.int, x, d, i)
        case 1:
            return w.call(aten.select.int, x, d - rank, i - size)
        case 2:
            return w.call(operator.getitem, w.call(aten.unbind.int, x, d - rank), i)
        case _:
            return w.call(operator.getitem, w.call(aten.unbind.int, x, dim=d), i - size)


def _partition(w: Writer, x: fx.Node, d: int, cuts: Sequence[int]) -> list[fx.Node]:
    """All pieces of x, in one of the ways to write that."""
    rank, sizes = x.meta["val"].dim(), [b - a for a, b in pairwise(cuts)]
    count = len(sizes)
    way = w.spelling(WAYS)
    match w.spelling(5):
        case 0:
            split = w.call(aten.split_with_sizes.default, x, sizes, d)
            return [w.call(operator.getitem, split, i) for i in range(count)]
        case 1:
            split = w.call(aten.split.sizes, x, tuple(sizes), d - rank)
            return [w.call(operator.getitem, split, i) for i in reversed(range(-count, 0))][::-1]
        case 2:
            splits = [w.call(aten.split_with_sizes.default, x, sizes, d - rank) for _ in cuts[1:]]
            return [w.call(operator.getitem, split, i) for i, split in enumerate(splits)]
        case 3:
            split = w.call(aten.tensor_split.indices, x, list(cuts[1:-1]), d)
            return [w.call(operator.getitem, split, i) for i in range(count)]
        case _:
            return [_interval(w, x, d, a, b, way + i) for i, (a, b) in enumerate(pairwise(cuts))]


def slice_(w: Writer) -> None:
    x = w.pick(_has_dim)
    d = w.pick_dim(x)
    a, b = w.interval(x.meta["val"].size(d))
    w.keep(_interval(w, x, d, a, b, w.spelling(WAYS)))


def slice_with_step(w: Writer) -> None:
    x = w.pick(_has_dim)
    d = w.pick_dim(x)
    w.keep(w.call(aten.slice.Tensor, x, d, w.take(3), END, 2 + w.take(2)))


def select(w: Writer) -> None:
    x = w.pick(_has_dim)
    d = w.pick_dim(x)
    w.keep(_index(w, x, d, w.take(x.meta["val"].size(d))))


def selects(w: Writer) -> None:
    """All, or all but some, of the elements along a dimension."""
    x = w.pick(_has_dim)
    d = w.pick_dim(x)
    size = x.meta["val"].size(d)
    w.keep(*[_index(w, x, d, i) for i in range(w.take(2), size) if size < 6])


def partition(w: Writer) -> None:
    x = w.pick(_has_dim)
    d = w.pick_dim(x)
    w.keep(*_partition(w, x, d, w.cuts(x.meta["val"].size(d))))


def equal_parts(w: Writer) -> None:
    x = w.pick(_has_dim)
    d = w.pick_dim(x)
    size = x.meta["val"].size(d)
    part = 1 + w.take(max(size, 1))
    if size // part > 6:
        raise Inapplicable("many pieces")
    match w.spelling(3):
        case 0:
            split = w.call(aten.split.Tensor, x, part, d)
        case 1:
            rest = [size % part] if size % part or not size else []
            split = w.call(aten.split_with_sizes.default, x, [part] * (size // part) + rest, d)
        case _ if part * (count := -(-size // part)) == size and count:
            split = w.call(aten.chunk.default, x, count, d - x.meta["val"].dim())
        case _:
            split = w.call(aten.split.Tensor, x, part, d - x.meta["val"].dim())
    w.keep(*[w.call(operator.getitem, split, i) for i in range(len(split.meta["val"]))])


# Joins ------------------------------------------------------------------------------------------


def cat(w: Writer) -> None:
    """Values that fit, in any order."""
    x = w.pick(_has_dim)
    d = w.pick_dim(x)
    like = x.meta["val"]

    def fits(val: Tensor) -> bool:
        others = (s for i, s in enumerate(val.size()) if i != d)
        return val.dim() == like.dim() and [*others] == [
            s for i, s in enumerate(like.size()) if i != d
        ]

    parts = [x, *(w.pick(fits) for _ in range(w.take(4)))]
    w.keep(_cat(w, parts, d))


def cat_of_pieces(w: Writer) -> None:
    """The pieces of one value: all, or in another order, or one twice, or one missing."""
    x = w.pick(_has_dim)
    d = w.pick_dim(x)
    parts = _partition(w, x, d, w.cuts(x.meta["val"].size(d)))
    match w.take(6):
        case 0 | 1 | 2:
            pass
        case 3:
            parts = parts[::-1]
        case 4:
            parts = [*parts, parts[0]]
        case _:
            parts = parts[1:]
    w.keep(_cat(w, parts, d))


def stack_of_elements(w: Writer) -> None:
    """The elements along one dimension as those along another."""
    x = w.pick(lambda val: _has_dim(val) and min(val.size()) > 0)
    d = w.pick_dim(x)
    first, size = w.take(4) // 3, x.meta["val"].size(d)
    at = d if w.take(3) else w.pick_dim(x)
    elements = [_index(w, x, d, i) for i in range(first, size)][:6]
    w.keep(_cat(w, [w.call(aten.unsqueeze.default, each, at) for each in elements], at))


def _cat(w: Writer, parts: list[fx.Node], d: int) -> fx.Node:
    if not parts or sum(p.meta["val"].numel() for p in parts) > 500:
        raise Inapplicable("nothing, or too much")
    match w.spelling(3):
        case 0:
            return w.call(aten.cat.default, parts, d)
        case 1:
            return w.call(aten.cat.default, tuple(parts), d - parts[0].meta["val"].dim())
        case _:
            return w.call(aten.cat.default, tensors=parts, dim=d)


def scatter(w: Writer) -> None:
    """A value, or a new one, written over an interval of another."""
    x = w.pick(_has_dim)
    d = w.pick_dim(x)
    val = x.meta["val"]
    a, b = w.interval(val.size(d))
    shape = [*val.size()]
    shape[d] = b - a
    if w.take(2):
        source = w.pick(lambda v: [*v.size()] == shape and torch.can_cast(v.dtype, val.dtype))
    else:
        source = _unary(w, _interval(w, x, d, a, b, w.spelling(WAYS)))
    w.keep(_scatter(w, x, source, d, a, b))


def _scatter(w: Writer, x: fx.Node, source: fx.Node, d: int, a: int, b: int) -> fx.Node:
    rank, size = x.meta["val"].dim(), x.meta["val"].size(d)
    match w.spelling(4):
        case 0:
            return w.call(aten.slice_scatter.default, x, source, d, a, b)
        case 1:
            start, end = a - size if a < size else a, END if b == size else b
            return w.call(aten.slice_scatter.default, x, source, d - rank, start, end)
        case 2 if b == size:
            return w.call(aten.slice_scatter.default, x, source, d, a)
        case _:
            return w.call(aten.slice_scatter.default, x, src=source, start=a, end=b, dim=d)


def scatter_pieces(w: Writer) -> None:
    """What functionalization makes of an in-place operator on some of the pieces of a value."""
    x = w.pick(_has_dim)
    d = w.pick_dim(x)
    cuts = w.cuts(x.meta["val"].size(d))
    written = 1 + w.take(2 ** (len(cuts) - 1) - 1)
    pieces = _partition(w, x, d, cuts)
    for i, (piece, (a, b)) in enumerate(zip(pieces, pairwise(cuts), strict=True)):
        if written >> i & 1:
            x = _scatter(w, x, _unary(w, piece), d, a, b)
    w.keep(x)
    if w.take(4):
        w.keep(*_partition(w, x, d, cuts))


def scatter_into_empty(w: Writer) -> None:
    """A buffer that is filled by two scatters."""
    source = w.pick(_has_dim)
    d = w.pick_dim(source)
    val = source.meta["val"]
    size = [*val.size()]
    at, size[d] = size[d], 2 * size[d]
    x = w.call(aten.empty.memory_format, size, dtype=val.dtype, device=torch.device("cpu"))
    x = _scatter(w, x, source, d, 0, at)
    w.keep(_scatter(w, x, _unary(w, source), d, at, size[d]))


def select_scatter(w: Writer) -> None:
    x = w.pick(_has_dim)
    d = w.pick_dim(x)
    i = w.take(x.meta["val"].size(d))
    source = _unary(w, _index(w, x, d, i))
    w.keep(w.call(aten.select_scatter.default, x, source, d, i))


# Views ------------------------------------------------------------------------------------------


def reshape(w: Writer) -> None:
    """Another shape, as reshape or, where that works, as view."""
    x = w.pick(lambda val: val.numel() > 0)
    numel, sizes = x.meta["val"].numel(), []
    for _ in range(w.take(4)):
        divisors = [n for n in range(1, numel + 1) if numel % n == 0]
        sizes.append(divisors[w.take(len(divisors))])
        numel //= sizes[-1]
    match w.take(3):
        case 0:
            w.keep(w.call(aten.reshape.default, x, [*sizes, numel]))
        case 1:
            w.keep(w.call(aten.reshape.default, x, [*sizes, -1]))
        case _:
            w.keep(w.call(aten.view.default, x, [*sizes, numel]))


def permute(w: Writer) -> None:
    x = w.pick(_has_dim)
    rank = x.meta["val"].dim()
    i, j = w.pick_dim(x), w.pick_dim(x)
    dims = [*range(rank)]
    dims[i], dims[j] = dims[j], dims[i]
    match w.take(3):
        case 0:
            w.keep(w.call(aten.permute.default, x, dims))
        case 1:
            w.keep(w.call(aten.transpose.int, x, i, j - rank))
        case _:
            w.keep(w.call(aten.permute.default, x, dims[::-1]))


def unsqueeze(w: Writer) -> None:
    x = w.pick(lambda val: val.dim() < 4)
    w.keep(w.call(aten.unsqueeze.default, x, w.pick_dim(x) if x.meta["val"].dim() else -1))


def squeeze(w: Writer) -> None:
    x = w.pick(lambda val: 1 in val.size())
    d = [*x.meta["val"].size()].index(1)
    w.keep(
        w.call(aten.squeeze.dim, x, d) if w.take(2) else w.call(aten.squeeze.dims, x, [d])
    )


def expand(w: Writer) -> None:
    x = w.pick(lambda val: 1 in val.size() or val.dim() < 3)
    sizes = [3 if size == 1 else size for size in x.meta["val"].size()]
    match w.take(3):
        case 0:
            w.keep(w.call(aten.expand.default, x, sizes))
        case 1:
            w.keep(w.call(aten.expand.default, x, [2, *sizes]))
        case _:
            w.keep(w.call(aten.expand.default, x, [*x.meta["val"].size()]))


def alias(w: Writer) -> None:
    w.keep(w.call((aten.alias.default, aten.detach.default)[w.take(2)], w.pick()))


def as_strided(w: Writer) -> None:
    """Elements of the storage, also such as aren't elements of the value."""
    x = w.pick(lambda val: val.untyped_storage().nbytes() >= 8 * val.dtype.itemsize)
    sizes, strides = ((2, 2), (2, 1)) if w.take(2) else ((3,), (1 + w.take(2),))
    w.keep(w.call(aten.as_strided.default, x, list(sizes), list(strides), w.take(3)))


# Computation ------------------------------------------------------------------------------------


def _unary(w: Writer, x: fx.Node) -> fx.Node:
    if x.meta["val"].dtype == torch.bool:
        return w.call(aten.logical_not.default, x)
    targets = (aten.neg.default, aten.relu.default, aten.abs.default)
    return w.call(targets[w.take(len(targets))], x)


def unary(w: Writer) -> None:
    w.keep(_unary(w, w.pick(blind=True)))


def with_number(w: Writer) -> None:
    x = w.pick(lambda val: val.dtype != torch.bool, blind=True)
    target = (aten.add.Tensor, aten.mul.Tensor)[w.take(2)]
    w.keep(w.call(target, x, (1, 1.0, True, 0.0, -0.0, 0)[w.take(6)]))


def binary(w: Writer) -> None:
    x = w.pick(lambda val: val.dtype != torch.bool, blind=True)
    like = x.meta["val"]
    y = w.pick(lambda v: v.size() == like.size() and v.dtype != torch.bool, blind=True)
    target = (aten.add.Tensor, aten.mul.Tensor, aten.maximum.default)[w.take(3)]
    if target is aten.add.Tensor and w.spelling(3) == 2:
        w.keep(w.call(target, x, other=y, alpha=1))
    else:
        w.keep(w.call(target, x, y))


def mm(w: Writer) -> None:
    x = w.pick(lambda val: val.dim() == 2 and val.is_floating_point(), blind=True)
    like = x.meta["val"]
    y = w.pick(
        lambda v: v.dim() == 2 and v.size(0) == like.size(1) and v.dtype == like.dtype, blind=True
    )
    w.keep(w.call(aten.mm.default, x, y))


def reduce(w: Writer) -> None:
    x = w.pick(
        lambda val: val.dim() > 0 and min(val.size()) > 0 and val.dtype != torch.bool, blind=True
    )
    d = w.pick_dim(x)
    target = (aten.sum.dim_IntList, aten.amax.default)[w.take(2)]
    w.keep(w.call(target, x, [d] if w.spelling(2) else [d - x.meta["val"].dim()], bool(w.take(2))))


def copy(w: Writer) -> None:
    x = w.pick()
    match w.take(5):
        case 0:
            w.keep(w.call(aten.clone.default, x))
        case 1:
            w.keep(w.call(aten.clone.default, x, memory_format=torch.contiguous_format))
        case 2:
            dtype = x.meta["val"].dtype
            w.keep(w.call(torch.ops.prims.convert_element_type.default, x, dtype))
        case 3:
            w.keep(w.call(aten._to_copy.default, x, dtype=torch.float32))
        case _:
            w.keep(w.call(aten.constant_pad_nd.default, x, [0, 0]))


def convolution(w: Writer) -> None:
    """An operator whose result follows the memory format that it reads off its operand."""
    x = w.pick(lambda v: v.dim() == 4 and v.dtype == torch.float32 and min(v.size()) > 0)
    weight = w.call(aten.full.default, [2, x.meta["val"].size(1), 1, 1], 0.5)
    args = (x, weight, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    w.keep(w.call(aten.convolution.default, *args))


def again(w: Writer) -> None:
    """A node once more, its arguments by keyword."""
    found = [
        n
        for n in w.graph.nodes
        if n.op == "call_function" and signature(n.target).merge and not w.is_partly_filled(n)
    ]
    node = found[-1 - w.take(len(found))]
    if node.target is operator.getitem:
        w.keep(w.again(node, True))
    elif not isinstance(node.meta["val"], Tensor):
        raise Inapplicable("a list")
    else:
        names = [p.name for p in signature(node.target).parameters]
        given = dict(zip(names, node.args, strict=False)) if w.take(2) else {}
        w.keep(w.call(node.target, *(() if given else node.args), **given, **node.kwargs))


# Effects ----------------------------------------------------------------------------------------


def observe(w: Writer) -> None:
    w.keep(w.call(GEOMETRY, w.pick()))


def random(w: Writer) -> None:
    w.keep(w.call(aten.rand_like.default, w.pick(lambda val: val.is_floating_point())))


def write(w: Writer) -> None:
    """An operator in place, on an input, a computed value or a view."""
    w.writes = True
    x = w.pick(lambda val: _is_writable(val) and val.dtype != torch.bool)
    match w.take(4):
        case 0:
            w.keep(w.call(aten.add_.Tensor, x, 1))
        case 1:
            w.call(BUMP, x)
        case 2:
            w.keep(w.call(aten.mul_.Tensor, x, 2))
        case _:
            copy_(w, x)


def write_input(w: Writer) -> None:
    """What ends a graph that writes an input."""
    w.writes = True
    inputs = [n for n in w.graph.find_nodes(op="placeholder") if _is_writable(n.meta["val"])]
    copy_(w, inputs[w.take(len(inputs))])


def copy_(w: Writer, x: fx.Node) -> None:
    val = x.meta["val"]
    source = w.pick(
        lambda v: (
            v.size() == val.size()
            and torch.can_cast(v.dtype, val.dtype)
            and v.untyped_storage()._cdata != val.untyped_storage()._cdata
        )
    )
    w.keep(w.call(aten.copy_.default, x, source))


def _has_dim(val: Tensor) -> bool:
    return val.dim() > 0


def _is_writable(val: Tensor) -> bool:
    """Whether no two elements of a value are one in memory."""
    reach = 0
    for size, stride in sorted(zip(val.size(), val.stride(), strict=True), key=lambda n: n[1]):
        if size > 1:
            if stride <= reach:
                return False
            reach += (size - 1) * stride
    return True


OPERATIONS: dict[str, Callable[[Writer], None]] = {
    function.__name__: function
    for function in (
        unary, slice_, partition, equal_parts, select, selects, slice_with_step, cat, cat_of_pieces,
        stack_of_elements, scatter, scatter_pieces, scatter_into_empty, select_scatter, reshape,
        permute, unsqueeze, squeeze, expand, alias, as_strided, with_number, binary, mm, reduce, copy,
        convolution, again, observe, random, write, write_input,
    )
}  # fmt: skip

NOT_RESPELLED = ("write", "write_input", "again")
"""What a graph that is written otherwise can't have: in-place operators keep every view as it is,
and a repeated node is another one in a graph that has other nodes."""

_OFTEN = ("slice_", "partition", "cat_of_pieces", "scatter", "scatter_pieces", "unary", "again")


# Strategies -------------------------------------------------------------------------------------

_sizes = st.lists(st.sampled_from((4, 2, 3, 6, 1, 5, 4, 2, 3, 6, 5, 4, 3, 6, 0)), min_size=1, max_size=4).map(tuple)
_number = st.integers(0, 23)


def programs(*, without: Sequence[str] = (), steps: int = 12) -> st.SearchStrategy[Program]:
    """Programs of at most so many steps, without some of the operations."""
    operations = [name for name in (*OPERATIONS, *_OFTEN, *_OFTEN) if name not in without]
    step = st.builds(
        Step, st.sampled_from(operations), st.lists(_number, min_size=3, max_size=9).map(tuple)
    )
    an_input = st.builds(
        Input, _sizes, st.sampled_from((0, 0, 0, 0, 1, 2, 3)), st.sampled_from(LAYOUTS)
    )
    return st.builds(
        Program,
        st.lists(an_input, min_size=1, max_size=3).map(tuple),
        st.lists(step, min_size=1, max_size=steps).map(tuple),
        st.lists(st.integers(0, 15), min_size=1, max_size=4).map(tuple),
        st.integers(0, 2),
        st.booleans(),
    )
