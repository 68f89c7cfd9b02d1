import copy
import pickle
from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import pytest
import torch

from lowering.options import FAMILIES, Options, UnsupportedOption

OTHER = Options(("cse", "split"), prefer="slices", emit="positive_dims", max_enodes=7)


def test_all_families_are_on_by_default() -> None:
    assert Options().families == FAMILIES


@pytest.mark.parametrize("options", [Options(), OTHER])
@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value)), replace]
)
def test_a_copy_is_equal(options: Options, copied: Any) -> None:
    twin = copied(options)
    assert twin == options
    assert hash(twin) == hash(options)
    assert repr(twin) == repr(options)


@pytest.mark.parametrize(
    "change",
    [
        {"families": ("cse",)},
        {"prefer": "slices"},
        {"emit": "positive_dims"},
        {"keep_apart": ("aten.mm.default",)},
        {"max_enodes": 5},
        {"max_iterations": 5},
    ],
)
def test_other_options_are_unequal_and_read_differently(change: dict[str, Any]) -> None:
    assert Options(**change) != Options()
    assert repr(Options(**change)) != repr(Options())


def test_it_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        Options().prefer = "slices"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Options(("split", "cse")), Options(("cse", "split"))),
        (Options(["cse", "split", "cse"]), Options(("cse", "split"))),  # type: ignore[arg-type]
        (Options(keep_apart=("b.y.z", "a.x.z")), Options(keep_apart=("a.x.z", "b.y.z", "a.x.z"))),
        (
            Options(keep_apart=(torch.ops.aten.mm.default,)),
            Options(keep_apart=("aten.mm.default",)),
        ),
    ],
)
def test_spellings_of_one_choice_are_equal(one: Options, other: Options) -> None:
    assert one == other
    assert hash(one) == hash(other)
    assert repr(one) == repr(other)


def test_an_op_of_a_library_that_is_not_loaded_may_be_named() -> None:
    assert Options(keep_apart=("mylib.attend.default",)).keep_apart == ("mylib.attend.default",)


@pytest.mark.parametrize(
    ("keywords", "error", "says"),
    [
        ({"families": "cse"}, TypeError, "must be a tuple"),
        ({"families": ("slce",)}, ValueError, "did you mean 'slice'"),
        ({"families": ("loops",)}, ValueError, "'cse', 'slice', 'split', 'scatter', 'cat'"),
        ({"families": (3,)}, ValueError, "no rule family 3"),
        ({"prefer": "splits"}, ValueError, "'split', 'slices'"),
        ({"prefer": ["split"]}, ValueError, "'split', 'slices'"),
        ({"emit": "negative"}, ValueError, "'last_dim_minus_one', 'positive_dims'"),
        ({"keep_apart": "aten.mm.default"}, TypeError, "must be a tuple"),
        ({"keep_apart": ("aten.mm",)}, ValueError, "as in 'aten.mm.default'"),
        ({"keep_apart": ("aten.mm.dflt",)}, ValueError, "aten.mm has aten.mm.default"),
        ({"keep_apart": ("aten.nosuch.default",)}, ValueError, "no op aten.nosuch"),
        ({"keep_apart": ("aten.name.default",)}, ValueError, "no op aten.name"),
        ({"keep_apart": (torch.ops.aten.mm,)}, TypeError, "one by one: aten.mm.default"),
        ({"keep_apart": (torch.mm,)}, TypeError, "torch.ops.aten.mm.default"),
        ({"max_enodes": 1e6}, TypeError, "must be an int, got 1000000.0"),
        ({"max_enodes": 0}, ValueError, "at least 1"),
        ({"max_iterations": True}, TypeError, "must be an int"),
        ({"filled": 1}, TypeError, "must be a bool"),
        ({"families_": ()}, TypeError, "did you mean 'families'"),
        ({"fast": True}, TypeError, "has no option 'fast'; the options are families, prefer"),
    ],
)
def test_misuse_says_what_would_have_been_right(
    keywords: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        Options(**keywords)


@pytest.mark.parametrize(
    ("keywords", "says"),
    [
        ({"filled": True}, "leave filled=False"),
        ({"flatten": True}, "leave flatten=False"),
        ({"relaxed": True}, "leave relaxed=False"),
        ({"verify": True}, "leave verify=False"),
        ({"record": True}, "leave record=False"),
        ({"rules": (object(),)}, r"leave rules=\(\)"),
        ({"cost": len}, "leave cost=None"),
    ],
)
def test_what_is_not_available_yet_says_what_to_do(keywords: dict[str, Any], says: str) -> None:
    with pytest.raises(UnsupportedOption, match=f"not available yet; {says}"):
        Options(**keywords)


def test_every_field_is_documented() -> None:
    described = Options.__doc__ or ""
    assert [f.name for f in fields(Options) if f"\n        {f.name}: " not in described] == []
