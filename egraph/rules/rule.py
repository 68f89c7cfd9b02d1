"""A row of the rule table, and how a family of rows is declared."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from types import FrameType
from typing import Literal, get_type_hints

from egglog import RewriteOrRule, var

Phase = Literal["algebra", "span", "chain", "tiling"]
"""When a rule runs.

`algebra` rules run to a fixpoint, one iteration at a time, and `span` rules to theirs after each of
those iterations. Then, for the intervals that are wanted, `chain` rules and after them `tiling`
rules, each to a fixpoint.
"""


@dataclass(frozen=True)
class Rule:
    """One rule.

    Attributes:
        name: unique, in kebab case.
        family: the rule's file; what `Options.families` switches.
        equation: what the rule claims, for a person.
        declaration: the egglog rewrite or rule.
        phase: when it runs.
        file: base name of the file that declares it.
        line: line in that file.
    """

    name: str
    family: str
    equation: str
    declaration: RewriteOrRule = field(repr=False)
    phase: Phase
    file: str
    line: int


Row = tuple[str, str, Phase, RewriteOrRule]
"""(name, equation, phase, declaration), as a family yields it."""


@dataclass(frozen=True)
class Family:
    """Rules of one file, declared when first asked for (egglog resolves types late).

    Attributes:
        name: name of the family.
        rows: generator of the rows; its parameters are the rules' pattern variables.
    """

    name: str
    rows: Callable[..., Generator[Row, None, None]]

    def rules(self) -> tuple[Rule, ...]:
        """Declare the rules, each with the line of its `yield`."""
        hints = get_type_hints(self.rows)
        hints.pop("return", None)
        variables = {name: var(name, bound) for name, bound in hints.items()}
        generator = self.rows(**variables)
        file = self.rows.__code__.co_filename.rsplit("/", 1)[-1]
        rules = []
        for name, equation, phase, declaration in generator:
            frame: FrameType = generator.gi_frame  # type: ignore[attr-defined]
            rules.append(Rule(name, self.name, equation, declaration, phase, file, frame.f_lineno))
        return tuple(rules)


def family(name: str) -> Callable[[Callable[..., Generator[Row, None, None]]], Family]:
    """Make a family out of a generator of rows: `@family("slice")`."""
    return lambda rows: Family(name, rows)
