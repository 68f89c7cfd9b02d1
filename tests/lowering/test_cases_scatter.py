"""CASES.md 7, 13 and 14: pieces that are written in place, and what is read of them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, fx

from lowering import canonical_text, capture, saturate
from tests.lowering import fxjson, models
from tests.lowering.make_data import DATA
from tests.lowering.models import EXAMPLES, bind
from tests.lowering.support import GEOMETRY, Builder, calls, check, targets
from tests.lowering.sweeps import every

aten = torch.ops.aten
END = 2**63 - 1
RUNNING = torch.__version__.split("+")[0]


def scatters_in(module: fx.GraphModule) -> int:
    return targets(module)["aten.slice_scatter.default"]


# 7: captured -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", [example.name for example in models.CASE_7])
def test_case_7_is_one_graph_from_every_torch(name, dynamic):
    example = EXAMPLES[name]
    modules = {
        version: fxjson.load(
            DATA / version / f"{name}{'.dynamic' if dynamic else ''}.json.gz"
        ).module
        for version in ("2.13.0", "2.15.0")
    }
    modules["live"] = example.capture(dynamic=dynamic)
    texts = {}
    for version, module in modules.items():
        check(module, bind(module.graph, example.inputs()), shuffles=(1,))
        texts[version] = canonical_text(module).replace("s27", "s77")
    assert len(set(texts.values())) == 1
    whole = name in ("case_7_whole", "case_7_returned")
    assert scatters_in(modules["live"]) == (2 if whole else 0)
    if not whole:
        cut = calls(modules["live"], aten.split_with_sizes.default)
        unread = name == "case_7_v_unread"
        assert [node.args[1:] for node in cut] == ([] if unread else [([8, 4, 4], -1)])


IN_PLACE: dict[str, Callable[[Tensor], object]] = {
    "add_": lambda x: x.add_(1),
    "mul_": lambda x: x.mul_(x.sin()),
    "relu_": lambda x: x.relu_(),
    "clamp_": lambda x: x.clamp_(-1, 1),
    "sub_": lambda x: x.sub_(x.sum(-1, keepdim=True)),
    "copy_": lambda x: x.copy_(x.cos()),
    "fill_": lambda x: x.fill_(2),
    "zero_": lambda x: x.zero_(),
    "setitem": lambda x: x.__setitem__((slice(None), slice(0, 2)), 7.0),
    "masked_fill_": lambda x: x.masked_fill_(x > 0, -1),
    "neg_": lambda x: x.neg_(),
}


@pytest.mark.parametrize(
    ("operation", "written"),
    every(
        2,
        [
            *((operation, (0, 1)) for operation in IN_PLACE),
            *((operation, (2, 1, 0)) for operation in ("mul_", "fill_", "setitem", "copy_")),
            *(("add_", written) for written in ((1,), (0, 2), (1, 0), (1, 1))),
        ],
    ),
    ids=str,
)
def test_pieces_written_in_place_in_every_spelling_are_one_graph(operation, written):
    def writes(cut: Callable[..., Sequence[Tensor]]) -> Callable[[Tensor], tuple[Tensor, ...]]:
        def function(x: Tensor) -> tuple[Tensor, ...]:
            pieces = cut(2 * x, (8, 4, 4))
            for i in written:
                IN_PLACE[operation](pieces[i])
            return pieces[0].sin(), pieces[1].cos(), pieces[2].exp()

        return function

    texts = []
    cuts = (models.split, models.slices, models.narrow, models.mixture)
    for cut in cuts if operation == "add_" else cuts[:2]:
        x = torch.randn(5, 16)
        (module,) = capture(writes(cut), x)
        check(module, [x], shuffles=(1,))
        if operation not in ("copy_", "fill_", "zero_", "setitem"):
            (split,) = calls(module, aten.split_with_sizes.default)
            assert (split.args[1:], scatters_in(module)) == (([8, 4, 4], -1), 0)
        texts.append(canonical_text(module))
    assert len(set(texts)) == 1


# 7 and 13: by hand, as one torch and as the other writes them ------------------------------------

Piece = Callable[[Builder, fx.Node, Sequence[int], int, int], fx.Node]


def as_split(b: Builder, y: fx.Node, sizes: Sequence[int], d: int, i: int) -> fx.Node:
    """One piece as torch 2.13 regenerates it."""
    return b.call(operator.getitem, b.call(aten.split_with_sizes.default, y, list(sizes), d), i)


def as_slice(b: Builder, y: fx.Node, sizes: Sequence[int], d: int, i: int) -> fx.Node:
    """One piece as torch 2.15 regenerates it."""
    cuts = list(accumulate(sizes, initial=0))
    return b.call(aten.slice.Tensor, y, d, cuts[i], cuts[i + 1])


def as_slice_from_the_end(b: Builder, y: fx.Node, sizes: Sequence[int], d: int, i: int) -> fx.Node:
    cuts = [n - sum(sizes) for n in accumulate(sizes, initial=0)]
    return b.call(aten.slice.Tensor, y, d, cuts[i], cuts[i + 1] or END)


class Written(NamedTuple):
    """Pieces of one tensor: which are written, in which order, and which are read after that."""

    sizes: tuple[int, ...]
    writes: tuple[int, ...]
    reads: tuple[int, ...]
    whole: bool = False
    dim: int = 1
    early: tuple[int, ...] = ()  # read before anything is written


WRITTEN = (
    *(
        Written(sizes, writes, (0, 1, 2))
        for sizes in ((8, 4, 4), (8, 4, 2), (4, 8, 4), (4, 4, 8))
        for writes in ((0, 1), (0, 2), (1, 2))
    ),
    *(Written((8, 4, 4), (0, 1), (0, 1, 2), dim=d) for d in (0, -1, -2)),
    *(Written((4, 12), writes, (0, 1)) for writes in ((0,), (1,), (0, 1), (1, 0), (0, 0))),
    *(Written((2, 6, 4, 4), writes, (0, 1, 2, 3)) for writes in ((0, 1), (3,), (0, 1, 2, 3))),
    *(Written((8, 4, 4), (0, 1), reads) for reads in ((0, 1), (0, 2), (1, 2), (0,), (1,), (2,))),
    *(Written((4, 8, 4), (0, 1), reads, whole=True) for reads in ((0, 1, 2), (0, 1), (2,), ())),
    *(Written((8, 4, 4), (1,), (0, 1, 2), early=early) for early in ((0,), (1,), (0, 1, 2))),
)


def function_of(i: int) -> Any:
    return (aten.sin, aten.cos, aten.exp, aten.tanh)[i].default


def scattered(case: Written, piece: Piece, dtype: torch.dtype) -> fx.GraphModule:
    """The case as functionalization leaves it."""
    sizes, d = case.sizes, case.dim
    b = Builder()
    shape = [3, 3]
    shape[d] = sum(sizes)
    y = b.call(aten.mul.Tensor, b.input(*shape, dtype=dtype), 2)
    results = [b.call(function_of(i), piece(b, y, sizes, d, i)) for i in case.early]
    cuts = list(accumulate(sizes, initial=0))
    for i in case.writes:
        new = b.call(aten.add.Tensor, piece(b, y, sizes, d, i), i + 1)
        y = b.call(aten.slice_scatter.default, y, new, d, cuts[i], cuts[i + 1])
    results += [b.call(function_of(i), piece(b, y, sizes, d, i)) for i in case.reads]
    if case.whole:
        results.append(b.call(aten.neg.default, y))
    return b.output(*results)


def plain(case: Written, dtype: torch.dtype) -> fx.GraphModule:
    """The case without any write, but for those that a read of the whole needs."""
    sizes, d = case.sizes, case.dim
    b = Builder()
    shape = [3, 3]
    shape[d] = sum(sizes)
    y = b.call(aten.mul.Tensor, b.input(*shape, dtype=dtype), 2)
    split = b.call(aten.split_with_sizes.default, y, list(sizes), d)
    pieces = [b.call(operator.getitem, split, i) for i in range(len(sizes))]
    results = [b.call(function_of(i), pieces[i]) for i in case.early]
    cuts = list(accumulate(sizes, initial=0))
    for i in case.writes:
        pieces[i] = b.call(aten.add.Tensor, pieces[i], i + 1)
        if case.whole:
            y = b.call(aten.slice_scatter.default, y, pieces[i], d, cuts[i], cuts[i + 1])
    results += [b.call(function_of(i), pieces[i]) for i in case.reads]
    if case.whole:
        results.append(b.call(aten.neg.default, y))
    return b.output(*results)


@pytest.mark.parametrize("case", WRITTEN, ids=str)
def test_what_is_read_of_written_pieces(case):
    dtype = torch.bfloat16 if case.dim == 0 else torch.float32
    expected = plain(case, dtype)
    saturate(expected)
    for piece in (as_split, as_slice, as_slice_from_the_end):
        module = scattered(case, piece, dtype)
        check(module, shuffles=(1,))
        assert scatters_in(module) == (len(case.writes) if case.whole else 0)
        assert canonical_text(module) == canonical_text(expected), piece.__name__


def test_a_dynamic_number_of_tokens_changes_nothing():
    texts = []
    for piece in (as_split, as_slice):
        b = Builder()
        x = b.input(b.symbol(5), 16)
        y = b.call(aten.mul.Tensor, x, 2)
        new = b.call(aten.add.Tensor, piece(b, y, (8, 4, 4), 1, 0), 1)
        y = b.call(aten.slice_scatter.default, y, new, 1, 0, 8)
        reads = [piece(b, y, (8, 4, 4), 1, i) for i in range(3)]
        module = b.output(*[b.call(function_of(i), node) for i, node in enumerate(reads)])
        check(module)
        assert (scatters_in(module), len(calls(module, aten.split_with_sizes.default))) == (0, 1)
        texts.append(canonical_text(module))
    assert texts[0] == texts[1]


# 13: by offset -----------------------------------------------------------------------------------

INSIDE, BASE, STAYS = "source", "base", "stays"


@pytest.mark.parametrize(
    ("window", "read", "expected"),
    [
        ((1, 4, 8), (1, 4, 8), INSIDE),
        ((1, 4, 8), (-1, -12, -8), INSIDE),
        ((-1, 4, 8), (1, 4, 8, 1), INSIDE),
        ((1, 12), (1, 12, END), INSIDE),
        ((1, -4), (1, 12, 16), INSIDE),
        ((1, 0, -12), (1, 0, 4), INSIDE),
        ((1, None, 4), (1, 0, 4), INSIDE),
        ((1, 4, 8), (1, 0, 4), BASE),
        ((1, 4, 8), (1, 8, 12), BASE),
        ((1, 4, 8), (1, 9, 16), BASE),
        ((1, 4, 8), (1, 0, 2), BASE),
        ((1, -12, -8), (1, -8), BASE),
        ((1, 4, 8), (1, 0, 5), STAYS),
        ((1, 4, 8), (1, 7, 12), STAYS),
        ((1, 4, 8), (1, 0, 16), STAYS),
        ((1, 4, 8), (1, 4, 8, 2), STAYS),
        ((1, 4, 8, 2), (1, 4, 8), STAYS),
        ((1, 4, 8), (0, 4, 8), STAYS),
        ((0, 4, 8), (1, 4, 8), STAYS),
    ],
    ids=str,
)
def test_a_slice_of_a_scatter_goes_by_offset(window, read, expected):
    b = Builder()
    x = b.call(aten.exp.default, b.input(16, 16))
    source = b.call(aten.slice.Tensor, b.input(16, 16), *window)
    source = b.call(aten.sin.default, source)
    y = b.call(aten.slice_scatter.default, x, source, *window)
    module = b.output(b.call(aten.cos.default, b.call(aten.slice.Tensor, y, *read)))
    check(module)
    slices = [node.args[0].target for node in calls(module, aten.slice.Tensor)]
    found = {INSIDE: 0, BASE: slices.count(aten.exp.default), STAYS: scatters_in(module)}
    assert found == {INSIDE: 0, BASE: 0, STAYS: 0, expected: expected != INSIDE}
    assert (aten.exp.default in [node.target for node in module.graph.nodes]) == (
        expected != INSIDE
    )


@pytest.mark.parametrize(
    ("read", "scatters"),
    [((1, 4, 6), 0), ((1, 5, 8), 0), ((1, 4, 5), 0), ((1, 3, 5), 1), ((1, 0, 1), 0), ((1, 15), 0)],
    ids=str,
)
def test_a_part_of_what_was_written(read, scatters):
    b = Builder()
    x, source = b.input(3, 16), b.input(3, 4)
    y = b.call(aten.slice_scatter.default, x, source, 1, 4, 8)
    module = b.output(b.call(aten.cos.default, b.call(aten.slice.Tensor, y, *read)))
    check(module)
    assert scatters_in(module) == scatters


@pytest.mark.parametrize(("index", "of"), [(3, 0), (4, 1), (7, 1), (8, 0), (-1, 0), (-12, 1)])
def test_an_element_of_a_scatter(index, of):
    b = Builder()
    x, source = b.input(3, 16), b.input(3, 4)
    y = b.call(aten.slice_scatter.default, x, source, 1, 4, 8)
    module = b.output(b.call(aten.cos.default, b.call(aten.select.int, y, 1, index)))
    check(module)
    (element,) = calls(module, aten.select.int)
    assert element.args[0] is [x, source][of]
    assert scatters_in(module) == 0


def test_the_last_of_several_writes_counts():
    b = Builder()
    x, first, second = b.input(3, 16), b.input(3, 8), b.input(3, 8)
    y = b.call(aten.slice_scatter.default, x, first, 1, 0, 8)
    y = b.call(aten.slice_scatter.default, y, second, 1, 4, 12)
    parts = [b.call(aten.slice.Tensor, y, 1, *cut) for cut in ((0, 4), (4, 12), (12, 16), (2, 6))]
    module = b.output(*[b.call(function_of(i), part) for i, part in enumerate(parts)])
    check(module)
    (last,) = (node for node in calls(module, aten.slice_scatter.default) if node.args[1] is second)
    sources = [node.args[0] for node in calls(module, aten.slice.Tensor)]
    assert sorted(map(str, sources)) == sorted(map(str, [first, x, last]))
    assert scatters_in(module) == 2


@pytest.mark.parametrize("dim", [0, 1])
def test_scatters_along_two_dimensions(dim):
    b = Builder()
    x, row, column = b.input(8, 8), b.input(4, 8), b.input(8, 4)
    y = b.call(aten.slice_scatter.default, x, row, 0, 0, 4)
    y = b.call(aten.slice_scatter.default, y, column, 1, 0, 4)
    part = b.call(aten.slice.Tensor, y, dim, 4, 8)
    module = b.output(b.call(aten.sin.default, part))
    check(module)


# 13 and 14: dtypes and layouts -------------------------------------------------------------------

CASTS = [
    (torch.float32, torch.bfloat16),
    (torch.bfloat16, torch.float32),
    (torch.int64, torch.float32),
    (torch.float32, torch.int32),
    (torch.bool, torch.float32),
]


@pytest.mark.parametrize(("base", "source"), CASTS, ids=str)
@pytest.mark.parametrize("window", [(1, 4, 8), (1, 0, 16), (1, 0, END), (1,)], ids=str)
def test_a_source_of_another_dtype_is_cast(base, source, window):
    b = Builder()
    x = b.input(3, 16, dtype=base)
    part = b.input(3, 4 if len(window) == 3 and window[1] == 4 else 16, dtype=source)
    y = b.call(aten.slice_scatter.default, x, part, *window)
    read = b.call(aten.slice.Tensor, y, *window)
    rest = b.call(aten.slice.Tensor, y, 1, 8, 12)
    module = b.output(y, b.call(aten.neg.default, b.call(aten.add.Tensor, read, 1)), rest)
    check(module)
    assert scatters_in(module) == 1
    assert calls(module, aten.add.Tensor)[0].meta["val"].dtype in (base, torch.int64)


@pytest.mark.parametrize(
    "arguments",
    [(), (0,), (1,), (1, 3), (1, 3, None), (1, 0, -1), (1, -13, -1), (1, -100, 100), (1, 0, 16, 2)],
    ids=str,
)
@pytest.mark.parametrize("by_keyword", [False, True], ids=["positional", "keyword"])
def test_defaults_and_negative_bounds_are_as_eager_has_them(arguments, by_keyword):
    b = Builder()
    x = b.input(16, 16)
    names = ("dim", "start", "end", "step")
    kwargs = dict(zip(names, arguments, strict=False)) if by_keyword else {}
    args = () if by_keyword else arguments
    source = b.call(aten.slice.Tensor, b.input(16, 16), *args, **kwargs)
    source = b.call(aten.exp.default, source)
    y = b.call(aten.slice_scatter.default, x, source, *args, **kwargs)
    reads = [
        b.call(aten.slice.Tensor, y, *args, **kwargs),
        b.call(aten.slice.Tensor, y, 1, 0, 3),
        b.call(aten.slice.Tensor, y, 1, -1),
    ]
    module = b.output(*[b.call(function_of(i), read) for i, read in enumerate(reads)])
    check(module)


LAYOUTS = {
    "row_major": ((3, 4), (4, 1)),
    "transposed": ((3, 4), (1, 3)),
    "padded": ((3, 4), (7, 1)),
    "gaps": ((3, 4), (8, 2)),
    "expanded": ((3, 4), (0, 1)),
    "broadcast": ((3, 4), (0, 0)),
}


@pytest.mark.parametrize("source", LAYOUTS)
@pytest.mark.parametrize("base", ["row_major", "transposed", "gaps"])
@pytest.mark.parametrize("observed", [False, True], ids=["blind", "observed"])
def test_layouts_are_seen_by_those_who_can_see_them(source, base, observed):
    b = Builder()
    stride = {"row_major": (16, 1), "transposed": (1, 3), "gaps": (64, 3)}[base]
    x = b.input(3, 16, stride=stride)
    shape, stride = LAYOUTS[source]
    y = b.call(aten.slice_scatter.default, x, b.input(*shape, stride=stride), 1, 4, 8)
    parts = [b.call(aten.slice.Tensor, y, 1, *cut) for cut in ((4, 8), (5, 7), (0, 4), (8, 16))]
    results = [b.call(function_of(i), part) for i, part in enumerate(parts)]
    if observed:
        results += [b.call(GEOMETRY, part) for part in parts] + parts[:1]
    check(b.output(*results))


@pytest.mark.parametrize("rank", [4, 5])
@pytest.mark.parametrize("channels_last", ["base", "source", "both"])
def test_memory_formats_of_scatters(rank, channels_last):
    b = Builder()

    def image(channels: int, *, last: bool) -> fx.Node:
        shape = (2, channels, *((3,) * (rank - 2)))
        order = [0, *range(2, rank), 1] if last else range(rank)
        stride, step = [0] * rank, 1
        for d in reversed(order):
            stride[d] = step
            step *= shape[d]
        return b.input(*shape, stride=stride)

    x = image(8, last=channels_last != "source")
    source = image(4, last=channels_last != "base")
    y = b.call(aten.slice_scatter.default, x, source, 1, 0, 4)
    parts = [b.call(aten.slice.Tensor, y, 1, *cut) for cut in ((0, 4), (4, 8), (0, 1))]
    results = [b.call(function_of(i), part) for i, part in enumerate(parts)]
    check(b.output(*results, *[b.call(GEOMETRY, part) for part in parts], *parts))


@pytest.mark.parametrize("returned", ["slice", "scatter", "both", "source_too"])
def test_outputs_stay_fresh_where_they_were(returned):
    b = Builder()
    x, source = b.input(3, 16), b.call(aten.sin.default, b.input(3, 4))
    y = b.call(aten.slice_scatter.default, x, source, 1, 4, 8)
    read = b.call(aten.slice.Tensor, y, 1, 4, 8)
    other = b.call(aten.slice.Tensor, y, 1, 0, 4)
    results = {
        "slice": [read, other],
        "scatter": [y],
        "both": [y, read, other],
        "source_too": [source, read],
    }[returned]
    check(b.output(*results))
