"""An FX graph as numbered values: equal nodes are one value, and the algebra's nodes are terms.

Value numbering finds duplicates in one pass, about a microsecond for each argument. What it can't
see (two nodes that become equal because something below them does) is left to the e-graph.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import SymInt
from torch._ops import OpOverload
from torch.fx import Graph, Node

from lowering.aten import LISTS, TERMS, Spelling, inductor_identity, pieces
from lowering.bounds import Bounds
from lowering.layout import layout_key
from lowering.mutation import Mutation, analyse
from lowering.signature import Signature, bind, name_of, normal, signature, signature_of
from lowering.views import RESHAPES, Views


class Term(NamedTuple):
    """A value as the algebra sees it.

    Attributes:
        op: "slice", "select", "scatter" or "cat", as in egraph/language.py.
        sources: value numbers of the tensors.
        params: the integers, bounds as codes in the order in which they turned up.
    """

    op: str
    sources: tuple[int, ...]
    params: tuple[int, ...]


class Key(NamedTuple):
    """What makes two opaque nodes on equal operands equal."""

    signature: Signature
    pattern: Hashable
    tag: Hashable
    epochs: tuple[int, ...] | None


@dataclass(slots=True)
class Value:
    """One value of the graph.

    Attributes:
        nodes: the nodes that compute it, in order; the first stands for it.
        signature: the signature of the first.
        operands: value numbers of what it is computed from, in the order of the arguments.
        term: its term, or None for what is opaque.
        key: the number of what else than its operands makes an opaque value equal to another (a
            Key); None for a value that never merges.
        root: it is wanted whether or not anybody uses it.
    """

    nodes: list[Node]
    signature: Signature
    operands: tuple[int, ...] = ()
    term: Term | None = None
    key: int | None = None
    root: bool = False


class Unsupported(Exception):
    """The graph is not one that fxsat can read; the message says what would have been right."""


@dataclass
class Reading:
    """A graph as values.

    Attributes:
        nodes: all nodes, in order.
        values: the values that are wanted, by number.
        of: value of each wanted node. A node that returns a list whose pieces are terms has none.
        lists: those nodes, each with its pieces.
        dead: nodes that nothing wanted reaches.
        through: for a reshape that is read as one of another tensor than it names, that tensor.
        bounds: the symbolic bounds.
        mutation: what the writes of the graph forbid.
    """

    nodes: list[Node]
    values: list[Value] = field(default_factory=list)
    of: dict[Node, int] = field(default_factory=dict)
    lists: dict[Node, list[Term]] = field(default_factory=dict)
    dead: list[Node] = field(default_factory=list)
    through: dict[Node, Node] = field(default_factory=dict)
    bounds: Bounds = field(default_factory=Bounds)
    mutation: Mutation = field(default_factory=Mutation)
    _row_major: dict[int, bool] = field(default_factory=dict)
    _unit_last: bool | None = None

    def node(self, value: int) -> Node:
        """The node that stands for a value."""
        return self.values[value].nodes[0]

    def sees_layout(self, value: int) -> bool:
        """Whether a value's node sees more of its operands than values and layout keys."""
        found = self.values[value]
        sig = found.signature
        if found.term is not None or sig.blind or sig.follows or sig.free:
            return False
        if sig.blind_unit_last:
            return not (self._cut_unit_last() and all(map(self._is_unit_last, found.operands)))
        if not sig.follows_row_major or not found.operands:
            return True
        operand = found.operands[0]
        if operand not in self._row_major:
            val = self.node(operand).meta.get("val")
            key = None
            if isinstance(val, torch.Tensor) and val.layout is torch.strided:
                key = layout_key(val.size(), val.stride())
            self._row_major[operand] = key is not None and key.row_major
        return not self._row_major[operand]

    def _cut_unit_last(self) -> bool:
        """Whether all that the rules may swap has a stride of one in its last dimension."""
        if self._unit_last is None:
            cut: dict[int, None] = {}
            for number, value in enumerate(self.values):
                if value.term is not None:
                    cut.update(dict.fromkeys((number, *value.term.sources)))
            self._unit_last = all(map(self._is_unit_last, cut))
        return self._unit_last

    def _is_unit_last(self, number: int) -> bool:
        val = self.node(number).meta.get("val")
        if not isinstance(val, torch.Tensor):
            return True
        strides = val.stride()
        return not strides or (type(strides[-1]) is int and strides[-1] == 1)


GETITEM = signature(operator.getitem)

OPERAND: Hashable = object()
"""Stands in a pattern for an operand."""

MIXED: Hashable = object()
"""The tag of a leaf whose users have several."""


def read(graph: Graph, families: Iterable[str], keep_apart: Iterable[str] = ()) -> Reading:
    """Number the values of a graph.

    Args:
        graph: the graph; it isn't changed.
        families: rule families that are on. Without "cse" only terms that are equal are one value,
            without "scatter" or "cat" those nodes are opaque, without any of the algebra's families
            everything is.
        keep_apart: names of overloads whose nodes never merge.

    Raises:
        Unsupported: the graph calls methods, modules or torch functions, or has no `meta["val"]`.
    """
    return _Reader(graph, frozenset(families), frozenset(keep_apart)).run()


class _Reader:
    def __init__(self, graph: Graph, families: frozenset[str], keep_apart: frozenset[str]) -> None:
        self.out = Reading(list(graph.nodes))
        self.merge = "cse" in families
        off = {torch.ops.aten.slice_scatter.default} if "scatter" not in families else set()
        off |= {torch.ops.aten.cat.default} if "cat" not in families else set()
        algebra = bool(families - {"cse"})
        self.terms = {signature(t): f for t, f in TERMS.items() if algebra and t not in off}
        self.lists = {signature(t) for t in LISTS} if algebra else set()
        self.slices = "slice" in families
        self.views = Views(self.out.bounds)
        self.keep_apart = keep_apart
        self.found: dict[Hashable, int] = {}
        self.keys: dict[Key, int] = {}
        self.leaf_tags: dict[Node, Hashable] = {}
        self.tails: dict[tuple[Signature, int], tuple[Hashable, ...]] = {}

    def run(self) -> Reading:
        out = self.out
        signatures = [signature_of(node) for node in out.nodes]
        _check(out.nodes, signatures)
        live = _live(out.nodes, signatures)
        out.mutation = analyse(out.nodes, signatures, live)
        for node, sig in zip(out.nodes, signatures, strict=True):
            if node not in live:
                out.dead.append(node)
            elif node.op == "call_function":
                self.call(node, sig)
            elif node.op == "output":
                operands: list[int] = []
                self.pattern(node.args, operands)
                self.add(node, Value([node], sig, tuple(operands), root=True))
            else:
                self.leaf(node, sig)
        return out

    def add(self, node: Node, value: Value) -> None:
        self.out.of[node] = len(self.out.values)
        self.out.values.append(value)

    def number(self, node: Node, key: Hashable, value: Value) -> None:
        """Give the node the value that has this key already, or else `value`."""
        found = self.found.setdefault(key, len(self.out.values))
        if found == len(self.out.values):
            self.out.values.append(value)
        else:
            self.out.values[found].nodes.append(node)
        self.out.of[node] = found

    def symbol(self, node: Node) -> Hashable:
        """What a node that holds a symbolic integer is known by, or None."""
        val = node.meta.get("val")
        if type(val) is not SymInt or val.node.maybe_as_int() is not None:
            return None
        self.out.bounds.hold(val)
        return ("symbol", val.node.expr)

    def leaf(self, node: Node, sig: Signature) -> None:
        symbol = self.symbol(node)
        if symbol is not None:
            self.number(node, symbol, Value([node], sig))
        elif node.op == "get_attr" and self.merge and not self.out.mutation:
            self.number(node, ("get_attr", node.target), Value([node], sig))
        else:
            self.add(node, Value([node], sig))

    def call(self, node: Node, sig: Signature) -> None:
        out = self.out
        bound = "unbacked_bindings" in node.meta
        mergeable = sig.merge and not bound and node not in out.mutation.live
        if mergeable and self.algebra(node, sig):
            return
        if sig.effect and not sig.parameters:
            same = inductor_identity(node)
            if isinstance(same, Node) and same in out.of:
                out.of[node] = out.of[same]
                out.values[out.of[same]].nodes.append(node)
                return
        operands: list[int] = []
        symbol = self.symbol(node) if mergeable else None
        if symbol is not None:
            self.pattern(node.args, operands)
            self.number(node, symbol, Value([node], sig, tuple(operands)))
            return
        pattern = self.arguments(node, sig, operands)
        if mergeable and node.target in RESHAPES and self.slices:
            source = self.views.reshaped(node)
            if source is not None and self.tagged_alike(node, (source,)):
                out.through[node] = source
                operands[0] = out.of[source]
        value = Value([node], sig, tuple(operands), root=sig.effect or bound)
        if mergeable and self.merge and pattern is not None and sig.name not in self.keep_apart:
            epochs = out.mutation.epochs.get(node) if out.mutation.epochs else None
            key = Key(sig, pattern, _tag(node), epochs)
            value.key = self.keys.setdefault(key, len(self.keys))
            self.number(node, (value.key, value.operands), value)
        else:
            self.add(node, value)

    def algebra(self, node: Node, sig: Signature) -> bool:
        """Read the node as a term, or as a list of terms; whether it is one."""
        if sig is GETITEM:
            terms = self.out.lists.get(node.args[0])  # type: ignore[arg-type]
            if terms is None or node in self.out.mutation.epochs:
                return False
            term = terms[node.args[1]]  # type: ignore[index]
            self.number(node, term, Value([node], sig, term.sources, term))
            return True
        make = self.terms.get(sig)
        if make is None and sig not in self.lists:
            return self.identity(node, sig)
        if node in self.out.mutation.epochs or sig.name in self.keep_apart:
            return False
        if make is not None:
            spelling = make(node, self.out.bounds)
            if spelling is None or not self.tagged_alike(node, spelling.sources):
                return False
            term = self.term(spelling)
            self.number(node, term, Value([node], sig, term.sources, term))
            return True
        spellings = pieces(node, self.out.bounds)
        if not spellings or not self.tagged_alike(node, spellings[0].sources):
            return False
        self.out.lists[node] = [self.term(each) for each in spellings]
        return True

    def identity(self, node: Node, sig: Signature) -> bool:
        """Read a view that is what it views as a whole slice of that."""
        if (
            not self.slices
            or sig.aliases[:1] != (0,)
            or node in self.out.mutation.epochs
            or sig.name in self.keep_apart
        ):
            return False
        source = self.views.whole(node)
        if source is None or not self.tagged_alike(node, (source,)):
            return False
        size = self.out.bounds.code(source.meta["val"].size(0))
        term = Term("slice", (self.out.of[source],), (0, 0, size))
        self.number(node, term, Value([node], sig, term.sources, term))
        return True

    def term(self, spelling: Spelling) -> Term:
        of = self.out.of
        return Term(spelling.op, tuple([of[s] for s in spelling.sources]), spelling.params)

    def tagged_alike(self, node: Node, sources: tuple[Node, ...]) -> bool:
        """Whether a term and what it reads are in one stream, partition and recompute policy."""
        tag = _tag(node)
        for source in sources:
            if source.op == "call_function":
                other = _tag(source)
            elif source in self.leaf_tags:
                other = self.leaf_tags[source]
            else:
                tags = list(dict.fromkeys(_tag(user) for user in source.users))
                other = self.leaf_tags[source] = tags[0] if len(tags) == 1 else MIXED
            if other != tag:
                return False
        return True

    def arguments(self, node: Node, sig: Signature, operands: list[int]) -> Hashable:
        """The node's arguments as a pattern, by schema where it has one; fills in the operands.

        None where an argument has no value to compare.
        """
        if not sig.parameters:
            pattern = self.pattern(node.args, operands)
            if node.kwargs:
                kwargs = tuple([(k, self.pattern(v, operands)) for k, v in node.kwargs.items()])
                pattern = None if pattern is None else (pattern, kwargs)
            return pattern
        parts: list[Hashable] = []
        known = True
        if not node.kwargs:
            # As most nodes have it: given by position, the rest left at its defaults.
            for parameter, argument in zip(sig.parameters, node.args, strict=False):
                if parameter.kind != "plain" and type(argument) is not Node:
                    argument = normal(argument, parameter.kind, node, sig)
                part = self.pattern(argument, operands)
                known = known and part is not None
                parts.append(part)
            return (*parts, *self.defaults(node, sig, len(parts))) if known else None
        for parameter, argument in zip(sig.parameters, bind(node, sig.parameters), strict=True):
            if parameter.kind != "plain":
                argument = normal(argument, parameter.kind, node, sig)
            part = self.pattern(argument, operands)
            known = known and part is not None
            parts.append(part)
        return tuple(parts) if known else None

    def defaults(self, node: Node, sig: Signature, given: int) -> tuple[Hashable, ...]:
        """The pattern of the arguments that are left at their defaults."""
        found = self.tails.get((sig, given))
        if found is None:
            rest = sig.parameters[given:]
            found = tuple([self.pattern(normal(p.default, p.kind, node, sig), []) for p in rest])
            if not any(p.kind in ("dim", "dims") for p in rest):
                self.tails[sig, given] = found
        return found

    def pattern(self, argument: Any, operands: list[int]) -> Hashable:
        """An argument as something to compare, numbers with their types, floats by their bits."""
        kind = type(argument)
        if kind is Node:
            value = self.out.of.get(argument)
            if value is None:
                raise KeyError(f"node {argument.name} is used before it is defined")
            operands.append(value)
            return OPERAND
        if kind is int or kind is str:
            return argument  # type: ignore[no-any-return]
        if argument is None:
            return ("none",)
        if kind is bool:
            return ("bool", argument)
        if kind is float:
            return ("float", struct.pack("d", argument))
        if kind is complex:
            return ("complex", struct.pack("dd", argument.real, argument.imag))
        if isinstance(argument, (list, tuple)):
            parts = [self.pattern(each, operands) for each in argument]
            return None if None in parts else ("list", *parts)
        if isinstance(argument, dict):
            items = [(k, self.pattern(v, operands)) for k, v in argument.items()]
            return None if any(v is None for _, v in items) else ("dict", *items)
        if isinstance(argument, slice):
            parts = [
                self.pattern(each, operands)
                for each in (argument.start, argument.stop, argument.step)
            ]
            return None if None in parts else ("slice", *parts)
        if isinstance(argument, SymInt):
            return ("symbol", argument.node.expr)
        if isinstance(
            argument, (torch.dtype, torch.device, torch.layout, torch.memory_format, OpOverload)
        ):
            return argument
        return None


def _live(nodes: list[Node], signatures: list[Signature]) -> set[Node]:
    """Nodes that an effect, an input or the output reaches."""
    live: set[Node] = set()
    for node, sig in zip(reversed(nodes), reversed(signatures), strict=True):
        if sig.effect or "unbacked_bindings" in node.meta or not live.isdisjoint(node.users):
            live.add(node)
    return live


def _check(nodes: list[Node], signatures: list[Signature]) -> None:
    for node, sig in zip(nodes, signatures, strict=True):
        if sig.user_function:
            raise Unsupported(
                f"node {node.name} is a {node.op} of {name_of(node.target)}: this graph is from "
                "before AOTAutograd. Give saturate an aten graph: in a post_grad_custom_pre_pass "
                "hook, from lowering.capture(fn, *inputs), or from "
                "make_fx(fn, tracing_mode='fake')(*inputs)"
            )
    calls = [node for node in nodes if node.op == "call_function"]
    if calls and not any("val" in node.meta for node in nodes):
        raise Unsupported(
            'no node has meta["val"], so no shape is known. Take the graph from '
            "lowering.capture(fn, *inputs), or run "
            "torch.fx.passes.fake_tensor_prop.FakeTensorProp(module).propagate(*inputs) on it"
        )


def _tag(node: Node) -> Hashable:
    """What nodes that merge have to agree in: recompute policy, partition, stream."""
    meta = node.meta
    recompute = meta.get("recompute")
    partition = meta.get("partitioner_tag")
    custom = meta.get("custom")
    if recompute is None and partition is None and not custom:
        return None
    return (str(recompute), str(partition), repr(custom) if custom else "")
