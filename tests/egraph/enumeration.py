"""Extraction by its specification: every choice of a small problem, and the cheapest one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from egraph.problem import NO_GROUP, Alternative, Problem

SLICE, SPLIT, PIECE = 10, 5, 1


def plain(cost: int, *children: int, order: tuple[int, ...] = ()) -> Alternative:
    return Alternative(cost, order, children, NO_GROUP, ())


def through(group: int, cost: int = PIECE, order: tuple[int, ...] = ()) -> Alternative:
    return Alternative(cost, order, (), group, ())


# The specification, by enumeration


def needs(problem: Problem, alternative: Alternative) -> tuple[int, ...]:
    if alternative.group == NO_GROUP:
        return alternative.children
    return problem.groups[alternative.group].children


def needed(problem: Problem, chosen: Mapping[int, Alternative]) -> set[int]:
    """What the roots reach through what was chosen."""
    found: set[int] = set()
    stack = list(problem.roots)
    while stack:
        choice = stack.pop()
        if choice not in found:
            found.add(choice)
            stack.extend(needs(problem, chosen[choice]))
    return found


def is_acyclic(problem: Problem, chosen: Mapping[int, Alternative]) -> bool:
    ready: set[int] = set()
    while len(ready) < len(chosen):
        more = {
            choice
            for choice, each in chosen.items()
            if choice not in ready and ready.issuperset(needs(problem, each))
        }
        if not more:
            return False
        ready |= more
    return True


def groups_stand(problem: Problem, chosen: Mapping[int, Alternative]) -> bool:
    """Whether each group that is used makes all of its members."""
    used = {each.group for each in chosen.values()} - {NO_GROUP}
    return all(
        member in chosen and chosen[member].group == group
        for group in used
        for member in problem.groups[group].members
    )


def is_valid(problem: Problem, chosen: Mapping[int, Alternative]) -> bool:
    return (
        needed(problem, chosen) == set(chosen)
        and all(each in problem.choices[choice] for choice, each in chosen.items())
        and is_acyclic(problem, chosen)
        and groups_stand(problem, chosen)
    )


def cost_of(problem: Problem, chosen: Mapping[int, Alternative]) -> int:
    used = {each.group for each in chosen.values()} - {NO_GROUP}
    return sum(each.cost for each in chosen.values()) + sum(problem.groups[g].cost for g in used)


def every_choice(problem: Problem) -> Iterator[dict[int, Alternative]]:
    def extend(
        chosen: dict[int, Alternative], pending: tuple[int, ...]
    ) -> Iterator[dict[int, Alternative]]:
        while pending and pending[-1] in chosen:
            pending = pending[:-1]
        if not pending:
            yield chosen
            return
        *rest, choice = pending
        for each in problem.choices[choice]:
            yield from extend({**chosen, choice: each}, (*rest, *needs(problem, each)))

    return (chosen for chosen in extend({}, tuple(problem.roots)) if is_valid(problem, chosen))


def least_cost(problem: Problem) -> int | None:
    return min((cost_of(problem, chosen) for chosen in every_choice(problem)), default=None)
