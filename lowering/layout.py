"""Layouts of tensors as plain arithmetic on sizes and strides.

Nothing here goes through fake tensor propagation, and nothing here guards: where sizes or strides
are symbolic, a question is answered from what is statically known or not at all.

Layout key
    What two tensors of one shape must have in common before a consumer on the list of
    `lowering.layout_blind` can be given the one for the other. The strides of dimensions of size
    one are left out of it, since no element is reached through them, but for the memory format that
    torch reads out of all strides of a 4-d or 5-d tensor.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import torch
from torch import SymInt
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import ShapeEnv, statically_known_true

Size: TypeAlias = int | SymInt
"""A size, stride or storage offset, in elements."""

_Expression: TypeAlias = Any
"""An int, or the sympy expression of a symbolic one."""


class LayoutKey(NamedTuple):
    """A layout, up to padding, storage offset and the strides of dimensions of size one.

    Attributes:
        order: Dimensions of size above one and stride above zero, by descending stride. A symbolic
            size counts as above one, so two keys are comparable between tensors of one shape.
        expanded: Dimensions of size above one and stride zero.
        exact: The strides of `order` where those dimensions overlap in memory, so that their order
            does not tell where elements lie; None where they do not.
        channels_last: Whether torch suggests a channels-last memory format (4-d and 5-d only).
        conj: The conjugate bit.
        neg: The negative bit.
    """

    order: tuple[int, ...]
    expanded: tuple[int, ...]
    exact: tuple[int, ...] | None
    channels_last: bool
    conj: bool = False
    neg: bool = False

    @property
    def row_major(self) -> bool:
        """Whether the elements lie in the order of their indices, with gaps or without."""
        ordered = all(a < b for a, b in pairwise(self.order))
        return ordered and not self.expanded and self.exact is None


class MetaKey(NamedTuple):
    """All that the members of an e-class agree in, apart from their values.

    To be compared, never ordered: the hashes of dtypes differ from process to process.
    """

    shape: tuple[int | str, ...]
    dtype: torch.dtype
    device: torch.device
    layout: LayoutKey


def layout_key(
    sizes: Sequence[Size], strides: Sequence[Size], *, conj: bool = False, neg: bool = False
) -> LayoutKey | None:
    """Return the layout key, or None where symbolic strides cannot be ordered without a guard."""
    key = _key(tuple(sizes), tuple(strides))
    return key._replace(conj=conj, neg=neg) if key is not None and (conj or neg) else key


def tensor_layout_key(val: object) -> MetaKey | None:
    """Return shape, dtype, device and layout key of a node's `meta["val"]`.

    None for what is no plain strided tensor (sparse, nested, quantized, an unknown subclass) and
    where the layout key is unknown.
    """
    tensor = _strided(val)
    if tensor is None:
        return None
    shape = tensor.shape
    key = _key(shape, tensor.stride())
    if key is None:
        return None
    neg = tensor.is_neg()
    if neg or tensor.is_conj():
        key = key._replace(conj=tensor.is_conj(), neg=neg)
    return MetaKey(_canonical_shape(shape), tensor.dtype, tensor.device, key)


def storage_of(val: object) -> int | None:
    """Return what identifies the storage of `val` for as long as `val` lives.

    None for all that `tensor_layout_key` does not take either: its storage may be none of its own.
    """
    tensor = _strided(val)
    if tensor is None:
        return None
    storage: int = tensor.untyped_storage()._cdata
    return storage


def ones_settled(sizes: Sequence[Size], strides: Sequence[Size]) -> bool:
    """Return whether the strides of dimensions of size one are known to be of no consequence.

    A blind op keeps the exact strides of its outputs while this holds of its operands, before and
    after. It does where every size is above one, where the strides are those of a contiguous
    tensor, and where the tensor is row-major with gaps, and so in every dimension of size one too.
    Elsewhere torch hands such strides on from some operands and makes new ones for others, by
    whether an operand is dense.
    """
    if all(_at_least(size, 2) for size in sizes):
        return True
    if any(_is(size, 0) for size in sizes):
        return False
    contiguous = _dense(sizes)
    if all(_equal(a, b) for a, b in zip(strides, contiguous, strict=True)):
        return True
    wide = [dim for dim, size in enumerate(sizes) if not _is(size, 1)]
    packed = _dense([sizes[dim] for dim in wide])
    gaps = any(_less(a, strides[dim]) for dim, a in zip(wide, packed, strict=True))
    return gaps and _row_major(sizes, strides)


def view_of(
    source: FakeTensor, sizes: Sequence[Size], strides: Sequence[Size], offset: Size
) -> FakeTensor:
    """Return a fake tensor of `source`'s storage with this geometry; nothing is propagated.

    Device, dtype, mode, conjugate and negative bit are those of `source`. The bounds of the storage
    are not checked and no guard is added. Unlike a propagated view it has no autograd history.

    Raises:
        TypeError: `source` is no FakeTensor.
    """
    if type(source) is not FakeTensor:
        raise TypeError(f"view_of needs a FakeTensor, not {type(source).__name__}")
    # The kernel that runs is the one of the Meta key: below autograd, past every mode.
    with (
        torch._C._DisableTorchDispatch(),
        torch._C._IncludeDispatchKeyGuard(torch._C.DispatchKey.Meta),
        torch._C._AutoDispatchBelowADInplaceOrView(),
    ):
        element = torch.as_strided(source, tuple(sizes), tuple(strides), offset)
        view: FakeTensor = FakeTensor(
            source.fake_mode, element, source.fake_device, requires_grad=source.requires_grad
        )
    return view


def reshape_strides(
    sizes: Sequence[Size], strides: Sequence[Size], new_sizes: Sequence[Size]
) -> tuple[Size, ...] | None:
    """Return the strides of the view that reshapes a tensor to `new_sizes` (none of them -1).

    None where no view does: for integers that means that torch copies, for symbolic sizes that the
    view is not provable without a guard. Same strides as torch's `computeStride`, sizes of one and
    of zero included; the number of elements has to be the same, which is not checked.
    """
    if not sizes:
        return (1,) * len(new_sizes)
    if any(_is(size, 0) for size in sizes):
        return tuple(strides) if tuple(sizes) == tuple(new_sizes) else _dense(new_sizes)
    result: list[Size] = []  # innermost first
    remaining = list(new_sizes)
    for count, stride in _chunks(sizes, strides):
        taken: Size = 1
        while remaining and (_is(remaining[-1], 1) or not _equal(taken, count)):
            result.append(taken * stride)
            taken = taken * remaining.pop()
        if not _equal(taken, count):
            return None
    return None if remaining else tuple(reversed(result))


def _chunks(sizes: Sequence[Size], strides: Sequence[Size]) -> list[tuple[Size, Size]]:
    """Merge neighbouring dimensions that one stride walks: (elements, stride), innermost first."""
    chunks: list[tuple[Size, Size]] = []
    count, stride = sizes[-1], strides[-1]
    for size, outer in zip(reversed(sizes[:-1]), reversed(strides[:-1]), strict=True):
        if _is(size, 1):
            continue
        if _equal(outer, count * stride):
            count = count * size
        else:
            chunks.append((count, stride))
            count, stride = size, outer
    return [*chunks, (count, stride)]


def _dense(sizes: Sequence[Size]) -> tuple[Size, ...]:
    """Return row-major strides as torch gives them to an empty tensor: a size of 0 counts as 1."""
    strides: list[Size] = []
    step: Size = 1
    for size in reversed(sizes):
        strides.append(step)
        step = step * (1 if _is(size, 0) else size)
    return tuple(reversed(strides))


_QUANTIZED: Final = frozenset(
    {torch.quint8, torch.qint8, torch.qint32, torch.quint4x2, torch.quint2x4}
)

_CHANNELS_LAST_ORDER: Final = {4: (1, 3, 2, 0), 5: (1, 4, 3, 2, 0)}
"""By rank, the dimensions from the innermost out in a channels-last layout."""


def _strided(val: object) -> torch.Tensor | None:
    """Return `val` where it is a plain tensor, real or fake, with sizes and strides."""
    if type(val) is not FakeTensor:
        if type(val) is not torch.Tensor and type(val) is not torch.nn.Parameter:
            return None
        if val.is_nested:
            return None
    assert isinstance(val, torch.Tensor)
    if val.layout is not torch.strided or val.dtype in _QUANTIZED:
        return None
    return val


def _key(sizes: tuple[Size, ...], strides: tuple[Size, ...]) -> LayoutKey | None:
    for size in sizes:
        if type(size) is not int:
            return _symbolic_key(sizes, strides)
    for stride in strides:
        if type(stride) is not int:
            return _symbolic_key(sizes, strides)
    return _static_key(sizes, strides)


@lru_cache(maxsize=1 << 14)
def _static_key(sizes: tuple[int, ...], strides: tuple[int, ...]) -> LayoutKey:
    wide = [dim for dim, size in enumerate(sizes) if size > 1]
    order = sorted((dim for dim in wide if strides[dim]), key=lambda dim: -strides[dim])
    expanded = tuple(dim for dim in wide if not strides[dim])
    reach = 0  # how far from the first element the inner dimensions get
    exact = None
    for dim in reversed(order):
        if strides[dim] <= reach:
            exact = tuple(strides[dim] for dim in order)
            break
        reach += (sizes[dim] - 1) * strides[dim]
    return LayoutKey(tuple(order), expanded, exact, _static_channels_last(sizes, strides))


def _static_channels_last(sizes: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Decide as c10 does (`is_channels_last_strides_2d_s4` and its 3-d sibling)."""
    dims = _CHANNELS_LAST_ORDER.get(len(sizes))
    if dims is None or strides[1] == 0 or 0 in sizes:
        return False
    least = 0
    for dim in dims:
        if strides[dim] < least or (dim == 0 and strides[1] == least):
            return False
        least = strides[dim] * sizes[dim]
    return True


_decided: WeakKeyDictionary[ShapeEnv, dict[tuple[_Expression, ...], LayoutKey]] = (
    WeakKeyDictionary()
)
"""Keys of symbolic layouts. What is decided stays so; what is not may be when more is known."""


def _symbolic_key(sizes: tuple[Size, ...], strides: tuple[Size, ...]) -> LayoutKey | None:
    expressions = tuple(_expression(value) for value in sizes + strides)
    shape_env = next(
        (
            value.node.shape_env
            for value in sizes + strides
            if isinstance(value, SymInt) and isinstance(value.node, SymNode)
        ),
        None,
    )
    if shape_env is None or None in expressions:
        return None
    decided = _decided.setdefault(shape_env, {})
    key = decided.get(expressions)
    if key is None:
        key = _decide(sizes, strides)
        if key is not None:
            decided[expressions] = key
    return key


def _decide(sizes: tuple[Size, ...], strides: tuple[Size, ...]) -> LayoutKey | None:
    wide = [dim for dim, size in enumerate(sizes) if not (_is(size, 1) or _is(size, 0))]
    expanded = tuple(dim for dim in wide if _is(strides[dim], 0))

    def outside(outer: int, inner: int) -> bool:
        """Whether a step along `outer` is known to pass over all of `inner`."""
        return _at_least(strides[outer], sizes[inner] * strides[inner])

    order: list[int] = []  # outermost first
    for dim in reversed(wide):
        if dim in expanded:
            continue
        place = next((i for i, inner in enumerate(order) if outside(dim, inner)), len(order))
        order.insert(place, dim)
    nested = all(outside(outer, inner) for outer, inner in pairwise(order))
    if not nested or (order and not _at_least(strides[order[-1]], 1)):
        return None
    channels_last = _channels_last(sizes, strides)
    if channels_last is None:
        return None
    return LayoutKey(tuple(order), expanded, None, channels_last)


def _channels_last(sizes: tuple[Size, ...], strides: tuple[Size, ...]) -> bool | None:
    """`_static_channels_last` on symbolic layouts: None where a guard would be needed."""
    dims = _CHANNELS_LAST_ORDER.get(len(sizes))
    if dims is None or _is(strides[1], 0) or any(_is(size, 0) for size in sizes):
        return False
    if _row_major(sizes, strides):
        # Row-major in every dimension, those of size one included: were it channels-last too, all
        # sizes but the first would be one, and c10 takes that tie for contiguous.
        return False
    known = not _is(strides[1], 0) and _at_least(strides[1], 1)
    least: Size = 0
    for dim in dims:
        if _less(strides[dim], least) or (dim == 0 and _equal(strides[1], least)):
            return False
        known = known and _at_least(strides[dim], least) and _at_least(sizes[dim], 1)
        known = known and (dim != 0 or _less(strides[1], least))
        least = strides[dim] * sizes[dim]
    return True if known else None


def _row_major(sizes: Sequence[Size], strides: Sequence[Size]) -> bool:
    """Whether a step along each dimension, those of size one included, passes over the next."""
    inner = zip(sizes[1:], strides[1:], strict=True)
    passed = [size * stride for size, stride in inner]
    return _at_least(strides[-1], 1) and all(map(_at_least, strides, passed))


def _expression(value: Size) -> _Expression:
    """Return the expression of a symbolic int, an int where it is a number, None if it has none."""
    if type(value) is int:
        return value
    node = value.node  # type: ignore[union-attr]
    if not isinstance(node, SymNode):
        return None
    expression = node.expr
    return int(expression) if expression.is_Integer else expression


@lru_cache(maxsize=1 << 14)
def _text(expression: _Expression) -> int | str:
    return expression if isinstance(expression, int) else str(expression)


def _canonical_shape(shape: tuple[Size, ...]) -> tuple[int | str, ...]:
    return tuple(size if type(size) is int else _text(_expression(size)) for size in shape)


def _is(value: Size, number: int) -> bool:
    """Whether `value` is known to be `number`."""
    return value == number if type(value) is int else _expression(value) == number


def _equal(a: Size, b: Size) -> bool:
    """Whether `a` is known to equal `b`."""
    if type(a) is int and type(b) is int:
        return a == b
    return _expression(a) == _expression(b) or statically_known_true(a == b)


def _at_least(a: Size, b: Size) -> bool:
    """Whether `a` is known to be `b` or more."""
    if type(a) is int and type(b) is int:
        return a >= b
    return _expression(a) == _expression(b) or statically_known_true(a >= b)


def _less(a: Size, b: Size) -> bool:
    """Whether `a` is known to be less than `b`."""
    if type(a) is int and type(b) is int:
        return a < b
    return statically_known_true(a < b)
