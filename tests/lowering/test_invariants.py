"""What holds for every graph: idempotence, independence of order, determinism, any size (21)."""

from __future__ import annotations

import operator
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import fx

from lowering import canonical_text, saturate
from tests.lowering import fxjson
from tests.lowering.make_data import DATA
from tests.lowering.models import EXAMPLES, bind
from tests.lowering.outcomes import Outcome, assert_same_outcome
from tests.lowering.shuffling import shuffle
from tests.lowering.support import BUMP, GEOMETRY, Builder, check, code_of, targets
from tests.lowering.sweeps import every
from tests.lowering.vals import assert_vals
from tests.processes import in_a_process

aten = torch.ops.aten
ROOT = Path(__file__).parents[2]
FILES = sorted(DATA.glob("*/*.json.gz"))


@pytest.mark.parametrize(
    "path", every(5, FILES), ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_graphs_of_every_torch(path: Path):
    """`check` saturates twice, and three shuffled copies."""
    loaded = fxjson.load(path)
    inputs = bind(loaded.graph, EXAMPLES[loaded.info["example"]].inputs())
    check(loaded.module, inputs)


def test_shuffled_graphs_are_shuffled_and_still_the_same():
    """Of the helper: otherwise nothing that is tested with it holds."""
    loaded = fxjson.load(FILES[0])
    before = [node.name for node in loaded.graph.nodes]
    shuffled = [shuffle(loaded.graph, seed) for seed in (1, 2)]
    orders = [[node.name for node in graph.nodes] for graph in shuffled]
    assert before != orders[0] != orders[1]
    assert sorted(before) == sorted(orders[0]) == sorted(orders[1])
    for graph in shuffled:
        graph.lint()
        assert canonical_text(graph) == canonical_text(loaded.graph)


def test_effects_and_reads_around_writes_keep_their_order_when_shuffled():
    b = Builder()
    x, y = b.input(3), b.input(3)
    first = b.call(aten.sin.default, b.call(aten.view.default, x, [3]))
    b.call(BUMP, x)
    b.call(GEOMETRY, y)
    second = b.call(aten.sin.default, x)
    graph = b.output(first, second, b.call(aten.cos.default, y)).graph
    for seed in range(20):
        order = [node.name for node in shuffle(graph, seed).nodes]
        bump = order.index("bump__default")
        assert order.index("sin_default") < bump < order.index("geometry_default")
        assert bump < order.index("sin_default_1")


def test_outcomes_that_differ_are_told_apart():
    x = torch.randn(4, 6)
    y = x + 1
    same = Outcome((x, y, x[:2]), (x,))
    assert_same_outcome(same, Outcome((x, y.clone(), x[:2]), (x,)))
    for other in (
        Outcome((x, y), (x,)),
        Outcome((x, y, x[:2].clone()), (x,)),
        Outcome((x, x, x[:2]), (x,)),
        Outcome((x, y.double(), x[:2]), (x,)),
        Outcome((x, y.t().contiguous().t(), x[:2]), (x,)),
        Outcome((x, y * 1.01, x[:2]), (x,)),
        Outcome((x, y, x[2:]), (x,)),
        Outcome((x, y, x[:2]), (x + 1,)),
        Outcome((x, None, x[:2]), (x,)),
    ):
        with pytest.raises(AssertionError):
            assert_same_outcome(same, other)
    zero = torch.zeros(1)
    with pytest.raises(AssertionError, match="sign of zero"):
        assert_same_outcome(Outcome((zero,), ()), Outcome((-zero,), ()))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda val: val.clone(),
        lambda val: val[:, :3],
        lambda val: val.double(),
        lambda val: val.as_strided(val.shape, (1, 4)),
        lambda val: val.as_strided(val.shape, val.stride(), 1),
        lambda val: None,
    ],
)
def test_a_wrong_val_is_found(spoil):
    b = Builder()
    part = b.call(aten.slice.Tensor, b.input(4, 6), 1, 2, 6)
    module = b.output(b.call(aten.sin.default, part))
    assert_vals(module)
    with b.mode:
        part.meta["val"] = spoil(part.meta["val"])
    with pytest.raises(AssertionError, match="slice_tensor"):
        assert_vals(module)


# Determinism -------------------------------------------------------------------------------------

SETTINGS = [("0", "1"), ("1", "4"), ("2", "2"), ("3", "1"), ("4", "2"), ("0", "4"), ("1", "1")]
"""Hash seeds and numbers of threads."""


def print_code(paths: list[str]) -> None:
    """Print what some graphs become; what the subprocesses run."""
    for path in paths:
        module = fxjson.load(Path(path)).module
        report = saturate(module)
        print(path, report.stopped, report.matches, report.rewrites)
        print(code_of(module.graph), canonical_text(module))
    for name, make in CHAINS.items():
        module = make(12)
        saturate(module)
        print(name, code_of(module.graph))


def printed(setting: tuple[str, str], paths: list[str]) -> str:
    seed, threads = setting
    code = f"""
        from tests.lowering.test_invariants import print_code
        print_code({paths!r})
    """
    result = in_a_process(code, timeout=300, PYTHONHASHSEED=seed, RAYON_NUM_THREADS=threads)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("count", [2, pytest.param(len(SETTINGS), marks=pytest.mark.slow)])
def test_every_process_prints_the_same_bytes(count):
    paths = [str(path) for path in FILES[:: len(FILES) // 12]]
    chosen = SETTINGS[:count]
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda setting: printed(setting, paths), chosen))
    assert results[0].count("saturated") == len(paths)
    assert len(results[0]) > 10_000
    for setting, result in zip(chosen, results, strict=True):
        assert result == results[0], setting


# 21: deep and long -------------------------------------------------------------------------------


def chain_of(step: Callable[[Builder, fx.Node, int], fx.Node]) -> Callable[[int], fx.GraphModule]:
    def make(depth: int) -> fx.GraphModule:
        b = Builder()
        x = b.input(2, depth + 8)
        y = x
        for i in range(depth):
            y = step(b, y, i)
        return b.output(b.call(aten.sin.default, y))

    return make


def piece_of_split(b: Builder, x: fx.Node, i: int) -> fx.Node:
    size = x.meta["val"].size(1)
    split = b.call(aten.split_with_sizes.default, x, [1, size - 1], 1)
    return b.call(operator.getitem, split, 1)


def both_pieces(b: Builder, x: fx.Node, i: int) -> fx.Node:
    """A piece of a piece, and so on, each split read in full: nothing can be composed away."""
    size = x.meta["val"].size(1)
    split = b.call(aten.split_with_sizes.default, x, [1, size - 1], 1)
    head, tail = (b.call(operator.getitem, split, j) for j in (0, 1))
    b.call(BUMP, b.call(aten.exp.default, head))
    return tail


def written_at(b: Builder, x: fx.Node, i: int) -> fx.Node:
    part = b.call(aten.add.Tensor, b.call(aten.slice.Tensor, x, 1, i, i + 1), 1)
    return b.call(aten.slice_scatter.default, x, part, 1, i, i + 1)


def observed(b: Builder, x: fx.Node, i: int) -> fx.Node:
    seen = b.call(GEOMETRY, x)
    return b.call(aten.add.Tensor, x, b.call(aten.sum.default, seen))


def joined_again(b: Builder, x: fx.Node, i: int) -> fx.Node:
    cuts = ((0, 4), (4, 2**63 - 1))
    return b.call(aten.cat.default, [b.call(aten.slice.Tensor, x, 1, *cut) for cut in cuts], 1)


CHAINS: dict[str, Callable[[int], fx.GraphModule]] = {
    "pointwise": chain_of(lambda b, x, i: b.call(aten.cos.default, x)),
    "views": chain_of(lambda b, x, i: b.call(aten.permute.default, x, [1, 0])),
    "reshapes": chain_of(
        lambda b, x, i: b.call(
            aten.reshape.default, x, [-1] if i % 2 else [2, x.meta["val"].numel() // 2]
        )
    ),
    "slices": chain_of(lambda b, x, i: b.call(aten.slice.Tensor, x, 1, 1, 2**63 - 1)),
    "slices_at_the_front": chain_of(lambda b, x, i: b.call(aten.slice.Tensor, x, 1, 0, -1)),
    "whole_slices": chain_of(lambda b, x, i: b.call(aten.slice.Tensor, x, 1, 0, 2**63 - 1)),
    "pieces": chain_of(piece_of_split),
    "both_pieces": chain_of(both_pieces),
    "scatters": chain_of(written_at),
    "observers": chain_of(observed),
    "cats": chain_of(joined_again),
    "selects_and_unsqueezes": chain_of(
        lambda b, x, i: b.call(aten.unsqueeze.default, b.call(aten.select.int, x, 0, 0), 0)
    ),
}


@pytest.mark.parametrize("name", CHAINS)
def test_chains_of_any_kind(name):
    check(CHAINS[name](12))


def saturate_deep(name: str, depth: int = 1100) -> None:
    """Saturate a chain, by default one deeper than Python's recursion goes."""
    module = CHAINS[name](depth)
    report = saturate(module)
    assert report.stopped == "saturated", report.reason
    module.graph.lint()
    if name == "slices":
        assert targets(module) == {"aten.slice.Tensor": 1, "aten.sin.default": 1}
    if name in ("whole_slices", "cats"):
        assert targets(module) == {"aten.sin.default": 1}
    text = canonical_text(module)
    assert not saturate(module).changed
    assert canonical_text(module) == text


LIKE_SLICES = ("slices_at_the_front", "pieces")
GROWING = ("slices", "both_pieces", "scatters")


@pytest.mark.parametrize("name", [name for name in CHAINS if name not in (*GROWING, *LIKE_SLICES)])
def test_chains_1100_deep(name):
    saturate_deep(name)


@pytest.mark.parametrize(
    ("depth", "names"),
    [(200, GROWING), *[pytest.param(1100, (name,), marks=pytest.mark.slow) for name in GROWING]],
    ids=str,
)
def test_deep_chains_of_what_composes(depth, names):
    """In a process of their own, so that a chain that grows can't take all memory."""
    code = f"""
        import resource
        from tests.lowering.test_invariants import saturate_deep
        with open("/proc/self/statm") as file:
            limit = int(file.read().split()[0]) * resource.getpagesize() + (2 << 30)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        for name in {names!r}:
            saturate_deep(name, {depth})
    """
    result = in_a_process(code, timeout=300)
    assert result.returncode == 0, result.stderr[-500:]


@pytest.mark.parametrize("layers", [500, pytest.param(5_000, marks=pytest.mark.slow)])
def test_a_graph_of_many_nodes(layers):
    """Layers with one val a kind of node: building them by propagation would take minutes."""
    b = Builder()
    x = b.input(4, 16)
    vals = {
        "split": b.call(aten.split_with_sizes.default, x, [8, 4, 4], -1).meta["val"],
        "cat": x.meta["val"],
        "first": x.meta["val"][:, :8].clone(),
    }
    graph = fx.Graph()
    y = graph.placeholder("x")
    y.meta["val"] = x.meta["val"]

    def call(target: object, val: object, *args: object) -> fx.Node:
        node = graph.call_function(target, args)
        node.meta["val"] = val
        return node

    cuts = ((0, 8), (8, 12), (12, 16))
    for layer in range(layers):
        pieces = []
        for i, cut in enumerate(cuts):
            if layer % 2:
                split = call(aten.split_with_sizes.default, vals["split"], y, [8, 4, 4], -1)
                piece = call(operator.getitem, vals["split"][i], split, i)
            else:
                piece = call(aten.slice.Tensor, vals["split"][i], y, 1, *cut)
            pieces.append(call(aten.sin.default, vals["first"][:, : cut[1] - cut[0]], piece))
        y = call(aten.cat.default, vals["cat"], pieces, -1)
    graph.output((y,))
    assert len(graph.nodes) > 8 * layers
    report = saturate(graph)
    assert report.stopped == "saturated", report.reason
    graph.lint()
    assert targets(graph) == {
        "aten.split_with_sizes.default": layers,
        "getitem": 3 * layers,
        "aten.sin.default": 3 * layers,
        "aten.cat.default": layers,
    }
