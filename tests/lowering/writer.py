"""Builds the graph of a random program, one numbered choice at a time."""

from __future__ import annotations

import operator
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import SymInt, Tensor, fx
from torch._dispatch.python import enable_python_dispatcher
from torch.fx.node import map_arg

from lowering.signature import signature
from tests.lowering.support import Builder

aten = torch.ops.aten


FROM_FIRST = 16
"""Numbers from here on count values from the first one on, so that leaving out a step in between
changes nothing."""


class Inapplicable(Exception):
    """A step has nothing to work on."""


class Writer(Builder):
    """Builds the graph of a program.

    Args:
        respell: write everything in other ways that mean the same: the ways of `spelling` are
            turned by so many, and values are computed again for a use where that can't be told.
    """

    def __init__(self, respell: int = 0) -> None:
        super().__init__()
        # torch's cache gives a scatter, with some offsets of its operand, an offset that it hasn't.
        self.mode.cache_enabled = False
        self.respell = respell
        self.size: fx.Node | None = None
        self.values: list[fx.Node] = []
        self.numbers: list[int] = []
        self.writes = False

    def call(self, target: Callable[..., Any], /, *args: Any, **kwargs: Any) -> fx.Node:
        """Add a call; what torch refuses is Inapplicable, and adds none."""
        vals = map_arg((args, kwargs), lambda each: each.meta["val"])
        # Some C++ kernels guard on symbolic sizes where their Python versions don't.
        dispatcher = enable_python_dispatcher() if self.size else nullcontext()
        try:
            with self.mode, dispatcher:
                val = target(*vals[0], **vals[1])
        except (RuntimeError, ValueError, IndexError, NotImplementedError) as error:
            raise Inapplicable(str(error)) from error
        node = self.graph.call_function(target, args, kwargs)
        node.meta["val"] = val
        return node

    def symbolic_size(self) -> fx.Node:
        """The node that holds the one symbolic size of the program."""
        self.size = self.size or self.symbol(7)
        return self.size

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
        """One of the suitable values, counted from the last one back or from the first one on.

        Args:
            suitable: which values are suitable.
            blind: nobody can tell whether the value was computed once more.
        """
        found = [node for node in reversed(self.values) if suitable(node.meta["val"])]
        if self.numbers and self.numbers[0] >= FROM_FIRST:
            node = found[-1 - self.take(len(found))]
        else:
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
            assert not isinstance(first.target, str)
            return self.call(
                target, self.call(first.target, *first.args, **first.kwargs), node.args[1]
            )
        if not blind and not (isinstance(first, fx.Node) and shares_storage(node, first)):
            return node
        return self.call(target, *node.args, **node.kwargs)

    def is_partly_filled(self, node: fx.Node) -> bool:
        """Whether a node holds memory that nobody wrote."""
        return any(each.target is aten.empty.memory_format for each in node.all_input_nodes)

    def pick_dim(self, x: fx.Node) -> int:
        """A dimension whose size is a number."""
        sizes = x.meta["val"].size()
        dims = [d for d, size in enumerate(sizes) if isinstance(size, int)]
        return dims[self.take(len(dims))]

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


def shares_storage(a: fx.Node, b: fx.Node) -> bool:
    """Whether two values lie in one storage."""
    vals = a.meta["val"], b.meta["val"]
    return isinstance(vals[1], Tensor) and len({v.untyped_storage()._cdata for v in vals}) == 1


def hint(number: int | SymInt) -> int:
    """A number, or what a symbolic one is in the runs of the graph."""
    return int(number.node.hint) if isinstance(number, SymInt) else number


def is_static(val: Tensor) -> bool:
    """Whether sizes and strides of a value are numbers."""
    return all(isinstance(number, int) for number in (*val.size(), *val.stride()))


def has_dim(val: Tensor) -> bool:
    """Whether a value has a dimension at all."""
    return val.dim() > 0
