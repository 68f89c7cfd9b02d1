"""Facts that tests of the engine share, and one way to saturate them."""

from __future__ import annotations

import dataclasses

from egraph.eclasses import EClasses
from egraph.engine import Saturation, session
from egraph.facts import Facts, Wanted
from egraph.rules import FAMILIES

ALL = tuple(dict.fromkeys(family.name for family in FAMILIES))
NOTHING = Wanted((), ())


def completed(facts: Facts) -> Facts:
    """The facts with those sources that aren't slices themselves told to be outermost."""
    sliced = {row[0] for row in facts.slice}
    rows = {(x, d): None for _, x, d, *_ in facts.slice if x not in sliced}
    return dataclasses.replace(facts, outermost=facts.outermost or list(rows))


def run(
    facts: Facts,
    wanted: Wanted = NOTHING,
    *,
    families: tuple[str, ...] = ALL,
    max_iterations: int = 30,
    max_enodes: int = 1_000_000,
    everything: bool = False,
) -> tuple[EClasses, Saturation]:
    with session(families) as each:
        classes = each.saturate(
            completed(facts), wanted, max_iterations, max_enodes, everything=everything
        )
        return classes, each.saturation


def chain(length: int) -> Facts:
    """A tensor of `length` elements, and slices of slices that each leave out the first one."""
    facts = Facts(size=[(0, 0, length)])
    for n in range(1, length):
        facts.slice.append((n, n - 1, 0, 1, length - n + 1))
    return facts


def qkv() -> tuple[Facts, Wanted]:
    """Value 0 of 16 elements cut twice into q, k and v, whose first halves meet in a scatter."""
    facts = Facts(size=[(0, 1, 16), (1, 1, 8), (4, 1, 8), (9, 1, 16)])
    cuts = [(0, 8), (8, 12), (12, 16)]
    facts.slice = [(1 + i, 0, 1, a, b) for i, (a, b) in enumerate([*cuts, *cuts])]
    facts.slice += [(7, 1, 1, 0, 4), (8, 4, 1, 0, 4)]
    facts.scatter = [(9, 0, 1, 1, 0, 8)]
    facts.slice += [(10, 9, 1, 0, 8), (11, 9, 1, 8, 12)]
    facts.operand = [(1, 7, 0), (2, 8, 0)]
    facts.op = [(12, 5, 1), (13, 5, 2)]
    facts.alike = [(9, 0)]
    facts.alike_window = [(9, 1, 1, 0)]
    facts.meta = [(1, 3)]
    facts.window = [(9, 1, 0, 8, 3)]
    wanted = [(0, 1, a, b) for a, b in cuts] + [(1, 1, 0, 4), (9, 1, 0, 8), (9, 1, 8, 12)]
    return facts, Wanted(tuple(wanted), ())
