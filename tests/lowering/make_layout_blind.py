"""Make lowering/layout_blind.txt: try every functional op on operands that are strided differently.

    python -m tests.lowering.make_layout_blind                    # writes the file (minutes)
    python -m tests.lowering.make_layout_blind aten.copy.default  # says why an op is (not) listed

Each operand of a call is laid out in several ways (dense in several orders, expanded). Then the
operands, all of them and one at a time, are re-strided: moved into a wider buffer full of NaN, to
other exact strides and another offset that have the same layout key. An op is

blind
    if it makes fresh tensors and does not notice: the same values (within a tolerance, for kernels
    sum in another order), dtypes and *exact strides*, and it raises where it raised; as real
    tensors of the CPU and as fake tensors of cpu and cuda. Where the strides of dimensions of size
    one are not settled (`lowering.layout.ones_settled`), those of outputs depend on padding in
    nearly every op, by torch's own rules; there only the other strides have to agree.
blind if unit_last
    if that holds while the last dimension of every operand has a stride of one.
following
    if it makes views (or may), and their values and layout keys stay the same.
following if row_major
    if that holds while the elements of every operand lie in the order of their indices.

Everything else is an observer, and so is what no call reaches. The file is made under torch 2.13.0.
"""

import logging
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from lowering.layout import layout_key, ones_settled
from tests.lowering.layout_blind_calls import Call, Recorder, chosen_calls, recorded_calls, role

FILE: Final = Path(__file__).parents[2] / "lowering" / "layout_blind.txt"

MIN_COMPARISONS: Final = 4
"""How many comparisons of results make a verdict."""

CONDITIONS: Final = {"fresh": ("", "unit_last"), "view": ("", "row_major")}
"""What may be asked of operands, by the op's role: the first that suffices counts."""


# Operands in other layouts.


class Layout(NamedTuple):
    """How an operand lies: its dimensions outermost first, those expanded, and the padding."""

    order: tuple[int, ...]
    expanded: tuple[int, ...] = ()
    padding: int = 0
    step: int = 1
    offset: int = 0

    def meets(self, condition: str) -> bool:
        dims = tuple(range(len(self.order)))
        if condition == "row_major":
            return self.order == dims and not self.expanded
        return not condition or (self.order[-1:] == dims[-1:] and self.step == 1)


CHANGES: Final = {
    "padded": {"padding": 2, "offset": 5},
    "stepped": {"padding": 1, "step": 2, "offset": 1},
}


def layouts(tensor: Tensor) -> dict[str, Layout]:
    rank = tensor.dim()
    dims = tuple(range(rank))
    found = {"dense": Layout(dims)}
    if rank >= 2:
        found["reversed"] = Layout(dims[::-1])
    if rank >= 3:
        found["swapped"] = Layout((*dims[:-2], rank - 1, rank - 2))
        found["rotated"] = Layout((*dims[1:], 0))
        found["heads"] = Layout((*dims[:-3], rank - 2, rank - 3, rank - 1))
    if rank in (4, 5):
        found["channels_last"] = Layout((0, *dims[2:], 1))
    if rank and tensor.shape[0] > 1:
        found["expanded"] = Layout(dims, expanded=(0,))
    return found


def bases(tensors: Sequence[Tensor]) -> Iterator[tuple[str, list[Layout]]]:
    """Layouts to start from: the same for all operands, and some for one operand only."""
    own = [layouts(tensor) for tensor in tensors]
    for name in dict.fromkeys(name for found in own for name in found):
        yield name, [found.get(name, found["dense"]) for found in own]
    for which in range(len(own) if len(own) > 1 else 0):
        for name in ("reversed", "channels_last"):
            if name in own[which]:
                yield (
                    f"{name} operand {which}",
                    [found[name if i == which else "dense"] for i, found in enumerate(own)],
                )


def variants(base: Sequence[Layout]) -> Iterator[tuple[str, list[Layout]]]:
    for name, change in CHANGES.items():
        yield name, [layout._replace(**change) for layout in base]
    for which in range(len(base) if len(base) > 1 else 0):
        padded = base[which]._replace(**CHANGES["padded"])
        yield f"padded operand {which}", [*base[:which], padded, *base[which + 1 :]]


def laid_out(values: Tensor, layout: Layout) -> Tensor:
    """Return `values` in `layout`, in a buffer that holds NaN (or ones) elsewhere."""
    strides, step = [0] * values.dim(), layout.step
    for dim in reversed([dim for dim in layout.order if dim not in layout.expanded]):
        strides[dim] = step
        step *= max(1, values.shape[dim]) + layout.padding
    written = values
    for dim in layout.expanded:
        written = written.narrow(dim, 0, 1)
    reach = sum((n - 1) * s for n, s in zip(written.shape, strides, strict=True) if n)
    inexact = values.dtype.is_floating_point or values.dtype.is_complex
    fill = float("nan") if inexact else 1
    buffer = torch.full((layout.offset + reach + 7,), fill, dtype=values.dtype)
    buffer.as_strided(written.shape, strides, layout.offset).copy_(written)
    return buffer.as_strided(values.shape, strides, layout.offset)


# What an op makes of them.


class Outcome(NamedTuple):
    error: str | None
    outputs: list[Tensor]


class Outcomes(NamedTuple):
    """What an op makes of one set of operands."""

    operands: list[Tensor]
    real: Outcome
    fake_cpu: Outcome
    fake_cuda: Outcome


def outcomes(op: OpOverload, call: Call, operands: list[Tensor]) -> Outcomes:
    leaves, spec = tree_flatten(tuple(call))

    def run(tensors: list[Tensor], device: str) -> Outcome:
        remaining = iter(tensors)

        def put(leaf: Any) -> Any:
            if isinstance(leaf, Tensor):
                return next(remaining)
            return torch.device(device) if isinstance(leaf, torch.device) else leaf

        args, kwargs = tree_unflatten([put(leaf) for leaf in leaves], spec)
        try:
            outputs = op(*args, **kwargs)
        except Exception as error:
            return Outcome(type(error).__name__, [])
        return Outcome(None, [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, Tensor)])

    fake_cpu = run(fakes(operands, "cpu"), "cpu")
    if torch.Tag.pointwise in op.tags:  # the fakes of these do not ask for the device
        return Outcomes(operands, run(operands, "cpu"), fake_cpu, fake_cpu)
    fake_cuda = run(fakes(operands, "cuda"), "cuda")
    return Outcomes(operands, run(operands, "cpu"), fake_cpu, fake_cuda)


def fakes(tensors: list[Tensor], device: str) -> list[Tensor]:
    return [
        fake(
            t.untyped_storage().nbytes() // t.element_size(),
            tuple(t.shape),
            t.stride(),
            t.storage_offset(),
            t.dtype,
            device,
        )
        for t in tensors
    ]


_fake_mode = FakeTensorMode()


@cache
def fake(
    capacity: int,
    sizes: tuple[int, ...],
    strides: tuple[int, ...],
    offset: int,
    dtype: torch.dtype,
    device: str,
) -> Tensor:
    with _fake_mode:
        return torch.empty(capacity, dtype=dtype, device=device).as_strided(sizes, strides, offset)


def difference(base: Outcomes, other: Outcomes, view: bool) -> str | None:
    """Say what the op noticed, or return None."""
    exact = all(ones_settled(t.shape, t.stride()) for t in base.operands + other.operands)
    for where in ("real", "fake_cpu", "fake_cuda"):
        a, b = getattr(base, where), getattr(other, where)
        if where == "fake_cuda" and (a.error or b.error):
            continue  # some fake kernels of cuda need a torch that was built for it
        if a.error != b.error or len(a.outputs) != len(b.outputs):
            return f"{where}: {a.error or 'result'} / {b.error or 'result'}"
        for x, y in zip(a.outputs, b.outputs, strict=True):
            if x.layout is not torch.strided or y.layout is not torch.strided:
                return "an output that is not strided"
            if x.shape != y.shape or x.dtype is not y.dtype:
                return f"{where}: shape or dtype"
            if where == "real" and not equal_values(x, y):
                return "values"
            if where == "real" and not view and (shares(x, a, base) or shares(y, b, other)):
                return "an output that shares its storage"
            if view:
                agree = key(x) == key(y)
            else:
                agree = wide_strides(x) == wide_strides(y)
                agree = agree and (not exact or x.stride() == y.stride())
            if not agree:
                return f"{where}: strides {x.stride()} / {y.stride()} of shape {tuple(x.shape)}"
    return None


def key(tensor: Tensor) -> object:
    return layout_key(tensor.shape, tensor.stride(), conj=tensor.is_conj(), neg=tensor.is_neg())


def wide_strides(tensor: Tensor) -> list[int]:
    """The strides of dimensions of size above one; none of an empty tensor."""
    if not tensor.numel():
        return []
    return [s for n, s in zip(tensor.shape, tensor.stride(), strict=True) if n > 1]


def equal_values(a: Tensor, b: Tensor) -> bool:
    a, b = a.resolve_conj().resolve_neg(), b.resolve_conj().resolve_neg()
    if torch.equal(a, b):
        return True
    if not (a.dtype.is_floating_point or a.dtype.is_complex):
        return False
    rtol = 1e-2 if a.dtype in (torch.float16, torch.bfloat16) else 1e-4
    wide = torch.complex128 if a.dtype.is_complex else torch.float64
    a, b = a.to(wide), b.to(wide)
    scale = float(a.abs().nan_to_num(0.0, 0.0, 0.0).max()) if a.numel() else 0.0
    return torch.allclose(a, b, rtol=rtol, atol=1e-5 * scale, equal_nan=True)


def shares(tensor: Tensor, outcome: Outcome, outcomes: Outcomes) -> bool:
    """Whether `tensor` shares its storage with an operand or another output."""
    storage = tensor.untyped_storage()._cdata
    others = [output for output in outcome.outputs if output is not tensor]
    return any(storage == other.untyped_storage()._cdata for other in outcomes.operands + others)


# Verdicts.


class Verdict(NamedTuple):
    """A category (None: observer), and what the op noticed outside of it."""

    category: str | None
    reason: str


def verdict(op: OpOverload, calls: Iterable[Call]) -> Verdict:
    """Try `op` on re-strided operands of `calls`."""
    kind = role(op)
    if kind is None:
        return Verdict(None, "mutable, random, uninitialised or not unique, by schema or by name")
    reason = ""
    calls = chosen_calls(op, calls)
    for condition in CONDITIONS[kind]:
        noticed = first_difference(op, calls, kind == "view", condition)
        if noticed is None:
            category = "blind" if kind == "fresh" else "following"
            return Verdict(f"{category} if {condition}" if condition else category, reason)
        reason = reason or noticed
    return Verdict(None, reason)


def first_difference(
    op: OpOverload, calls: Iterable[Call], view: bool, condition: str
) -> str | None:
    compared = 0
    for call in calls:
        tensors = call.tensors
        for name, before in bases(tensors):
            if not all(layout.meets(condition) for layout in before):
                continue
            operands = [laid_out(*pair) for pair in zip(tensors, before, strict=True)]
            base = outcomes(op, call, operands)
            for change, after in variants(before):
                if not all(layout.meets(condition) for layout in after):
                    continue
                operands = [laid_out(*pair) for pair in zip(tensors, after, strict=True)]
                if any(key(a) != key(b) for a, b in zip(base.operands, operands, strict=True)):
                    continue
                compared += base.real.error is None
                noticed = difference(base, outcomes(op, call, operands), view)
                if noticed is not None:
                    shapes = ", ".join(str(list(tensor.shape)) for tensor in tensors)
                    return f"{noticed} ({name}, {change}; operands {shapes})"
    return None if compared >= MIN_COMPARISONS else f"only {compared} comparisons"


def verdicts(recorder: Recorder, names: Iterable[str] | None = None) -> dict[str, Verdict]:
    """Return the verdict on each recorded overload (of those in `names`), by name, sorted."""
    by_name = {str(op): op for op in recorder.calls}
    chosen = sorted(by_name if names is None else set(names) & by_name.keys())
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    logging.disable(logging.ERROR)  # fake kernels log what they raise
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return {n: verdict(by_name[n], recorder.calls[by_name[n]].values()) for n in chosen}
    finally:
        logging.disable(logging.NOTSET)
        torch.set_num_threads(threads)


def lines(found: dict[str, Verdict]) -> list[str]:
    """Return the lines of the file: an overload and its category."""
    return [f"{name} {v.category}" for name, v in sorted(found.items()) if v.category]


def main(names: list[str]) -> None:
    wanted = {name.split(".")[1] for name in names}
    recorder = recorded_calls((lambda name: name in wanted) if names else (lambda name: True))
    if names:
        for name, (category, reason) in verdicts(recorder, names).items():
            print(f"{name}: {category or 'observer'}; {reason or 'notices nothing'}")
        return
    FILE.write_text("\n".join(lines(verdicts(recorder))) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
