"""Exact extraction: the cheapest acyclic choice of one alternative for each value that is needed.

Cost is DAG cost: what is chosen once is paid once, however often it is used. Tree cost never picks
a split, and class-by-class heuristics miss it too, since a split pays off only if all its pieces
take part. So: drop alternatives that can only close a cycle, drop dominated ones, close over what
every solution needs, and cut what is left into components, one for each source as a rule. Each
component is solved by branch and bound (a search over the alternatives in a fixed order, so that of
several optima the first in that order wins), and components of one shape are solved once.

Source: DAG extraction as a cut into independent problems after the extraction-gym notes of the egg
project.
"""

from __future__ import annotations

from collections.abc import Iterable

from egraph.branch import Known, search
from egraph.cycles import drop_cycles
from egraph.problem import NO_GROUP, Alternative, Infeasible, Problem, Solution


def extract(problem: Problem) -> Solution:
    """Choose the cheapest alternatives that make all roots.

    Raises:
        Infeasible: the roots can't be made.
    """
    search = _Extraction(problem)
    return search.run()


class _Extraction:
    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.groups = problem.groups
        self.children = problem.children
        self.alternatives = [each if len(each) == 1 else sorted(each) for each in problem.choices]
        self.cycle = drop_cycles(problem, self.alternatives)
        self.rank: dict[int, int] = {}
        self.chosen: dict[int, Alternative] = {}
        self.needed: set[int] = set()
        self.inexact = 0

    def run(self) -> Solution:
        pending = self.close(self.problem.roots)
        while pending:
            rest, forced = self.drop_dominated(pending)
            if not forced:
                break
            pending = sorted(rest + self.close(forced), key=self.rank.__getitem__)
        solved: dict[object, tuple[tuple[int, int], ...]] = {}
        for component in self.components(pending):
            self.solve(component, solved)
        standing = {each.group for each in self.chosen.values() if each.group != NO_GROUP}
        cost = sum(each.cost for each in self.chosen.values())
        return Solution(
            self.chosen, cost + sum(self.groups[g].cost for g in standing), self.inexact
        )

    def close(self, starts: Iterable[int]) -> list[int]:
        """Choose whatever has no choice, from `starts` down; the needed choices that have one.

        What all alternatives of a choice need is needed too, whichever is picked.
        """
        pending = []
        stack = [start for start in starts if start not in self.needed]
        needed, chosen, all_alternatives = self.needed, self.chosen, self.alternatives
        while stack:
            choice = stack.pop()
            if choice in needed:
                continue
            needed.add(choice)
            alternatives = all_alternatives[choice]
            if len(alternatives) == 1 and (only := alternatives[0]).group == NO_GROUP:
                chosen[choice] = only
                stack += only.children
            elif alternatives:
                self.rank.setdefault(choice, len(self.rank))
                pending.append(choice)
                first, *others = [self.children(each) for each in alternatives]
                stack.extend([c for c in first if all(c in other for other in others)])
            else:
                raise Infeasible(f"choice {choice} can't be made")
        return pending

    def drop_dominated(self, pending: list[int]) -> tuple[list[int], list[int]]:
        """Drop what can't be in the first optimum; the choices left, and those now without choice.

        Alternative e falls to f if f costs no more, comes first in the order, and needs nothing
        that e doesn't or that isn't needed anyway. On a cycle "needed anyway" may close it, so
        there f may need only what e needs.
        """
        rest: list[int] = []
        forced: list[int] = []
        for choice in pending:
            kept: list[Alternative] = []
            for each in self.alternatives[choice]:  # sorted by cost and order
                if each.group != NO_GROUP or not any(
                    self.dominates(choice, other, each) for other in kept
                ):
                    kept.append(each)
            self.alternatives[choice] = kept
            if len(kept) == 1 and kept[0].group == NO_GROUP:
                self.chosen[choice] = kept[0]
                forced.extend(kept[0].children)
            else:
                rest.append(choice)
        forced_new = [choice for choice in forced if choice not in self.needed]
        return rest, forced_new

    def dominates(self, choice: int, first: Alternative, other: Alternative) -> bool:
        if first.group != NO_GROUP:
            return False
        cycle = self.cycle.get(choice)
        missing = [
            child
            for child in first.children
            if child not in other.children
            and (child not in self.needed or (cycle is not None and self.cycle.get(child) == cycle))
        ]
        return not missing or (cycle is None and self.needs_anyway(other, missing))

    def needs_anyway(self, each: Alternative, choices: list[int]) -> bool:
        """Whether all ways to make what an alternative needs come down to these choices too."""
        left = set(choices)
        stack = list(each.children)
        seen = set(stack)
        while stack and left:
            alternatives = self.alternatives[stack.pop()]
            if len(alternatives) < 2:
                continue  # for what has no choice, `needed` tells
            first, *others = [self.children(other) for other in alternatives]
            for child in first:
                if child not in seen and all(child in other for other in others):
                    seen.add(child)
                    left.discard(child)
                    stack.append(child)
        return not left

    def components(self, pending: list[int]) -> list[list[int]]:
        """Pending choices and what only they may need, cut where nothing is shared."""
        # Joined are choices, groups as ~group, and cycles behind the last group.
        parent: dict[int, int] = {}
        behind = ~len(self.groups)

        def find(x: int) -> int:
            while (up := parent.setdefault(x, x)) != x:
                parent[x] = x = parent.setdefault(up, up)
            return x

        seen = set(pending)
        stack = list(pending)
        while stack:
            choice = stack.pop()
            top = find(choice)
            if choice in self.cycle:
                parent[top] = top = find(behind - self.cycle[choice])
            for each in self.alternatives[choice]:
                related: Iterable[int] = each.children
                if each.group != NO_GROUP:
                    other = find(~each.group)
                    if other != top:
                        parent[top] = top = other
                    group = self.groups[each.group]
                    related = (*group.children, *group.members)
                for other in related:
                    if other in self.chosen:
                        continue
                    if other not in seen:
                        seen.add(other)
                        self.rank.setdefault(other, len(self.rank))
                        stack.append(other)
                    other = find(other)
                    if other != top:
                        parent[top] = top = other
        parts: dict[int, list[int]] = {}
        for choice in sorted(seen, key=self.rank.__getitem__):
            parts.setdefault(find(choice), []).append(choice)
        return list(parts.values())

    def solve(
        self, component: list[int], solved: dict[object, tuple[tuple[int, int], ...]]
    ) -> None:
        """Choose in one component, by search or as one of the same shape was chosen in."""
        local = {choice: i for i, choice in enumerate(component)}
        key = self.shape(component, local)
        picks = solved.get(key) if key is not None else None
        if picks is None:
            known = Known(
                self.problem, self.alternatives, self.rank, self.cycle, self.chosen, self.needed
            )
            best, ran_out = search(known, component)
            if best is None:
                raise Infeasible(f"choices {component[:8]} can't all be made")
            self.inexact += ran_out
            picks = tuple(
                (local[choice], self.alternatives[choice].index(each))
                for choice, each in best.items()
            )
            if key is not None:
                solved[key] = picks
        for i, number in picks:
            choice = component[i]
            self.chosen[choice] = self.alternatives[choice][number]
            self.needed.add(choice)

    def shape(self, component: list[int], local: dict[int, int]) -> object:
        """The component with its own numbers, or None where the way around a cycle matters."""
        groups: dict[int, int] = {}
        rows: list[object] = []
        for choice in component:
            if choice in self.cycle:
                return None
            rows.append(choice in self.needed)
            for each in self.alternatives[choice]:
                group = -1
                if each.group != NO_GROUP:
                    group = groups.setdefault(each.group, len(groups))
                rows.append(
                    (
                        each.cost,
                        group,
                        tuple([local[c] for c in self.children(each) if c in local]),
                    )
                )
        for number in groups:
            group_ = self.groups[number]
            rows.append((group_.cost, tuple(local.get(m, -1) for m in group_.members)))
        return tuple(rows)
