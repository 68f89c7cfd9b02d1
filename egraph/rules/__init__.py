"""The rules: a file a family, and how to write one.

A rule is a row: a name, its equation in one line of algebra, the phase it runs in, and an egglog
rewrite or rule. A family is a generator of rows whose parameters are the pattern variables.

What makes a rule sound. Both sides have equal elements, shape, dtype and device for every tensor
and every size that the conditions allow, zero and one included. They have the same layout key;
where a rule can change it, `meta`, `alike` or `alike_window` is a condition. A view may stand for a
fresh tensor in an e-class: what uses the class decides in extraction which of its e-nodes it may
take, so a rule needn't ask. A bound may be the code of a symbolic expression (egraph/language.py):
guard arithmetic and comparisons with `0 <=`.

What makes it terminate. The right side is a subterm of the left, or has bounds that come from a
finite set (sums of bounds that are there). Never introduce a term that the same rule matches again
with larger bounds, and never commute.

What it may cost. Two or three terms in the pattern, joined by shared variables; a condition that
looks up a function is an index look-up, one that compares is free.
"""

from __future__ import annotations

from functools import cache

from egraph.rules.cat import cat_rules
from egraph.rules.rule import Family, Phase, Rule
from egraph.rules.scatter import scatter_rules
from egraph.rules.slice import slice_rules
from egraph.rules.split import split_rules, unbind_rules

__all__ = ["FAMILIES", "Phase", "Rule", "table"]

FAMILIES: tuple[Family, ...] = (
    slice_rules,
    split_rules,
    unbind_rules,
    scatter_rules,
    cat_rules,
)


@cache
def table() -> tuple[Rule, ...]:
    """Every rule that ships, family by family, in the order in which they stand in the files."""
    rules = tuple(rule for family in FAMILIES for rule in family.rules())
    names = [rule.name for rule in rules]
    if len(set(names)) != len(names):
        raise ValueError(
            f"two rules have one name: {sorted(n for n in names if names.count(n) > 1)}"
        )
    return rules
