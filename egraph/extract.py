"""Exact extraction: the cheapest acyclic choice of one alternative for each value that is needed.

Cost is DAG cost: what is chosen once is paid once, however often it is used. Tree cost never picks
a split, and class-by-class heuristics miss it too, since a split pays off only if all its pieces
take part. So: drop alternatives that can only close a cycle, drop dominated ones, close over what
every solution needs, and cut what is left into components, one for each source as a rule. Each
component is solved by branch and bound (a search over the alternatives in a fixed order, so that of
several optima the first in that order wins), and components of one shape are solved once.

Sources: strongly connected components after Tarjan (1972); DAG extraction as a cut into independent
problems after the extraction-gym notes of the egg project.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

NO_GROUP = -1

MAX_STEPS = 20_000
"""Branches tried in one component before the best choice found so far is taken, and said so."""


class Alternative(NamedTuple):
    """One way to make a value.

    Attributes:
        cost: what it costs by itself; not negative.
        order: a structural key, the same however the graph was written; breaks ties.
        children: the choices that it needs, by number.
        group: the group that it is made through, or NO_GROUP.
        label: what the caller wants back.
    """

    cost: int
    order: tuple[int, ...]
    children: tuple[int, ...]
    group: int
    label: tuple[int, ...]


class Group(NamedTuple):
    """Something that makes several values at once, such as a split.

    It stands only if each of its members is needed and made through it.

    Attributes:
        cost: what it costs, once.
        children: the choices that it needs.
        members: the choices that it makes.
    """

    cost: int
    children: tuple[int, ...]
    members: tuple[int, ...]


@dataclass
class Problem:
    """What to choose from.

    Attributes:
        choices: the alternatives of each choice.
        groups: the groups.
        roots: the choices that are needed in any case.
        potential: a number for each choice; left empty, cycles are looked for everywhere.
        unsure: choices with an alternative that may need one of no lower potential. Each cycle has
            one, so that nobody looks for cycles elsewhere.
    """

    choices: list[list[Alternative]] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)
    potential: list[int] = field(default_factory=list)
    unsure: list[int] = field(default_factory=list)


class Solution(NamedTuple):
    """What was chosen.

    Attributes:
        chosen: alternative of each needed choice.
        cost: sum of the costs, groups included.
        inexact: components in which the search ran out of steps, so that the choice is sound but
            may not be the cheapest.
    """

    chosen: dict[int, Alternative]
    cost: int
    inexact: int

    def resolve(self, choice: int, same: int) -> int:
        """The choice that makes what a choice is, through alternatives labelled `same`."""
        chosen = self.chosen
        while chosen[choice].label[0] == same:
            choice = chosen[choice].children[0]
        return choice


class Infeasible(ValueError):
    """A needed choice has no alternative, or only ones that close a cycle."""


def extract(problem: Problem) -> Solution:
    """Choose the cheapest alternatives that make all roots.

    Raises:
        Infeasible: the roots can't be made.
    """
    search = _Extraction(problem)
    return search.run()


class _Extraction:
    def __init__(self, problem: Problem) -> None:
        self.groups = problem.groups
        self.roots = problem.roots
        self.alternatives = [each if len(each) == 1 else sorted(each) for each in problem.choices]
        self.potential = problem.potential
        self.unsure = problem.unsure
        self.rank: dict[int, int] = {}
        self.cycle: dict[int, int] = {}
        self.chosen: dict[int, Alternative] = {}
        self.needed: set[int] = set()
        self.inexact = 0

    def run(self) -> Solution:
        uphill = self.drop_loops(self.uphill())
        if uphill:
            for cycle in self.find_cycles(uphill):
                self.break_cycle(cycle)
        pending = self.close(self.roots)
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

    def children(self, alternative: Alternative) -> tuple[int, ...]:
        if alternative.group == NO_GROUP:
            return alternative.children
        return self.groups[alternative.group].children

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
        return all(
            child in other.children
            or (child in self.needed and (cycle is None or self.cycle.get(child) != cycle))
            for child in first.children
        )

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
            branch = _Branch(self, component)
            best = branch.run()
            if best is None:
                raise Infeasible(f"choices {component[:8]} can't all be made")
            self.inexact += branch.steps > MAX_STEPS
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


class _Branch:
    """Branch and bound over one component.

    The choices are made in the order of their ranks, each trying its alternatives in their order. A
    picked group makes all its members at once. The bound is the cost so far plus, for each choice
    still to be made, its cheapest alternative with its even share of a group.
    """

    def __init__(self, extraction: _Extraction, component: list[int]) -> None:
        self.extraction = extraction
        self.groups = extraction.groups
        self.component = component
        self.rank = extraction.rank
        self.alternatives = {c: extraction.alternatives[c] for c in component}
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
            if choice in self.extraction.needed:
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
        cycle = self.extraction.cycle
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
        each = self.picked.get(choice) or self.extraction.chosen.get(choice)
        return self.extraction.children(each) if each is not None else ()
