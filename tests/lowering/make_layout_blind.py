"""Make lowering/layout_blind.txt: try every functional op on operands that are strided differently.

    python tests/lowering/make_layout_blind.py          # writes the file (minutes; torch 2.13.0)
    python tests/lowering/make_layout_blind.py aten.mm.default aten.copy.default   # why (not)?

An op is called on the sample inputs of torch's own op database (of its backward too) and on a few
calls written here. Every operand is laid out in several ways (dense in several orders, expanded);
each time the operands, all of them and one at a time, are re-strided: moved into a wider buffer
full of NaN, to other exact strides and another offset that have the same layout key. The op is

blind
    if it makes fresh tensors and does not notice: same values (within a tolerance, for kernels
    sum in another order), dtypes and *exact strides*, and raises where it raised; on the CPU, and
    as fake tensors of cpu and cuda. Where a re-strided operand has a size of one or zero, torch's
    own rules let the strides of dimensions of size one depend on padding, in nearly every op; there
    the strides of the other dimensions have to agree.
following
    if it makes views, whose values and layout keys stay the same.
following_row_major
    if that holds for operands in row-major order only.

Everything else is an observer, and so is what the samples do not reach.
"""

import itertools
import random
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from lowering.layout import layout_key

LIST = Path(__file__).parents[2] / "lowering" / "layout_blind.txt"

UNINITIALISED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty"}
UNINITIALISED |= {"new_empty_strided", "empty_quantized", "_efficientzerotensor", "_grouped_mm"}
"""Ops whose outputs hold elements that nobody wrote: their values cannot be compared."""

NOT_UNIQUE = ("linalg", "geqrf", "ormqr", "triangular_solve", "lu_unpack", "cholesky", "svd")
"""Parts of names of decompositions: a last bit decides a sign or a pivot, so no verdict is stable."""

MAX_CALLS = 12
"""How many calls of an overload are tried."""

DTYPES = (torch.float32, torch.int64, torch.bool, torch.complex64)


class Call(NamedTuple):
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Layout(NamedTuple):
    """How an operand lies: its dimensions outermost first, those expanded, and the padding."""

    order: tuple[int, ...]
    expanded: tuple[int, ...] = ()
    padding: int = 0
    step: int = 1
    offset: int = 0

    def restrided(self, kind: str) -> "Layout":
        padding, step, offset = {"padded": (2, 1, 5), "stepped": (1, 2, 1)}[kind]
        return self._replace(padding=padding, step=step, offset=offset)


# Which ops are tried, on what.


def role(op: OpOverload) -> str | None:
    """Return "fresh" or "view" by the schema of `op`, None for what can only be an observer."""
    schema = op._schema
    if op.namespace not in ("aten", "prims") or schema.is_mutable:
        return None
    if torch.Tag.nondeterministic_seeded in op.tags or op._opname in UNINITIALISED:
        return None
    if not schema.returns or not all("Tensor" in str(out.type) for out in schema.returns):
        return None
    if any(part in op._opname for part in NOT_UNIQUE):
        return None
    aliased = any(value.alias_info for value in (*schema.arguments, *schema.returns))
    return "view" if aliased else "fresh"


class Recorder(TorchDispatchMode):
    """Keeps the calls of aten and prims overloads that run under it."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[OpOverload, dict[str, Call]] = defaultdict(dict)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        kwargs = kwargs or {}
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if role(func) and len(self.calls[func]) < 80 and all(map(_small_and_strided, tensors)):
            self.add(func, Call(args, kwargs))
        return func(*args, **kwargs)

    def add(self, op: OpOverload, call: Call) -> None:
        signature = repr(tree_map(_signature, tuple(call)))
        if signature not in self.calls[op]:
            self.calls[op][signature] = Call(*tree_map(_dense_copy, tuple(call)))


def _small_and_strided(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided and tensor.numel() < 10_000 and not tensor.is_quantized


def _signature(leaf: object) -> object:
    return (tuple(leaf.shape), leaf.dtype) if isinstance(leaf, Tensor) else leaf


def _dense_copy(leaf: object) -> object:
    if not isinstance(leaf, Tensor):
        return leaf
    return leaf.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)


def recorded_calls(wanted: Callable[[str], bool] = lambda name: True) -> Recorder:
    """Run the op database's samples, of the ops whose names are `wanted`, and the calls below."""
    from torch.testing._internal.common_methods_invocations import op_db

    recorder = Recorder()
    for info in op_db:
        if not wanted(info.name):
            continue
        for dtype in DTYPES:
            if dtype in info.supported_dtypes("cpu"):
                _run_samples(recorder, info, dtype, backward=False)
        if info.supports_autograd and torch.float32 in info.supported_dtypes("cpu"):
            _run_samples(recorder, info, torch.float32, backward=True)
    for op, args, kwargs in handwritten_calls():
        if wanted(op._opname):
            recorder.add(op, Call(args, kwargs))
    for op, call in generated_calls():
        if wanted(op._opname):
            recorder.add(op, call)
    return recorder


def _run_samples(recorder: Recorder, info: Any, dtype: torch.dtype, backward: bool) -> None:
    torch.manual_seed(0)
    random.seed(0)
    samples = info.sample_inputs("cpu", dtype, requires_grad=backward)
    for sample in itertools.islice(samples, 4 if backward else 12):
        try:
            with torch.set_grad_enabled(backward), recorder:
                outputs = info(sample.input, *sample.args, **sample.kwargs)
                for output in tree_leaves(outputs) if backward else ():
                    if isinstance(output, Tensor) and output.requires_grad:
                        output.abs().sum().backward(retain_graph=True)
        except Exception:  # noqa: S112
            continue  # not every sample runs by itself; the calls it made are kept


def handwritten_calls() -> Iterator[tuple[OpOverload, tuple[Any, ...], dict[str, Any]]]:
    """Calls of ops that graphs hold and the op database does not reach."""
    aten, prims = torch.ops.aten, torch.ops.prims
    torch.manual_seed(0)
    x2, x3, x4 = torch.randn(4, 6), torch.randn(2, 3, 4), torch.randn(2, 3, 4, 6)
    for x, shape in [
        (x2, (24,)), (x2, (2, 2, 6)), (x2, (4, 1, 6)), (x2, (8, 3)), (x3, (6, 4)), (x3, (2, 12)),
        (x3, (2, 3, 2, 2)), (x3, (2, 1, 3, 4)), (x4, (6, 4, 6)), (x4, (2, 12, 6)), (x4, (2, 3, 24)),
        (x4, (144,)),
    ]:  # fmt: skip
        yield aten.reshape.default, (x, shape), {}
    for x in (x2, x3, x4):
        yield prims.convert_element_type.default, (x, torch.float16), {}
        yield prims.convert_element_type.default, (x, torch.float32), {}
        yield prims.rev.default, (x, [1]), {}
        yield aten.lift_fresh_copy.default, (x,), {}
        yield aten.clone.default, (x,), {"memory_format": torch.contiguous_format}
        yield aten._to_copy.default, (x,), {"dtype": torch.float64}
        yield aten.copy.default, (x, x + 1), {}
        yield aten.constant_pad_nd.default, (x, [1, -1]), {}
        yield aten._fused_rms_norm.default, (x, x.shape[-1:], torch.randn(x.shape[-1]), 1e-5), {}
        index = torch.tensor([1, 0, 1])
        yield aten.index.Tensor, (x, [None, index]), {}
        yield aten._unsafe_index.Tensor, (x, [None, index]), {}
        yield aten._unsafe_index.Tensor, (x, [index, index]), {}
        yield aten.index_put.default, (x, [index[:2]], torch.randn(2, *x.shape[1:])), {}
    yield aten.clone.default, (x4,), {"memory_format": torch.channels_last}
    q, k, v = torch.randn(3, 2, 2, 8, 16)
    attention = aten._scaled_dot_product_flash_attention_for_cpu
    yield attention.default, (q, k, v), {}
    yield attention.default, (q, k, v, 0.0, True), {"scale": 0.5}
    yield attention.default, (q, k, v), {"attn_mask": torch.randn(8, 8)}
    out, logsumexp = attention.default(q, k, v)
    backward = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    yield backward, (torch.randn_like(out), q, k, v, out, logsumexp, 0.0, False), {}
    yield aten._int_mm.default, (torch.ones(32, 16, dtype=torch.int8),) * 2, {}
    yield aten._int_mm.default, (torch.eye(16, dtype=torch.int8),) * 2, {}


SHAPES = ((4,), (3, 4), (2, 3, 4), (2, 3, 4, 2), (2, 3, 2, 3, 2), (3, 1), (2, 1, 3), (2, 3, 1, 4))


def generated_calls() -> Iterator[tuple[OpOverload, Call]]:
    """Calls of every elementwise overload whose schema asks for tensors and numbers only."""
    made = {"Tensor": None, "number": 2, "float": 0.5, "int": 1, "bool": False}
    for name in sorted(torch._C._dispatch_get_all_op_names()):
        namespace, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        if namespace not in ("aten", "prims") or not hasattr(getattr(torch.ops, namespace), packet):
            continue
        op = getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default", None)
        if op is None or role(op) != "fresh" or torch.Tag.pointwise not in op.tags:
            continue
        asked = [str(a.type) for a in op._schema.arguments if not a.has_default_value()]
        if not all(kind in made for kind in asked):
            continue
        for dtype in DTYPES:
            torch.manual_seed(0)
            args = tuple(
                (torch.rand(3, 4) * 4).to(dtype) if kind == "Tensor" else made[kind]
                for kind in asked
            )
            if _outcome(op, args, {}).error is None:
                yield op, Call(args, {})


def chosen_calls(op: OpOverload, calls: Iterable[Call]) -> list[Call]:
    """Choose calls of as many ranks and dtypes as there are, elementwise ones in every shape."""
    groups: dict[object, list[Call]] = defaultdict(list)
    for call in calls:
        tensors = _tensors(call)
        groups[tuple((t.dim(), str(t.dtype)) for t in tensors)].append(call)
    ordered = sorted(groups.values(), key=lambda g: -max([t.dim() for t in _tensors(g[0])] or [0]))
    turns = itertools.chain.from_iterable(itertools.zip_longest(*ordered))
    chosen = [call for call in turns if call is not None][:MAX_CALLS]
    if torch.Tag.pointwise not in op.tags:
        return chosen
    same_shape = [call for call in chosen if len({t.shape for t in _tensors(call) if t.dim()}) == 1]
    reshaped = [_reshaped(call, shape) for call in same_shape[:2] for shape in SHAPES]
    return chosen[: MAX_CALLS // 2] + reshaped


def _tensors(call: Call) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tuple(call)) if isinstance(leaf, Tensor)]


def _reshaped(call: Call, shape: tuple[int, ...]) -> Call:
    def tile(leaf: object) -> object:
        if not isinstance(leaf, Tensor) or leaf.dim() == 0 or leaf.numel() == 0:
            return leaf
        count = torch.Size(shape).numel()
        return leaf.reshape(-1).repeat(count // leaf.numel() + 1)[:count].reshape(shape).clone()

    return Call(*tree_map(tile, tuple(call)))


# Operands in other layouts.


def layouts(tensor: Tensor) -> dict[str, Layout]:
    rank = tensor.dim()
    dims = tuple(range(rank))
    found = {"dense": Layout(dims)}
    if rank >= 2:
        found["reversed"] = Layout(dims[::-1])
    if rank >= 3:
        found["swapped"] = Layout((*dims[:-2], rank - 1, rank - 2))
        found["rotated"] = Layout((*dims[1:], 0))
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
    for kind in ("padded", "stepped"):
        yield kind, [layout.restrided(kind) for layout in base]
    for which in range(len(base) if len(base) > 1 else 0):
        yield (
            f"padded operand {which}",
            [l.restrided("padded") if i == which else l for i, l in enumerate(base)],
        )


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
    buffer = torch.full(
        (layout.offset + reach + 7,), float("nan") if inexact else 1, dtype=values.dtype
    )
    buffer.as_strided(written.shape, strides, layout.offset).copy_(written)
    return buffer.as_strided(values.shape, strides, layout.offset)


# What an op makes of them.


class Outcome(NamedTuple):
    error: str | None
    outputs: list[Tensor]


def _outcome(op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Outcome:
    try:
        outputs = op(*args, **kwargs)
    except Exception as error:
        return Outcome(type(error).__name__, [])
    return Outcome(None, [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, Tensor)])


class Outcomes(NamedTuple):
    """What an op makes of one set of operands."""

    operands: list[Tensor]
    real: Outcome
    fake_cpu: Outcome
    fake_cuda: Outcome


def outcomes(op: OpOverload, call: Call, operands: list[Tensor]) -> Outcomes:
    leaves, spec = tree_flatten(tuple(call))

    def run(tensors: list[Tensor], device: str) -> Outcome:
        left = iter(tensors)
        put = [
            next(left)
            if isinstance(leaf, Tensor)
            else torch.device(device)
            if isinstance(leaf, torch.device)
            else leaf
            for leaf in leaves
        ]
        return _outcome(op, *tree_unflatten(put, spec))

    return Outcomes(
        operands,
        run(operands, "cpu"),
        run(_fakes(operands, "cpu"), "cpu"),
        run(_fakes(operands, "cuda"), "cuda"),
    )


_fake_mode = FakeTensorMode()


def _fakes(tensors: list[Tensor], device: str) -> list[Tensor]:
    with _fake_mode:
        return [
            torch.empty(
                t.untyped_storage().nbytes() // t.element_size(), dtype=t.dtype, device=device
            ).as_strided(t.shape, t.stride(), t.storage_offset())
            for t in tensors
        ]


def _key(tensor: Tensor) -> object:
    return layout_key(
        tensor.shape, tensor.stride(), conj=tensor.is_conj(), neg=tensor.is_neg()
    )


def _wide_strides(tensor: Tensor) -> list[int]:
    """The strides that matter: those of dimensions of size above one, none of an empty tensor."""
    if not tensor.numel():
        return []
    return [s for n, s in zip(tensor.shape, tensor.stride(), strict=True) if n > 1]


def _equal_values(a: Tensor, b: Tensor) -> bool:
    a, b = a.resolve_conj().resolve_neg(), b.resolve_conj().resolve_neg()
    if torch.equal(a, b):
        return True
    if not (a.dtype.is_floating_point or a.dtype.is_complex):
        return False
    wide = torch.complex128 if a.dtype.is_complex else torch.float64
    a, b = a.to(wide), b.to(wide)
    scale = float(a.abs().nan_to_num(0.0, 0.0, 0.0).max())
    rtol = 1e-2 if a.dtype in (torch.float16, torch.bfloat16) else 1e-4
    return torch.allclose(a, b, rtol=rtol, atol=1e-5 * scale, equal_nan=True)


def difference(base: Outcomes, other: Outcomes, view: bool) -> str | None:
    """Say what the op noticed, or return None."""
    moved = [
        b for a, b in zip(base.operands, other.operands, strict=True) if a.stride() != b.stride()
    ]
    exact = all(size > 1 for tensor in moved for size in tensor.shape)
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
            if where == "real" and not _equal_values(x, y):
                return "values"
            if view:
                agree = _key(x) == _key(y)
            elif where == "real" and _shares(x, base.operands) or _shares(y, other.operands):
                return "an output that shares an operand's storage"
            else:
                agree = _wide_strides(x) == _wide_strides(y)
                agree = agree and (not exact or x.stride() == y.stride())
            if not agree:
                return f"{where}: strides {x.stride()} / {y.stride()} of shape {tuple(x.shape)}"
    return None


def _shares(tensor: Tensor, others: list[Tensor]) -> bool:
    storage = tensor.untyped_storage()._cdata
    return any(storage == other.untyped_storage()._cdata for other in others)


class Verdict(NamedTuple):
    category: str | None
    reason: str


def verdict(op: OpOverload, calls: Iterable[Call]) -> Verdict:
    """Try `op` on re-strided operands of `calls`: which category it is in, and why not a better."""
    kind = role(op)
    if kind is None:
        return Verdict(None, "mutable, random, uninitialised or not unique, by schema or name")
    compared, row_major_only = 0, ""
    for call in chosen_calls(op, calls):
        tensors = _tensors(call)
        for name, layouts_before in bases(tensors):
            operands = [laid_out(t, l) for t, l in zip(tensors, layouts_before, strict=True)]
            base = outcomes(op, call, operands)
            for change, layouts_after in variants(layouts_before):
                operands = [laid_out(t, l) for t, l in zip(tensors, layouts_after, strict=True)]
                if any(_key(a) != _key(b) for a, b in zip(base.operands, operands, strict=True)):
                    continue
                compared += base.real.error is None
                noticed = difference(base, outcomes(op, call, operands), kind == "view")
                if noticed:
                    shapes = [tuple(t.shape) for t in tensors]
                    reason = f"{noticed} ({name}, {change}, {shapes})"
                    if kind == "fresh" or name == "dense":
                        return Verdict(None, reason)
                    row_major_only = reason
    if compared < 4:
        return Verdict(None, f"only {compared} comparisons")
    if row_major_only:
        return Verdict("following_row_major", row_major_only)
    return Verdict("blind" if kind == "fresh" else "following", f"{compared} comparisons")


def verdicts(recorder: Recorder, names: Iterable[str] | None = None) -> dict[str, Verdict]:
    """The verdict on each recorded overload (of those in `names`), by name, sorted."""
    by_name = {str(op): op for op in recorder.calls}
    chosen = sorted(by_name if names is None else set(names) & by_name.keys())
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = {n: verdict(by_name[n], recorder.calls[by_name[n]].values()) for n in chosen}
    torch.set_num_threads(threads)
    return found


def lines(found: dict[str, Verdict]) -> list[str]:
    """The lines of the file: an overload and its category."""
    return [f"{name} {v.category}" for name, v in sorted(found.items()) if v.category]


def main(names: list[str]) -> None:
    wanted = {name.split(".")[1] for name in names}
    recorder = recorded_calls((lambda name: name in wanted) if names else (lambda name: True))
    if names:
        for name, (category, reason) in verdicts(recorder, names).items():
            print(f"{name}: {category or 'observer'}: {reason}")
        return
    LIST.write_text("\n".join(lines(verdicts(recorder))) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
