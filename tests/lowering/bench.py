"""How long `saturate` takes on layered graphs, with torch's own fx_graph_cse beside it.

    python -m tests.lowering.bench              graphs of about 30, 1,100 and 11,000 nodes
    python -m tests.lowering.bench --large      also of 110,000 nodes, and how linear that is
    python -m tests.lowering.bench --profile    where the time goes on 11,000 nodes

A layer is a product, three pieces of it, reshapes and pointwise operators, in one of the forms that
torch makes of it. Each time is the least of several runs in a warm process, each on a graph of its
own, with the garbage collector on as it is in production.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import operator
import pstats
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from time import perf_counter, process_time
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch._functorch.compile_utils import fx_graph_cse
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import Graph, Node

from lowering import Report, saturate

aten = torch.ops.aten

SIZES = (30, 1_100, 11_000)
LARGE = 110_000
PROFILED = 11_000
CSE_SECONDS = 60.0
"""After how many seconds fx_graph_cse is given up on."""

TOKENS, HEADS, WIDTH = 8, 2, 4
HIDDEN = HEADS * WIDTH
CPU = torch.device("cpu")
TO_THE_END = 9_223_372_036_854_775_807


# Graphs -----------------------------------------------------------------------------------------


class Layers:
    """Builds a graph node by node; a view's `val` shares the storage of its source's.

    Fake tensors are made directly: propagating 110,000 operators would take longer than the runs.
    """

    def __init__(self) -> None:
        self.graph = Graph()
        self.mode = FakeTensorMode()

    def fresh(self, *shape: int) -> FakeTensor:
        """A contiguous fake tensor with a storage of its own."""
        return FakeTensor(self.mode, torch.empty(shape, device="meta"), CPU)

    def view(
        self, source: Node, shape: Sequence[int], strides: Sequence[int], offset: int
    ) -> FakeTensor:
        """A fake view; `offset` counts from the start of the source, in elements."""
        val = source.meta["val"]
        with torch._C._DisableTorchDispatch():
            element = torch.empty(0, device="meta").set_(
                val.untyped_storage(), val.storage_offset() + offset, shape, strides
            )
        return FakeTensor(self.mode, element, CPU)

    def input(self, name: str, *shape: int) -> Node:
        node = self.graph.placeholder(name)
        node.meta["val"] = self.fresh(*shape)
        return node

    def call(self, target: Callable[..., object], args: tuple[Any, ...], val: object) -> Node:
        node = self.graph.call_function(target, args)
        node.meta["val"] = val
        return node

    def product(self, x: Node, weight: Node) -> Node:
        return self.call(aten.mm.default, (x, weight), self.fresh(TOKENS, 3 * HIDDEN))

    def piece_val(self, source: Node, i: int) -> FakeTensor:
        return self.view(source, (TOKENS, HIDDEN), (3 * HIDDEN, 1), i * HIDDEN)

    def slice(self, source: Node, i: int) -> Node:
        end = TO_THE_END if i == 2 else (i + 1) * HIDDEN
        val = self.piece_val(source, i)
        return self.call(aten.slice.Tensor, (source, 1, i * HIDDEN, end), val)

    def split(self, source: Node) -> Node:
        vals = [self.piece_val(source, i) for i in range(3)]
        return self.call(aten.split_with_sizes.default, (source, [HIDDEN] * 3, -1), vals)

    def getitem(self, pieces: Node, i: int) -> Node:
        return self.call(operator.getitem, (pieces, i), pieces.meta["val"][i])

    def pointwise(self, target: Callable[..., object], *operands: Node) -> Node:
        return self.call(target, operands, self.fresh(*operands[0].meta["val"].shape))

    def scatter(self, base: Node, source: Node, i: int) -> Node:
        args = (base, source, 1, i * HIDDEN, (i + 1) * HIDDEN)
        return self.call(aten.slice_scatter.default, args, self.fresh(TOKENS, 3 * HIDDEN))

    def attend(self, q: Node, k: Node, v: Node) -> Node:
        """What reads the pieces: six nodes, whose result is as wide as a piece."""
        heads = [
            self.call(
                aten.reshape.default,
                (piece, [TOKENS, HEADS, WIDTH]),
                self.view(
                    piece, (TOKENS, HEADS, WIDTH), (piece.meta["val"].stride(0), WIDTH, 1), 0
                ),
            )
            for piece in (q, k, v)
        ]
        scores = self.pointwise(aten.mul.Tensor, heads[0], heads[1])
        mixed = self.pointwise(aten.add.Tensor, scores, heads[2])
        flat = self.view(mixed, (TOKENS, HIDDEN), (HIDDEN, 1), 0)
        return self.call(aten.reshape.default, (mixed, [TOKENS, HIDDEN]), flat)


def slices(to: Layers, qkv: Node) -> Node:
    """Three slices of the product."""
    q, k, v = (to.slice(qkv, i) for i in range(3))
    return to.pointwise(aten.relu.default, to.attend(q, k, v))


def duplicate_splits(to: Layers, qkv: Node) -> Node:
    """A split for each piece."""
    q, k, v = (to.getitem(to.split(qkv), i) for i in range(3))
    return to.pointwise(aten.relu.default, to.attend(q, k, v))


def rope_slices(to: Layers, qkv: Node) -> Node:
    """Rope in place on q and k as torch 2.15 functionalizes it: scattered back, sliced again."""
    q = to.pointwise(aten.sin.default, to.slice(qkv, 0))
    k = to.pointwise(aten.cos.default, to.slice(qkv, 1))
    turned = to.scatter(to.scatter(qkv, q, 0), k, 1)
    return to.attend(*(to.slice(turned, i) for i in range(3)))


def rope_splits(to: Layers, qkv: Node) -> Node:
    """The same as torch 2.13 does it: scattered back, and split once for each piece."""
    pieces = to.split(qkv)
    q = to.pointwise(aten.sin.default, to.getitem(pieces, 0))
    k = to.pointwise(aten.cos.default, to.getitem(pieces, 1))
    turned = to.scatter(to.scatter(qkv, q, 0), k, 1)
    return to.attend(*(to.getitem(to.split(turned), i) for i in range(3)))


Form = Callable[[Layers, Node], Node]

FORMS: dict[str, Form] = {
    "slices": slices,
    "duplicate splits": duplicate_splits,
    "in-place rope, slices": rope_slices,
    "in-place rope, splits": rope_splits,
}


def layered(form: Form, size: int) -> Graph:
    """Return a graph of `size` nodes, to within half a layer, layer upon layer."""
    to = Layers()
    x = to.input("x", TOKENS, HIDDEN)
    weight = to.input("weight", HIDDEN, 3 * HIDDEN)
    x = form(to, to.product(x, weight))
    per_layer = len(to.graph.nodes) - 2
    for _ in range(round((size - 3) / per_layer) - 1):
        x = form(to, to.product(x, weight))
    to.graph.output((x,))
    return to.graph


# Measures ---------------------------------------------------------------------------------------


class Measure(NamedTuple):
    """What one form and size came to; seconds are those of the fastest run.

    Attributes:
        form: name of the form.
        before, after: nodes of the graph, inputs and output too.
        seconds: of one `saturate`, by the wall clock.
        processor: of all threads of one `saturate`, on the processor: what a busy machine adds to
            `seconds` isn't in it.
        phases: of its phases.
        cse: seconds of one fx_graph_cse, or None where it was given up on.
        peak: bytes by which `saturate` raised the process's peak of resident memory, or None where
            the system doesn't tell.
    """

    form: str
    before: int
    after: int
    seconds: float
    processor: float
    phases: dict[str, float]
    cse: float | None
    peak: int | None


def measure(name: str, size: int) -> Measure:
    """Run one form and size."""
    form = FORMS[name]
    best: tuple[float, Report] | None = None
    processor = float("inf")
    peak = None
    before = after = 0
    for i in range(runs_of(size)):
        graph = layered(form, size)
        before = len(graph.nodes)
        if i == 0 or size > 1_000:
            gc.collect()
        resident = reset_peak() if i == 0 else None
        start, started = perf_counter(), process_time()
        report = saturate(graph)
        seconds = perf_counter() - start
        processor = min(processor, process_time() - started)
        if resident is not None:
            peak = max(0, memory("VmHWM") - resident)
        if report.stopped != "saturated":
            raise RuntimeError(f"{name}, {size} nodes: {report.stopped}: {report.reason}")
        after = len(graph.nodes)
        if best is None or seconds < best[0]:
            best = (seconds, report)
    assert best is not None
    seconds, report = best
    return Measure(
        form=name,
        before=before,
        after=after,
        seconds=seconds,
        processor=processor,
        phases=dict(report.seconds),
        cse=time_cse(form, size),
        peak=peak,
    )


def runs_of(size: int) -> int:
    """How often a graph of that many nodes is run."""
    return max(2, min(50, 30_000 // size))


def time_cse(form: Form, size: int) -> float | None:
    """Seconds that fx_graph_cse takes, or None where that is more than CSE_SECONDS."""
    best = CSE_SECONDS
    for i in range(1 if size >= LARGE else runs_of(size)):
        graph = layered(form, size)
        if i == 0 or size > 1_000:
            gc.collect()
        try:
            with time_limit(CSE_SECONDS):
                start = perf_counter()
                fx_graph_cse(graph)
                best = min(best, perf_counter() - start)
        except TimeoutError:
            return None
    return best


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in the block, which is run by the main thread, after that many seconds."""

    def give_up(signum: int, frame: FrameType | None) -> None:
        raise TimeoutError

    old = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


STATUS = Path("/proc/self/status")
CLEAR = Path("/proc/self/clear_refs")


def reset_peak() -> int | None:
    """Let the peak of resident memory start anew; return what is resident, None if not told."""
    if not CLEAR.exists():
        return None
    CLEAR.write_text("5")  # resets VmHWM, see proc(5)
    return memory("VmRSS")


def memory(name: str) -> int:
    """A figure of /proc/self/status, in bytes."""
    for line in STATUS.read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise LookupError(f"no {name} in {STATUS}")


# Output -----------------------------------------------------------------------------------------

PHASES = ("read", "saturate", "extract", "write")

COLUMNS = (
    "form", "before", "after", "us/node", "ms", "cpu",
    *PHASES, "other", "fx_graph_cse", "ratio", "peak MB",
)  # fmt: skip

WIDTHS = (22, 8, 8, 8, 9, 9, *(8 for _ in PHASES), 8, 13, 6, 8)


def row(found: Measure) -> tuple[str, ...]:
    """The cells of a measure, times in ms."""
    other = found.seconds - sum(found.phases.values())
    return (
        found.form,
        f"{found.before:,}",
        f"{found.after:,}",
        f"{per_node(found):.1f}",
        f"{found.seconds * 1e3:,.1f}",
        f"{found.processor * 1e3:,.1f}",
        *(f"{found.phases.get(phase, 0.0) * 1e3:,.1f}" for phase in PHASES),
        f"{other * 1e3:,.1f}",
        f"> {CSE_SECONDS * 1e3:,.0f}" if found.cse is None else f"{found.cse * 1e3:,.1f}",
        "" if found.cse is None else f"{found.seconds / found.cse:.2f}",
        "?" if found.peak is None else f"{found.peak / 1e6:,.1f}",
    )


def per_node(found: Measure) -> float:
    """Microseconds for each node of the graph that came in."""
    return found.seconds * 1e6 / found.before


def show(cells: tuple[str, ...]) -> None:
    first, *others = zip(cells, WIDTHS, strict=True)
    line = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]
    print(" ".join(line), flush=True)


def bench(sizes: tuple[int, ...]) -> None:
    """Print a row for each form and size, then how the time grows from one size to the next."""
    print(
        f"torch {torch.__version__}; ms, least of several; cpu: all threads; ratio: / fx_graph_cse"
    )
    show(COLUMNS)
    for form in FORMS.values():
        saturate(layered(form, SIZES[0]))
    found: dict[tuple[str, int], Measure] = {}
    for size in sizes:
        for name in FORMS:
            found[name, size] = measure(name, size)
            show(row(found[name, size]))
    for small, large in pairwise(sizes[1:]):
        growth = ", ".join(
            f"{name} {per_node(found[name, large]) / per_node(found[name, small]):.2f}"
            for name in FORMS
        )
        print(f"us/node at {large:,} over us/node at {small:,}: {growth}")


def profile(names: Sequence[str]) -> None:
    """Print the functions that take most of the time on the engine's thread and on this one."""
    for name in names:
        saturate(layered(FORMS[name], SIZES[0]))
        graph = layered(FORMS[name], PROFILED)
        gc.collect()
        profiler = cProfile.Profile()
        profiler.enable()
        saturate(graph)
        profiler.disable()
        print(f"{name}: {PROFILED:,} nodes; the engine's own thread shows as waiting in worker.py")
        pstats.Stats(profiler).strip_dirs().sort_stats("tottime").print_stats(30)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        "python -m tests.lowering.bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--large", action="store_true", help=f"also graphs of {LARGE:,} nodes")
    parser.add_argument("--profile", action="store_true", help="print the top functions instead")
    parser.add_argument("--form", choices=FORMS, action="append", help="only this one, to profile")
    options = parser.parse_args(arguments)
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("the time limit of fx_graph_cse needs the main thread")
    if options.profile:
        profile(options.form or list(FORMS))
    else:
        bench((*SIZES, LARGE) if options.large else SIZES)


if __name__ == "__main__":
    main()
