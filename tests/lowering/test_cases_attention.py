"""CASES.md 22: attention with rope in place, in every layout and spelling, from every torch."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import fx

from lowering import canonical_text, saturate
from tests.lowering import fxjson, models
from tests.lowering.make_data import DATA
from tests.lowering.models import EXAMPLES, LAYOUTS, Example
from tests.lowering.support import calls, targets
from tests.lowering.sweeps import every

aten = torch.ops.aten
VERSIONS = ("2.13.0", "2.15.0")


def kept(version: str, name: str, *, dynamic: bool = False) -> Path:
    return DATA / version / f"{name}{'.dynamic' * dynamic}.json.gz"


@cache
def saturated(version: str, name: str, *, dynamic: bool = False) -> fx.GraphModule:
    """A graph of that version, or one that is captured now, after saturate."""
    module = (
        EXAMPLES[name].capture(dynamic=dynamic)
        if version == "live"
        else fxjson.load(kept(version, name, dynamic=dynamic)).module
    )
    assert saturate(module).stopped == "saturated"
    return module


def text_of(module: fx.GraphModule) -> str:
    """The canonical text, with size symbols numbered as they turn up."""
    text = canonical_text(module)
    names = list(dict.fromkeys(re.findall(r"\bs\d+\b", text)))
    return re.sub(r"\bs\d+\b", lambda match: f"n{names.index(match[0])}", text)


NAMES = [example.name for example in (*models.ATTENTION, *models.QKV, *models.SWIGLU)]
DYNAMIC = [name for name in EXAMPLES if kept(VERSIONS[0], name, dynamic=True).exists()]


@pytest.mark.parametrize("name", NAMES)
def test_every_torch_gives_one_graph(name):
    texts = {v: text_of(saturated(v, name)) for v in VERSIONS}
    assert len(set(texts.values())) == 1


@pytest.mark.parametrize("name", every(3, NAMES[::3]))
def test_what_is_captured_now_is_that_graph_too(name):
    assert text_of(saturated("live", name)) == text_of(saturated(VERSIONS[0], name))


@pytest.mark.parametrize("name", DYNAMIC)
def test_every_torch_gives_one_graph_of_dynamic_sizes(name):
    texts = {v: text_of(saturated(v, name, dynamic=True)) for v in VERSIONS}
    assert len(set(texts.values())) == 1


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("rope", ["inplace", "op_v1"])
def test_every_spelling_of_a_layout_is_one_graph(layout, rope):
    texts = {}
    for cut in models.CUTS:
        for version in VERSIONS:
            name = f"attention_{layout}_{cut}_{rope}"
            texts[name, version] = text_of(saturated(version, name))
    assert len(set(texts.values())) == 1


def test_every_spelling_without_rope_is_one_graph():
    for dynamic in (False, True):
        names = [f"qkv_{cut}" for cut in models.CUTS]
        texts = {text_of(saturated(VERSIONS[0], name, dynamic=dynamic)) for name in names}
        assert len(texts) == 1


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_every_spelling_of_swiglu_is_one_graph(dynamic):
    """CASES.md 23, where the width is static."""
    names = [example.name for example in models.SWIGLU]
    texts = {text_of(saturated(VERSIONS[0], name, dynamic=dynamic)) for name in names}
    assert len(texts) == 1


def product(module: fx.GraphModule) -> fx.Node:
    """The node that makes qkv."""
    (node,) = calls(module, aten.mm.default)[:1]
    return node


@pytest.mark.parametrize("example", models.ATTENTION, ids=lambda example: example.name)
def test_the_form_of_attention(example: Example):
    module = saturated(VERSIONS[0], example.name)
    block = example.function
    assert isinstance(block, models.RopeBlock)
    splits = [
        node.args[1:]
        for node in calls(module, aten.split_with_sizes.default)
        if node.args[0] is product(module)
    ]
    scatters = targets(module)["aten.slice_scatter.default"]
    if block.rope == "op":
        return  # the operator takes the whole of qkv, and gives back a new one
    if block.option == "attend_op":
        # What sees strides is given pieces of qkv as written, with the strides of qkv.
        assert scatters in (2, 4)
        return
    if block.option == "v_unread":
        assert splits == []
    else:
        assert splits == [(block.sizes, -1)]
    assert (scatters > 0) == (block.option == "whole")
