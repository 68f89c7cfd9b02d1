"""A budget that is used up: what was found is sound, and the report says so."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from lowering import Options, canonical_text, saturate
from tests.lowering.faults import INPUTS, block, traced


def deep(x: Tensor) -> tuple[Tensor, ...]:
    """Slices of slices, and pieces of each."""
    found = []
    for _ in range(6):
        a, b = x.split([1, x.size(-1) - 1], -1)
        found.append(a.sin())
        x = b
    return (*found, x.cos())


@pytest.mark.parametrize(
    ("options", "stopped", "reason"),
    [
        (Options(max_enodes=1), "enodes", "max_enodes=1"),
        (Options(max_enodes=30), "enodes", "max_enodes=30"),
        (Options(max_iterations=1), "iterations", "max_iterations=1"),
    ],
)
@pytest.mark.parametrize(
    ("function", "inputs"), [(block, INPUTS), (deep, (torch.randn(2, 16),))], ids=["block", "deep"]
)
def test_a_budget_that_ends_it_is_sound_and_reported(
    function: Callable[..., Any],
    inputs: tuple[Tensor, ...],
    options: Options,
    stopped: str,
    reason: str,
    warnings: list[logging.LogRecord],
) -> None:
    module = traced(function, *inputs)
    want = module(*inputs)
    report = saturate(module, options)
    assert report.stopped == stopped
    assert reason in report.reason
    assert warnings == []
    module.graph.lint()
    for got, wanted in zip(module(*inputs), want, strict=True):
        assert torch.equal(got, wanted)
        assert got.stride() == wanted.stride()
    whole = traced(function, *inputs)
    saturate(whole)
    assert saturate(module).stopped == "saturated"
    assert canonical_text(module.graph) == canonical_text(whole.graph)
