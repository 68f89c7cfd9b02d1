"""Partition <=> split, selects <=> unbind.

Tilings are proposed from the slices that are written against a source: for each of them the one
that follows the shortest chain of written slices to the start and to the end of the dimension.
Enumerating all tilings is exponential in overlapping windows; this is linear in them.
"""

from __future__ import annotations

from collections.abc import Generator

from egglog import Vec, eq, i64, ne, rule, set_, union

from egraph.language import (
    Pieces,
    Tensor,
    bound_of,
    index,
    links_of,
    packed,
    piece,
    prefix,
    prefix_cuts,
    run_of,
    select,
    selected,
    size,
    slice_,
    split,
    suffix,
    suffix_cuts,
    unbind,
    written,
)
from egraph.rules.rule import Row, family


@family("split")
def split_rules(
    x: Tensor, p: Pieces, d: i64, a: i64, b: i64, n: i64, i: i64, u: Vec[i64], w: Vec[i64]
) -> Generator[Row, None, None]:
    """Pieces are views with the strides, storage and offset of the slices that they equal."""
    # piece(split(x, d, cuts), i) = slice(x, d, cuts[i], cuts[i + 1])
    yield (
        "split-is-slices",
        "piece(split(x, d, cuts), i) = slice(x, d, cuts[i], cuts[i + 1])",
        "tiling",
        rule(index(p, i), eq(p).to(split(x, d, u))).then(
            union(piece(p, i)).with_(slice_(x, d, u[i], u[i + 1]))
        ),
    )
    # index(p, i) and i + 2 < length(cuts) => index(p, i + 1)
    yield (
        "split-pieces",
        "split(x, d, cuts) has piece i + 1 if i + 2 < length(cuts)",
        "tiling",
        rule(index(p, i), eq(p).to(split(x, d, u)), i + 2 < u.length()).then(index(p, i + 1)),
    )
    # prefix(x, d, 0) is the empty chain
    yield (
        "prefix-start",
        "the shortest chain from 0 to 0 has no link",
        "chain",
        rule(written(x, d, 0, b)).then(set_(prefix(x, d, 0)).to(packed(0, 0))),
    )
    # prefix(x, d, b) <= prefix(x, d, a) + slice(x, d, a, b)
    yield (
        "prefix-step",
        "chain(0..b) is no longer than chain(0..a) and slice(x, d, a, b)",
        "chain",
        rule(written(x, d, a, b), eq(n).to(prefix(x, d, a))).then(
            set_(prefix(x, d, b)).to(packed(links_of(n) + 1, a))
        ),
    )
    # suffix(x, d, size(x, d)) is the empty chain
    yield (
        "suffix-start",
        "the shortest chain from size(x, d) to size(x, d) has no link",
        "chain",
        rule(written(x, d, a, b), eq(size(x, d)).to(b)).then(
            set_(suffix(x, d, b)).to(packed(0, b))
        ),
    )
    # suffix(x, d, a) <= slice(x, d, a, b) + suffix(x, d, b)
    yield (
        "suffix-step",
        "chain(a..size) is no longer than slice(x, d, a, b) and chain(b..size)",
        "chain",
        rule(written(x, d, a, b), eq(n).to(suffix(x, d, b))).then(
            set_(suffix(x, d, a)).to(packed(links_of(n) + 1, b))
        ),
    )
    # prefix_cuts(x, d, 0) = [0]
    yield (
        "prefix-cuts-start",
        "cuts(0..0) = [0]",
        "tiling",
        rule(eq(n).to(prefix(x, d, 0))).then(set_(prefix_cuts(x, d, 0)).to(Vec(i64(0)))),
    )
    # prefix_cuts(x, d, b) = prefix_cuts(x, d, a) ++ [b], a the last link's other end
    yield (
        "prefix-cuts-step",
        "cuts(0..b) = cuts(0..a) ++ [b]",
        "tiling",
        rule(
            eq(n).to(prefix(x, d, b)),
            ne(b).to(i64(0)),
            eq(u).to(prefix_cuts(x, d, bound_of(n))),
        ).then(set_(prefix_cuts(x, d, b)).to(u.push(b))),
    )
    # suffix_cuts(x, d, size(x, d)) = [size(x, d)]
    yield (
        "suffix-cuts-start",
        "cuts(size..size) = [size]",
        "tiling",
        rule(eq(n).to(suffix(x, d, b)), eq(size(x, d)).to(b)).then(
            set_(suffix_cuts(x, d, b)).to(Vec(b))
        ),
    )
    # suffix_cuts(x, d, a) = [a] ++ suffix_cuts(x, d, b), b the first link's other end
    yield (
        "suffix-cuts-step",
        "cuts(a..size) = [a] ++ cuts(b..size)",
        "tiling",
        rule(
            eq(n).to(suffix(x, d, a)),
            ne(size(x, d)).to(a),
            eq(u).to(suffix_cuts(x, d, bound_of(n))),
        ).then(set_(suffix_cuts(x, d, a)).to(Vec(a).append(u))),
    )
    # slices that tile the dimension are a split
    yield (
        "partition-is-split",
        "slice(x, d, a, b) = piece(split(x, d, cuts(0..a) ++ cuts(b..size)), i)",
        "tiling",
        rule(
            written(x, d, a, b),
            eq(u).to(prefix_cuts(x, d, a)),
            eq(w).to(suffix_cuts(x, d, b)),
            i64(2) < u.length() + w.length(),
        ).then(index(split(x, d, u.append(w)), 0)),
    )


@family("split")
def unbind_rules(x: Tensor, p: Pieces, d: i64, n: i64, i: i64) -> Generator[Row, None, None]:
    """The elements of an unbind are views with the strides, storage and offset of the selects."""
    # piece(unbind(x, d), i) = select(x, d, i)
    yield (
        "unbind-is-selects",
        "piece(unbind(x, d), i) = select(x, d, i)",
        "tiling",
        rule(index(p, i), eq(p).to(unbind(x, d))).then(union(piece(p, i)).with_(select(x, d, i))),
    )
    # index(p, i) and i + 1 < size(x, d) => index(p, i + 1)
    yield (
        "unbind-pieces",
        "unbind(x, d) has piece i + 1 if i + 1 < size(x, d)",
        "tiling",
        rule(index(p, i), eq(p).to(unbind(x, d)), eq(n).to(size(x, d)), i + 1 < n).then(
            index(p, i + 1)
        ),
    )
    # selected elements 0, ..., n - 1 and n make n + 1
    yield (
        "run-start",
        "select(x, d, 0) is a run of 1",
        "chain",
        rule(selected(x, d, 0)).then(run_of(x, d, 1)),
    )
    # run_of(x, d, n) and selected(x, d, n) => run_of(x, d, n + 1)
    yield (
        "run-step",
        "a run of n and select(x, d, n) are a run of n + 1",
        "chain",
        rule(run_of(x, d, n), selected(x, d, n)).then(run_of(x, d, n + 1)),
    )
    # selects of every element are an unbind
    yield (
        "selects-are-unbind",
        "select(x, d, i) for every i = piece(unbind(x, d), i)",
        "tiling",
        rule(run_of(x, d, n), eq(size(x, d)).to(n), i64(1) < n).then(index(unbind(x, d), 0)),
    )
