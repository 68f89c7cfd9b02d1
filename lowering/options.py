"""What `saturate` is asked to do, as one frozen value."""

import difflib
import functools
import re
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any, Final, Literal, TypeVar

import torch
from torch._ops import OpOverload, OpOverloadPacket

FAMILIES: Final = ("cse", "slice", "split", "scatter", "cat")
"""The rule families that exist, in the order in which `Options.families` holds them."""

_PREFER: Final = ("split", "slices")
_EMIT: Final = ("last_dim_minus_one", "positive_dims")
_OVERLOAD_NAME: Final = re.compile(r"\w+\.\w+\.\w+")

_Class = TypeVar("_Class", bound=type)


class UnsupportedOption(ValueError):
    """An option that exists in name only: this version cannot do what it asks for."""


def _explain_unknown_keywords(cls: _Class) -> _Class:
    """Make the dataclass `cls` name its fields when it is given a keyword that is none of them."""
    known = tuple(field.name for field in fields(cls))
    generated = cls.__init__  # type: ignore[misc]

    @functools.wraps(generated)
    def explained(self: object, *args: object, **kwargs: object) -> None:
        for name in kwargs:
            if name not in known:
                raise TypeError(
                    f"{cls.__name__} has no option {name!r}{_did_you_mean(name, known)}; "
                    f"the options are {', '.join(known)}"
                )
        generated(self, *args, **kwargs)

    cls.__init__ = explained  # type: ignore[misc]
    return cls


@_explain_unknown_keywords
@dataclass(frozen=True)
class Options:
    """What `saturate` is asked to do: frozen, hashable, equal when it asks for the same.

    An option whose description ends in "Not available yet" can only be left at its default.

    Attributes:
        families: Names of the rule families that are on. Default: all of `FAMILIES`, which are
            "cse" (equal nodes are one node), "slice" (slices of slices, whole and empty slices,
            views that are what they view, reshapes of views), "split" (a partition into slices is
            a split), "scatter" (slices of slice_scatter) and "cat" (slices and splits of cat, cat
            of the pieces of a split). Any order is taken, and held in the order of `FAMILIES`. With
            none on, the graph stays as it is.
        prefer: The form of a partition whose pieces are all read: "split" (default) writes one
            split_with_sizes and its getitems, "slices" a slice for each piece.
        filled: Make a split of slices that leave gaps, with pieces that nobody reads.
            Default: False. Not available yet.
        flatten: Write nested partitions of one source as one split. Default: False, a partition of
            a piece stays a partition of that piece. Not available yet.
        relaxed: Allow identities that change the bits of NaNs, signed zeros and denormals.
            Default: False, all values keep their bits. Not available yet.
        emit: How the dimension of a new node is written: "last_dim_minus_one" (default) writes the
            last one as -1 and the others from 0 on, "positive_dims" writes all from 0 on.
        keep_apart: Overloads whose nodes are never merged with one another, by name, such as
            "aten.mm.default", or as an `OpOverload`. Default: (), none. Held as names in
            alphabetical order.
        max_enodes: The most e-nodes that the e-graph may hold before saturation stops; what has
            been found by then is used. A count of e-nodes, at least 1. Default: 2,000,000.
        max_iterations: The most iterations of the rules before saturation stops; what has been
            found by then is used. A count, at least 1. Default: 10,000.
        verify: Check each rewritten graph against the one that came in. Default: False. Not
            available yet.
        record: Keep what is needed to explain each rewrite. Default: False. Not available yet.
        rules: Rules of your own, on in addition to the families. Default: (), none. Not available
            yet.
        cost: A cost model of your own, in place of the one that `prefer` picks. Default: None. Not
            available yet.

    Raises:
        TypeError: A value is of the wrong type, or a keyword names no option.
        ValueError: A value is none of the possible ones.
        UnsupportedOption: An option that is not available yet is not at its default.
    """

    families: tuple[str, ...] = FAMILIES
    _: KW_ONLY
    prefer: Literal["split", "slices"] = "split"
    filled: bool = False
    flatten: bool = False
    relaxed: bool = False
    emit: Literal["last_dim_minus_one", "positive_dims"] = "last_dim_minus_one"
    keep_apart: tuple[str | OpOverload[..., Any], ...] = ()
    max_enodes: int = 2_000_000
    max_iterations: int = 10_000
    verify: bool = False
    record: bool = False
    rules: tuple[object, ...] = ()
    cost: Callable[..., object] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "families", _families(self.families))
        object.__setattr__(self, "keep_apart", _keep_apart(self.keep_apart))
        _check_choice("prefer", self.prefer, _PREFER)
        _check_choice("emit", self.emit, _EMIT)
        _check_count("max_enodes", self.max_enodes)
        _check_count("max_iterations", self.max_iterations)
        for name, instead in _UNAVAILABLE_FLAGS.items():
            _check_unavailable_flag(name, getattr(self, name), instead)
        if self.rules != ():
            raise UnsupportedOption(
                "rules of your own are not available yet; leave rules=() and choose among the "
                f"built-in families {FAMILIES}"
            )
        if self.cost is not None:
            raise UnsupportedOption(
                "a cost model of your own is not available yet; leave cost=None and choose with "
                f"prefer, one of {_PREFER}"
            )


_UNAVAILABLE_FLAGS: Final = {
    "filled": "slices that leave gaps stay slices",
    "flatten": "a partition of a piece stays a partition of that piece",
    "relaxed": "only identities that keep every bit are used",
    "verify": "compare the graph with a copy made before saturate",
    "record": "Report.rewrites says which rule replaced which nodes",
}
"""The flags that can't be set yet, each with what holds, or can be done, instead."""


def _check_unavailable_flag(name: str, value: object, instead: str) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be a bool, got {value!r}")
    if value:
        raise UnsupportedOption(f"{name}=True is not available yet; leave {name}=False: {instead}")


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {choices}, got {value!r}")


def _check_count(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int, got {value!r}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")


def _families(value: object) -> tuple[str, ...]:
    """Return the families in `value`, each once and in the order of `FAMILIES`."""
    chosen = _collection("families", value, example='("cse", "split")')
    for family in chosen:
        if family not in FAMILIES:
            raise ValueError(
                f"families: there is no rule family {family!r}"
                f"{_did_you_mean(family, FAMILIES)}; the families are {FAMILIES}"
            )
    return tuple(family for family in FAMILIES if family in chosen)


def _keep_apart(value: object) -> tuple[str, ...]:
    """Return the overload names in `value`, each once and in alphabetical order."""
    named = _collection("keep_apart", value, example='("aten.mm.default",)')
    return tuple(sorted({_overload_name(overload) for overload in named}))


def _overload_name(overload: object) -> str:
    """Return the name of `overload` as in "aten.mm.default".

    An unknown name is refused in aten only: the library of another one may not be loaded yet.
    """
    if isinstance(overload, OpOverload):
        return str(overload)
    if isinstance(overload, OpOverloadPacket):
        raise TypeError(
            f"keep_apart: {overload} stands for several overloads; name them one by one: "
            f"{_overloads_of(overload)}"
        )
    if not isinstance(overload, str):
        raise TypeError(
            "keep_apart takes overloads, by name as in 'aten.mm.default' or as in "
            f"torch.ops.aten.mm.default; got {overload!r}"
        )
    if not _OVERLOAD_NAME.fullmatch(overload):
        raise ValueError(
            f"keep_apart: {overload!r} is no overload's name; write namespace.op.overload, as in "
            "'aten.mm.default'"
        )
    namespace, op, name = overload.split(".")
    if namespace == "aten":
        packet = getattr(torch.ops.aten, op, None)
        if not isinstance(packet, OpOverloadPacket):
            raise ValueError(f"keep_apart: there is no op aten.{op} (in {overload!r})")
        if name not in packet.overloads():
            raise ValueError(
                f"keep_apart: there is no overload {overload!r}; aten.{op} has "
                f"{_overloads_of(packet)}"
            )
    return overload


def _overloads_of(packet: OpOverloadPacket[..., Any]) -> str:
    return ", ".join(f"{packet}.{name}" for name in packet.overloads())


def _collection(name: str, value: object, example: str) -> Iterable[object]:
    if isinstance(value, (tuple, list, set, frozenset)):
        return value
    raise TypeError(f"{name} must be a tuple of names, such as {example}; got {value!r}")


def _did_you_mean(name: object, known: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(name, known, n=1) if isinstance(name, str) else []
    return f" (did you mean {close[0]!r}?)" if close else ""
