"""Edits of an FX graph that can be taken back.

Taking back restores the graph to what it was: arguments, order of nodes and of users, meta, and the
name that the next node gets. A copy of the graph would cost 8 us a node; the journal costs only
what is edited.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.fx import Graph, Node
from torch.fx.node import map_arg


class Journal:
    """Edits one graph, and remembers how to take each edit back.

    It remembers before it edits, and taking back what was only begun, or not even that, does no
    harm: an interrupt may come at any point.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._undo: list[Callable[[], None]] = []
        self._users: dict[Node, list[Node]] = {}
        self._tables: dict[Any, list[Node]] = {}
        self._candidates: dict[Any, str] = {}
        self._names = graph._graph_namespace
        self._counts: dict[str, int] | None = None
        self._used: set[str] = set()
        self._length = graph._len

    def create(
        self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], before: Node
    ) -> Node:
        """Create a call_function node in front of another one."""
        names, graph = self._names, self.graph
        if self._counts is None:
            self._used = set(names._used_names)
            self._counts = dict(names._base_count)
        for node in _nodes_in((args, kwargs)):
            self._remember_users(node)
        self._remember_table(("call_function", target))
        name = self._candidates.get(target)
        if name is None:
            name = self._candidates[target] = graph._target_to_str(target)
        last = before.prev

        def undo() -> None:
            while before.prev is not last:
                node = before.prev
                node._update_args_kwargs((), {})
                node._remove_from_list()
                node._erased = True
                names._obj_to_name.pop(node, None)

        self._undo.append(undo)
        # Given arguments, create_node walks them in Python for a warning: three times the cost.
        with graph.inserting_before(before):
            node = graph.create_node("call_function", target, (), {}, name)
        node._update_args_kwargs(args, kwargs)
        return node

    def set_args(self, node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Give a node other arguments."""
        old = (node.args, node.kwargs)
        for each in (*node.all_input_nodes, *_nodes_in((args, kwargs))):
            self._remember_users(each)
        self._undo.append(lambda: node._update_args_kwargs(*old))
        node._update_args_kwargs(args, kwargs)

    def set_val(self, node: Node, val: object) -> None:
        """Give a node another `meta["val"]`."""
        had, old = "val" in node.meta, node.meta.get("val")

        def undo() -> None:
            if had:
                node.meta["val"] = old
            else:
                node.meta.pop("val", None)

        self._undo.append(undo)
        node.meta["val"] = val

    def move(self, node: Node, before: Node) -> None:
        """Put a node in front of another one."""
        follower = node.next
        self._undo.append(lambda: follower.prepend(node))
        before.prepend(node)

    def erase(self, node: Node) -> None:
        """Erase a node that has no users."""
        follower = node.next
        args, kwargs = node.args, node.kwargs
        graph = self.graph
        for each in node.all_input_nodes:
            self._remember_users(each)
        self._remember_table(graph._find_nodes_lookup_table._key(node))

        def undo() -> None:
            follower.prepend(node)
            node._erased = False
            node._update_args_kwargs(args, kwargs)

        self._undo.append(undo)
        graph.erase_node(node)

    def undo(self) -> None:
        """Take all edits back, the last first."""
        while self._undo:
            self._undo[-1]()
            self._undo.pop()
        self.graph._len = self._length
        if self._counts is not None:
            self._names._used_names.clear()
            self._names._used_names.update(self._used)
            self._names._base_count.clear()
            self._names._base_count.update(self._counts)
            self._counts = None
        for key, nodes in self._tables.items():
            rows = self.graph._find_nodes_lookup_table.table[key]
            rows.clear()
            rows.update(dict.fromkeys(nodes))
        self._tables.clear()
        for node, users in self._users.items():
            node.users.clear()
            node.users.update(dict.fromkeys(users))
        self._users.clear()

    def _remember_table(self, key: Any) -> None:
        """Remember the order in which `find_nodes` gives nodes."""
        if key not in self._tables:
            self._tables[key] = list(self.graph._find_nodes_lookup_table.table[key])

    def _remember_users(self, node: Node) -> None:
        if node not in self._users:
            self._users[node] = list(node.users)


def _nodes_in(arguments: Any) -> list[Node]:
    found: list[Node] = []
    map_arg(arguments, found.append)
    return found
