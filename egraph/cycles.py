"""Alternatives that can only close a cycle: looked for where there may be one, and dropped.

A choice may be made from what needs it in turn, as a tensor from a slice of what it was scattered
into. What is left of a cycle once such alternatives are gone is noted for the search to avoid.

Source: strongly connected components after Tarjan (1972).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from egraph.problem import NO_GROUP, Alternative, Problem


def drop_cycles(problem: Problem, alternatives: list[list[Alternative]]) -> dict[int, int]:
    """Drop alternatives that can only close a cycle.

    Args:
        problem: what to choose from.
        alternatives: those of each choice; alternatives are dropped from here.

    Returns:
        For each choice that may still be on a cycle, the least choice on it.
    """
    return _Cycles(problem, alternatives).run()


class _Cycles:
    def __init__(self, problem: Problem, alternatives: list[list[Alternative]]) -> None:
        self.groups = problem.groups
        self.potential = problem.potential
        self.unsure = problem.unsure
        self.children = problem.children
        self.alternatives = alternatives
        self.cycle: dict[int, int] = {}

    def run(self) -> dict[int, int]:
        uphill = self.drop_loops(self.uphill())
        if uphill:
            for cycle in self.find_cycles(uphill):
                self.break_cycle(cycle)
        return self.cycle

    def uphill(self) -> list[int]:
        """Choices with an alternative that needs one of no lower potential."""
        if not self.potential:
            return list(range(len(self.alternatives)))
        return [choice for choice in self.unsure if self.is_uphill(choice)]

    def is_uphill(self, choice: int) -> bool:
        potential = self.potential
        level = potential[choice]
        for each in self.alternatives[choice]:
            children = each.children if each.group == NO_GROUP else self.children(each)
            if children and max([potential[child] for child in children]) >= level:
                return True
        return False

    def drop_loops(self, uphill: list[int]) -> list[int]:
        """Drop alternatives that need what they make, or what can't be made without it.

        Returns:
            The choices that still are uphill.
        """
        left = []
        for choice in uphill:
            before = self.alternatives[choice]
            after = [each for each in before if not self.loops(choice, each)]
            if len(after) < len(before):
                self.alternatives[choice] = after
                lost = {each.group for each in before} - {each.group for each in after}
                for group in sorted(lost - {NO_GROUP}):
                    self.drop_groups(list(self.groups[group].members))
            if not self.potential or self.is_uphill(choice):
                left.append(choice)
        return left

    def loops(self, choice: int, each: Alternative) -> bool:
        """Whether an alternative of a choice needs it, by itself or in all ways to make a child."""
        for child in self.children(each):
            others = self.alternatives[child]
            if child == choice or (others and all(choice in self.children(o) for o in others)):
                return True
        return False

    def find_cycles(self, starts: Iterable[int], within: set[int] | None = None) -> list[list[int]]:
        """Strongly connected components of more than one choice."""
        index: dict[int, int] = {}
        low: dict[int, int] = {}
        open_: dict[int, None] = {}
        cycles: list[list[int]] = []
        for start in starts:
            if start in index:
                continue
            index[start] = low[start] = len(index)
            open_[start] = None
            work: list[tuple[int, Iterator[int]]] = [(start, self.successors(start))]
            while work:
                node, successors = work[-1]
                for child in successors:
                    if within is not None and child not in within:
                        continue
                    if child not in index:
                        index[child] = low[child] = len(index)
                        open_[child] = None
                        work.append((child, self.successors(child)))
                        break
                    if child in open_ and index[child] < low[node]:
                        low[node] = index[child]
                else:
                    work.pop()
                    if work and low[node] < low[work[-1][0]]:
                        low[work[-1][0]] = low[node]
                    if low[node] == index[node]:
                        members = []
                        while True:
                            member, _ = open_.popitem()
                            members.append(member)
                            if member == node:
                                break
                        if len(members) > 1:
                            cycles.append(sorted(members))
        return cycles

    def successors(self, choice: int) -> Iterator[int]:
        alternatives = self.alternatives[choice]
        if len(alternatives) == 1:
            return iter(self.children(alternatives[0]))
        return iter([child for each in alternatives for child in self.children(each)])

    def break_cycle(self, cycle: list[int]) -> None:
        """Drop alternatives that need a choice which in any case needs the one they make."""
        inside = set(cycle)
        while True:
            must = {
                choice: [
                    child
                    for child in dict.fromkeys(self.children(self.alternatives[choice][0]))
                    if child in inside
                    and all(child in self.children(each) for each in self.alternatives[choice])
                ]
                for choice in cycle
                if self.alternatives[choice]
            }
            dropped = False
            for choice in cycle:
                kept = [
                    each
                    for each in self.alternatives[choice]
                    if not any(
                        child in inside and _reaches(must, child, choice)
                        for child in self.children(each)
                    )
                ]
                if len(kept) < len(self.alternatives[choice]):
                    self.alternatives[choice] = kept
                    dropped = True
            if not self.drop_groups(cycle) and not dropped:
                break
        for rest in self.find_cycles(cycle, inside):
            for choice in rest:
                self.cycle[choice] = rest[0]

    def drop_groups(self, among: list[int]) -> bool:
        """Drop groups with a member that can't be made through them any more."""
        dropped = False
        numbers = {each.group for choice in among for each in self.alternatives[choice]}
        for number in sorted(numbers - {NO_GROUP}):
            members = self.groups[number].members
            if all(
                any(each.group == number for each in self.alternatives[member])
                for member in members
            ):
                continue
            for member in members:
                before = self.alternatives[member]
                after = [each for each in before if each.group != number]
                if len(after) < len(before):
                    self.alternatives[member] = after
                    dropped = True
        return dropped


def _reaches(must: dict[int, list[int]], start: int, goal: int) -> bool:
    seen = {start}
    stack = [start]
    while stack:
        choice = stack.pop()
        if choice == goal:
            return True
        for child in must.get(choice, ()):
            if child not in seen:
                seen.add(child)
                stack.append(child)
    return False
