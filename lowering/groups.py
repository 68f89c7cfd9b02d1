"""Lists of pieces among the choices: one stands only if each of its pieces is made through it."""

from __future__ import annotations

from collections.abc import Callable

from egraph.problem import Group, Problem
from lowering.choices import Cuts


class Groups:
    """The lists of pieces that may be made.

    Attributes:
        cuts: what each group makes.
    """

    def __init__(self) -> None:
        self.cuts: list[Cuts] = []
        self._numbers: dict[tuple[int, int], int] = {}
        self._wanting: list[dict[int, list[int]]] = []

    def join(self, choice: int, piece: int, eclass: int, cuts: Cuts) -> int:
        """Let a choice be a piece of a list, and return the list's group.

        Args:
            choice: the choice.
            piece: which piece it is.
            eclass: e-class of the list.
            cuts: what the list is.
        """
        group = self._numbers.setdefault((eclass, cuts.source), len(self.cuts))
        if group == len(self.cuts):
            self.cuts.append(cuts)
            self._wanting.append({})
        self._wanting[group].setdefault(piece, []).append(choice)
        return group

    def close(
        self,
        problem: Problem,
        cost: int,
        count: Callable[[Cuts], int],
        preference: Callable[[int], tuple[bool, int]],
    ) -> None:
        """Give each group its members, and drop groups with a piece that nobody may want.

        Args:
            problem: gets the groups, and loses the alternatives of those dropped.
            cost: what a list costs.
            count: how many pieces a list has.
            preference: sorts the choices that may be one piece; the first is made, and shared.
        """
        dropped: set[tuple[int, int]] = set()
        for group, (cuts, wanting) in enumerate(zip(self.cuts, self._wanting, strict=True)):
            members = [
                min(wanting.get(piece, ()), key=preference, default=-1)
                for piece in range(count(cuts))
            ]
            if -1 in members:
                members = []
            made = set(members)
            dropped.update(
                (choice, group)
                for choices in wanting.values()
                for choice in choices
                if choice not in made
            )
            problem.groups.append(Group(cost, (cuts.source,), tuple(members)))
        for choice in sorted({choice for choice, _ in dropped}):
            problem.choices[choice] = [
                each for each in problem.choices[choice] if (choice, each.group) not in dropped
            ]
