"""Random aten programs: what one is, how its graph is built, how hypothesis draws it.

A program is numbers only. Each step names an operation of the table `OPERATIONS` and gives it
numbers, which the operation reads one by one: which of the values so far, which dimension, where to
cut, which of the ways to write it. All numbers mean something for any count of choices, and a step
that has nothing to work on is left out, so that a program with a step less is a program too. That
is what makes a failing one shrink to few steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from hypothesis import strategies as st
from torch import Tensor, fx

from tests.lowering.operations import OPERATIONS
from tests.lowering.writer import Inapplicable, Writer, hint, is_static

DTYPES = (torch.float32, torch.int64, torch.bfloat16, torch.bool)
LAYOUTS = (
    "contiguous", "reversed", "channels_last", "padded", "expanded", "alias", "symbolic",
)  # fmt: skip


class Input(NamedTuple):
    """One input: its sizes, the number of its dtype, and how it lies in memory.

    An "alias" is a view of the input before it, whose sizes it gets from there. A "symbolic" one is
    contiguous, and its first size is a symbol, the same for all inputs.
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


def build(program: Program, respell: int = 0) -> fx.GraphModule:
    """Return the graph of a program, each node with its val."""
    w = Writer(respell)
    with w.environment.suppress_guards():
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
    if spec.layout == "symbolic":
        return w.input(w.symbolic_size(), *sizes[1:], dtype=dtype)
    before = w.values[-1].meta["val"] if w.values else None
    with w.mode:
        if spec.layout == "alias" and before is not None and is_static(before):
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


def inputs_of(module: fx.GraphModule, special: bool) -> list[Any]:
    """Return inputs for a graph, laid out and shared as its vals are."""
    storages: dict[int, Tensor] = {}
    found: list[Any] = []
    for node in module.graph.find_nodes(op="placeholder"):
        val = node.meta["val"]
        if not isinstance(val, Tensor):
            found.append(hint(val))
            continue
        storage = val.untyped_storage()
        length = hint(storage.nbytes()) // val.dtype.itemsize
        data = storages.get(storage._cdata)
        if data is None:
            data = storages[storage._cdata] = _data(length, val.dtype, len(storages), special)
        sizes, strides = [*map(hint, val.size())], [*map(hint, val.stride())]
        found.append(data.as_strided(sizes, strides, val.storage_offset()))
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


# Strategies -------------------------------------------------------------------------------------

NOT_RESPELLED = ("write", "write_input", "again")
"""What a graph that is written otherwise can't have: in-place operators keep every view as it is,
and a repeated node is another one in a graph that has other nodes."""

_OFTEN = (
    "slice_", "partition", "cat_of_pieces", "scatter", "scatter_pieces", "unary", "again", "write",
)  # fmt: skip

_sizes = st.lists(
    st.sampled_from((4, 2, 3, 6, 1, 5, 4, 2, 3, 6, 5, 4, 3, 6, 0)), min_size=1, max_size=4
).map(tuple)
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
