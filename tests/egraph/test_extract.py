"""Extraction against an enumeration of every choice, and at sizes that real graphs have."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from egraph.extract import extract
from egraph.problem import NO_GROUP, Alternative, Group, Infeasible, Problem, Solution
from tests.egraph.enumeration import (
    PIECE,
    SLICE,
    SPLIT,
    cost_of,
    is_acyclic,
    is_valid,
    least_cost,
    needed,
    plain,
    through,
)

# Small problems of any shape


@st.composite
def problems(
    draw: st.DrawFn, *, cycles: bool = True, groups: int = 2, all_wanted: bool = False
) -> Problem:
    """A problem with at most six choices; `all_wanted`: every member of a group is a root."""
    count = draw(st.integers(1, 6))

    def children(below: int) -> st.SearchStrategy[tuple[int, ...]]:
        if not below:
            return st.just(())
        return st.lists(st.integers(0, below - 1), max_size=2, unique=True).map(tuple)

    costs = st.integers(0, 4)
    problem = Problem(roots=[count - 1])
    if draw(st.booleans()):
        problem.roots.append(draw(st.integers(0, count - 1)))
    for choice in range(count):
        below = count if cycles else choice
        rows = draw(st.lists(st.tuples(costs, children(below)), min_size=1, max_size=3))
        problem.choices.append(
            [plain(cost, *needed, order=(0, i)) for i, (cost, needed) in enumerate(rows)]
        )
    for group in range(draw(st.integers(0, groups))):
        members = draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=3, unique=True))
        below = count if cycles else min(members)
        problem.groups.append(Group(draw(costs), draw(children(below)), tuple(members)))
        for member in members:
            problem.choices[member].append(through(group, draw(costs), (1, group)))
        if all_wanted:
            problem.roots += [each for each in members if each not in problem.roots]
    return problem


def check(problem: Problem) -> Solution | None:
    """Extract, and hold the result against the enumeration."""
    least = least_cost(problem)
    if least is None:
        with pytest.raises(Infeasible):
            extract(problem)
        return None
    solution = extract(problem)
    assert is_valid(problem, solution.chosen)
    assert solution.cost == cost_of(problem, solution.chosen)
    assert solution.cost == least
    assert solution.inexact == 0
    return solution


def random_problems(**shape: Any) -> Callable[[Callable[[Problem], None]], Callable[[], None]]:
    """Run a test on small problems of a shape; few enough to be quick."""
    checked = settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow])
    return lambda test: checked(given(problems(**shape))(test))


@random_problems(cycles=False, groups=0)
def test_without_groups_and_cycles_it_is_the_optimum(problem: Problem) -> None:
    assert check(problem) is not None


@random_problems(groups=0)
def test_with_cycles_it_is_the_optimum(problem: Problem) -> None:
    check(problem)


@random_problems(cycles=False, all_wanted=True)
def test_with_groups_it_is_the_optimum(problem: Problem) -> None:
    check(problem)


@random_problems(all_wanted=True)
def test_with_groups_and_cycles_it_is_the_optimum(problem: Problem) -> None:
    check(problem)


@random_problems()
def test_where_members_are_optional_it_is_no_worse_than_without_groups(problem: Problem) -> None:
    # No optimum is promised here: see test_nothing_is_wanted_only_to_make_a_split_whole.
    without = least_cost(
        Problem(
            [[e for e in each if e.group == NO_GROUP] for each in problem.choices],
            problem.groups,
            problem.roots,
        )
    )
    assume(without is not None)
    solution = extract(problem)
    assert is_valid(problem, solution.chosen)
    assert solution.cost == cost_of(problem, solution.chosen)
    assert solution.cost <= without
    assert solution.inexact == 0


@random_problems(groups=0)
def test_a_choice_without_alternatives_is_infeasible_only_where_it_is_needed(
    problem: Problem,
) -> None:
    problem.choices[0] = []
    check(problem)


# Determinism


def solved(problem: Problem) -> dict[int, Alternative] | None:
    try:
        return extract(problem).chosen
    except Infeasible:
        return None


@settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow])
@given(problems(), st.integers())
def test_the_order_of_the_alternatives_does_not_matter(problem: Problem, seed: int) -> None:
    random = Random(seed)
    expected = solved(problem)
    shuffled = Problem(
        [random.sample(each, len(each)) for each in problem.choices],
        problem.groups,
        problem.roots,
    )
    assert solved(shuffled) == expected


@settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow])
@given(problems(), st.integers())
def test_the_numbers_of_choices_and_groups_do_not_matter(problem: Problem, seed: int) -> None:
    random = Random(seed)
    expected = solved(problem)
    count = len(problem.choices)
    number = random.sample(range(count), count)
    many = len(problem.groups)
    group_number = random.sample(range(many), many)

    def renumbered(choices: Iterable[int]) -> tuple[int, ...]:
        return tuple([number[choice] for choice in choices])

    def moved(each: Alternative) -> Alternative:
        group = each.group if each.group == NO_GROUP else group_number[each.group]
        return each._replace(children=renumbered(each.children), group=group)

    twin = Problem(
        [[] for _ in range(count)],
        [Group(0, (), ()) for _ in range(many)],
        list(renumbered(problem.roots)),
    )
    for choice, alternatives in enumerate(problem.choices):
        twin.choices[number[choice]] = [moved(each) for each in alternatives]
    for group, (cost, children, members) in enumerate(problem.groups):
        twin.groups[group_number[group]] = Group(cost, renumbered(children), renumbered(members))
    assert solved(twin) == (
        expected and {number[choice]: moved(each) for choice, each in expected.items()}
    )


@random_problems()
def test_the_problem_is_left_as_it_was(problem: Problem) -> None:
    before = ([list(each) for each in problem.choices], list(problem.groups), list(problem.roots))
    solved(problem)
    assert (problem.choices, problem.groups, problem.roots) == before


def test_of_equal_costs_the_first_in_order_wins() -> None:
    late, early = plain(3, order=(2,)), plain(3, order=(1,))
    assert extract(Problem([[late, early]], [], [0])).chosen == {0: early}


def test_cost_comes_before_order() -> None:
    cheap, early = plain(2, order=(9,)), plain(3, order=(1,))
    assert extract(Problem([[early, cheap]], [], [0])).chosen == {0: cheap}


# What splits need


def tiled(pieces: int, *, wanted: int | None = None) -> Problem:
    """A source whose pieces are slices of it, or made by one split; the first few are wanted."""
    problem = Problem([[plain(0)]], [Group(SPLIT, (0,), tuple(range(1, pieces + 1)))])
    problem.choices += [
        [plain(SLICE, 0, order=(1, i)), through(0, order=(2, i))] for i in range(pieces)
    ]
    problem.roots = list(range(1, (pieces if wanted is None else wanted) + 1))
    return problem


def test_a_split_is_chosen_where_all_its_pieces_are_wanted() -> None:
    solution = extract(tiled(3))
    assert solution.cost == SPLIT + 3 * PIECE
    assert [solution.chosen[choice].group for choice in (1, 2, 3)] == [0, 0, 0]


def test_a_split_is_not_chosen_where_a_piece_is_not_wanted() -> None:
    solution = extract(tiled(3, wanted=2))
    assert solution.cost == 2 * SLICE
    assert set(solution.chosen) == {0, 1, 2}


def test_two_splits_that_share_a_piece_do_not_both_stand() -> None:
    # Windows 0..1, 1..2, 2..3 and 1..3: [0, 1, 2, 3] and [0, 1, 3] share the first piece.
    problem = Problem([[plain(0)]])
    problem.groups = [Group(SPLIT, (0,), (1, 2, 3)), Group(SPLIT, (0,), (1, 4))]
    problem.choices += [
        [plain(SLICE, 0), through(0, order=(1, 0)), through(1, order=(1, 1))],
        [plain(SLICE, 0), through(0)],
        [plain(SLICE, 0), through(0)],
        [plain(SLICE, 0), through(1)],
    ]
    problem.roots = [1, 2, 3, 4]
    solution = extract(problem)
    assert solution.cost == least_cost(problem) == SPLIT + 3 * PIECE + SLICE
    assert solution.chosen[4].group == NO_GROUP


@pytest.mark.parametrize("source_is_wanted", [False, True])
def test_nothing_is_wanted_only_to_make_a_split_whole(source_is_wanted: bool) -> None:
    # x is cut into q, k and v; k, v and the first half of q are wanted, and that is also a slice of
    # x. The half may be a slice of q, but then q is there for nothing else than the split.
    x, q, k, v, half = range(5)
    problem = Problem([[plain(100)]], [Group(SPLIT, (x,), (q, k, v))])
    problem.choices += [[plain(SLICE, x, order=(1,)), through(0, order=(2,))] for _ in (q, k, v)]
    problem.choices.append([plain(SLICE, x, order=(1,)), plain(SLICE, q, order=(2,))])
    problem.roots = [k, v, half, *([x] if source_is_wanted else [])]
    assert set(extract(problem).chosen) == {x, k, v, half}


def test_nor_is_it_where_the_source_is_only_known_to_be_needed_later() -> None:
    # As above, but whether k is needed, and with it x, hangs on which of two kernels makes y.
    x, q, k, half, z, y = range(6)
    problem = Problem([[plain(0)]], [Group(SPLIT, (x,), (q, k))])
    problem.choices += [[plain(SLICE, x, order=(1,)), through(0, order=(2,))] for _ in (q, k)]
    problem.choices.append([plain(SLICE, x, order=(1,)), plain(SLICE, q, order=(2,))])
    problem.choices.append([plain(100)])
    problem.choices.append([plain(100, k), plain(100, z, order=(1,))])
    problem.roots = [half, y]
    assert set(extract(problem).chosen) == {x, k, half, y}


def test_a_shared_child_is_paid_once() -> None:
    problem = Problem(
        [[plain(10)], [plain(1, 0), plain(7)], [plain(1, 0), plain(7)], [plain(0, 1, 2)]],
        roots=[3],
    )
    assert extract(problem).cost == 1 + 1 + 10
    problem.choices[0] = [plain(13)]
    assert extract(problem).cost == 7 + 7


def test_a_child_that_closes_a_cycle_is_not_chosen() -> None:
    problem = Problem([[plain(0, 1), plain(5)], [plain(0, 0), plain(9)]], roots=[0, 1])
    solution = extract(problem)
    assert solution.cost == 5
    assert is_acyclic(problem, solution.chosen)


# Infeasible


@pytest.mark.parametrize(
    "problem",
    [
        pytest.param(Problem([[]], [], [0]), id="no alternative"),
        pytest.param(Problem([[plain(1, 1)], []], [], [0]), id="no alternative below"),
        pytest.param(Problem([[plain(1, 0)]], [], [0]), id="needs itself"),
        pytest.param(Problem([[plain(1, 1)], [plain(1, 0)]], [], [0]), id="only a cycle"),
        pytest.param(
            Problem([[through(0)], [plain(1)]], [Group(1, (), (0, 1))], [0]),
            id="a group without a member",
        ),
        pytest.param(
            Problem([[through(0)], [through(0)]], [Group(1, (), (0, 1))], [0]),
            id="a member that nobody needs",
        ),
        pytest.param(
            Problem([[through(0)], [through(0)]], [Group(1, (1,), (0, 1))], [0, 1]),
            id="a group that needs its own member",
        ),
        pytest.param(
            Problem(
                [[through(0)], [through(0), through(1)], [through(1)]],
                [Group(1, (), (0, 1)), Group(1, (), (1, 2))],
                [0, 1, 2],
            ),
            id="groups that share a member",
        ),
    ],
)
def test_what_cannot_be_made_is_infeasible(problem: Problem) -> None:
    assert least_cost(problem) is None
    with pytest.raises(Infeasible):
        extract(problem)


def test_nothing_to_make_costs_nothing() -> None:
    assert extract(Problem()) == Solution({}, 0, 0)


# Sizes


def test_a_thousand_pieces() -> None:
    solution = extract(tiled(1_000))
    assert solution.cost == SPLIT + 1_000 * PIECE
    assert solution.inexact == 0


def test_a_thousand_pieces_of_which_one_is_not_wanted() -> None:
    solution = extract(tiled(1_000, wanted=999))
    assert solution.cost == 999 * SLICE
    assert solution.inexact == 0


def layers(count: int) -> Problem:
    """Layers of an operator and its three pieces, each layer on the pieces of the one before."""
    problem = Problem([[plain(0)]])
    last: tuple[int, ...] = (0,)
    for _ in range(count):
        source = len(problem.choices)
        group = len(problem.groups)
        pieces = tuple(range(source + 1, source + 4))
        problem.choices.append([plain(100, *last)])
        problem.choices += [
            [plain(SLICE, source, order=(1, i)), through(group, order=(2, i))]
            for i, _ in enumerate(pieces)
        ]
        problem.groups.append(Group(SPLIT, (source,), pieces))
        last = pieces
    problem.roots = list(last)
    return problem


def test_two_hundred_equal_components() -> None:
    solution = extract(layers(200))
    assert solution.cost == 200 * (100 + SPLIT + 3 * PIECE)
    assert solution.inexact == 0


def test_a_deep_chain() -> None:
    problem = Problem([[plain(0)]])
    for choice in range(1, 5_001):
        problem.choices.append([plain(2, choice - 1, order=(0,)), plain(1, choice - 1, order=(1,))])
    problem.roots = [5_000]
    solution = extract(problem)
    assert solution.cost == 5_000
    assert len(solution.chosen) == 5_001


def test_a_deep_chain_with_shortcuts() -> None:
    problem = Problem([[plain(0)], [plain(1, 0)]])
    for choice in range(2, 5_001):
        problem.choices.append([plain(1, choice - 1, order=(0,)), plain(1, choice - 2, order=(1,))])
    problem.roots = [5_000]
    solution = extract(problem)
    assert is_valid_deep(problem, solution)
    assert solution.cost >= 2_500


def is_valid_deep(problem: Problem, solution: Solution) -> bool:
    return needed(problem, solution.chosen) == set(solution.chosen) and solution.cost == cost_of(
        problem, solution.chosen
    )


def test_a_search_that_runs_out_of_steps_says_so_and_is_sound() -> None:
    # Forty choices, each of which needs two of forty shared things: no bound tells them apart.
    count = 40
    problem = Problem([[plain(1)] for _ in range(count)])
    for i in range(count):
        problem.choices.append(
            [
                plain(0, (i * 7 + k * k) % count, (i * 11 + 5 * k + 3) % count, order=(k,))
                for k in range(3)
            ]
        )
    problem.roots = list(range(count, 2 * count))
    solution = extract(problem)
    assert solution.inexact == 1
    assert is_valid(problem, solution.chosen)
    assert solution.cost == cost_of(problem, solution.chosen)
    assert extract(problem) == solution
