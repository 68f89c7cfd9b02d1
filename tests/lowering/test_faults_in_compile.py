"""Faults inside torch.compile: the compile goes on, or is interrupted."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._inductor.utils import fresh_cache

from lowering import SaturatePass, pipeline, reports
from lowering.graph_pass import clear_reports
from tests.lowering.faults import PLACES, Fault
from tests.rust_panic import RustPanic


def product(x: Tensor, w: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    # Matrix products call a library: there's no kernel for a C++ compiler to build.
    h = x @ w
    return h[:, :4] @ u, h[:, 4:] @ u


PRODUCT_INPUTS = (torch.randn(3, 5), torch.randn(5, 8), torch.randn(4, 2))


@pytest.fixture
def compiled() -> Iterator[Callable[..., Any]]:
    """The product compiled with the pass, with no compiled code to be found anywhere."""
    torch._dynamo.reset()
    clear_reports()
    with fresh_cache():
        yield torch.compile(product, options={"post_grad_custom_pre_pass": SaturatePass()})
    torch._dynamo.reset()


@pytest.mark.parametrize("error", [ValueError, RustPanic])
@pytest.mark.parametrize("place", ["count", "read", "saturate", "extract", "write"])
def test_a_compile_goes_on(
    place: str,
    error: type[BaseException],
    compiled: Callable[..., Any],
    warnings: list[logging.LogRecord],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owner, name, number = PLACES[place]
    fault = Fault(error("boom"), number, after=True)
    monkeypatch.setattr(owner, name, fault.wrap(getattr(owner, name)))
    torch.testing.assert_close(compiled(*PRODUCT_INPUTS), product(*PRODUCT_INPUTS))
    assert fault.raised
    assert [report.stopped for report in reports()] == ["failed"]
    assert len(warnings) == 1
    monkeypatch.undo()
    torch._dynamo.reset()
    with fresh_cache():
        torch.testing.assert_close(compiled(*PRODUCT_INPUTS), product(*PRODUCT_INPUTS))
    assert [(report.stopped, report.changed) for report in reports()] == [
        ("failed", False),
        ("saturated", True),
    ]


def test_a_compile_is_interrupted(
    compiled: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = Fault(KeyboardInterrupt("boom"), after=True)
    monkeypatch.setattr(pipeline, "write", fault.wrap(pipeline.write))
    with pytest.raises(KeyboardInterrupt):
        compiled(*PRODUCT_INPUTS)
    assert gc.isenabled()
    monkeypatch.undo()
    torch.testing.assert_close(compiled(*PRODUCT_INPUTS), product(*PRODUCT_INPUTS))
    assert [report.stopped for report in reports()] == ["saturated"]
