"""Values as facts: what the e-graph is told of a graph.

Only what a rule can touch is loaded. An opaque node becomes a term if it has a twin that it would
equal if their operands turned out to be equal; otherwise its value is a name and nothing more.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import torch

from egraph.facts import Facts, Row, Wanted
from lowering.layout import LayoutKey, Size, layout_key, ones_settled, tensor_layout_key
from lowering.read import Reading, Term, Value

LAYOUT_RANKS = (4, 5)
"""Ranks at which a memory format is read off all strides, those of size 1 included."""


class Meta(NamedTuple):
    """What the members of an e-class agree in, apart from their values.

    Attributes:
        shape: sizes, symbolic ones by code.
        dtype: the dtype.
        device: the device.
        layout: the layout key.
        strides: the exact strides, if those of dimensions of size one may be of consequence.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    layout: LayoutKey
    strides: tuple[int, ...] | None


class Loaded(NamedTuple):
    """A graph as the e-graph sees it.

    Attributes:
        facts: its terms.
        wanted: the intervals that its nodes name.
        code: the ordered code of each bound that was given a code.
    """

    facts: Facts
    wanted: Wanted
    code: dict[int, int]


def load(reading: Reading) -> Loaded:
    """Turn the values of a graph into facts."""
    return _Loader(reading).run()


class _Loader:
    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.values = reading.values
        self.facts = Facts()
        self.code: dict[int, int] = {}
        self.metas: dict[Meta, int] = {}
        self.known: dict[Hashable, Meta | None] = {}
        self.lists: dict[tuple[int, ...], int] = {(): 0}
        self.keys: dict[Hashable, int] = {}

    def run(self) -> Loaded:
        terms = [
            (number, value, value.term)
            for number, value in enumerate(self.values)
            if value.term is not None
        ]
        sizes = self.sizes(terms)
        self.code = self.reading.bounds.ordered()
        written: dict[Row, None] = {}
        selected: dict[Row, None] = {}
        for number, _, (op, sources, raw) in terms:
            params = tuple([self.code[p] if p < 0 else p for p in raw])
            x = sources[0]
            if op == "slice":
                self.facts.slice.append((number, x, *params))
                written[x, *params] = None
            elif op == "select":
                self.facts.select.append((number, x, *params))
                selected[x, *params] = None
            elif op == "scatter":
                self.facts.scatter.append((number, *sources, *params))
                self.scatter(number, *sources, *params)
            else:
                self.facts.cat.append((number, self.operands(sources), *params))
                self.meta(number)
        cats = bool(self.facts.cat)
        for (x, d), size in sizes.items():
            self.facts.size.append((x, d, self.code[size] if size < 0 else size))
            term = self.values[x].term
            if term is None or term.op != "slice" or term.params[0] != d or term.params[1] < 0:
                self.facts.outermost.append((x, d))
            if cats:
                self.meta(x)
        self.facts.meta = list(dict.fromkeys(self.facts.meta))
        if terms:
            self.opaque([(number, value) for number, value, _ in terms])
        whole = {(x, d, 0, size) for x, d, size in self.facts.size}
        named = [row for row in written if row not in whole and row[2] != row[3]]
        return Loaded(self.facts, Wanted(tuple(named), tuple(selected)), self.code)

    def sizes(self, terms: list[tuple[int, Value, Term]]) -> dict[tuple[int, int], int]:
        """The size of each dimension along which a value is cut, by value and dimension."""
        cut: dict[tuple[int, int], None] = {}
        for number, _, (op, sources, params) in terms:
            if op == "scatter":
                for each in (*sources, number):
                    cut[each, params[0]] = None
            elif op != "cat":
                cut[sources[0], params[0]] = None
        code = self.reading.bounds.code
        return {(x, d): code(self.val(x).size(d)) for x, d in cut}

    def val(self, value: int) -> torch.Tensor:
        val = self.reading.node(value).meta["val"]
        assert isinstance(val, torch.Tensor)
        return val

    def meta(self, value: int) -> None:
        """Load the meta of a value, if it is known."""
        val = self.val(value)
        key = self.key(val, val.size(), val.stride())
        if key is not None:
            self.facts.meta.append((value, self.metas.setdefault(key, len(self.metas))))

    def key(self, val: torch.Tensor, sizes: Sequence[Size], strides: Sequence[Size]) -> Meta | None:
        """The meta of a tensor like `val` with other sizes and strides."""
        known = tensor_layout_key(val)
        if known is None:
            return None
        code = self.reading.bounds.code
        shape, exact = tuple(map(code, sizes)), tuple(map(code, strides))
        memo = (shape, exact, known.dtype, known.device, known.layout.conj, known.layout.neg)
        if memo not in self.known:
            layout = layout_key(sizes, strides, conj=known.layout.conj, neg=known.layout.neg)
            seen = None if ones_settled(sizes, strides) else exact
            self.known[memo] = (
                None if layout is None else Meta(shape, known.dtype, known.device, layout, seen)
            )
        return self.known[memo]

    def scatter(self, y: int, x: int, s: int, d: int, a: int, b: int) -> None:
        """Load what slices of scatter `y` have in common with its source and with its base."""
        vals = [self.val(each) for each in (y, x, s)]
        own, base, source = (self.key(val, val.size(), val.stride()) for val in vals)
        if own is None:
            return
        if own == base and self.sliced_alike(vals[0], vals[1]):
            self.facts.alike.append((y, x))
        window = self.key(vals[0], vals[2].size(), vals[0].stride())
        if source is None or window is None:
            return
        meta = self.metas.setdefault(window, len(self.metas))
        self.facts.window.append((y, d, a, b, meta))
        self.meta(s)
        if window == source and self.sliced_alike(vals[0], vals[2]):
            self.facts.alike_window.append((y, s, d, a))

    def sliced_alike(self, one: torch.Tensor, other: torch.Tensor) -> bool:
        """Whether equal metas mean that equal slices have equal metas too.

        They do with equal strides. Else a slice of one element may unsettle the strides of other
        dimensions of one, and the memory format at ranks 4 and 5.
        """
        code = self.reading.bounds.code
        if all(code(a) == code(b) for a, b in zip(one.stride(), other.stride(), strict=True)):
            return True
        key = layout_key(other.size(), other.stride())
        return (
            one.dim() not in LAYOUT_RANKS
            and all(type(size) is not int or size > 1 for size in other.size())
            and key is not None
            and key.row_major
        )

    def operands(self, values: tuple[int, ...]) -> int:
        """The number of an operand list; its tails are lists too."""
        number = 0
        for start in range(len(values) - 1, -1, -1):
            rest, tail = number, values[start:]
            fresh = len(self.lists)
            number = self.lists.setdefault(tail, fresh)
            if number == fresh:
                self.facts.operand.append((number, values[start], rest))
        return number

    def opaque(self, terms: list[tuple[int, Value]]) -> None:
        """Load the opaque nodes that may turn out to equal another.

        Rules make values equal only where terms connect them. Suppose that they made all of those
        equal: the nodes that congruence would then merge are the ones to load.
        """
        parent = list(range(len(self.values)))
        joined: set[int] = set()

        def find(number: int) -> int:
            while parent[number] != number:
                parent[number] = parent[parent[number]]
                number = parent[number]
            return number

        for number, value in terms:
            joined.add(number)
            joined.update(value.operands)
            for source in value.operands:
                parent[find(source)] = find(number)
        opaque = [
            (n, value.key, value.operands)
            for n, value in enumerate(self.values)
            if value.key is not None and value.operands
        ]
        twins: set[int] = set()
        changed = True
        while changed:
            changed = False
            found: dict[Hashable, int] = {}
            for number, key, operands in opaque:
                if len(operands) == 1:
                    other = found.setdefault((key, find(operands[0])), number)
                else:
                    other = found.setdefault((key, *[find(each) for each in operands]), number)
                if other != number:
                    twins.update((number, other))
                    joined.update((number, other))
                    root, into = find(number), find(other)
                    if root != into:
                        parent[root] = into
                        # Whoever was compared by the old root has to be compared again.
                        changed = changed or root != number
        for number in sorted(twins):
            value = self.values[number]
            call: Hashable = value.key
            if self.reading.sees_layout(number):
                call = (call, tuple([self.exact(n) for n in value.operands if n in joined]))
            self.facts.op.append(
                (
                    number,
                    self.keys.setdefault(call, len(self.keys)),
                    self.operands(value.operands),
                )
            )

    def exact(self, value: int) -> Hashable:
        """The exact layout of a value, for an operator that sees it."""
        val = self.reading.node(value).meta.get("val")
        if not isinstance(val, torch.Tensor):
            return value
        return (
            tuple(map(self.reading.bounds.code, val.stride())),
            self.reading.bounds.code(val.storage_offset()),
        )
