"""Which rule is behind each edit, as far as the terms tell."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

from torch.fx import Node

from egraph.problem import NO_GROUP, Solution
from lowering.choices import Choices, Make
from lowering.edits import New, Plan
from lowering.read import Reading, Term
from lowering.report import Rewrite


def rewrites(
    reading: Reading, found: Choices, solution: Solution, plan: Plan
) -> Callable[[Mapping[New, Node]], tuple[Rewrite, ...]]:
    """What replaced each node that goes, to be asked for with the nodes that were made."""
    return _Provenance(reading, found, solution, plan).rewrites


class _Provenance:
    def __init__(self, reading: Reading, found: Choices, solution: Solution, plan: Plan) -> None:
        self.reading = reading
        self.found = found
        self.chosen = solution.chosen
        self.made = plan.made
        by_class: dict[int, int] = {}
        self.pieces: dict[int, list[int]] = {}
        for choice, each in self.chosen.items():
            if each.label[0] != Make.SAME:
                by_class.setdefault(found.eclass[choice], choice)
            if each.group != NO_GROUP:
                self.pieces.setdefault(each.group, []).append(choice)
        self.rows: dict[tuple[str, int], list[Node]] = {}
        for node in reversed(plan.erased):
            users = [*node.users] if node in reading.lists else [node]
            owned = [reading.of[user] for user in users if user in reading.of]
            value = owned[0] if owned else None
            at = None if value is None else by_class.get(found.class_of[value])
            if at is None:
                key = ("unused", -1)
            else:
                group = self.chosen[at].group
                rule = self.rule(node, value, at)
                key = (rule, at if group == NO_GROUP else ~group)
            self.rows.setdefault(key, []).append(node)

    def rewrites(self, new: Mapping[New, Node]) -> tuple[Rewrite, ...]:
        """Rule by rule, the nodes that went and the nodes that stand for them."""
        found = []
        for (rule, item), nodes in self.rows.items():
            made: list[str] = []
            if rule != "unused":
                made = [self.name(item, new)]
                if item < 0:
                    made += [self.name(choice, new) for choice in self.pieces[~item]]
            found.append(Rewrite(rule, tuple(node.name for node in nodes), tuple(made)))
        return tuple(found)

    def name(self, item: int, new: Mapping[New, Node]) -> str:
        node = self.made[item]
        return new[node].name if isinstance(node, New) else node.name

    def rule(self, node: Node, value: int | None, choice: int) -> str:
        """The rule that says that a node is what was chosen."""
        each = self.chosen[choice]
        if each.group != NO_GROUP:
            op = self.found.cuts[each.group].op
            return "partition-is-split" if op == "split" else "selects-are-unbind"
        assert value is not None
        term = self.reading.values[value].term
        if term is None or term.op == "scatter":
            return "cse"
        if term.op == "cat":
            return "cse" if each.label[:2] == (Make.NODE, value) else "cat-of-partition"
        source = term.sources[0]
        if each.label[0] in (Make.SLICE, Make.SELECT):
            if self.found.eclass[each.children[0]] == self.found.class_of[source]:
                return "split-is-slices" if self.is_cut(node) else "cse"
        elif self.found.class_of[source] == self.found.class_of[value]:
            return "slice-whole"
        return self.through(term, self.reading.values[source].term)

    def is_cut(self, node: Node) -> bool:
        """Whether a node is a list of pieces, or one of them."""
        return node in self.reading.lists or node.target is operator.getitem

    def through(self, term: Term, source: Term | None) -> str:
        """The rule that looks through the source of a slice or select."""
        if source is None or source.op != "scatter":
            return f"{term.op}-of-slice"
        _, *at = term.params
        _, a, b = source.params
        if term.op == "select":
            where = "inside" if a <= at[0] < b else "before" if at[0] < a else "after"
            return f"scatter-select-{where}"
        if tuple(at) == (a, b):
            return "scatter-read-back"
        where = "inside" if a <= at[0] and at[1] <= b else "before" if at[1] <= a else "after"
        return f"scatter-read-{where}"
