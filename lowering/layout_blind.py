"""Which ops notice how their operands are strided.

Whatever is not on the list beside this module is an observer: it may see exact strides and storage
offsets. `python -m tests.lowering.make_layout_blind` makes the list, `layout_blind.txt`, and says
how each op is tried.

Blind
    Gives the same values, dtypes and exact output strides for operands of the same layout keys.
    The exception: where the sizes of one of an operand, old or new, are not settled
    (`lowering.layout.ones_settled`), outputs may differ in the strides of dimensions of size one,
    and so in the memory format that torch reads out of them.
Following
    Gives views (or may) whose values and layout keys depend on the operand's layout key only, while
    their exact strides are the operand's.

Some ops are one or the other under a condition on all tensor operands, old and new: `row_major`,
that their elements lie in the order of their indices (`LayoutKey.row_major`), or `unit_last`, that
their last dimension has a stride of one.
"""

from functools import cache
from importlib.resources import files

from torch._ops import OpOverload

_categories: dict[object, str] = {}
"""The category of each target that was asked for; empty for an observer."""


def is_layout_blind(target: object, *, row_major: bool = False, unit_last: bool = False) -> bool:
    """Return whether calls of `target` on operands that meet the given conditions are blind."""
    return _is("blind", target, row_major, unit_last)


def is_layout_following(
    target: object, *, row_major: bool = False, unit_last: bool = False
) -> bool:
    """Return whether calls of `target` on operands that meet the given conditions are following."""
    return _is("following", target, row_major, unit_last)


def _is(category: str, target: object, row_major: bool, unit_last: bool) -> bool:
    found = _categories.get(target)
    if found is None:
        found = _listed().get(str(target), "") if isinstance(target, OpOverload) else ""
        _categories[target] = found
    if found == category:
        return True
    if row_major and found == f"{category} if row_major":
        return True
    return unit_last and found == f"{category} if unit_last"


@cache
def _listed() -> dict[str, str]:
    """Read the list: category by overload."""
    text = files(__package__).joinpath("layout_blind.txt").read_text(encoding="utf-8")
    parts = (line.partition(" ") for line in text.splitlines())
    return {name: category for name, _, category in parts}
