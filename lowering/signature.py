"""What an operator's schema says, looked up once for each target."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.fx import Node

from lowering.layout_blind import is_layout_blind, is_layout_following

Target = Callable[..., Any]


class Parameter(NamedTuple):
    """One parameter of a schema, as far as normalisation needs it.

    Attributes:
        name: its name.
        default: its default, or None where it has none.
        kind: "float" for a float that may be given as an int, "dim" or "dims" for what counts
            dimensions, "list" where one number may stand for a list of one, "plain" for the rest.
    """

    name: str
    default: object
    kind: str


@dataclass(frozen=True, eq=False, slots=True)
class Signature:
    """What is known of a target. There is one for each target, so that it can stand for it.

    Attributes:
        name: the target's name, as "aten.mm.default".
        parameters: in the order of the schema; empty for a target without one.
        merge: equal nodes of it are one value.
        effect: it stays, in its place, even if nobody uses it.
        writes: parameters whose tensors it writes; -1 for all of them.
        aliases: parameters that its outputs are, or may be, views of.
        may_alias: whether its output is a view depends on the strides of its operand.
        extra_dims: dimensions that a `dim` counts beyond those of the first tensor.
        blind: it sees no more of its operands than values and layout key.
        blind_unit_last: it is blind to operands whose last dimensions have a stride of one.
        follows: so does it, and its output may be a view of its first operand.
        follows_row_major: it follows an operand whose elements lie in the order of their indices.
        free: it computes nothing on a device: a getitem, or arithmetic on sizes.
        user_function: it is what users call, before AOTAutograd makes operators of it.
    """

    name: str
    parameters: tuple[Parameter, ...] = ()
    merge: bool = False
    effect: bool = True
    writes: tuple[int, ...] = ()
    aliases: tuple[int, ...] = ()
    may_alias: bool = False
    extra_dims: int = 0
    blind: bool = False
    blind_unit_last: bool = False
    follows: bool = False
    follows_row_major: bool = False
    free: bool = False
    user_function: bool = False


# Operators that return a view or a copy, as the strides of their operand have it; some of their
# schemas say view, some don't.
MAY_ALIAS = frozenset(
    """reshape reshape_as view_as contiguous flatten ravel to type_as expand_as broadcast_to float
    double half int long chunk tensor_split narrow movedim moveaxis swapaxes swapdims squeeze
    unsqueeze resolve_conj resolve_neg conj real imag adjoint mT mH matrix_H numpy_T unflatten
    atleast_1d atleast_2d atleast_3d hsplit vsplit dsplit lift_fresh lift pin_memory
    """.split()
)

# Random operators that don't all carry the tag `nondeterministic_seeded`.
RANDOM = frozenset(
    """rand rand_like randn randn_like randint randint_like randperm normal normal_functional
    bernoulli uniform exponential cauchy geometric log_normal poisson binomial multinomial dropout
    native_dropout _fused_dropout alpha_dropout feature_dropout feature_alpha_dropout
    rrelu_with_noise rrelu rrelu_with_noise_functional _standard_gamma _sample_dirichlet
    inductor_random inductor_randint inductor_seed inductor_seeds inductor_lookup_seed
    inductor_rand inductor_randn inductor_reserve_rng_state inductor_randint_and_update
    """.split()
)

# Memory that nobody has written: two of them are never one, for each may be written on its own.
UNINITIALISED = frozenset(
    """empty empty_like empty_strided empty_permuted new_empty new_empty_strided empty_quantized
    _empty_affine_quantized resize inductor_force_stride_order
    """.split()
)

# Higher-order operators that write none of their operands.
FUNCTIONAL = frozenset(
    """auto_functionalized auto_functionalized_v2 triton_kernel_wrapper_functional cond while_loop
    scan associative_scan map_impl invoke_subgraph flex_attention flex_attention_backward
    with_effects out_dtype run_const_graph wrap_with_set_grad_enabled wrap_with_autocast
    """.split()
)


_known: dict[object, Signature] = {}


def signature(target: object) -> Signature:
    """The signature of a call_function target."""
    found = _known.get(target)
    if found is None:
        found = _known[target] = _signature(target)
    return found


def signature_of(node: Node) -> Signature:
    """The signature of a node; that of a node which calls no function has no parameters."""
    return signature(node.target if node.op == "call_function" else node.op)


def _signature(target: object) -> Signature:
    name = name_of(target)
    if isinstance(target, OpOverload):
        return _of_overload(target)
    if isinstance(target, HigherOrderOperator):
        functional = target.name().rsplit("::", 1)[-1] in FUNCTIONAL
        return Signature(name, writes=() if functional else (-1,))
    if target is operator.getitem:
        return Signature(name, merge=True, effect=False, aliases=(0,), free=True)
    if getattr(target, "__module__", "") in ("_operator", "math", "builtins") or is_symbolic(
        target
    ):
        return Signature(name, merge=True, effect=False, free=True)
    return Signature(name, user_function=_is_user_function(target))


def _is_user_function(target: object) -> bool:
    if isinstance(target, str):
        return target in ("call_method", "call_module")
    module = getattr(target, "__module__", None)
    if module is None:
        return callable(target)
    return module.startswith("torch") and not module.startswith(("torch._inductor", "torch.fx"))


def is_symbolic(target: object) -> bool:
    """Whether it computes with symbolic numbers: torch.sym_max, torch.sym_float, ..."""
    name = getattr(target, "__name__", "")
    module = getattr(target, "__module__", "")
    return name.startswith(("sym_", "_sym_")) or module.startswith("torch.utils._sympy")


def _of_overload(target: OpOverload) -> Signature:
    schema = target._schema
    name = schema.name.split("::")[1]
    known = target.namespace in ("aten", "prims")
    parameters = []
    writes: list[int] = []
    aliases: list[int] = []
    for i, argument in enumerate(schema.arguments):
        parameters.append(
            Parameter(
                argument.name,
                argument.default_value if argument.has_default_value() else None,
                _kind(argument.name, str(argument.type), known),
            )
        )
        if argument.alias_info is not None:
            (writes if argument.alias_info.is_write else aliases).append(i)
            if argument.alias_info.is_write:
                aliases.append(i)
    may_alias = name in MAY_ALIAS and not writes
    if may_alias:
        aliases = [0]
    random = torch.Tag.nondeterministic_seeded in target.tags or name in RANDOM
    effect = (
        schema.is_mutable
        or random
        or not known
        or target in torch.fx.node._side_effectful_functions
        or name.startswith(("_assert", "sym_constrain", "_print", "_functional_", "_local_scalar"))
    )
    return Signature(
        name_of(target),
        tuple(parameters),
        merge=not effect and name not in UNINITIALISED,
        effect=effect,
        writes=tuple(writes),
        aliases=tuple(aliases),
        may_alias=may_alias,
        extra_dims=1 if name in ("unsqueeze", "stack", "diag_embed") else 0,
        blind=is_layout_blind(target),
        blind_unit_last=is_layout_blind(target, unit_last=True),
        follows=is_layout_following(target),
        follows_row_major=is_layout_following(target, row_major=True),
    )


def _kind(name: str, kind: str, known: bool) -> str:
    if kind in ("float", "Optional[float]"):
        return "float"
    if known and name in ("dim", "dims", "dim0", "dim1", "dim2"):
        if kind in ("int", "Optional[int]"):
            return "dim"
        if kind in ("List[int]", "Optional[List[int]]"):
            return "dims"
    return "list" if kind in ("List[int]", "Optional[List[int]]") else "plain"


def bind(node: Node, parameters: tuple[Parameter, ...]) -> list[Any]:
    """The node's arguments in the order of the schema, defaults filled in.

    Raises:
        ValueError: the arguments don't fit the schema; the message names the node.
    """
    args = node.args
    kwargs = node.kwargs
    bound: list[Any] = list(args)
    if len(bound) > len(parameters):
        raise ValueError(
            f"node {node.name}: {node.target} takes {len(parameters)} arguments, {len(bound)} given"
        )
    if kwargs:
        left = len(kwargs)
        for parameter in parameters[len(args) :]:
            if parameter.name in kwargs:
                bound.append(kwargs[parameter.name])
                left -= 1
            else:
                bound.append(parameter.default)
        if left:
            names = [p.name for p in parameters[len(args) :]]
            wrong = [name for name in kwargs if name not in names]
            raise ValueError(f"node {node.name}: {node.target} has no argument {wrong[0]!r} left")
    elif len(bound) < len(parameters):
        bound.extend([parameter.default for parameter in parameters[len(bound) :]])
    return bound


def normal(argument: Any, kind: str, node: Node, sig: Signature) -> Any:
    """An argument in its normal form: floats as floats, lists as lists, dims from the front."""
    if kind == "plain":
        return argument
    if kind == "float":
        return float(argument) if type(argument) is int else argument
    if kind == "list":
        return [argument] if type(argument) is int else argument
    dims = [argument] if type(argument) is int else argument
    if not isinstance(dims, (list, tuple)) or all(type(d) is not int or d >= 0 for d in dims):
        return dims if kind == "dims" else argument
    first = node.args[0] if node.args else node.kwargs.get(sig.parameters[0].name)
    if isinstance(first, (list, tuple)) and first:
        first = first[0]
    val = first.meta.get("val") if isinstance(first, Node) else None
    if not isinstance(val, torch.Tensor):
        return argument
    rank = val.dim() + sig.extra_dims
    dims = [d % rank if type(d) is int and rank else d for d in dims]
    return dims if kind == "dims" else dims[0]


def name_of(target: object) -> str:
    """The name of a target: an overload as "aten.mm.default", a function with its module."""
    if isinstance(target, (OpOverload, str)):
        return str(target)
    if isinstance(target, HigherOrderOperator):
        return f"higher_order.{target.name()}"
    module = getattr(target, "__module__", None) or "builtins"
    return f"{module}.{getattr(target, '__name__', type(target).__name__)}"
