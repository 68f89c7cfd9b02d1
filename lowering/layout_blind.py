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

Some ops are so under a condition on all tensor operands, old and new: blind if `unit_last`, where
their last dimensions have a stride of one; following if `row_major`, where their elements lie in
the order of their indices (`LayoutKey.row_major`).
"""

from functools import cache
from importlib.resources import files

from torch._ops import OpOverload

_categories: dict[object, str] = {}
"""The category of each target that was asked for; empty for an observer."""


def is_layout_blind(target: object, *, unit_last: bool = False) -> bool:
    """Return whether `target` is blind, given whether its operands are `unit_last`."""
    category = _category(target)
    return category == "blind" or (unit_last and category == "blind if unit_last")


def is_layout_following(target: object, *, row_major: bool = False) -> bool:
    """Return whether `target` is following, given whether its operands are `row_major`."""
    category = _category(target)
    return category == "following" or (row_major and category == "following if row_major")


def _category(target: object) -> str:
    found = _categories.get(target)
    if found is None:
        found = _listed().get(str(target), "") if isinstance(target, OpOverload) else ""
        _categories[target] = found
    return found


@cache
def _listed() -> dict[str, str]:
    """Read the list: category by overload."""
    text = files(__package__).joinpath("layout_blind.txt").read_text(encoding="utf-8")
    parts = (line.partition(" ") for line in text.splitlines())
    return {name: category for name, _, category in parts}
