"""Calls of aten and prims overloads, to try the ops on: for make_layout_blind.py."""

import itertools
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

UNINITIALISED: Final = frozenset(
    {
        "empty_like",
        "new_empty",
        "new_empty_strided",
        "_embedding_bag",
        "_embedding_bag_backward",
        "_embedding_bag_forward_only",
        "_embedding_bag_per_sample_weights_backward",
        "_grouped_mm",
    }
)
"""Ops with outputs, or operands, that hold elements nobody wrote: values cannot be compared."""

NOT_UNIQUE: Final = frozenset(
    {
        "geqrf",
        "linalg_eig",
        "linalg_ldl_factor_ex",
        "linalg_lstsq",
        "linalg_lu",
        "linalg_lu_factor_ex",
        "linalg_qr",
        "_linalg_det",
        "_linalg_eigh",
        "_linalg_slogdet",
        "_linalg_solve_ex",
        "_linalg_svd",
        "median",
        "nanmedian",
    }
)
"""Ops that may answer in several ways, so that no verdict on them is stable: decompositions, where
a last bit decides a sign or a pivot, and medians, which index any one of equal values."""

SEEDED_IN_NAME_ONLY: Final = frozenset({"_scaled_dot_product_flash_attention_for_cpu"})
"""Ops tagged as random for a dropout that their kernels reject."""

DTYPES: Final = (torch.float32, torch.int64, torch.bool, torch.complex64)

SHAPES: Final = (
    (4,),
    (3, 4),
    (2, 3, 4),
    (2, 3, 4, 2),
    (2, 3, 2, 3, 2),
    (3, 1),
    (2, 1, 3),
    (2, 3, 1, 4),
)
"""What every elementwise op is tried on, sizes of one included."""

MAX_CALLS: Final = 12
"""How many calls of an overload are tried."""


class Call(NamedTuple):
    """The arguments of one call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def tensors(self) -> list[Tensor]:
        return [leaf for leaf in tree_leaves(tuple(self)) if isinstance(leaf, Tensor)]


def role(op: OpOverload) -> str | None:
    """Return "fresh" or "view" by the schema of `op`, None for what can only be an observer."""
    schema = op._schema
    if op.namespace not in ("aten", "prims") or schema.is_mutable:
        return None
    if not schema.returns or not all("Tensor" in str(out.type) for out in schema.returns):
        return None
    if not any("Tensor" in str(argument.type) for argument in schema.arguments):
        return None
    if op._opname in UNINITIALISED or op._opname in NOT_UNIQUE:
        return None
    if torch.Tag.nondeterministic_seeded in op.tags and op._opname not in SEEDED_IN_NAME_ONLY:
        return None
    aliased = any(value.alias_info for value in (*schema.arguments, *schema.returns))
    return "view" if aliased else "fresh"


class Recorder(TorchDispatchMode):
    """Keeps the calls that run under it, of ops that may be no observers."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[OpOverload, dict[str, Call]] = defaultdict(dict)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        call = Call(args, kwargs or {})
        if role(func) and len(self.calls[func]) < 80 and all(map(_is_small, call.tensors)):
            self.add(func, call)
        return func(*call.args, **call.kwargs)

    def add(self, op: OpOverload, call: Call) -> None:
        signature = repr(tree_map(_signature, tuple(call)))
        if signature not in self.calls[op]:
            self.calls[op][signature] = Call(*tree_map(_dense_copy, tuple(call)))


def _is_small(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided and tensor.numel() < 10_000 and not tensor.is_quantized


def _signature(leaf: object) -> object:
    return (tuple(leaf.shape), leaf.dtype) if isinstance(leaf, Tensor) else leaf


def _dense_copy(leaf: object) -> object:
    if not isinstance(leaf, Tensor):
        return leaf
    return leaf.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)


def recorded_calls(wanted: Callable[[str], bool] = lambda name: True) -> Recorder:
    """Run the samples of torch's op database, of ops named as `wanted`, and add the calls below.

    A name is that of the op database or of an overload packet: "add", "mm", "reshape".
    """
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
    for op, call in itertools.chain(handwritten_calls(), generated_calls(wanted)):
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
            continue  # not every sample runs everywhere; the calls it made are kept


def handwritten_calls() -> Iterator[tuple[OpOverload, Call]]:
    """Calls of ops that graphs hold and the op database does not reach."""

    def call(op: OpOverload, *args: Any, **kwargs: Any) -> tuple[OpOverload, Call]:
        return op, Call(args, kwargs)

    aten, prims = torch.ops.aten, torch.ops.prims
    torch.manual_seed(0)
    x2, x3, x4 = torch.randn(4, 6), torch.randn(2, 3, 4), torch.randn(2, 3, 4, 6)
    for shape in ((24,), (2, 2, 6), (4, 1, 6), (8, 3)):
        yield call(aten.reshape.default, x2, shape)
    for shape in ((6, 4), (2, 12), (2, 3, 2, 2), (2, 1, 3, 4)):
        yield call(aten.reshape.default, x3, shape)
    for shape in ((6, 4, 6), (2, 12, 6), (2, 3, 24), (144,)):
        yield call(aten.reshape.default, x4, shape)
    for x in (x2, x3, x4):
        last = x.shape[-1]
        index = torch.tensor([1, 0, 1])
        yield call(prims.convert_element_type.default, x, torch.float16)
        yield call(prims.convert_element_type.default, x, torch.float32)
        yield call(prims.rev.default, x, [1])
        yield call(aten.lift_fresh_copy.default, x)
        yield call(aten.clone.default, x, memory_format=torch.contiguous_format)
        yield call(aten._to_copy.default, x, dtype=torch.float64)
        yield call(aten.copy.default, x, x + 1)
        yield call(aten.slice_scatter.default, x, x[:, 1:], 1, 1)
        yield call(aten.constant_pad_nd.default, x, [1, -1])
        yield call(aten._fused_rms_norm.default, x, [last], torch.randn(last), 1e-5)
        yield call(aten.index_fill.int_Scalar, x, 1, index, 2.0)
        yield call(aten.index_fill.int_Tensor, x, 1, index, torch.tensor(2.0))
        yield call(aten.index.Tensor, x, [None, index])
        yield call(aten._unsafe_index.Tensor, x, [None, index])
        yield call(aten._unsafe_index.Tensor, x, [index, index])
        yield call(aten.index_put.default, x, [index[:2]], torch.randn(2, *x.shape[1:]))
    for ties in (torch.randint(0, 3, (6, 300)).float(), torch.randint(0, 2, (600,))):
        for op in (aten.sort.default, aten.mode.default):
            yield call(op, ties)
        for op in (aten.argmax.default, aten.max.dim, aten.min.dim, aten.cummax.default):
            yield call(op, ties, 0)
        for op in (aten.topk.default, aten.kthvalue.default):
            yield call(op, ties, 2)
            yield call(op, ties, 6, 0)
    yield call(aten.clone.default, x4, memory_format=torch.channels_last)
    yield call(aten._int_mm.default, *(torch.eye(16, dtype=torch.int8),) * 2)
    q, k, v = torch.randn(3, 2, 2, 8, 16)
    attention = aten._scaled_dot_product_flash_attention_for_cpu.default
    yield call(attention, q, k, v)
    yield call(attention, q, k, v, 0.0, True, scale=0.5)
    yield call(attention, q, k, v, attn_mask=torch.randn(8, 8))
    out, logsumexp = attention(q, k, v)
    backward = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    yield call(backward, torch.randn_like(out), q, k, v, out, logsumexp, 0.0, False)


def generated_calls(wanted: Callable[[str], bool]) -> Iterator[tuple[OpOverload, Call]]:
    """Calls of every elementwise overload whose schema asks for tensors and numbers only."""
    numbers = {"number": 2, "float": 0.5, "int": 1, "bool": False}
    for name in sorted(torch._C._dispatch_get_all_op_names()):
        namespace, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        if namespace not in ("aten", "prims") or not wanted(packet):
            continue
        ops = getattr(getattr(torch.ops, namespace), packet, None)
        op = getattr(ops, overload or "default", None)
        if op is None or role(op) != "fresh" or torch.Tag.pointwise not in op.tags:
            continue
        asked = [str(a.type) for a in op._schema.arguments if not a.has_default_value()]
        if not all(kind == "Tensor" or kind in numbers for kind in asked):
            continue
        for dtype in DTYPES:
            torch.manual_seed(0)
            args = tuple(
                (torch.rand(3, 4) * 4).to(dtype) if kind == "Tensor" else numbers[kind]
                for kind in asked
            )
            try:
                op(*args)
            except Exception:  # noqa: S112
                continue  # no kernel for this dtype
            yield op, Call(args, {})


def chosen_calls(op: OpOverload, calls: Iterable[Call]) -> list[Call]:
    """Choose calls of as many ranks and dtypes as there are, elementwise ones in every shape."""
    groups: dict[object, list[Call]] = defaultdict(list)
    for call in calls:
        groups[tuple((t.dim(), str(t.dtype)) for t in call.tensors)].append(call)
    ordered = sorted(groups.values(), key=lambda g: -max([t.dim() for t in g[0].tensors] or [0]))
    turns = itertools.chain.from_iterable(itertools.zip_longest(*ordered))
    chosen = [call for call in turns if call is not None][:MAX_CALLS]
    if torch.Tag.pointwise not in op.tags:
        return chosen
    same_shape = [call for call in chosen if len({t.shape for t in call.tensors if t.dim()}) == 1]
    reshaped = [_reshaped(call, shape) for call in same_shape[:1] for shape in SHAPES]
    return chosen[: MAX_CALLS - len(SHAPES) + 2] + reshaped


def _reshaped(call: Call, shape: tuple[int, ...]) -> Call:
    """Return `call` on operands of another shape, their values repeated as needed."""
    count = torch.Size(shape).numel()

    def tile(leaf: object) -> object:
        if not isinstance(leaf, Tensor) or leaf.dim() == 0 or leaf.numel() == 0:
            return leaf
        return leaf.reshape(-1).repeat(count // leaf.numel() + 1)[:count].reshape(shape).clone()

    return Call(*tree_map(tile, tuple(call)))
