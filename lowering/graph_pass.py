"""`saturate` as a custom pass of Inductor's, with its log of reports."""

import functools
import hashlib
import json
import logging
import os
import threading
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from importlib.resources.abc import Traversable

import torch
from torch import fx
from torch._dynamo.utils import counters
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._logging import trace_structured

from lowering.options import Options
from lowering.report import Report

_logger = logging.getLogger("lowering")

_log: deque[Report] = deque(maxlen=1000)
# Reentrant, since a signal handler may ask for the reports.
_lock = threading.RLock()
if hasattr(os, "register_at_fork"):
    # A child forked while another thread holds the lock would wait for it for ever.
    os.register_at_fork(
        before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
    )


def reports() -> list[Report]:
    """Return the reports of the last 1,000 graphs that a `SaturatePass` saw, oldest first.

    They come from all passes and threads of this process. Where Inductor finds the compiled code in
    its cache no pass runs, and there is no report.
    """
    with _lock:
        return list(_log)


def clear_reports() -> None:
    """Forget all reports."""
    with _lock:
        _log.clear()


@dataclass(frozen=True)
class SaturatePass(CustomGraphPass):
    """`saturate` for Inductor's `post_grad_custom_pre_pass` and `post_grad_custom_post_pass`.

    It holds nothing but its options, so copies are equal and do the same. Each graph's report is
    kept for `reports()`, counted in `torch._dynamo.utils.counters["inductor"]` under names with the
    prefix "fxsat_", logged under "lowering" (`TORCH_LOGS="+lowering"`), and written to the
    structured trace where there is one. A compile never fails because of it.

    Example:
        torch.compile(model, options={"post_grad_custom_pre_pass": SaturatePass()})

    Attributes:
        options: What `saturate` is asked to do.
    """

    options: Options = Options()

    def __post_init__(self) -> None:
        if not isinstance(self.options, Options):
            raise TypeError(
                f"SaturatePass takes Options, as in SaturatePass(Options(prefer='slices')); "
                f"got {self.options!r}"
            )

    def __call__(self, graph: fx.Graph) -> None:
        """Saturate `graph` in place and publish the report."""
        try:
            # The engine is imported with the first graph: a host that only copies the pass has no
            # need of it.
            from lowering import pipeline

            _publish(pipeline.saturate(graph, self.options))
        except (KeyboardInterrupt, SystemExit):
            raise
        # A Rust panic derives from BaseException alone.
        except BaseException as error:
            _logger.warning(
                "fxsat: no report of this graph, the compile goes on: %r", error, exc_info=error
            )

    def uuid(self) -> str:
        """Return what Inductor's cache knows this pass by, the same in every process.

        It stands for all of the code that makes the result: fxsat's version and source, egglog's
        and torch's version, and the options.
        """
        return hashlib.sha256(f"{_code_hash()} {self.options!r}".encode()).hexdigest()


hook = SaturatePass()
"""A pass with the default options, ready to be handed to a host."""


@functools.cache
def _code_hash() -> str:
    digest = hashlib.sha256()
    parts = [
        f"fxsat {_version('fxsat')}",
        f"egglog {_version('egglog')}",
        f"torch {torch.__version__}",
    ]
    for package in ("egraph", "lowering"):
        for name, source in _sources(files(package), package):
            parts += [name, source]
    for part in parts:
        # Each with its length, so that no two lists of parts give one text.
        digest.update(f"{len(part)} {part}\n".encode())
    return digest.hexdigest()


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:  # run from a folder on PYTHONPATH
        return "not installed"


def _sources(folder: Traversable, name: str) -> Iterator[tuple[str, str]]:
    """Yield path and text of every Python file in `folder` and below, in the paths' order."""
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        path = f"{name}/{entry.name}"
        if entry.is_dir():
            yield from _sources(entry, path)
        elif entry.name.endswith(".py"):
            yield path, entry.read_text(encoding="utf-8")


def _publish(report: Report) -> None:
    with _lock:
        _log.append(report)
        counters["inductor"].update(_counts(report))
    if _logger.isEnabledFor(logging.DEBUG):
        _logger.debug("%s", report)
    elif _logger.isEnabledFor(logging.INFO):
        _logger.info("%s", report.headline())
    # The trace calls these only when something listens.
    trace_structured(
        "artifact",
        metadata_fn=lambda: {"name": "fxsat_report", "encoding": "json"},
        payload_fn=lambda: json.dumps(report.to_dict(), indent=1),
        expect_trace_id=False,
    )


def _counts(report: Report) -> Counter[str]:
    """Return what the counters grow by; all but the number of graphs is left out where it is 0."""
    before, after = Counter(report.before), Counter(report.after)
    counts = Counter(f"fxsat_{rewrite.rule}" for rewrite in report.rewrites)
    counts["fxsat_changed"] = int(report.changed)
    counts["fxsat_failed"] = int(report.stopped == "failed")
    counts["fxsat_nodes_removed"] = (before - after).total()
    counts["fxsat_nodes_added"] = (after - before).total()
    counts["fxsat_graphs"] = 1
    return +counts
