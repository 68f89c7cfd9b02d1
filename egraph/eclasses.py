"""The e-classes of an e-graph as plain data, in an order that depends on nothing but the facts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from egglog import bindings


class ENode(NamedTuple):
    """One e-node: an operator, its children as e-class numbers, its integers.

    The integers of `split` are d and then the cuts; those of the others are in the order of
    egraph/language.py.
    """

    op: str
    children: tuple[int, ...]
    params: tuple[int, ...]


@dataclass(frozen=True)
class EClasses:
    """The e-graph as plain data.

    Attributes:
        of: e-class of each value number that was loaded. Classes with a value come first, in the
            order of their least one; the others follow in a fixed order of their terms.
        enodes: the e-nodes of each class, in a fixed order of their terms.
        written: the intervals that are named, as (e-class, d, a, b).
        selected: the elements that are named, as (e-class, d, i).
    """

    of: dict[int, int]
    enodes: list[list[ENode]]
    written: frozenset[tuple[int, ...]]
    selected: frozenset[tuple[int, ...]]

    @classmethod
    def none(cls) -> EClasses:
        """The e-classes of a graph of which nothing was loaded."""
        return cls({}, [], frozenset(), frozenset())


# How the columns of a constructor read: T an e-class, i an integer, v a vector of integers.
VIEWS: dict[str, str] = {
    "slice": "Tiii",
    "select": "Tii",
    "split": "Tiv",
    "unbind": "Ti",
    "piece": "Ti",
}
COLUMNS: dict[str, str] = {
    **VIEWS,
    "scatter": "TTiii",
    "cat": "Ti",
    "nil": "",
    "cons": "TT",
    "op": "iT",
}
CONSTRUCTORS = frozenset({"node", "operands", *COLUMNS})


class _Row(NamedTuple):
    op: str
    children: tuple[bindings.Value, ...]
    params: tuple[int, ...]
    output: bindings.Value


def read_back(raw: bindings.EGraph, everything: bool) -> EClasses:
    """Read the e-classes of a frozen e-graph.

    Args:
        raw: the e-graph; only on the thread that made it.
        everything: also read what no rule makes: scatters, cats, operators and operand lists.
    """
    functions = raw.freeze().functions
    number: dict[bindings.Value, int] = {}
    of: dict[int, int] = {}
    to_int = raw.value_to_i64
    values = [(to_int(row.inputs[0]), row.output) for row in functions["node"].rows]
    for n, value in sorted(values, key=lambda pair: pair[0]):
        of[n] = number.setdefault(value, len(number))
    if everything:
        lists = [(to_int(row.inputs[0]), row.output) for row in functions["operands"].rows]
        for _, value in sorted(lists, key=lambda pair: pair[0]):
            number.setdefault(value, len(number))
    enodes: list[list[ENode]] = [[] for _ in number]
    waiting = _rows(raw, functions, everything)
    # A class without a value is numbered once all the children of an e-node of it are.
    while waiting:
        ready = []
        rest = []
        for row in waiting:
            children = tuple([number.get(child, -1) for child in row.children])
            if -1 in children:
                rest.append(row)
            else:
                ready.append((ENode(row.op, children, row.params), row.output))
        if not ready:
            raise AssertionError(f"e-nodes without a well-founded child: {waiting[:3]}")
        ready.sort(key=lambda pair: pair[0])
        for enode, output in ready:
            n = number.setdefault(output, len(number))
            if n == len(enodes):
                enodes.append([])
            enodes[n].append(enode)
        waiting = rest
    named = [
        frozenset(
            (number[row.inputs[0]], *map(to_int, row.inputs[1:]))
            for row in (functions[name].rows if name in functions else ())
        )
        for name in ("written", "selected")
    ]
    return EClasses(of, enodes, *named)


def _rows(
    raw: bindings.EGraph, functions: dict[str, bindings.FrozenFunction], everything: bool
) -> list[_Row]:
    to_int, to_vec = raw.value_to_i64, raw.value_to_vec
    rows = []
    for op, columns in (COLUMNS if everything else VIEWS).items():
        kinds = list(enumerate(columns))
        for row in functions[op].rows if op in functions else ():
            inputs = row.inputs
            children = []
            params: list[int] = []
            for i, kind in kinds:
                if kind == "T":
                    children.append(inputs[i])
                elif kind == "i":
                    params.append(to_int(inputs[i]))
                else:
                    params.extend(map(to_int, to_vec(inputs[i])))
            rows.append(_Row(op, tuple(children), tuple(params), row.output))
    return rows
