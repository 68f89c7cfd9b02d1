"""Branch and bound over one component of an extraction problem."""

from __future__ import annotations

from typing import NamedTuple

from egraph.problem import NO_GROUP, Alternative, Problem

MAX_STEPS = 20_000
"""Branches tried in one component before the best choice found so far is taken, and said so."""


class Known(NamedTuple):
    """What is known of a problem when the search begins.

    Attributes:
        problem: the problem.
        alternatives: what is left of the alternatives of each choice, in order.
        rank: the order in which choices are made.
        cycle: for each choice that may be on a cycle, the cycle.
        chosen: what is chosen already.
        needed: the choices that are needed in any case.
    """

    problem: Problem
    alternatives: list[list[Alternative]]
    rank: dict[int, int]
    cycle: dict[int, int]
    chosen: dict[int, Alternative]
    needed: set[int]


def search(known: Known, component: list[int]) -> tuple[dict[int, Alternative] | None, bool]:
    """Choose in one component.

    Returns:
        The cheapest choice, of several the first, or None if there is none; and whether the search
        ran out of steps, so that it is only the best one found.
    """
    branch = _Branch(known, component)
    return branch.run(), branch.steps > MAX_STEPS


class _Branch:
    """Branch and bound over one component.

    The choices are made in the order of their ranks, each trying its alternatives in their order. A
    picked group makes all its members at once. The bound is the cost so far plus, for each choice
    still to be made, its cheapest alternative with its even share of a group.
    """

    def __init__(self, known: Known, component: list[int]) -> None:
        self.known = known
        self.groups = known.problem.groups
        self.component = component
        self.rank = known.rank
        self.alternatives = {c: known.alternatives[c] for c in component}
        self.least = {
            c: min((self.share(each) for each in alternatives), default=0)
            for c, alternatives in self.alternatives.items()
        }
        self.picked: dict[int, Alternative] = {}
        self.used: dict[int, None] = {}
        self.open: dict[int, None] = {}
        self.shut: dict[int, int] = {}
        self.bound = 0
        self.steps = 0
        self.best: dict[int, Alternative] | None = None
        self.best_cost = 0
        self.trail: list[tuple[str, int, int]] = []

    def share(self, each: Alternative) -> int:
        if each.group == NO_GROUP:
            return each.cost
        group = self.groups[each.group]
        return each.cost + group.cost // len(group.members)

    def run(self) -> dict[int, Alternative] | None:
        for choice in self.component:
            if choice in self.known.needed:
                self.use(choice)
        self.trail.clear()
        frames: list[tuple[int, int, int]] = []
        descend = True
        while True:
            if descend:
                choice = min(self.open, key=self.rank.__getitem__, default=-1)
                if choice == -1:
                    self.keep()
                    descend = False
                    continue
                frames.append((choice, 0, len(self.trail)))
            if not frames:
                return self.best
            choice, number, mark = frames.pop()
            self.undo(mark)
            alternatives = self.alternatives[choice]
            descend = False
            while number < len(alternatives):
                self.steps += 1
                if self.steps > MAX_STEPS and self.best is not None:
                    return self.best
                if self.pick(choice, alternatives[number]) and (
                    self.best is None or self.bound < self.best_cost
                ):
                    frames.append((choice, number + 1, mark))
                    descend = True
                    break
                self.undo(mark)
                number += 1

    def use(self, choice: int) -> None:
        if choice in self.used or choice not in self.alternatives:
            return
        self.used[choice] = None
        self.trail.append(("use", choice, 0))
        if choice not in self.picked:
            self.open[choice] = None
            self.bound += self.least[choice]
            self.trail.append(("open", choice, self.least[choice]))

    def assign(self, choice: int, each: Alternative) -> None:
        if choice in self.open:
            del self.open[choice]
            self.bound -= self.least[choice]
            self.trail.append(("shut", choice, self.least[choice]))
        self.picked[choice] = each
        self.bound += each.cost
        self.trail.append(("pick", choice, each.cost))
        for other in self.alternatives[choice]:
            if other.group not in (NO_GROUP, each.group):
                self.shut[other.group] = self.shut.get(other.group, 0) + 1
                self.trail.append(("group", other.group, 0))

    def pick(self, choice: int, each: Alternative) -> bool:
        """Pick an alternative, and with it its group; False if that contradicts another pick."""
        if each.group == NO_GROUP:
            self.assign(choice, each)
            for child in each.children:
                self.use(child)
            return True
        if self.shut.get(each.group):
            return False
        group = self.groups[each.group]
        self.bound += group.cost
        self.trail.append(("cost", 0, group.cost))
        for member in group.members:
            through = next(
                (a for a in self.alternatives.get(member, ()) if a.group == each.group), None
            )
            if through is None or member in self.picked:
                return False
            self.assign(member, through)
        for child in group.children:
            self.use(child)
        return True

    def undo(self, mark: int) -> None:
        while len(self.trail) > mark:
            what, which, amount = self.trail.pop()
            if what == "use":
                del self.used[which]
            elif what == "open":
                del self.open[which]
                self.bound -= amount
            elif what == "shut":
                self.open[which] = None
                self.bound += amount
            elif what == "pick":
                del self.picked[which]
                self.bound -= amount
            elif what == "group":
                self.shut[which] -= 1
            else:
                self.bound -= amount

    def keep(self) -> None:
        """Take the picks as the best so far if they are whole and close no cycle."""
        if all(choice in self.used for choice in self.picked) and not self.closes_cycle():
            self.best = dict(self.picked)
            self.best_cost = self.bound

    def closes_cycle(self) -> bool:
        cycle = self.known.cycle
        starts = [choice for choice in self.picked if choice in cycle]
        done: set[int] = set()
        for start in starts:
            path = {start: None}
            work = [(start, iter(self.parts(start)))]
            while work:
                choice, children = work[-1]
                for child in children:
                    if child in path:
                        return True
                    if child in done or child not in cycle:
                        continue
                    path[child] = None
                    work.append((child, iter(self.parts(child))))
                    break
                else:
                    work.pop()
                    path.pop(choice)
                    done.add(choice)
        return False

    def parts(self, choice: int) -> tuple[int, ...]:
        each = self.picked.get(choice) or self.known.chosen.get(choice)
        return self.known.problem.children(each) if each is not None else ()
