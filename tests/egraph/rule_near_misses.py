"""Cases in which one condition of a rule doesn't hold, so that it must not fire."""

from __future__ import annotations

from tests.egraph.rule_cases import (
    HALVES,
    SELECTED,
    SELECTS,
    WRITTEN_HALVES,
    Case,
    E,
    facts,
    scattered,
)

# A condition of the rule doesn't hold, by what is wrong: the rule must not fire. The pairs are not
# equal then.
NEAR_MISSES: dict[str, dict[str, Case]] = {
    "slice-whole": {
        "too short": Case(facts(slice=[(1, 0, 0, 0, 7)], size=[(0, 0, 8)]), equal=((1, 0),)),
        "not from the start": Case(
            facts(slice=[(1, 0, 0, 1, 8)], size=[(0, 0, 8)]), equal=((1, 0),)
        ),
        "another dimension": Case(
            facts(slice=[(1, 0, 1, 0, 8)], size=[(0, 0, 8), (0, 1, 9)]), equal=((1, 0),)
        ),
        "another expression": Case(
            facts(slice=[(1, 0, 0, 0, E)], size=[(0, 0, -2)]), equal=((1, 0),)
        ),
    },
    "slice-of-slice": {
        "another dimension": Case(
            facts(slice=[(1, 0, 0, 2, 8), (2, 1, 1, 1, 3), (3, 0, 0, 3, 5), (4, 0, 1, 3, 5)]),
            equal=((2, 3), (2, 4)),
        ),
        "a symbolic start outside": Case(
            facts(slice=[(1, 0, 0, E, 8), (2, 1, 0, 1, 3), (3, 0, 0, 0, 2)]), equal=((2, 3),)
        ),
        "a symbolic start inside": Case(
            facts(slice=[(1, 0, 0, 2, 8), (2, 1, 0, E, 3), (3, 0, 0, 1, 5)]), equal=((2, 3),)
        ),
        "a symbolic end inside": Case(
            facts(slice=[(1, 0, 0, 2, 8), (2, 1, 0, 1, E), (3, 0, 0, 3, 1)]), equal=((2, 3),)
        ),
    },
    "slice-of-prefix": {
        "another dimension": Case(
            facts(slice=[(1, 0, 0, 0, E), (2, 1, 1, -2, -3), (3, 0, 1, -2, -3)]), equal=((2, 3),)
        ),
        "not a prefix": Case(
            facts(slice=[(1, 0, 0, E, -4), (2, 1, 0, -2, -3), (3, 0, 0, -2, -3)]), equal=((2, 3),)
        ),
    },
    "slice-empty": {
        "not empty": Case(facts(slice=[(1, 0, 0, 3, 4), (2, 0, 0, 0, 0)]), equal=((1, 2),)),
        "empty already": Case(facts(slice=[(2, 0, 0, 0, 0)])),
        "other expressions": Case(
            facts(slice=[(1, 0, 0, E, -2), (2, 0, 0, 0, 0)]), equal=((1, 2),)
        ),
    },
    "select-of-slice": {
        "another dimension": Case(
            facts(slice=[(1, 0, 0, 2, 8)], select=[(2, 1, 1, 3), (3, 0, 0, 5), (4, 0, 1, 5)]),
            equal=((2, 3), (2, 4)),
        ),
        "a symbolic start": Case(
            facts(slice=[(1, 0, 0, E, 8)], select=[(2, 1, 0, 3), (3, 0, 0, 2)]), equal=((2, 3),)
        ),
        "a symbolic element": Case(
            facts(slice=[(1, 0, 0, 2, 8)], select=[(2, 1, 0, E), (3, 0, 0, 1)]), equal=((2, 3),)
        ),
    },
    "partition-is-split": {
        "a gap": Case(
            facts(
                slice=[(1, 0, 0, 0, 3), (2, 0, 0, 4, 8)],
                size=[(0, 0, 8)],
                written=[(0, 0, 0, 3), (0, 0, 4, 8)],
            )
        ),
        "an overlap": Case(
            facts(
                slice=[(1, 0, 0, 0, 5), (2, 0, 0, 4, 8)],
                size=[(0, 0, 8)],
                written=[(0, 0, 0, 5), (0, 0, 4, 8)],
            )
        ),
        "no end": Case(facts(slice=[(1, 0, 0, 0, 4)], size=[(0, 0, 8)], written=[(0, 0, 0, 4)])),
        "one piece": Case(facts(slice=[(1, 0, 0, 0, 8)], size=[(0, 0, 8)], written=[(0, 0, 0, 8)])),
        "two dimensions": Case(
            facts(
                slice=[(1, 0, 0, 0, 4), (2, 0, 1, 4, 8)],
                size=[(0, 0, 8), (0, 1, 8)],
                written=[(0, 0, 0, 4), (0, 1, 4, 8)],
            )
        ),
        "two sources": Case(
            facts(
                slice=[(2, 0, 0, 0, 4), (3, 1, 0, 4, 8)],
                size=[(0, 0, 8), (1, 0, 8)],
                written=[(0, 0, 0, 4), (1, 0, 4, 8)],
            )
        ),
        "not wanted": Case(facts(**HALVES, written=WRITTEN_HALVES[:1])),
        "a symbolic gap": Case(
            facts(
                slice=[(1, 0, 0, 0, E), (2, 0, 0, -2, -3)],
                size=[(0, 0, -3)],
                written=[(0, 0, 0, E), (0, 0, -2, -3)],
            )
        ),
    },
    "selects-are-unbind": {
        "an element is missing": Case(facts(**SELECTS, selected=[SELECTED[0], SELECTED[2]])),
        "the last is missing": Case(facts(**SELECTS, selected=SELECTED[:2])),
        "one element": Case(facts(select=[(1, 0, 0, 0)], size=[(0, 0, 1)], selected=[(0, 0, 0)])),
        "two dimensions": Case(
            facts(
                select=[(1, 0, 0, 0), (2, 0, 1, 1)],
                size=[(0, 0, 2), (0, 1, 2)],
                selected=[(0, 0, 0), (0, 1, 1)],
            )
        ),
        "a symbolic size": Case(
            facts(select=[(1, 0, 0, 0)], size=[(0, 0, E)], selected=[(0, 0, 0)])
        ),
    },
    "scatter-read-back": {
        "another layout": Case(
            facts(
                scatter=[(2, 0, 1, 0, 2, 6)],
                slice=[(3, 2, 0, 2, 6)],
                window=[(2, 0, 2, 6, 7)],
                meta=[(1, 8)],
            ),
            equal=((3, 1),),
        ),
        "an unknown layout": Case(
            facts(scatter=[(2, 0, 1, 0, 2, 6)], slice=[(3, 2, 0, 2, 6)]), equal=((3, 1),)
        ),
        "another window": Case(
            facts(
                scatter=[(2, 0, 1, 0, 2, 6)],
                slice=[(3, 2, 0, 2, 5)],
                window=[(2, 0, 2, 6, 7), (2, 0, 2, 5, 7)],
                meta=[(1, 7)],
            ),
            equal=((3, 1),),
        ),
        "another dimension": Case(
            facts(
                scatter=[(2, 0, 1, 0, 2, 6)],
                slice=[(3, 2, 1, 2, 6)],
                window=[(2, 0, 2, 6, 7), (2, 1, 2, 6, 7)],
                meta=[(1, 7)],
            ),
            equal=((3, 1),),
        ),
    },
    "scatter-read-inside": {
        "another layout": Case(
            scattered((2, 6), alike_window=False, slice=[(3, 2, 0, 3, 5), (4, 1, 0, 1, 3)]),
            equal=((3, 4),),
        ),
        "over the start": Case(
            scattered((2, 6), slice=[(3, 2, 0, 1, 5), (4, 1, 0, 0, 3)]), equal=((3, 4),)
        ),
        "over the end": Case(
            scattered((2, 6), slice=[(3, 2, 0, 3, 7), (4, 1, 0, 1, 5)]), equal=((3, 4),)
        ),
        "another dimension": Case(
            scattered((2, 6), slice=[(3, 2, 1, 3, 5), (4, 1, 1, 1, 3), (5, 1, 0, 1, 3)]),
            equal=((3, 4), (3, 5)),
        ),
        "a symbolic window": Case(
            scattered((E, 6), slice=[(3, 2, 0, 3, 5), (4, 1, 0, 4, 6)]), equal=((3, 4),)
        ),
        "a symbolic end of the window": Case(
            scattered((2, E), slice=[(3, 2, 0, 3, 5), (4, 1, 0, 1, 3)]), equal=((3, 4),)
        ),
        "symbolic bounds": Case(
            scattered((0, 6), slice=[(3, 2, 0, -2, E), (4, 1, 0, -2, E)]), equal=((3, 4),)
        ),
        "the layout of another window": Case(
            scattered((2, 6), alike_window=False, slice=[(3, 2, 0, 3, 5), (4, 1, 0, 1, 3)])
            | {"alike_window": [(2, 1, 0, 3), (2, 1, 1, 2)]},
            equal=((3, 4),),
        ),
    },
    "scatter-read-before": {
        "another layout": Case(
            scattered((2, 6), alike=False, slice=[(3, 2, 0, 0, 1), (4, 0, 0, 0, 1)]),
            equal=((3, 4),),
        ),
        "over the start": Case(
            scattered((2, 6), slice=[(3, 2, 0, 0, 3), (4, 0, 0, 0, 3)]), equal=((3, 4),)
        ),
        "another dimension": Case(
            scattered((2, 6), slice=[(3, 2, 1, 0, 1), (4, 0, 1, 0, 1)]), equal=((3, 4),)
        ),
        "a symbolic start": Case(
            scattered((2, 6), slice=[(3, 2, 0, E, 1), (4, 0, 0, E, 1)]), equal=((3, 4),)
        ),
        "a symbolic end": Case(
            scattered((2, 6), slice=[(3, 2, 0, 0, E), (4, 0, 0, 0, E)]), equal=((3, 4),)
        ),
        "a symbolic window": Case(
            scattered((E, 6), slice=[(3, 2, 0, 0, -2), (4, 0, 0, 0, -2)]), equal=((3, 4),)
        ),
    },
    "scatter-read-after": {
        "another layout": Case(
            scattered((2, 6), alike=False, slice=[(3, 2, 0, 7, 8), (4, 0, 0, 7, 8)]),
            equal=((3, 4),),
        ),
        "over the end": Case(
            scattered((2, 6), slice=[(3, 2, 0, 5, 8), (4, 0, 0, 5, 8)]), equal=((3, 4),)
        ),
        "another dimension": Case(
            scattered((2, 6), slice=[(3, 2, 1, 7, 8), (4, 0, 1, 7, 8)]), equal=((3, 4),)
        ),
        "a symbolic window": Case(
            scattered((2, E), slice=[(3, 2, 0, 7, 8), (4, 0, 0, 7, 8)]), equal=((3, 4),)
        ),
        "a symbolic start": Case(
            scattered((2, 6), slice=[(3, 2, 0, E, 8), (4, 0, 0, E, 8)]), equal=((3, 4),)
        ),
    },
    "scatter-read-rest": {
        "another layout": Case(
            scattered((0, E), alike=False, slice=[(3, 2, 0, E, -2), (4, 0, 0, E, -2)]),
            equal=((3, 4),),
        ),
        "another expression": Case(
            scattered((0, E), slice=[(3, 2, 0, -3, -2), (4, 0, 0, -3, -2)]), equal=((3, 4),)
        ),
        "another dimension": Case(
            scattered((0, E), slice=[(3, 2, 1, E, -2), (4, 0, 1, E, -2)]), equal=((3, 4),)
        ),
    },
    "scatter-read-start": {
        "another layout": Case(
            scattered((E, -2), alike=False, slice=[(3, 2, 0, 0, E), (4, 0, 0, 0, E)]),
            equal=((3, 4),),
        ),
        "another expression": Case(
            scattered((E, -2), slice=[(3, 2, 0, 0, -2), (4, 0, 0, 0, -2)]), equal=((3, 4),)
        ),
        "another dimension": Case(
            scattered((E, -2), slice=[(3, 2, 1, 0, E), (4, 0, 1, 0, E)]), equal=((3, 4),)
        ),
    },
    "scatter-select-inside": {
        "another layout": Case(
            scattered((2, 6), alike_window=False, select=[(3, 2, 0, 3), (4, 1, 0, 1)]),
            equal=((3, 4),),
        ),
        "before": Case(scattered((2, 6), select=[(3, 2, 0, 1), (4, 1, 0, 0)]), equal=((3, 4),)),
        "after": Case(scattered((2, 6), select=[(3, 2, 0, 6), (4, 1, 0, 4)]), equal=((3, 4),)),
        "another dimension": Case(
            scattered((2, 6), select=[(3, 2, 1, 3), (4, 1, 1, 1)]), equal=((3, 4),)
        ),
        "a symbolic window": Case(
            scattered((E, 6), select=[(3, 2, 0, 3), (4, 1, 0, 4)]), equal=((3, 4),)
        ),
        "a symbolic end of the window": Case(
            scattered((2, E), select=[(3, 2, 0, 3), (4, 1, 0, 1)]), equal=((3, 4),)
        ),
        "a symbolic element": Case(
            scattered((0, 6), select=[(3, 2, 0, E), (4, 1, 0, E)]), equal=((3, 4),)
        ),
    },
    "scatter-select-before": {
        "another layout": Case(
            scattered((2, 6), alike=False, select=[(3, 2, 0, 1), (4, 0, 0, 1)]), equal=((3, 4),)
        ),
        "inside": Case(scattered((2, 6), select=[(3, 2, 0, 2), (4, 0, 0, 2)]), equal=((3, 4),)),
        "another dimension": Case(
            scattered((2, 6), select=[(3, 2, 1, 1), (4, 0, 1, 1)]), equal=((3, 4),)
        ),
        "a symbolic element": Case(
            scattered((2, 6), select=[(3, 2, 0, E), (4, 0, 0, E)]), equal=((3, 4),)
        ),
        "a symbolic window": Case(
            scattered((E, 6), select=[(3, 2, 0, -2), (4, 0, 0, -2)]), equal=((3, 4),)
        ),
    },
    "scatter-select-after": {
        "another layout": Case(
            scattered((2, 6), alike=False, select=[(3, 2, 0, 6), (4, 0, 0, 6)]), equal=((3, 4),)
        ),
        "inside": Case(scattered((2, 6), select=[(3, 2, 0, 5), (4, 0, 0, 5)]), equal=((3, 4),)),
        "another dimension": Case(
            scattered((2, 6), select=[(3, 2, 1, 6), (4, 0, 1, 6)]), equal=((3, 4),)
        ),
        "a symbolic window": Case(
            scattered((2, E), select=[(3, 2, 0, 6), (4, 0, 0, 6)]), equal=((3, 4),)
        ),
    },
    "written-inside": {
        "another layout": Case(
            scattered((2, 6), alike_window=False, slice=[(3, 2, 0, 3, 5)], written=[(2, 0, 3, 5)])
        ),
        "over the end": Case(scattered((2, 6), slice=[(3, 2, 0, 3, 7)], written=[(2, 0, 3, 7)])),
        "not wanted": Case(scattered((2, 6), slice=[(3, 2, 0, 3, 5)])),
        "a symbolic window": Case(
            scattered((E, 6), slice=[(3, 2, 0, 3, 5)], written=[(2, 0, 3, 5)])
        ),
        "symbolic bounds": Case(
            scattered((0, 6), slice=[(3, 2, 0, -2, E)], written=[(2, 0, -2, E)])
        ),
    },
    "written-before": {
        "another layout": Case(
            scattered((2, 6), alike=False, slice=[(3, 2, 0, 0, 2)], written=[(2, 0, 0, 2)])
        ),
        "over the start": Case(scattered((2, 6), slice=[(3, 2, 0, 0, 3)], written=[(2, 0, 0, 3)])),
        "a symbolic end": Case(scattered((2, 6), slice=[(3, 2, 0, 0, E)], written=[(2, 0, 0, E)])),
        "symbolic bounds": Case(
            scattered((2, 6), slice=[(3, 2, 0, -2, E)], written=[(2, 0, -2, E)])
        ),
    },
    "written-after": {
        "another layout": Case(
            scattered((2, 6), alike=False, slice=[(3, 2, 0, 6, 8)], written=[(2, 0, 6, 8)])
        ),
        "over the end": Case(scattered((2, 6), slice=[(3, 2, 0, 5, 8)], written=[(2, 0, 5, 8)])),
        "a symbolic window": Case(
            scattered((2, E), slice=[(3, 2, 0, 6, 8)], written=[(2, 0, 6, 8)])
        ),
    },
    "written-rest": {
        "another layout": Case(
            scattered((0, E), alike=False, slice=[(3, 2, 0, E, -2)], written=[(2, 0, E, -2)])
        ),
        "another expression": Case(
            scattered((0, E), slice=[(3, 2, 0, -3, -2)], written=[(2, 0, -3, -2)])
        ),
    },
    "written-start": {
        "another layout": Case(
            scattered((E, -2), alike=False, slice=[(3, 2, 0, 0, E)], written=[(2, 0, 0, E)])
        ),
        "another expression": Case(
            scattered((E, -2), slice=[(3, 2, 0, 0, -2)], written=[(2, 0, 0, -2)])
        ),
    },
    "selected-inside": {
        "another layout": Case(
            scattered((2, 6), alike_window=False, select=[(3, 2, 0, 3)], selected=[(2, 0, 3)])
        ),
        "outside": Case(scattered((2, 6), select=[(3, 2, 0, 6)], selected=[(2, 0, 6)])),
        "a symbolic element": Case(scattered((0, 6), select=[(3, 2, 0, E)], selected=[(2, 0, E)])),
        "a symbolic window": Case(scattered((E, 6), select=[(3, 2, 0, 3)], selected=[(2, 0, 3)])),
    },
    "selected-before": {
        "another layout": Case(
            scattered((2, 6), alike=False, select=[(3, 2, 0, 1)], selected=[(2, 0, 1)])
        ),
        "inside": Case(scattered((2, 6), select=[(3, 2, 0, 2)], selected=[(2, 0, 2)])),
        "a symbolic element": Case(scattered((2, 6), select=[(3, 2, 0, E)], selected=[(2, 0, E)])),
        "a symbolic window": Case(scattered((E, 6), select=[(3, 2, 0, -2)], selected=[(2, 0, -2)])),
    },
    "selected-after": {
        "another layout": Case(
            scattered((2, 6), alike=False, select=[(3, 2, 0, 6)], selected=[(2, 0, 6)])
        ),
        "inside": Case(scattered((2, 6), select=[(3, 2, 0, 5)], selected=[(2, 0, 5)])),
        "a symbolic window": Case(scattered((2, E), select=[(3, 2, 0, 6)], selected=[(2, 0, 6)])),
    },
    "span-step": {
        "in the wrong order": Case(
            facts(**HALVES, operand=[(1, 1, 0), (2, 2, 1)], cat=[(3, 2, 0)])
        ),
        "two sources": Case(
            facts(
                slice=[(2, 0, 0, 0, 4), (3, 1, 0, 4, 8)],
                operand=[(1, 3, 0), (2, 2, 1)],
                cat=[(4, 2, 0)],
            )
        ),
    },
    "cat-of-partition": {
        "another layout": Case(
            facts(**HALVES, operand=[(1, 2, 0), (2, 1, 1)], cat=[(3, 2, 0)], meta=[(0, 5), (3, 6)]),
            equal=((3, 0),),
        ),
        "an unknown layout": Case(
            facts(**HALVES, operand=[(1, 2, 0), (2, 1, 1)], cat=[(3, 2, 0)]), equal=((3, 0),)
        ),
        "in the wrong order": Case(
            facts(**HALVES, operand=[(1, 1, 0), (2, 2, 1)], cat=[(3, 2, 0)], meta=[(0, 5), (3, 5)]),
            equal=((3, 0),),
        ),
        "another dimension": Case(
            facts(**HALVES, operand=[(1, 2, 0), (2, 1, 1)], cat=[(3, 2, 1)], meta=[(0, 5), (3, 5)]),
            equal=((3, 0),),
        ),
        "a piece is missing": Case(
            facts(**HALVES, operand=[(1, 1, 0)], cat=[(3, 1, 0)], meta=[(0, 5), (3, 5)]),
            equal=((3, 0),),
        ),
        "a piece is there twice": Case(
            facts(
                **HALVES,
                operand=[(1, 2, 0), (2, 2, 1), (3, 1, 2)],
                cat=[(3, 3, 0)],
                meta=[(0, 5), (3, 5)],
            ),
            equal=((3, 0),),
        ),
    },
}

# Rules without a condition: whatever they match, they say.
UNCONDITIONAL = {
    "split-is-slices",
    "split-pieces",
    "prefix-start",
    "prefix-step",
    "suffix-start",
    "suffix-step",
    "prefix-cuts-start",
    "prefix-cuts-step",
    "suffix-cuts-start",
    "suffix-cuts-step",
    "unbind-is-selects",
    "unbind-pieces",
    "run-start",
    "run-step",
    "span-of-one",
}
