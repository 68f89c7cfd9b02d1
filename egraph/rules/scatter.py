"""Slices of a tensor that was written into: what was written, and what wasn't."""

from __future__ import annotations

from collections.abc import Generator

from egglog import eq, i64, rewrite, rule

from egraph.language import (
    Tensor,
    alike,
    alike_window,
    meta,
    scatter,
    select,
    selected,
    slice_,
    window,
    written,
)
from egraph.rules.rule import Row, family


@family("scatter")
def scatter_rules(
    x: Tensor, s: Tensor, d: i64, a: i64, b: i64, c: i64, e: i64, i: i64
) -> Generator[Row, None, None]:
    """A scatter casts its source and passes the strides of `x` on.

    So a slice of it is one of the source, or of `x`, only where dtype and layout key agree.
    """
    y = scatter(x, s, d, a, b)
    # slice(scatter(x, s, d, a, b), d, a, b) = s
    yield (
        "scatter-read-back",
        "slice(y, d, a, b) = s where y = scatter(x, s, d, a, b)",
        "algebra",
        rewrite(slice_(y, d, a, b)).to(s, eq(window(y, d, a, b)).to(meta(s))),
    )
    # slice(scatter(x, s, d, a, b), d, c, e) = slice(s, d, c - a, e - a)
    yield (
        "scatter-read-inside",
        "slice(y, d, c, e) = slice(s, d, c - a, e - a) where y = scatter(x, s, d, a, b),"
        " a <= c, e <= b",
        "algebra",
        rewrite(slice_(y, d, c, e)).to(
            slice_(s, d, c - a, e - a), a >= 0, a <= c, c <= e, e <= b, alike_window(y, s, d, a)
        ),
    )
    # slice(scatter(x, s, d, a, b), d, c, e) = slice(x, d, c, e)         before the window
    yield (
        "scatter-read-before",
        "slice(y, d, c, e) = slice(x, d, c, e) where y = scatter(x, s, d, a, b), e <= a",
        "algebra",
        rewrite(slice_(y, d, c, e)).to(slice_(x, d, c, e), c >= 0, c <= e, e <= a, alike(y, x)),
    )
    # slice(scatter(x, s, d, a, b), d, c, e) = slice(x, d, c, e)         after the window
    yield (
        "scatter-read-after",
        "slice(y, d, c, e) = slice(x, d, c, e) where y = scatter(x, s, d, a, b), b <= c",
        "algebra",
        rewrite(slice_(y, d, c, e)).to(slice_(x, d, c, e), b >= 0, b <= c, alike(y, x)),
    )
    # slice(scatter(x, s, d, a, b), d, b, e) = slice(x, d, b, e)         bounds of any kind
    yield (
        "scatter-read-rest",
        "slice(y, d, b, e) = slice(x, d, b, e) where y = scatter(x, s, d, a, b)",
        "algebra",
        rewrite(slice_(y, d, b, e)).to(slice_(x, d, b, e), alike(y, x)),
    )
    # slice(scatter(x, s, d, a, b), d, c, a) = slice(x, d, c, a)         bounds of any kind
    yield (
        "scatter-read-start",
        "slice(y, d, c, a) = slice(x, d, c, a) where y = scatter(x, s, d, a, b)",
        "algebra",
        rewrite(slice_(y, d, c, a)).to(slice_(x, d, c, a), alike(y, x)),
    )
    # select(scatter(x, s, d, a, b), d, i) = select(s, d, i - a)
    yield (
        "scatter-select-inside",
        "select(y, d, i) = select(s, d, i - a) where y = scatter(x, s, d, a, b), a <= i < b",
        "algebra",
        rewrite(select(y, d, i)).to(
            select(s, d, i - a), a >= 0, a <= i, i < b, alike_window(y, s, d, a)
        ),
    )
    # select(scatter(x, s, d, a, b), d, i) = select(x, d, i)             before the window
    yield (
        "scatter-select-before",
        "select(y, d, i) = select(x, d, i) where y = scatter(x, s, d, a, b), i < a",
        "algebra",
        rewrite(select(y, d, i)).to(select(x, d, i), i >= 0, i < a, alike(y, x)),
    )
    # select(scatter(x, s, d, a, b), d, i) = select(x, d, i)             after the window
    yield (
        "scatter-select-after",
        "select(y, d, i) = select(x, d, i) where y = scatter(x, s, d, a, b), b <= i",
        "algebra",
        rewrite(select(y, d, i)).to(select(x, d, i), b >= 0, b <= i, alike(y, x)),
    )
    # An interval that is named against y is named against what it reads.
    yield (
        "written-inside",
        "a slice of scatter(x, s, d, a, b) inside a..b is named against s",
        "chain",
        rule(written(y, d, c, e), alike_window(y, s, d, a), a >= 0, a <= c, c <= e, e <= b).then(
            written(s, d, c - a, e - a)
        ),
    )
    yield (
        "written-before",
        "a slice of scatter(x, s, d, a, b) before a is named against x",
        "chain",
        rule(written(y, d, c, e), alike(y, x), c >= 0, c <= e, e <= a).then(written(x, d, c, e)),
    )
    yield (
        "written-after",
        "a slice of scatter(x, s, d, a, b) after b is named against x",
        "chain",
        rule(written(y, d, c, e), alike(y, x), b >= 0, b <= c).then(written(x, d, c, e)),
    )
    yield (
        "written-rest",
        "the slice b..e of scatter(x, s, d, a, b) is named against x",
        "chain",
        rule(written(y, d, b, e), alike(y, x)).then(written(x, d, b, e)),
    )
    yield (
        "written-start",
        "the slice c..a of scatter(x, s, d, a, b) is named against x",
        "chain",
        rule(written(y, d, c, a), alike(y, x)).then(written(x, d, c, a)),
    )
    yield (
        "selected-inside",
        "an element of scatter(x, s, d, a, b) in a..b is named against s",
        "chain",
        rule(selected(y, d, i), alike_window(y, s, d, a), a >= 0, a <= i, i < b).then(
            selected(s, d, i - a)
        ),
    )
    yield (
        "selected-before",
        "an element of scatter(x, s, d, a, b) before a is named against x",
        "chain",
        rule(selected(y, d, i), alike(y, x), i >= 0, i < a).then(selected(x, d, i)),
    )
    yield (
        "selected-after",
        "an element of scatter(x, s, d, a, b) after b is named against x",
        "chain",
        rule(selected(y, d, i), alike(y, x), b >= 0, b <= i).then(selected(x, d, i)),
    )
