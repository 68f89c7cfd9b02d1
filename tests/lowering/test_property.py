"""What holds for every graph, on random ones.

The suite runs few examples, the same ones each time, and with `-m slow` more. A long run, on other
ones, goes on after a failure and ends with each failure's smallest program:

    python -m tests.lowering.test_property --examples 20000 --seed 1
"""

from __future__ import annotations

import argparse
import operator
import re
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations
from time import perf_counter
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, reject, seed, settings
from hypothesis import strategies as st
from torch import Tensor, fx
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves

from lowering import Options, canonical_text, saturate
from lowering.aten import LISTS
from lowering.costs import COSTS
from lowering.options import FAMILIES
from lowering.signature import signature
from tests.lowering.outcomes import run
from tests.lowering.programs import NOT_RESPELLED, Input, Program, Step, build, inputs_of, programs
from tests.lowering.support import check, copy_of
from tests.lowering.writer import hint

aten = torch.ops.aten

OPTIONS = (
    Options(),
    Options(prefer="slices"),
    Options(emit="positive_dims"),
    *(
        Options(chosen)
        for count in range(len(FAMILIES))
        for chosen in combinations(FAMILIES, count)
    ),
)
OPTION = st.just(Options()) | st.sampled_from(OPTIONS)


def check_program(program: Program, options: Options = Options()) -> None:
    """Assert all that is promised of a graph, of the graph of a program.

    That is all that `support.check` asserts, and that the graph costs no more than it did, and that
    results have the same bits if each kernel runs on operands of the same layout.
    """
    module = build(program)
    before = copy_of(module)
    inputs = inputs_of(module, program.special)
    if not _runs(before, inputs):
        reject()
    try:
        check(module, inputs, options, shuffles=(1,))
        assert_no_dearer(cost_of(module.graph, options), cost_of(before.graph, options))
        assert bits_of(module, program.special) == bits_of(before, program.special), "bits"
    except BaseException as error:
        error.add_note(f"check_program({program!r}, {options!r})")
        error.add_note(f"--- before\n{show(before.graph)}\n--- after\n{show(module.graph)}")
        raise


def check_respelled(program: Program, respell: int) -> None:
    """Assert that a program written in other ways that mean the same becomes the same graph."""
    one, other = build(program), build(program, respell)
    before = [show(each.graph) for each in (one, other)]
    try:
        for each in (one, other):
            report = saturate(each)
            assert report.stopped == "saturated", report.reason
        assert canonical_text(one) == canonical_text(other), "two forms of one program"
    except BaseException as error:
        error.add_note(f"check_respelled({program!r}, {respell})")
        error.add_note("\n--- and\n".join(["--- before", *before]))
        error.add_note(f"--- after\n{show(one.graph)}\n--- and\n{show(other.graph)}")
        raise


def _runs(module: fx.GraphModule, inputs: Sequence[Any]) -> bool:
    """Whether a graph runs at all: fake tensors don't see all that may be wrong with it."""
    try:
        run(module, inputs)
    except RuntimeError:
        return False
    return True


# Cost -------------------------------------------------------------------------------------------

_VIEWS = frozenset(
    """reshape view permute transpose unsqueeze squeeze expand alias detach as_strided""".split()
)
_SLICES = (aten.slice.Tensor, aten.select.int, aten.narrow.default)


class Cost(NamedTuple):
    """What the nodes that anything depends on cost: how many there are, and by the cost model."""

    kernels: int
    views: int
    modelled: int


def cost_of(graph: fx.Graph, options: Options) -> Cost:
    """Count the nodes that anything depends on; a list is none beside its pieces.

    In the cost model, a list with a piece that nobody reads costs what slices in its place would.
    """
    costs = COSTS[options.prefer]
    live: set[fx.Node] = set()
    kernels = views = modelled = 0
    for node in reversed(graph.nodes):
        target: Any = node.target
        if node.op == "call_function" and not (
            signature(target).effect or any(user in live for user in node.users)
        ):
            continue
        live.add(node)
        if node.op != "call_function" or target is operator.getitem:
            continue
        if target in LISTS:
            pieces = [user for user in node.users if user in live]
            count = len(node.meta["val"])
            is_whole = len({piece.args[1] % count for piece in pieces}) == count
            each = costs.piece if is_whole else costs.slice
            views += len(pieces)
            modelled += is_whole * costs.split + each * len(pieces)
        elif target in _SLICES:
            views += 1
            modelled += costs.slice
        elif isinstance(target, OpOverload) and target._schema.name[6:] in _VIEWS:
            views += 1
            modelled += costs.view
        else:
            kernels += 1
    return Cost(kernels, views, modelled)


def assert_no_dearer(new: Cost, old: Cost) -> None:
    """Assert that a graph costs no more than another.

    The normal form isn't always the cheapest one (no split is made of what isn't named), but where
    it is dearer it has fewer nodes.
    """
    assert new.kernels <= old.kernels, f"more kernels: {new} after {old}"
    assert new.views <= old.views or new.modelled <= old.modelled, f"dearer: {new} after {old}"


# Bits -------------------------------------------------------------------------------------------


class _DenseKernels(fx.Interpreter):
    """Runs kernels that may answer differently on other layouts on contiguous operands.

    What they give is then laid out as the graph's vals say.
    """

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if not isinstance(target, OpOverload) or not _is_kernel(target):
            return super().call_function(target, args, kwargs)
        dense = [x.contiguous() if isinstance(x, Tensor) else x for x in args]
        result = target(*dense, **kwargs)
        val = self.node.meta["val"]
        sizes, strides = [*map(hint, val.size())], [*map(hint, val.stride())]
        return torch.empty_strided(sizes, strides, dtype=val.dtype).copy_(result)

    def run_node(self, n: fx.Node) -> Any:
        self.node = n
        return super().run_node(n)


_KERNELS = ("aten::mm", "aten::sum", "aten::amax", "aten::convolution")


def _is_kernel(target: OpOverload) -> bool:
    is_pointwise = torch.Tag.pointwise in target.tags and not target._schema.is_mutable
    return is_pointwise or target._schema.name in _KERNELS


def bits_of(module: fx.GraphModule, special: bool) -> list[object]:
    """All bits of outputs and of inputs after a run, kernels on contiguous operands."""
    inputs = inputs_of(module, special)
    torch.manual_seed(0)
    results = tree_leaves(_DenseKernels(module).run(*inputs))
    tensors = [x for x in (*results, *inputs) if isinstance(x, Tensor)]
    return [(x.dtype, _bytes(x)) for x in tensors]


def _bytes(x: Tensor) -> list[int]:
    dense = x.flatten().clone(memory_format=torch.contiguous_format)
    found: list[int] = dense.view(torch.uint8).tolist()
    return found


# What a failure shows -----------------------------------------------------------------------------


def show(graph: fx.Graph) -> str:
    """Return a graph as text, each node with what its val is."""
    lines = []
    for node in graph.nodes:
        vals = ", ".join(map(_geometry, tree_leaves(node.meta.get("val", ()))))
        arguments = ", ".join(
            [*map(str, node.args), *(f"{name}={each}" for name, each in node.kwargs.items())]
        )
        target = f" = {node.target}({arguments})" if node.op == "call_function" else ""
        lines.append(f"{node.name}{target}  # {vals}" if vals else f"return {arguments}")
    return "\n".join(lines)


def _geometry(val: object) -> str:
    if not isinstance(val, Tensor):
        return str(val)
    dtype = str(val.dtype).removeprefix("torch.")
    return f"{dtype}{[*val.shape]} strides {[*val.stride()]} at {val.storage_offset()}"


# The suite --------------------------------------------------------------------------------------


PROMISES = given(programs(), OPTION)
SPELLINGS = given(programs(without=NOT_RESPELLED), st.integers(1, 9))


def examples(count: int) -> settings:
    return settings(max_examples=count, suppress_health_check=list(HealthCheck))


@examples(100)
@PROMISES
def test_every_promise_holds(program: Program, options: Options) -> None:
    check_program(program, options)


@pytest.mark.slow
@examples(1_000)
@PROMISES
def test_every_promise_holds_of_many_programs(program: Program, options: Options) -> None:
    check_program(program, options)


@examples(50)
@SPELLINGS
def test_spelling_makes_no_difference(program: Program, respell: int) -> None:
    check_respelled(program, respell)


@pytest.mark.slow
@examples(500)
@SPELLINGS
def test_spelling_makes_no_difference_to_many_programs(program: Program, respell: int) -> None:
    check_respelled(program, respell)


FAILED_ONCE = {
    "whole slice of a whole piece": ("4", "partition 0 0 7; partition 0 0 7", (0,)),
    "whole slice of a piece": ("4", "partition; unary; unary; slice_ 3", (0, 1)),
    "a slice and the whole of it": ("4", "slice_; slice_", (0, 1)),
    "empty slice with an offset": ("4", "slice_ 0 0 7 1", (0,)),
    "two equal scatters of an input": ("4", "scatter; unary; cat_of_pieces 1", (0, 2)),
    "two equal copies of an input": ("4,4 reversed", "reshape; again", (0, 1)),
    "cat and what it is equal to": ("1", "unary; cat_of_pieces", (0, 1)),
    "two equal cats": ("4", "cat_of_pieces; cat_of_pieces", (0, 1)),
    "two equal kernels": ("4", "cat_of_pieces; unary; unary 14", (0, 1)),
    "copying reshape and its operand": ("4,4 reversed", "unary; reshape", (0, 1)),
    "strides of size one": ("4,4 reversed", "scatter; unary; scatter 1", (0,)),
    "observed slice": ("4", "slice_; cat_of_pieces 1; observe 1; slice_ 1", (0,)),
    "dead reader after a write": ("4", "cat_of_pieces; write_input; again; unary 1", (0,)),
    "one value at two operands": ("2", "partition; cat_of_pieces; scatter 0 0 0 0 0 1", (0,)),
    "hoisted reader": (
        "4",
        "cat_of_pieces; write 1; cat_of_pieces 1 0 0 1 1",
        (0, 2),
    ),
    "reader of one of two copies": ("4", "unary; cat_of_pieces; unary", (0, 1, 2)),
    "what an input is equal to": (
        "4",
        "cat_of_pieces; select_scatter 1; cat_of_pieces 1 0 7; unary",
        (2, 1),
    ),
    "slice of one of two copies": ("4", "unary; unary 1; slice_; unary", (0, 1, 3)),
    "output whose storage is written": (
        "4; 4",
        "unary; slice_; unary; cat_of_pieces 12; unary; unary; write 4; unary",
        (14, 6),
    ),
    "two cats, one observed": (
        "4; 4",
        "unary; cat_of_pieces 2 0 0 0 1; unary; cat_of_pieces 4; unary; observe; unary 6; unary; "
        "unary; unary; equal_parts",
        (12,),
    ),
    "a copy of keywords alone": ("4", "cat 0 0 0 8; cat_of_pieces", (0, 1)),
    "nothing of two inputs": ("4", "reshape; scatter_into_empty; slice_; scatter_pieces", (0,)),
    "two cats of nothing": ("0", "cat_of_pieces; cat_of_pieces 1 0 0 0 0 0 16; unary", (0, 2)),
    "random output": ("4", "random; cat_of_pieces; unary; partition", (3, 4)),
    "late reader of an aliased input": (
        "2; 4 alias",
        "cat_of_pieces 0 0 1; unary 10; unary; write_input 0; cat 3",
        (0,),
    ),
}
"""Smallest programs that broke a promise once: inputs, steps with their numbers, outputs."""


def written_out(inputs: str, steps: str, outputs: tuple[int, ...]) -> Program:
    """Read a program of FAILED_ONCE."""
    specs = [each.split() for each in inputs.split("; ")]
    calls = [each.split() for each in steps.split("; ")]
    return Program(
        tuple(Input(tuple(map(int, n.split(","))), 0, *layout) for n, *layout in specs),
        tuple(Step(name, tuple(map(int, numbers))) for name, *numbers in calls),
        outputs,
    )


@pytest.mark.parametrize("name", FAILED_ONCE)
def test_every_promise_holds_where_one_was_broken(name: str) -> None:
    check_program(written_out(*FAILED_ONCE[name]))


# A long run -------------------------------------------------------------------------------------

CHUNK = 250
"""Examples that have one seed, and at the end of which a failure is told."""


def campaign(
    name: str, checked: Callable[..., None], strategies: Sequence[Any], examples: int, first: int
) -> Counter[str]:
    """Run examples in chunks, each with a seed of its own; print each kind of failure once.

    Returns:
        How often each kind of failure turned up.
    """
    failures: Counter[str] = Counter()
    last: list[str] = []
    start = perf_counter()

    def example(drawn: tuple[Any, ...]) -> None:
        try:
            checked(*drawn)
        except Exception as error:
            kind = _kind(error, drawn[0])
            if kind not in failures:
                last.append(kind)
                raise
            failures[kind] += 1

    for chunk, done in enumerate(range(0, examples, CHUNK)):
        count = min(CHUNK, examples - done)
        run_chunk = settings(
            max_examples=count,
            database=None,
            derandomize=False,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.generate, Phase.shrink),
            report_multiple_bugs=False,
            print_blob=False,
        )(given(st.tuples(*strategies))(example))
        last.clear()
        try:
            seed(first + chunk)(run_chunk)()
        except Exception as error:
            kind = last[-1] if last else f"{type(error).__name__}: {error}"
            failures[kind] += 1
            print(f"\n=== {name}, seed {first + chunk}: {kind}", flush=True)
            print("".join(traceback.format_exception(error, limit=-3)), flush=True)
        told = f"; {failures.total()} failed in {len(failures)} ways" if failures else ""
        seconds = perf_counter() - start
        print(
            f"{name}: {done + count:,} of {examples:,} in {seconds:,.0f} s{told}",
            file=sys.stderr,
            flush=True,
        )
    return failures


def _kind(error: Exception, program: Program) -> str:
    """What distinguishes a failure from others: its message, and what the program has in it."""
    first, *rest = str(error).split("\n")
    message = re.sub(r"[0-9]+", "#", first)[:120]
    rules = [line.split()[0] for line in rest if " -> " in line and line[2:3].strip()]
    message += "".join(f", {rule}" for rule in rules if rule != "rewrites")
    nodes = list(build(program).graph.nodes)
    vals = tree_leaves([node.meta.get("val") for node in nodes])
    features = {
        "in place": any(
            isinstance(node.target, OpOverload) and node.target._schema.is_mutable for node in nodes
        ),
        "empty tensors": any(isinstance(val, Tensor) and not val.numel() for val in vals),
    }
    told = ", ".join(name for name, has in features.items() if has)
    return f"{type(error).__name__}: {message}" + (f" (with {told})" if told else "")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m tests.lowering.test_property", description=__doc__)
    parser.add_argument("--examples", type=int, default=20_000, help="of both properties together")
    parser.add_argument("--seed", type=int, default=0, help="other seeds give other examples")
    options = parser.parse_args(arguments)
    respelled = options.examples // 4
    failures = campaign(
        "promises",
        check_program,
        (programs(steps=16), OPTION),
        options.examples - respelled,
        options.seed * 1_000_000,
    ) + campaign(
        "spelling",
        check_respelled,
        (programs(without=NOT_RESPELLED, steps=16), st.integers(1, 9)),
        respelled,
        options.seed * 1_000_000 + 500_000,
    )
    for kind, count in failures.most_common():
        print(f"{count:5} {kind}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
