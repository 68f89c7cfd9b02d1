"""What comes out of a run of a graph, and whether two runs came to the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_leaves


class Outcome(NamedTuple):
    """What came out of a run, and what became of the inputs."""

    outputs: tuple[Any, ...]
    inputs: tuple[Any, ...]


def run(module: fx.GraphModule, inputs: Sequence[Any]) -> Outcome:
    """Run a graph on copies of inputs that lie in memory as the inputs do."""
    storages: dict[int, torch.UntypedStorage] = {}
    arguments = [_copied(each, storages) for each in inputs]
    torch.manual_seed(0)
    with torch.no_grad():
        results = fx.Interpreter(module).run(*arguments)
    return Outcome(tuple(tree_leaves(results)), tuple(arguments))


def _copied(each: Any, storages: dict[int, torch.UntypedStorage]) -> Any:
    if not isinstance(each, Tensor):
        return each
    storage = each.untyped_storage()
    fresh = storages.setdefault(storage._cdata, storage.clone())
    return torch.empty(0, dtype=each.dtype).set_(
        fresh, each.storage_offset(), each.shape, each.stride()
    )


def assert_same_outcome(before: Outcome, after: Outcome) -> None:
    """Assert equal values, dtypes, strides, offsets, and equal sharing of storages."""
    assert len(before.outputs) == len(after.outputs)
    for i, (old, new) in enumerate(zip(before.outputs, after.outputs, strict=True)):
        assert type(old) is type(new), f"output {i}"
        if isinstance(old, Tensor):
            assert _geometry(old) == _geometry(new), f"output {i}"
        _assert_same_value(old, new, f"output {i}")
    for i, (old, new) in enumerate(zip(before.inputs, after.inputs, strict=True)):
        _assert_same_value(old, new, f"input {i} after the run")
    assert sharing(_tensors(before)) == sharing(_tensors(after)), "aliasing"


def _geometry(x: Tensor) -> tuple[object, ...]:
    return (x.dtype, x.shape, x.stride(), x.storage_offset(), x.is_conj(), x.is_neg())


def _assert_same_value(old: Any, new: Any, where: str) -> None:
    if not isinstance(old, Tensor):
        assert old == new, where
        return
    # Kernels may differ in the last bit on operands that lie otherwise in memory.
    torch.testing.assert_close(old, new, equal_nan=True, msg=lambda m: f"{where}: {m}")
    if old.dtype.is_floating_point:
        old, new = old.double(), new.double()
        zero = (old == 0) & (new == 0)
        assert torch.equal(old.signbit() & zero, new.signbit() & zero), f"{where}: sign of zero"


def _tensors(outcome: Outcome) -> list[Tensor]:
    return [each for each in (*outcome.inputs, *outcome.outputs) if isinstance(each, Tensor)]


def sharing(tensors: Sequence[Tensor]) -> list[int]:
    """For each tensor, the number of the first one with the same storage."""
    first: dict[int, int] = {}
    return [first.setdefault(x.untyped_storage()._cdata, i) for i, x in enumerate(tensors)]
