"""Edits of an FX graph as plain data, worked out before the first one is made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch.fx import Node


@dataclass(eq=False)
class New:
    """A node to be made.

    Attributes:
        target: its target.
        args: its arguments; new nodes among them stand for themselves.
        val: its `meta["val"]`.
        like: the node that it replaces, whose other meta it takes.
    """

    target: Any
    args: tuple[Any, ...]
    val: object
    like: Node
    kwargs: dict[str, Any] = field(default_factory=dict)


AnyNode = Node | New


class Create(NamedTuple):
    """Make a node in front of another one."""

    node: New
    before: Node


class Move(NamedTuple):
    """Put a node in front of another one."""

    node: Node
    before: Node


class Rewire(NamedTuple):
    """Give a node other arguments."""

    node: Node
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Revalue(NamedTuple):
    """Give a node another `meta["val"]`."""

    node: Node
    val: object


@dataclass
class Plan:
    """What has to be done to a graph.

    Attributes:
        edits: in the order in which they are to be made.
        erased: nodes to erase after that, in this order.
        made: the node that stands for each choice, and for each group as ~group.
    """

    edits: list[Create | Move | Rewire | Revalue] = field(default_factory=list)
    erased: list[Node] = field(default_factory=list)
    made: dict[int, AnyNode] = field(default_factory=dict)

    def is_rewrite(self) -> bool:
        """Whether more than vals are to change."""
        return bool(self.erased) or not all(isinstance(edit, Revalue) for edit in self.edits)
