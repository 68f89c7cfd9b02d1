"""Each rule's case: facts on which it fires, and what has to come of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Rows = list[tuple[int, ...]]
E = -1
"""The code of a symbolic bound; -2 is that of another, later one."""


@dataclass(frozen=True)
class Case:
    """Facts, and what has to come of them.

    Attributes:
        facts: relations by name; `written` and `selected` are what is wanted.
        equal: pairs of values that are one e-class then.
        pieces: values, each with the cuts of a split of value 0 along 0 and the piece's number.
        unbound: values, each with the number of its piece of an unbind of value 0 along 0.
        written: intervals that are named then, x as a value.
        selected: elements that are named then, x as a value.
    """

    facts: Mapping[str, Rows]
    equal: tuple[tuple[int, int], ...] = ()
    pieces: tuple[tuple[int, tuple[int, ...], int], ...] = ()
    unbound: tuple[tuple[int, int], ...] = ()
    written: Rows = field(default_factory=list)
    selected: Rows = field(default_factory=list)


def facts(**rows: Rows) -> dict[str, Rows]:
    return rows


# Value 0 is x, value 1 the source s of a scatter y, value 2 y itself, and value 3 a view of y.


def scattered(
    at: tuple[int, int], *, alike: bool = True, alike_window: bool = True, **rows: Rows
) -> dict[str, Rows]:
    """y = scatter(x, s, 0, *at), whose layout is that of x, and of s inside the window."""
    return {
        "scatter": [(2, 0, 1, 0, *at)],
        "alike": [(2, 0)] if alike else [],
        "alike_window": [(2, 1, 0, at[0])] if alike_window else [],
        **rows,
    }


HALVES = {"slice": [(1, 0, 0, 0, 4), (2, 0, 0, 4, 8)], "size": [(0, 0, 8)]}
WRITTEN_HALVES: Rows = [(0, 0, 0, 4), (0, 0, 4, 8)]
SELECTS = {"select": [(1, 0, 0, 0), (2, 0, 0, 1), (3, 0, 0, 2)], "size": [(0, 0, 3)]}
SELECTED: Rows = [(0, 0, 0), (0, 0, 1), (0, 0, 2)]

HALVES_CASE = Case(
    facts(**HALVES, written=WRITTEN_HALVES), pieces=((1, (0, 4, 8), 0), (2, (0, 4, 8), 1))
)
SELECTS_CASE = Case(facts(**SELECTS, selected=SELECTED), unbound=((1, 0), (2, 1), (3, 2)))

FIRES: dict[str, Case] = {
    # slice
    "slice-whole": Case(facts(slice=[(1, 0, 0, 0, 8)], size=[(0, 0, 8)]), equal=((1, 0),)),
    "slice-of-slice": Case(
        facts(slice=[(1, 0, 0, 2, 8), (2, 1, 0, 1, 3), (3, 0, 0, 3, 5)]), equal=((2, 3),)
    ),
    "slice-of-prefix": Case(
        facts(slice=[(1, 0, 0, 0, E), (2, 1, 0, -2, -3), (3, 0, 0, -2, -3)]), equal=((2, 3),)
    ),
    "slice-empty": Case(facts(slice=[(1, 0, 0, 3, 3), (2, 0, 0, 0, 0)]), equal=((1, 2),)),
    "select-of-slice": Case(
        facts(slice=[(1, 0, 0, 2, 8)], select=[(2, 1, 0, 3), (3, 0, 0, 5)]), equal=((2, 3),)
    ),
    # split
    "split-is-slices": HALVES_CASE,
    "split-pieces": HALVES_CASE,
    "prefix-start": HALVES_CASE,
    "prefix-step": HALVES_CASE,
    "suffix-start": HALVES_CASE,
    "suffix-step": HALVES_CASE,
    "prefix-cuts-start": HALVES_CASE,
    "prefix-cuts-step": HALVES_CASE,
    "suffix-cuts-start": HALVES_CASE,
    "suffix-cuts-step": HALVES_CASE,
    "partition-is-split": HALVES_CASE,
    # unbind
    "unbind-is-selects": SELECTS_CASE,
    "unbind-pieces": SELECTS_CASE,
    "run-start": SELECTS_CASE,
    "run-step": SELECTS_CASE,
    "selects-are-unbind": SELECTS_CASE,
    # scatter
    "scatter-read-back": Case(
        facts(
            scatter=[(2, 0, 1, 0, 2, 6)],
            slice=[(3, 2, 0, 2, 6)],
            window=[(2, 0, 2, 6, 7)],
            meta=[(1, 7)],
        ),
        equal=((3, 1),),
    ),
    "scatter-read-inside": Case(
        scattered((2, 6), slice=[(3, 2, 0, 3, 5), (4, 1, 0, 1, 3)]), equal=((3, 4),)
    ),
    "scatter-read-before": Case(
        scattered((2, 6), slice=[(3, 2, 0, 0, 1), (4, 0, 0, 0, 1)]), equal=((3, 4),)
    ),
    "scatter-read-after": Case(
        scattered((2, 6), slice=[(3, 2, 0, 7, 8), (4, 0, 0, 7, 8)]), equal=((3, 4),)
    ),
    "scatter-read-rest": Case(
        scattered((0, E), slice=[(3, 2, 0, E, -2), (4, 0, 0, E, -2)]), equal=((3, 4),)
    ),
    "scatter-read-start": Case(
        scattered((E, -2), slice=[(3, 2, 0, 0, E), (4, 0, 0, 0, E)]), equal=((3, 4),)
    ),
    "scatter-select-inside": Case(
        scattered((2, 6), select=[(3, 2, 0, 3), (4, 1, 0, 1)]), equal=((3, 4),)
    ),
    "scatter-select-before": Case(
        scattered((2, 6), select=[(3, 2, 0, 1), (4, 0, 0, 1)]), equal=((3, 4),)
    ),
    "scatter-select-after": Case(
        scattered((2, 6), select=[(3, 2, 0, 6), (4, 0, 0, 6)]), equal=((3, 4),)
    ),
    "written-inside": Case(
        scattered((2, 6), slice=[(3, 2, 0, 3, 5)], written=[(2, 0, 3, 5)]), written=[(1, 0, 1, 3)]
    ),
    "written-before": Case(
        scattered((2, 6), slice=[(3, 2, 0, 0, 2)], written=[(2, 0, 0, 2)]), written=[(0, 0, 0, 2)]
    ),
    "written-after": Case(
        scattered((2, 6), slice=[(3, 2, 0, 6, 8)], written=[(2, 0, 6, 8)]), written=[(0, 0, 6, 8)]
    ),
    "written-rest": Case(
        scattered((0, E), slice=[(3, 2, 0, E, -2)], written=[(2, 0, E, -2)]),
        written=[(0, 0, E, -2)],
    ),
    "written-start": Case(
        scattered((E, -2), slice=[(3, 2, 0, 0, E)], written=[(2, 0, 0, E)]),
        written=[(0, 0, 0, E)],
    ),
    "selected-inside": Case(
        scattered((2, 6), select=[(3, 2, 0, 3)], selected=[(2, 0, 3)]), selected=[(1, 0, 1)]
    ),
    "selected-before": Case(
        scattered((2, 6), select=[(3, 2, 0, 1)], selected=[(2, 0, 1)]), selected=[(0, 0, 1)]
    ),
    "selected-after": Case(
        scattered((2, 6), select=[(3, 2, 0, 6)], selected=[(2, 0, 6)]), selected=[(0, 0, 6)]
    ),
    # cat
    "span-of-one": Case(
        facts(slice=[(1, 0, 0, 0, 8)], operand=[(1, 1, 0)], cat=[(2, 1, 0)], size=[(0, 0, 8)])
    ),
    "span-step": Case(facts(**HALVES, operand=[(1, 2, 0), (2, 1, 1)], cat=[(3, 2, 0)])),
    "cat-of-partition": Case(
        facts(**HALVES, operand=[(1, 2, 0), (2, 1, 1)], cat=[(3, 2, 0)], meta=[(0, 5), (3, 5)]),
        equal=((3, 0),),
    ),
}
