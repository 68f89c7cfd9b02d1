"""A graph as code that a person can read, and what changed between two of them."""

from __future__ import annotations

import html
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby
from operator import itemgetter
from typing import Literal, NamedTuple

import torch
from torch import SymInt
from torch._ops import OpOverload
from torch.fx import Graph, GraphModule, Node

from lowering.signature import name_of

Mark = Literal["-", "+", " "]

_COLOURS: dict[Mark, str] = {"-": "\x1b[31m", "+": "\x1b[32m", " ": "\x1b[2m"}
_RESET = "\x1b[0m"
_BACKGROUNDS: dict[Mark, str] = {
    "-": "background:rgba(255,80,80,.18)",
    "+": "background:rgba(60,200,90,.18)",
    " ": "opacity:.75",
}


def code_lines(graph: Graph | GraphModule) -> tuple[str, ...]:
    """Return the code of a graph, a line a node, in its order and with its nodes' names.

    Overloads stand as `aten.slice.Tensor`, the default ones as `aten.mm`; a getitem as `split[0]`.
    The largest int, which a slice takes for "to the end", is `sys.maxsize`.
    """
    if isinstance(graph, GraphModule):
        graph = graph.graph
    return tuple(_line(node) for node in graph.nodes)


class Line(NamedTuple):
    """A line of a diff.

    Attributes:
        mark: "-" for a line that went, "+" for one that came, " " for one that stayed.
        text: the line of code.
    """

    mark: Mark
    text: str


@dataclass(frozen=True, repr=False)
class Diff:
    """The lines of two graphs, each marked as gone, new or kept.

    A shell shows it as text, a notebook as HTML. Both leave out most of what didn't change.

    Attributes:
        lines: all lines, in order.
    """

    lines: tuple[Line, ...]

    @classmethod
    def of(cls, before: Sequence[str], after: Sequence[str]) -> Diff:
        """Compare the `code_lines` of two graphs.

        The time grows with the square of their length; some thousand lines take seconds.
        """
        lines: list[Line] = []
        matcher = SequenceMatcher(None, before, after, autojunk=False)
        for kind, start, end, new_start, new_end in matcher.get_opcodes():
            if kind == "equal":
                lines += [Line(" ", text) for text in before[start:end]]
            else:
                lines += [Line("-", text) for text in before[start:end]]
                lines += [Line("+", text) for text in after[new_start:new_end]]
        return cls(tuple(lines))

    def count(self, mark: Mark) -> int:
        """Return the number of lines with a mark."""
        return sum(line.mark == mark for line in self.lines)

    def text(self, context: int = 1, width: int = 100, colour: bool = False) -> str:
        """Return the diff as text.

        Args:
            context: number of unchanged lines to show beside changed ones.
            width: number of columns; longer lines are broken.
            colour: whether to paint the lines with ANSI colours. They have their marks anyway.
        """
        shown: list[str] = []
        for part in self._parts(context):
            if isinstance(part, int):
                shown.append(_paint(" ", f"  ... {_unchanged(part)}", colour))
                continue
            rows = textwrap.wrap(
                part.text, width - 2, subsequent_indent="      ", break_on_hyphens=False
            )
            shown += [_paint(part.mark, f"{part.mark} {row}", colour) for row in rows]
        return "\n".join(shown)

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        rows = []
        for part in self._parts(context=1):
            mark: Mark = " " if isinstance(part, int) else part.mark
            text = f"... {_unchanged(part)}" if isinstance(part, int) else part.text
            rows.append(
                f'<tr style="background:transparent"><td style="{_CELL};{_BACKGROUNDS[mark]}">'
                f"{html.escape(mark)} {html.escape(text)}</td></tr>"
            )
        return (
            '<table style="color:inherit;border-collapse:collapse;margin:8px 0">'
            f"<tbody>{''.join(rows)}</tbody></table>"
        )

    def _parts(self, context: int) -> Iterator[Line | int]:
        """The lines to show, and in place of each run of others their number."""
        for shown, group in groupby(zip(self.lines, self._shown(context), strict=True), _second):
            lines = [line for line, _ in group]
            # A line is no longer than the remark that one is left out.
            if shown or len(lines) == 1:
                yield from lines
            else:
                yield len(lines)

    def _shown(self, context: int) -> list[bool]:
        """Which lines to show: changed ones, those beside them, and what new ones read."""
        read = {
            name for mark, text in self.lines if mark == "+" for name in _NAME.findall(text)[1:]
        }
        shown = [mark != " " or text.partition(" ")[0] in read for mark, text in self.lines]
        for at, (mark, _) in enumerate(self.lines):
            if mark != " ":
                start, end = max(0, at - context), min(len(shown), at + context + 1)
                shown[start:end] = [True] * (end - start)
        return shown


_NAME = re.compile(r"(?<![.\w])[A-Za-z_]\w*")
_second = itemgetter(1)
_CELL = "text-align:left;white-space:pre-wrap;font-family:monospace;padding:0 8px"


def _unchanged(number: int) -> str:
    return f"{number} line{'s' if number > 1 else ''} unchanged"


def _paint(mark: Mark, text: str, colour: bool) -> str:
    return f"{_COLOURS[mark]}{text}{_RESET}" if colour else text


def _line(node: Node) -> str:
    arguments = [_show(each) for each in node.args]
    arguments += [f"{name}={_show(each)}" for name, each in node.kwargs.items()]
    match node.op:
        case "placeholder":
            return f"{node.name}: {_type(node.meta.get('val'))}"
        case "output":
            return f"return {arguments[0]}"
        case "get_attr":
            return f"{node.name} = self.{node.target}"
        case "call_method":
            return f"{node.name} = {arguments[0]}.{node.target}({', '.join(arguments[1:])})"
        case "call_module":
            return f"{node.name} = self.{node.target}({', '.join(arguments)})"
    name = name_of(node.target)
    if name == "_operator.getitem":
        return f"{node.name} = {arguments[0]}[{arguments[1]}]"
    if isinstance(node.target, OpOverload):
        name = name.removesuffix(".default")
    return f"{node.name} = {name}({', '.join(arguments)})"


def _show(argument: object) -> str:
    if isinstance(argument, Node):
        return argument.name
    if isinstance(argument, list):
        return f"[{', '.join(map(_show, argument))}]"
    if isinstance(argument, tuple):
        return f"({', '.join(map(_show, argument))}{',' if len(argument) == 1 else ''})"
    if isinstance(argument, dict):
        return "{" + ", ".join(f"{key!r}: {_show(each)}" for key, each in argument.items()) + "}"
    if type(argument) is int and argument == sys.maxsize:
        return "sys.maxsize"
    return repr(argument)


def _type(val: object) -> str:
    if isinstance(val, torch.Tensor):
        return f"{str(val.dtype).removeprefix('torch.')}[{', '.join(map(str, val.shape))}]"
    if isinstance(val, SymInt):
        return f"int  # {val}"
    return type(val).__name__
