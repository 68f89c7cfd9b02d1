"""Every rule by itself: that it fires, what it then says, and that its conditions hold it back."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import egraph.rules
from egraph.eclasses import EClasses, ENode
from egraph.engine import Saturation, session
from egraph.facts import Facts, Wanted
from egraph.rules import FAMILIES, Rule, table
from tests.egraph.rule_cases import FIRES, Case, E, Rows, facts
from tests.egraph.rule_near_misses import NEAR_MISSES, UNCONDITIONAL

ALL = tuple(dict.fromkeys(family.name for family in FAMILIES))
FOLDER = Path(egraph.rules.__file__).parent
PHASES = ("algebra", "span", "chain", "tiling")


def run(rows: Mapping[str, Rows]) -> tuple[EClasses, Saturation]:
    asked = {name: tuple(rows.get(name, ())) for name in Wanted._fields}
    told = {name: list(each) for name, each in rows.items() if name not in Wanted._fields}
    with session(ALL) as each:
        loaded = Facts(**{"outermost": [(0, 0), (0, 1)], **told})
        return each.saturate(loaded, Wanted(**asked), 30, 100_000), each.saturation


RULES = [pytest.param(rule, id=rule.name) for rule in table()]


# The table


def test_names_are_unique_and_in_kebab_case() -> None:
    counts = Counter(rule.name for rule in table())
    assert set(counts.values()) == {1}
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", name) for name in counts)


@pytest.mark.parametrize("rule", RULES)
def test_a_row_is_whole(rule: Rule) -> None:
    assert rule.family in ALL
    assert rule.phase in PHASES
    assert rule.equation
    assert rule.declaration is not None


@pytest.mark.parametrize("rule", RULES)
def test_file_and_line_point_at_the_rule(rule: Rule) -> None:
    lines = (FOLDER / rule.file).read_text(encoding="utf-8").splitlines()
    assert lines[rule.line - 1].strip() == "yield ("
    assert lines[rule.line].strip() == f'"{rule.name}",'


def test_the_table_is_made_once() -> None:
    assert table() is table()


def test_every_rule_has_its_rows_here_and_no_row_is_left_over() -> None:
    names = {rule.name for rule in table()}
    assert names == set(FIRES)
    assert names == set(NEAR_MISSES) | UNCONDITIONAL
    assert set(NEAR_MISSES).isdisjoint(UNCONDITIONAL)


@pytest.mark.parametrize("rule", [p for p in RULES if p.values[0].phase == "algebra"])  # type: ignore[attr-defined]
def test_an_equality_has_a_case_that_says_so(rule: Rule) -> None:
    assert FIRES[rule.name].equal
    assert rule.name in NEAR_MISSES


# Each rule by itself


def expected_pieces(classes: EClasses, case: Case) -> list[tuple[int, ENode]]:
    """The pieces that a case asks for, as (e-class, e-node)."""
    x = classes.of[0]
    lists = {enode: number for number, enodes in enumerate(classes.enodes) for enode in enodes}
    found = []
    for value, cuts, i in case.pieces:
        split = lists[ENode("split", (x,), (0, *cuts))]
        found.append((classes.of[value], ENode("piece", (split,), (i,))))
    for value, i in case.unbound:
        unbind = lists[ENode("unbind", (x,), (0,))]
        found.append((classes.of[value], ENode("piece", (unbind,), (i,))))
    return found


@pytest.mark.parametrize("name", FIRES)
def test_it_fires_and_says_what_it_should(name: str) -> None:
    case = FIRES[name]
    classes, saturation = run(case.facts)
    assert saturation.matches.get(name, 0) > 0
    assert saturation.stopped == "saturated"
    for one, other in case.equal:
        assert classes.of[one] == classes.of[other]
    for eclass, enode in expected_pieces(classes, case):
        assert enode in classes.enodes[eclass]
    assert classes.written >= {(classes.of[x], *rest) for x, *rest in case.written}
    assert classes.selected >= {(classes.of[x], *rest) for x, *rest in case.selected}


@pytest.mark.parametrize(
    ("name", "miss"), [(name, miss) for name, misses in NEAR_MISSES.items() for miss in misses]
)
def test_it_does_not_fire_on_a_near_miss(name: str, miss: str) -> None:
    case = NEAR_MISSES[name][miss]
    classes, saturation = run(case.facts)
    assert name not in saturation.matches
    for one, other in case.equal:
        assert classes.of[one] != classes.of[other]


# Rules together


def shape(classes: EClasses) -> set[tuple[int, tuple[int, ...]]]:
    """The splits, as (e-class that is cut, d and cuts)."""
    return {
        (enode.children[0], enode.params)
        for enodes in classes.enodes
        for enode in enodes
        if enode.op == "split"
    }


@pytest.mark.parametrize(
    ("intervals", "size", "cuts"),
    [
        ([(0, 4), (4, 8)], 8, {(0, 4, 8)}),
        ([(0, 2), (2, 4), (4, 8), (0, 4)], 8, {(0, 4, 8), (0, 2, 4, 8)}),
        ([(0, 8), (8, 12), (12, 16), (0, 12)], 16, {(0, 12, 16), (0, 8, 12, 16)}),
        ([(0, 1), (1, 2), (0, 2), (2, 3)], 3, {(0, 2, 3), (0, 1, 2, 3)}),
        # The chain with the fewest links, and of those the one whose cut comes first.
        ([(0, 1), (0, 2), (1, 3), (2, 3), (3, 4)], 4, {(0, 1, 3, 4), (0, 2, 3, 4)}),
        ([(0, E), (E, -2)], -2, {(0, E, -2)}),
        ([(0, E), (E, -2), (-2, -3), (0, -2)], -3, {(0, -2, -3), (0, E, -2, -3)}),
        ([(0, 4), (5, 8)], 8, set()),
        ([], 8, set()),
    ],
)
def test_tilings_are_the_shortest_chains_through_each_interval(
    intervals: list[tuple[int, int]], size: int, cuts: set[tuple[int, ...]]
) -> None:
    rows = [(n, 0, 0, a, b) for n, (a, b) in enumerate(intervals, 1)]
    written = [row[1:] for row in rows]
    classes, _ = run(facts(slice=rows, size=[(0, 0, size)], written=written))
    assert shape(classes) == {(0, (0, *each)) for each in cuts}


def test_overlapping_windows_stay_few() -> None:
    # Of all pairs of 0..12 there are 2,048 tilings; each window proposes one.
    bounds = [(a, b) for a in range(12) for b in range(a + 1, 13)]
    rows = [(n, 0, 0, a, b) for n, (a, b) in enumerate(bounds, 1)]
    classes, _ = run(facts(slice=rows, size=[(0, 0, 12)], written=[row[1:] for row in rows]))
    assert len(shape(classes)) <= len(bounds)


def test_a_cat_of_all_pieces_of_a_piece_is_that_piece() -> None:
    rows: dict[str, Any] = facts(
        slice=[(1, 0, 0, 0, 6), (2, 1, 0, 0, 2), (3, 1, 0, 2, 6)],
        size=[(0, 0, 8), (1, 0, 6)],
        operand=[(1, 3, 0), (2, 2, 1)],
        cat=[(4, 2, 0)],
        meta=[(1, 5), (4, 5)],
    )
    classes, _ = run(rows)
    assert classes.of[4] == classes.of[1]


def test_in_place_writes_are_looked_through() -> None:
    # qkv is written at 0..8, then at 8..12: q, k and v of the result.
    rows = facts(
        scatter=[(3, 0, 1, 0, 0, 8), (4, 3, 2, 0, 8, 12)],
        alike=[(3, 0), (4, 3)],
        alike_window=[(3, 1, 0, 0), (4, 2, 0, 8)],
        window=[(3, 0, 0, 8, 1), (4, 0, 8, 12, 2)],
        meta=[(1, 1), (2, 2)],
        size=[(0, 0, 16), (1, 0, 8), (2, 0, 4), (3, 0, 16), (4, 0, 16)],
        slice=[(5, 4, 0, 0, 8), (6, 4, 0, 8, 12), (7, 4, 0, 12, 16), (8, 0, 0, 12, 16)],
    )
    of = run(rows)[0].of
    assert (of[5], of[6], of[7]) == (of[1], of[2], of[8])
