"""What `fxsat demo` compiles: one attention block, in three forms that reach the hook.

The block writes q and k in place, where they lie in qkv. How torch takes the pieces of qkv again
after each write differs from version to version and from user to user; a pass in front of fxsat
respells it.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.fx import Graph, Node
from torch.nn.functional import scaled_dot_product_attention, silu

from lowering.aten import LISTS, TERMS, Spelling, pieces
from lowering.bounds import Bounds
from lowering.canonical import canonical_text
from lowering.diff import Diff, code_lines
from lowering.graph_pass import SaturatePass, clear_reports, reports
from lowering.report import Report

aten = torch.ops.aten

TOKENS = 64
HIDDEN = 256
HEADS = 8
KV_HEADS = 2
HEAD_DIM = 32
MLP = 512

TOLERANCE = 1e-4
"""Largest difference from eager, absolute and relative, that float32 kernels are allowed."""


class AttentionBlock(nn.Module):
    """A decoder block: attention with grouped queries, q/k RMS norm and rope, then SwiGLU."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes = [HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM]
        self.qkv = nn.Linear(HIDDEN, sum(self.sizes), bias=False)
        self.q_norm = nn.Parameter(torch.rand(HEAD_DIM))
        self.k_norm = nn.Parameter(torch.rand(HEAD_DIM))
        self.out = nn.Linear(HEADS * HEAD_DIM, HIDDEN, bias=False)
        self.gate_up = nn.Linear(HIDDEN, 2 * MLP, bias=False)
        self.down = nn.Linear(MLP, HIDDEN, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Return the block's output for x[tokens, hidden] and rope's cos and sin, a row a token."""
        q, k, v = self.qkv(x).split(self.sizes, -1)
        normalise_(heads(q), self.q_norm)
        normalise_(heads(k), self.k_norm)
        rotate_(heads(q), cos, sin)
        rotate_(heads(k), cos, sin)
        mixed = scaled_dot_product_attention(
            heads(q).transpose(0, 1),
            heads(k).transpose(0, 1),
            heads(v).transpose(0, 1),
            enable_gqa=True,
        )
        x = x + self.out(mixed.transpose(0, 1).reshape(x.size(0), -1))
        gate, up = self.gate_up(x).chunk(2, -1)
        y: Tensor = x + self.down(silu(gate) * up)
        return y


def heads(x: Tensor) -> Tensor:
    """View x[tokens, width] as [tokens, heads, head_dim]."""
    return x.view(x.size(0), -1, HEAD_DIM)


def normalise_(x: Tensor, weight: Tensor) -> None:
    """RMS norm of the last dimension, in place."""
    x.mul_(torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight)


def rotate_(x: Tensor, cos: Tensor, sin: Tensor) -> None:
    """Rope: turn the pairs (x[..., i], x[..., i + half]) by their token's angle, in place."""
    half = x.size(-1) // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), -1)
    x.mul_(cos).add_(turned * sin)


def make_inputs() -> tuple[Tensor, Tensor, Tensor]:
    """Return x, cos and sin for the block."""
    frequencies = 1e-4 ** torch.linspace(0, 1, HEAD_DIM // 2).repeat(2)
    angles = torch.arange(TOKENS)[:, None, None] * frequencies
    return torch.randn(TOKENS, HIDDEN), angles.cos(), angles.sin()


# The forms ----------------------------------------------------------------------------------------


class Form(NamedTuple):
    """A way in which the pieces of a tensor are taken.

    Attributes:
        name: its name.
        who: who makes graphs of that form.
        respell: what brings a graph into the form, in place.
    """

    name: str
    who: str
    respell: Callable[[Graph], None]


def leave(graph: Graph) -> None:
    """Leave the graph as it is."""


def duplicate_splits(graph: Graph) -> None:
    """Take every piece out of a split of its own, in place."""
    cuts = _cuts(graph)
    for node, piece in _pieces_read(graph):
        (source,), (dim, start, end) = piece.sources, piece.params
        at = cuts[source, dim]
        index = at.index(start)
        if at[index + 1] != end:
            continue  # other pieces overlap this one
        sizes, val = [b - a for a, b in pairwise(at)], source.meta["val"]
        # As users write it, the last dimension is -1.
        arguments = (sizes, dim - val.dim() if dim == val.dim() - 1 else dim)
        with graph.inserting_before(node):
            split = graph.call_function(aten.split_with_sizes.default, (source, *arguments))
            getitem = graph.call_function(operator.getitem, (split, index))
        split.meta["val"] = aten.split_with_sizes.default(val, *arguments)
        _replace(node, getitem)
    _erase_unread_lists(graph)


def slice_pieces(graph: Graph) -> None:
    """Take every piece as a slice, in place."""
    for node, piece in _pieces_read(graph):
        (source,), (dim, start, end) = piece.sources, piece.params
        with graph.inserting_before(node):
            slice_ = graph.call_function(aten.slice.Tensor, (source, dim, start, end))
        _replace(node, slice_)
    _erase_unread_lists(graph)


FORMS = (
    Form("as torch made it", f"torch {torch.__version__.partition('+')[0]}", leave),
    Form(
        "duplicated splits",
        "torch up to 2.14 after a write in place; users who split anew for each piece",
        duplicate_splits,
    ),
    Form("slices", "torch 2.15 after a write in place; users who slice", slice_pieces),
)


def _pieces_read(graph: Graph) -> list[tuple[Node, Spelling]]:
    """The nodes that are a piece of one dimension of a tensor, each with the slice that it is."""
    bounds = Bounds()
    found: list[tuple[Node, Spelling]] = []
    for node in graph.nodes:
        cut = _pieces_of(node, bounds)
        if node.target is aten.slice.Tensor:
            found += [(node, piece) for piece in cut]
        elif cut:
            found += [(user, cut[user.args[1]]) for user in node.users]
    return found


def _pieces_of(node: Node, bounds: Bounds) -> list[Spelling]:
    """The pieces that a node cuts out: those of a split, read or not, or the one of a slice."""
    if node.target in LISTS:
        return pieces(node, bounds) or []
    spelling = TERMS[node.target](node, bounds) if node.target is aten.slice.Tensor else None
    return [spelling] if spelling is not None else []


def _cuts(graph: Graph) -> dict[tuple[Node, int], list[int]]:
    """Where each tensor is cut along each dimension, its two ends included."""
    bounds = Bounds()
    cuts: dict[tuple[Node, int], set[int]] = {}
    for node in graph.nodes:
        for _, (source,), (dim, start, end) in _pieces_of(node, bounds):
            ends = {0, source.meta["val"].size(dim)}
            cuts.setdefault((source, dim), ends).update((start, end))
    return {key: sorted(at) for key, at in cuts.items()}


def _replace(node: Node, piece: Node) -> None:
    piece.meta = dict(node.meta)
    node.replace_all_uses_with(piece)
    node.graph.erase_node(node)


def _erase_unread_lists(graph: Graph) -> None:
    for node in reversed(graph.nodes):
        if node.op == "call_function" and node.target in LISTS and not node.users:
            graph.erase_node(node)


# Compiling ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Compiled:
    """What came of one form.

    Attributes:
        form: the form in which the graph reached the hook.
        diff: the graph before and after `SaturatePass`.
        reached: a fingerprint of the canonical text of the graph that reached the hook.
        canonical: a fingerprint of that of the graph that came out.
        report: what the pass reported.
        error: largest difference of the compiled block's output from eager's.
        close: whether all of the output is within TOLERANCE of eager's.
        saturate_seconds: time that the pass took.
        compile_seconds: time of the first call, in which the block is compiled.
    """

    form: Form
    diff: Diff
    reached: str
    canonical: str
    report: Report
    error: float
    close: bool
    saturate_seconds: float
    compile_seconds: float


def compile_form(block: nn.Module, inputs: Sequence[Tensor], form: Form) -> Compiled:
    """Compile the block with Inductor, from scratch, its one graph brought into the form first.

    The process's log of reports is cleared.
    """
    # Inductor takes a while to import, and this module is imported to get at the block alone.
    from torch._inductor.utils import fresh_cache

    seen: list[tuple[tuple[str, ...], str]] = []
    clock: list[float] = []

    def look(graph: Graph) -> None:
        clock.append(perf_counter())
        seen.append((code_lines(graph), _fingerprint(graph)))
        clock.append(perf_counter())

    clear_reports()
    torch._dynamo.reset()
    with torch.no_grad(), fresh_cache():
        expected = block(*inputs)
        passes: Any = [form.respell, look, SaturatePass(), look]
        compiled = torch.compile(block, options={"post_grad_custom_pre_pass": passes})
        start = perf_counter()
        output = compiled(*inputs)
        compile_seconds = perf_counter() - start
    (before, reached), (after, canonical) = seen
    (report,) = reports()
    return Compiled(
        form=form,
        diff=Diff.of(before, after),
        reached=reached,
        canonical=canonical,
        report=report,
        error=(output - expected).abs().max().item(),
        close=torch.allclose(output, expected, rtol=TOLERANCE, atol=TOLERANCE),
        saturate_seconds=clock[2] - clock[1],
        compile_seconds=compile_seconds,
    )


def _fingerprint(graph: Graph) -> str:
    return hashlib.sha256(canonical_text(graph).encode()).hexdigest()[:12]
