"""Make planned edits, all of them or none."""

from __future__ import annotations

from typing import Any

from torch.fx import Node

from lowering.edits import Create, Move, New, Plan, Rewire
from lowering.journal import Journal

OWN_META = ("val", "tensor_meta", "example_value", "eager_input_vals", "unbacked_bindings")
"""Meta that tells of one node only, so that what replaces the node doesn't take it over."""


def write(plan: Plan, journal: Journal) -> dict[New, Node]:
    """Make the edits of a plan.

    Args:
        plan: the edits.
        journal: makes them, and remembers them, so that the caller can take them back if anything
            fails.

    Returns:
        The nodes that were made.

    Raises:
        ValueError: the plan would leave a node in front of an operand, or erase one that is in use.
    """
    made: dict[New, Node] = {}
    rewired: list[Node] = []
    for edit in plan.edits:
        if isinstance(edit, Create):
            new = edit.node
            args = _resolve(new.args, made)
            kwargs = _resolve(new.kwargs, made) if new.kwargs else {}
            node = made[new] = journal.create(new.target, args, kwargs, edit.before)
            meta = {key: value for key, value in new.like.meta.items() if key not in OWN_META}
            node.meta.update(meta, val=new.val)
            rewired.append(node)
        elif isinstance(edit, Move):
            journal.move(edit.node, edit.before)
            rewired.append(edit.node)
        elif isinstance(edit, Rewire):
            kwargs = _resolve(edit.kwargs, made) if edit.kwargs else {}
            journal.set_args(edit.node, _resolve(edit.args, made), kwargs)
            rewired.append(edit.node)
        else:
            journal.set_val(edit.node, edit.val)
    for node in rewired:
        for operand in node.all_input_nodes:
            if not operand < node:
                raise ValueError(f"node {node.name} would stand in front of operand {operand.name}")
    for node in plan.erased:
        if node.users:
            user = next(iter(node.users))
            raise ValueError(f"node {node.name} would be erased while {user.name} uses it")
        journal.erase(node)
    return made


def _resolve(argument: Any, made: dict[New, Node]) -> Any:
    """An argument with the nodes that were made in place of the planned ones."""
    kind = type(argument)
    if kind is Node or kind is int:
        return argument
    if kind is New:
        return made[argument]
    if kind is tuple or (isinstance(argument, (list, tuple)) and not hasattr(argument, "_fields")):
        return kind(
            [
                each if type(each) is Node or type(each) is int else _resolve(each, made)
                for each in argument
            ]
        )
    if isinstance(argument, dict):
        return {key: _resolve(each, made) for key, each in argument.items()}
    if isinstance(argument, slice):
        return slice(*(_resolve(x, made) for x in (argument.start, argument.stop, argument.step)))
    return argument
