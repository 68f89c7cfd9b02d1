"""Python's garbage collector, paused while a graph is read back and written.

It runs over every row and node that is made: unpaused, reading back took 340 ms instead of 14. The
pauses of several threads overlap, so each is noted; "restore what I saw" would leave the
collector off for good.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_pauses: set[object] = set()
_was_on = False


@contextmanager
def paused() -> Iterator[None]:
    """Keep the collector off inside the block, in the whole process."""
    global _was_on
    pause = object()
    try:
        with _lock:
            if not _pauses:
                _was_on = gc.isenabled()
            _pauses.add(pause)
            gc.disable()
        yield
    finally:
        with _lock:
            if pause in _pauses:
                _pauses.remove(pause)
                if not _pauses and _was_on:
                    gc.enable()


def _after_fork_in_child() -> None:
    # Only the forking thread lives on, and whatever the others had paused has to run again.
    global _lock
    _lock = threading.Lock()
    if _pauses and _was_on:
        gc.enable()
    _pauses.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
