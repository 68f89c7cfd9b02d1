"""Equality saturation for FX graphs: `saturate(graph)`, and `SaturatePass` for compile hooks.

What only some callers need (the engine, graph capture) is imported when it is first asked for, so
that importing the package from a compile hook stays cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lowering.graph_pass import SaturatePass, hook, reports
from lowering.options import Options
from lowering.report import Report

if TYPE_CHECKING:
    from lowering.canonical import canonical_text
    from lowering.graphs import capture
    from lowering.pipeline import saturate

__all__ = [
    "Options",
    "Report",
    "SaturatePass",
    "canonical_text",
    "capture",
    "hook",
    "reports",
    "saturate",
]

_LAZY = {
    "canonical_text": "lowering.canonical",
    "capture": "lowering.graphs",
    "saturate": "lowering.pipeline",
}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value
