"""The terms of the algebra: what an e-node can be, and what each one means.

A *bound* is an `i64`. A bound >= 0 is the number itself. A negative bound is the code of a symbolic
expression: codes are given in the order of the expressions, equal codes are equal expressions, and
nothing else may be read from them. A rule that does arithmetic or compares bounds therefore guards
with `0 <=` first; a rule that only asks whether two bounds are equal needs no guard.

The lowering promises that every slice it loads is in bounds: 0 <= a <= b <= size(x, d).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from egglog import Expr, Unit, Vec, function, i64, i64Like
from egglog import relation as egglog_relation


class Tensor(Expr, egg_sort="Tensor"):
    """One value: a tensor, or whatever else an opaque node returns."""


class Pieces(Expr, egg_sort="Pieces"):
    """A list of tensors that one node returns."""


class Operands(Expr, egg_sort="Operands"):
    """A list of tensors that one node takes."""


def relation(name: str, *sorts: type) -> Callable[..., Unit]:
    """Declare a relation under its own name (egglog's overloads stop at four columns)."""
    declare: Any = egglog_relation
    declared: Callable[..., Unit] = declare(name, *sorts, egg_fn=name)
    return declared


@function(egg_fn="node")
def node(n: i64Like) -> Tensor:
    """The value with number `n` of the graph that came in."""


@function(egg_fn="operands")
def operands(n: i64Like) -> Operands:
    """The operand list with number `n` of the graph that came in; 0 is the empty one."""


@function(egg_fn="nil")
def nil() -> Operands:
    """The empty operand list."""


@function(egg_fn="cons")
def cons(x: Tensor, rest: Operands) -> Operands:
    """`x`, then `rest`."""


@function(egg_fn="op")
def op(key: i64Like, xs: Operands) -> Tensor:
    """A pure operator that the algebra knows nothing of.

    `key` stands for its overload, its arguments other than tensors, what must not merge, and, where
    the operator sees more of an operand than its layout key, that operand's exact layout.
    """


@function(egg_fn="slice")
def slice_(x: Tensor, d: i64Like, a: i64Like, b: i64Like) -> Tensor:
    """A view: elements a, a + 1, ..., b - 1 of `x` along `d`."""


@function(egg_fn="select")
def select(x: Tensor, d: i64Like, i: i64Like) -> Tensor:
    """A view: element `i` of `x` along `d`, without that dimension."""


@function(egg_fn="split")
def split(x: Tensor, d: i64Like, cuts: Vec[i64]) -> Pieces:
    """Views: `x` cut along `d` at `cuts`, which start at 0 and end at the size."""


@function(egg_fn="unbind")
def unbind(x: Tensor, d: i64Like) -> Pieces:
    """Views: every element of `x` along `d`, without that dimension."""


@function(egg_fn="piece")
def piece(p: Pieces, i: i64Like) -> Tensor:
    """Piece `i` of a list."""


@function(egg_fn="scatter")
def scatter(x: Tensor, s: Tensor, d: i64Like, a: i64Like, b: i64Like) -> Tensor:
    """A fresh copy of `x` with `s`, cast to the dtype of `x`, in place of slice(x, d, a, b)."""


@function(egg_fn="cat")
def cat(xs: Operands, d: i64Like) -> Tensor:
    """A fresh tensor: the operands, which have one rank and one dtype, one after the other."""


# What is known of a value. `:no-merge`: a union of two values that differ raises.


@function(egg_fn="size")
def size(x: Tensor, d: i64Like) -> i64:
    """The number of elements along `d`, as a bound."""


@function(egg_fn="meta")
def meta(x: Tensor) -> i64:
    """Stands for shape, dtype, device and layout key together."""


@function(egg_fn="window")
def window(y: Tensor, d: i64Like, a: i64Like, b: i64Like) -> i64:
    """What `meta(slice(y, d, a, b))` is, whether or not that slice is a term."""


alike = relation("alike", Tensor, Tensor)
"""alike(y, x): x has the shape and dtype of y, and each slice of it the layout key of y's."""

alike_window = relation("alike_window", Tensor, Tensor, i64, i64)
"""alike_window(y, s, d, a): the same of s and the slice of y that starts at a along d."""

outermost = relation("outermost", Tensor, i64)
"""outermost(x, d): x is not itself a slice along d that could be composed with one of x.

A condition of size, not of soundness: slices of slices are composed down to it in one step, for
otherwise n of them would have n * n / 2 equal forms.
"""

# What is asked of the graph: the intervals that it names, which tilings are made of.

written = relation("written", Tensor, i64, i64, i64)
"""written(x, d, a, b): a node that is still wanted takes slice(x, d, a, b) of x itself; a != b."""

selected = relation("selected", Tensor, i64, i64)
"""selected(x, d, i): a node that is still wanted takes select(x, d, i) of x itself."""

index = relation("index", Pieces, i64)
"""index(p, i): list p has a piece i."""

# Shortest chains: a link is packed(number of links, the bound at its other end), so that `min`
# keeps the fewest links and, among those, the least bound.

LINK = 1 << 41
"""Half the range of a packed bound: literal bounds stay under it, codes over its negative."""


def packed(links: i64Like, bound: i64Like) -> i64:
    """Number of links in the upper bits, bound in the lower 42."""
    return i64(2 * LINK) * links + (bound + i64(LINK))


def links_of(link: i64) -> i64:
    """Number of links of a packed link."""
    return link / (2 * LINK)


def bound_of(link: i64) -> i64:
    """Bound of a packed link."""
    return link % (2 * LINK) - LINK


@function(egg_fn="prefix", merge=lambda old, new: old.min(new))
def prefix(x: Tensor, d: i64Like, b: i64Like) -> i64:
    """The last link of the shortest chain of written slices from 0 to `b`."""


@function(egg_fn="suffix", merge=lambda old, new: old.min(new))
def suffix(x: Tensor, d: i64Like, a: i64Like) -> i64:
    """The first link of the shortest chain of written slices from `a` to the end."""


@function(egg_fn="prefix_cuts")
def prefix_cuts(x: Tensor, d: i64Like, b: i64Like) -> Vec[i64]:
    """The cuts along the shortest chain from 0 to `b`, both ends included."""


@function(egg_fn="suffix_cuts")
def suffix_cuts(x: Tensor, d: i64Like, a: i64Like) -> Vec[i64]:
    """The cuts along the shortest chain from `a` to the end, both ends included."""


run_of = relation("run_of", Tensor, i64, i64)
"""run_of(x, d, n): the elements 0, ..., n - 1 of x along d are all selected."""


span = relation("span", Operands, Tensor, i64, i64, i64)
"""span(xs, x, d, a, b): the operands are slices of x that tile a..b in order."""
