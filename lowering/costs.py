"""What an e-node costs: real work first, then the number of nodes by kind.

A slice costs more than a split and a split more than a getitem, so that a split wins as soon as all
its pieces are wanted; in the other direction a split and each getitem cost as much as a slice.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

KERNEL = 1_000_000
"""An operator that computes, or copies."""


class Costs(NamedTuple):
    """Costs of the nodes that extraction chooses among."""

    slice: int
    split: int
    piece: int
    view: int = 10
    kernel: int = KERNEL


COSTS: dict[Literal["split", "slices"], Costs] = {
    "split": Costs(slice=10, split=5, piece=1),
    "slices": Costs(slice=10, split=10, piece=10),
}
"""By `Options.prefer`."""
