"""The fact tables through which a graph is loaded, in bulk.

A relation a shape of node, its rows integers: values, operand lists, operator keys and metas by
number, bounds as in egraph/language.py. Building terms one by one through the high-level API costs
0.45 ms each; a row costs about a microsecond.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from itertools import chain
from typing import Any, NamedTuple

from egglog import i64, rule, ruleset, set_, union, vars_

from egraph.language import (
    alike,
    alike_window,
    cat,
    cons,
    meta,
    node,
    op,
    operands,
    outermost,
    relation,
    scatter,
    select,
    selected,
    size,
    slice_,
    window,
    written,
)

Row = tuple[int, ...]


@dataclass
class Facts:
    """The rows of one graph; each field is a relation, its columns named in the comment."""

    op: list[Row] = field(default_factory=list)  # value, key, operand list
    operand: list[Row] = field(default_factory=list)  # list, first value, rest list (0: empty)
    slice: list[Row] = field(default_factory=list)  # value, x, d, a, b
    select: list[Row] = field(default_factory=list)  # value, x, d, i
    scatter: list[Row] = field(default_factory=list)  # value, x, s, d, a, b
    cat: list[Row] = field(default_factory=list)  # value, operand list, d
    size: list[Row] = field(default_factory=list)  # x, d, bound
    outermost: list[Row] = field(default_factory=list)  # x, d
    meta: list[Row] = field(default_factory=list)  # x, meta
    window: list[Row] = field(default_factory=list)  # y, d, a, b, meta
    alike: list[Row] = field(default_factory=list)  # y, x
    alike_window: list[Row] = field(default_factory=list)  # y, s, d, a

    def has_terms(self) -> bool:
        """Whether there is anything that a rule could touch."""
        return bool(self.slice or self.select or self.scatter or self.cat)


class Wanted(NamedTuple):
    """The intervals that wanted nodes name, from which tilings are made."""

    written: tuple[Row, ...]  # x, d, a, b
    selected: tuple[Row, ...]  # x, d, i


WIDTHS: dict[str, int] = {
    "op": 3,
    "operand": 3,
    "slice": 5,
    "select": 4,
    "scatter": 6,
    "cat": 3,
    "size": 3,
    "outermost": 2,
    "meta": 2,
    "window": 5,
    "alike": 2,
    "alike_window": 4,
    "written": 4,
    "selected": 3,
}
"""Columns of each relation."""

RELATIONS: dict[str, Callable[..., Any]] = {
    name: relation(f"{name}_fact", *([i64] * width)) for name, width in WIDTHS.items()
}

n, m, k, x, s, d, a, b = vars_("n m k x s d a b", i64)

load = ruleset(
    rule(RELATIONS["op"](n, k, m)).then(union(node(n)).with_(op(k, operands(m)))),
    rule(RELATIONS["operand"](n, x, m)).then(union(operands(n)).with_(cons(node(x), operands(m)))),
    rule(RELATIONS["slice"](n, x, d, a, b)).then(union(node(n)).with_(slice_(node(x), d, a, b))),
    rule(RELATIONS["select"](n, x, d, a)).then(union(node(n)).with_(select(node(x), d, a))),
    rule(RELATIONS["scatter"](n, x, s, d, a, b)).then(
        union(node(n)).with_(scatter(node(x), node(s), d, a, b))
    ),
    rule(RELATIONS["cat"](n, m, d)).then(union(node(n)).with_(cat(operands(m), d))),
    rule(RELATIONS["size"](x, d, b)).then(set_(size(node(x), d)).to(b)),
    rule(RELATIONS["outermost"](x, d)).then(outermost(node(x), d)),
    rule(RELATIONS["meta"](x, m)).then(set_(meta(node(x))).to(m)),
    rule(RELATIONS["window"](x, d, a, b, m)).then(set_(window(node(x), d, a, b)).to(m)),
    rule(RELATIONS["alike"](n, x)).then(alike(node(n), node(x))),
    rule(RELATIONS["alike_window"](n, s, d, a)).then(alike_window(node(n), node(s), d, a)),
    name="load",
)
"""Turns rows into terms."""

want = ruleset(
    rule(RELATIONS["written"](x, d, a, b)).then(written(node(x), d, a, b)),
    rule(RELATIONS["selected"](x, d, a)).then(selected(node(x), d, a)),
    name="want",
)
"""Turns wanted intervals into terms."""


def tables(facts: Facts) -> list[tuple[str, str]]:
    """Each relation that has rows, with its rows as tab-separated lines."""
    return [
        (each.name, tsv(each.name, rows))
        for each in fields(facts)
        if (rows := getattr(facts, each.name))
    ]


def tsv(name: str, rows: list[Row] | tuple[Row, ...]) -> str:
    """Rows of relation `name` as tab-separated lines."""
    line = "\t".join(["%d"] * WIDTHS[name]) + "\n"
    return (line * len(rows)) % tuple(chain.from_iterable(rows))
