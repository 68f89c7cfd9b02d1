"""Bounds of slices: as torch reads them, symbolic ones included, and never with a guard.

A bound is an int. One >= 0 is the number; a negative one is the code of a symbolic expression.
"""

from __future__ import annotations

from typing import Any

from torch import SymInt
from torch.fx.experimental.symbolic_shapes import statically_known_true

Number = int | SymInt

INFINITE = 2**62
"""Ends from here on mean "to the end", whatever the size."""


class Bounds:
    """The bounds of one graph: symbolic expressions and their codes.

    Equal expressions have equal codes. Codes are given as expressions turn up; `ordered` renumbers
    them by expression, which is what the e-graph and the order of terms use.
    """

    def __init__(self, *, writable: bool = True) -> None:
        """Hold bounds that can be written as arguments, or any that can be told.

        Args:
            writable: whether a bound has to be one that nodes of the graph hold, or compute.
        """
        self._writable = writable
        self._codes: dict[Any, int] = {}
        self._numbers: list[Number] = []
        self._known: dict[tuple[int, int], bool] = {}
        self._held: set[object] = set()

    def code(self, number: Number) -> int:
        """The bound that stands for a size, a start or an end that is not negative."""
        if isinstance(number, int):
            return number
        whole = number.node.maybe_as_int()
        if whole is not None:
            return int(whole)
        expression = number.node.expr
        found = self._codes.get(expression)
        if found is None:
            found = self._codes[expression] = -1 - len(self._numbers)
            self._numbers.append(number)
        return found

    def number(self, bound: int) -> Number:
        """The size, start or end that a bound stands for."""
        return bound if bound >= 0 else self._numbers[-1 - bound]

    def expression(self, bound: int) -> object:
        """The number, or the sympy expression, of a bound."""
        number = self.number(bound)
        return number if isinstance(number, int) else number.node.expr

    def ordered(self) -> dict[int, int]:
        """Code by code, the code in the order of the expressions."""
        codes = sorted(self._codes.items(), key=lambda item: str(item[0]))
        return {code: -len(codes) + i for i, (_, code) in enumerate(codes)}

    def hold(self, number: SymInt) -> None:
        """Note that a node of the graph holds a symbolic number."""
        self._held.add(number.node.expr)

    @property
    def has_symbols(self) -> bool:
        """Whether any node of the graph holds a symbolic number."""
        return bool(self._held)

    def can_write(self, bound: int, whole: int) -> bool:
        """Whether a bound can be an argument.

        It can if it is a number, what a node holds, the size `whole` of what is cut, or made of
        such by sums and products.
        """
        if bound >= 0 or bound == whole or not self._writable:
            return True
        return self._can_write(self.expression(bound), self.expression(whole))

    def _can_write(self, expression: Any, whole: Any) -> bool:
        if expression in self._held or expression == whole or expression.is_Integer:
            return True
        return (expression.is_Add or expression.is_Mul) and all(
            self._can_write(each, whole) for each in expression.args
        )

    def at_most(self, a: int, b: int) -> bool:
        """Whether a <= b is known without a guard."""
        if a >= 0 and b >= 0:
            return a <= b
        if a == b:
            return True
        known = self._known.get((a, b))
        if known is None:
            known = statically_known_true(self.number(a) <= self.number(b))
            self._known[a, b] = known
        return known

    def interval(self, size: Number, start: object, end: object) -> tuple[int, int] | None:
        """The bounds a, b of a slice of `size` elements, 0 <= a <= b <= size.

        Args:
            size: number of elements.
            start: as torch takes it: None, or negative from the end, or too large.
            end: the same.

        Returns:
            None where the bounds can't be told without a guard, or aren't numbers.
        """
        whole = self.code(size)
        a = self._clamped(size, whole, 0 if start is None else start)
        b = whole if end is None else self._clamped(size, whole, end)
        if a is None or b is None:
            return None
        if a >= 0 and b >= 0:
            return (a, b) if a <= b else (a, a)
        if not self.can_write(a, whole) or not self.can_write(b, whole):
            return None
        return (a, b) if self.at_most(a, b) else None

    def _clamped(self, size: Number, whole: int, at: object) -> int | None:
        if type(at) is int:
            if type(size) is int:
                return min(max(at + size if at < 0 else at, 0), size)
            if at == 0:
                return 0
            if at >= INFINITE:
                return whole
            if at < 0:
                at = size + at
                if not statically_known_true(at >= 0):
                    return None
                return self.code(at)
            return at if self.at_most(at, whole) else None
        if isinstance(at, SymInt):
            code = self.code(at)
            if code == whole:
                return whole
            if code >= 0:
                return self._clamped(size, whole, code)
            if statically_known_true(at < 0):
                code = self.code(size + at)
            if self.at_most(0, code) and self.at_most(code, whole):
                return code
        return None
