"""Concatenations of slices of one tensor."""

from __future__ import annotations

from collections.abc import Generator

from egglog import eq, i64, rewrite, rule

from egraph.language import Operands, Tensor, cat, cons, meta, nil, size, slice_, span
from egraph.rules.rule import Row, family


@family("cat")
def cat_rules(
    x: Tensor, xs: Operands, d: i64, a: i64, b: i64, c: i64
) -> Generator[Row, None, None]:
    """A cat is fresh and has strides of its own: it is `x` only where the layout keys agree."""
    # span([slice(x, d, a, b)], x, d, a, b)
    yield (
        "span-of-one",
        "[slice(x, d, a, b)] tiles a..b of x",
        "span",
        rule(cons(slice_(x, d, a, b), nil())).then(
            span(cons(slice_(x, d, a, b), nil()), x, d, a, b)
        ),
    )
    # span([slice(x, d, a, b), *xs], x, d, a, c) if span(xs, x, d, b, c)
    yield (
        "span-step",
        "[slice(x, d, a, b), *xs] tiles a..c of x if xs tiles b..c",
        "span",
        rule(cons(slice_(x, d, a, b), xs), span(xs, x, d, b, c)).then(
            span(cons(slice_(x, d, a, b), xs), x, d, a, c)
        ),
    )
    # cat([slice(x, d, 0, a), ..., slice(x, d, b, size(x, d))], d) = x
    yield (
        "cat-of-partition",
        "cat([slice(x, d, 0, a), ..., slice(x, d, b, size(x, d))], d) = x",
        "algebra",
        rewrite(cat(xs, d)).to(
            x, span(xs, x, d, 0, a), eq(size(x, d)).to(a), eq(meta(cat(xs, d))).to(meta(x))
        ),
    )
