"""Python's garbage collector, paused while a graph is read back and written.

It runs over every row and node that is made: unpaused, reading back took 340 ms instead of 14. The
pauses of several threads overlap, so they are counted; "restore what I saw" would leave the
collector off for good.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_pauses = 0
_was_on = False


@contextmanager
def paused() -> Iterator[None]:
    """Keep the collector off inside the block, in the whole process."""
    global _pauses, _was_on
    with _lock:
        if _pauses == 0:
            _was_on = gc.isenabled()
            gc.disable()
        _pauses += 1
    try:
        yield
    finally:
        with _lock:
            _pauses = max(_pauses - 1, 0)
            if _pauses == 0 and _was_on:
                gc.enable()


def _after_fork_in_child() -> None:
    # Only the forking thread lives on, and whatever the others had paused has to run again.
    global _lock, _pauses
    _lock = threading.Lock()
    if _pauses and _was_on:
        gc.enable()
    _pauses = 0


os.register_at_fork(after_in_child=_after_fork_in_child)
