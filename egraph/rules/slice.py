"""Slices of slices, whole slices, empty slices; and the same of `select`."""

from __future__ import annotations

from collections.abc import Generator

from egglog import i64, ne, rewrite

from egraph.language import Tensor, outermost, select, size, slice_
from egraph.rules.rule import Row, family


@family("slice")
def slice_rules(
    x: Tensor, d: i64, a: i64, b: i64, c: i64, e: i64, i: i64
) -> Generator[Row, None, None]:
    """Views of views: all of them keep strides, storage and offset."""
    # slice(x, d, 0, size(x, d)) = x
    yield (
        "slice-whole",
        "slice(x, d, 0, size(x, d)) = x",
        "algebra",
        rewrite(slice_(x, d, 0, b)).to(x, size(x, d) == b),
    )
    # slice(slice(x, d, a, b), d, c, e) = slice(x, d, a + c, a + e)
    yield (
        "slice-of-slice",
        "slice(slice(x, d, a, b), d, c, e) = slice(x, d, a + c, a + e)",
        "algebra",
        rewrite(slice_(slice_(x, d, a, b), d, c, e)).to(
            slice_(x, d, a + c, a + e), outermost(x, d), a >= 0, c >= 0, e >= 0
        ),
    )
    # slice(slice(x, d, 0, b), d, c, e) = slice(x, d, c, e)
    yield (
        "slice-of-prefix",
        "slice(slice(x, d, 0, b), d, c, e) = slice(x, d, c, e)",
        "algebra",
        rewrite(slice_(slice_(x, d, 0, b), d, c, e)).to(slice_(x, d, c, e), outermost(x, d)),
    )
    # slice(x, d, a, a) = slice(x, d, 0, 0)
    yield (
        "slice-empty",
        "slice(x, d, a, a) = slice(x, d, 0, 0)",
        "algebra",
        rewrite(slice_(x, d, a, a)).to(slice_(x, d, 0, 0), ne(a).to(i64(0))),
    )
    # select(slice(x, d, a, b), d, i) = select(x, d, a + i)
    yield (
        "select-of-slice",
        "select(slice(x, d, a, b), d, i) = select(x, d, a + i)",
        "algebra",
        rewrite(select(slice_(x, d, a, b), d, i)).to(
            select(x, d, a + i), outermost(x, d), a >= 0, i >= 0
        ),
    )
