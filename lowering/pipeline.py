"""saturate: read, saturate, extract, write, report."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Literal, NamedTuple

from torch.fx import Graph, GraphModule
from torch.fx.node import Target

from egraph.eclasses import EClasses
from egraph.engine import Saturation, session
from egraph.extract import extract
from egraph.problem import Solution
from lowering import collector
from lowering.choices import Choices, named
from lowering.choose import choices
from lowering.costs import COSTS
from lowering.edits import Create
from lowering.journal import Journal
from lowering.load import Loaded, load
from lowering.options import Options
from lowering.plan import plan
from lowering.provenance import rewrites
from lowering.read import Reading, Unsupported, read
from lowering.report import Report, Rewrite
from lowering.signature import name_of
from lowering.views import has_simpler
from lowering.write import write

log = logging.getLogger(__name__)

MAX_PASSES = 8
"""Times that a graph is read anew because views have become simpler ones."""

MAX_ROUNDS = 8
"""Times that tilings are proposed anew from what the last choice still names."""


def saturate(graph: Graph | GraphModule, options: Options = Options()) -> Report:
    """Bring a graph to its canonical form, in place.

    Args:
        graph: an aten graph with `meta["val"]`, as a post-grad pass sees it. A graph module whose
            graph changed is recompiled.
        options: what to do; see Options.

    Returns:
        What was done, or why the graph was left exactly as it was.

    Raises:
        TypeError: `graph` is neither a graph nor a graph module, or `options` no Options.
    """
    module = graph if isinstance(graph, GraphModule) else None
    target = graph.graph if isinstance(graph, GraphModule) else graph
    if not isinstance(target, Graph):
        raise TypeError(
            f"saturate needs a torch.fx.Graph or GraphModule, not {type(graph).__name__}; "
            "lowering.capture(fn, *inputs) gives the graphs of a function"
        )
    if not isinstance(options, Options):
        raise TypeError(f"options must be lowering.Options, not {type(options).__name__}")
    return _Run(target, module, options).report()


class _Pass(NamedTuple):
    """What one pass over a graph came to.

    Attributes:
        saturation: how the e-graph did.
        inexact: parts of the graph in which the search for the cheapest choice gave up.
        changed: whether the graph was rewritten.
        rewrites: what replaced which nodes.
        again: whether a view now is a simpler one, by what it has come to view.
    """

    saturation: Saturation
    inexact: int
    changed: bool
    rewrites: tuple[Rewrite, ...]
    again: bool


class _Run:
    """One graph on its way through."""

    def __init__(self, graph: Graph, module: GraphModule | None, options: Options) -> None:
        self.graph = graph
        self.module = module
        self.options = options
        self.seconds: dict[str, float] = {}
        self.journal = Journal(graph)

    def report(self) -> Report:
        before: dict[str, int] = {}
        try:
            before = _count(self.graph)
            with collector.paused():
                return self.run(before)
        except Unsupported as error:
            self.journal.undo()
            return self.left(before, "unsupported", str(error))
        except (KeyboardInterrupt, SystemExit):
            self.journal.undo()
            raise
        except BaseException as error:
            # A Rust panic is no Exception. Whatever it is, the compile must go on without us.
            self.journal.undo()
            reason = f"{type(error).__name__}: {error}"
            log.warning(
                "fxsat left a graph of %d nodes as it was: %s",
                len(self.graph.nodes),
                reason,
                exc_info=log.isEnabledFor(logging.DEBUG),
            )
            return self.left(before, "failed", reason)

    def run(self, before: dict[str, int]) -> Report:
        passes = [self.once()]
        while passes[-1].again and len(passes) < MAX_PASSES:
            passes.append(self.once())
        # A list: Python ignores an interrupt that comes while an unfinished generator is closed.
        changed = True in [each.changed for each in passes]
        ends = [each.saturation for each in passes]
        cut_short = [each for each in ends if each.stopped != "saturated"]
        last = (cut_short or ends)[-1]
        matches: Counter[str] = Counter()
        for each in passes:
            matches.update(each.saturation.matches)
        report = Report(
            changed=changed,
            stopped=last.stopped,
            reason=_reason(last, self.options),
            before=before,
            after=_count(self.graph) if changed else before,
            rewrites=tuple(rewrite for each in passes for rewrite in each.rewrites),
            matches=dict(matches),
            enodes=last.enodes,
            eclasses=last.eclasses,
            iterations=sum(each.saturation.iterations for each in passes),
            seconds=self.seconds,
            fallback=_fallback(sum(each.inexact for each in passes)),
        )
        if self.module is not None and report.changed:
            self.module.recompile()
        return report

    def once(self) -> _Pass:
        """Read, saturate and write once."""
        options = self.options
        with self.phase("read"):
            reading = read(self.graph, options.families, map(str, options.keep_apart))
            loaded = load(reading)
        saturation, found, solution = self.search(reading, loaded)
        with self.phase("write"):
            edits = plan(
                reading, loaded.code, found, solution, options.emit == "last_dim_minus_one"
            )
            rewritten = rewrites(reading, found, solution, edits)
            made = write(edits, self.journal)
            touched = [
                made[edit.node] if isinstance(edit, Create) else edit.node for edit in edits.edits
            ]
            changed = edits.is_rewrite()
            again = changed and "slice" in options.families and has_simpler(touched)
        return _Pass(saturation, solution.inexact, changed, rewritten(made), again)

    def search(self, reading: Reading, loaded: Loaded) -> tuple[Saturation, Choices, Solution]:
        """Saturate and choose.

        Tilings come from intervals that are named, but what is chosen may name fewer: then they are
        proposed again from those, until a choice names what it was proposed from. A second run on
        the result would start there.
        """
        options = self.options
        costs = COSTS[options.prefer]
        unused = {"cse"}
        unused |= set() if loaded.facts.scatter else {"scatter"}
        unused |= set() if loaded.facts.cat else {"cat"}
        families = tuple(family for family in options.families if family not in unused)
        if not loaded.facts.has_terms():
            with self.phase("extract"):
                found = choices(reading, EClasses.none(), costs)
                return Saturation(), found, extract(found.problem)
        with session(families) as engine:
            wanted = loaded.wanted
            for _ in range(MAX_ROUNDS):
                with self.phase("saturate"):
                    eclasses = engine.saturate(
                        loaded.facts, wanted, options.max_iterations, options.max_enodes
                    )
                with self.phase("extract"):
                    found = choices(reading, eclasses, costs)
                    solution = extract(found.problem)
                    left = named(found, solution, eclasses)
                if left is None:
                    break
                wanted = left
        return engine.saturation, found, solution

    def left(
        self, before: dict[str, int], stopped: Literal["unsupported", "failed"], reason: str
    ) -> Report:
        """The report of a graph that was left as it was."""
        return Report(
            changed=False,
            stopped=stopped,
            reason=reason,
            before=before,
            after=before,
            seconds=self.seconds,
        )

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time that the block takes to a phase."""
        start = perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + perf_counter() - start


def _count(graph: Graph) -> dict[str, int]:
    """Number of call nodes by target."""
    targets: Counter[Target] = Counter(
        [node.target for node in graph.nodes if node.op.startswith("call_")]
    )
    counts: Counter[str] = Counter()
    for target, count in targets.items():
        counts[name_of(target)] += count
    return dict(sorted(counts.items()))


def _reason(saturation: Saturation, options: Options) -> str:
    if saturation.stopped == "iterations":
        return f"stopped after max_iterations={options.max_iterations}, with what was found by then"
    if saturation.stopped == "enodes":
        return f"stopped at {saturation.enodes} e-nodes, more than max_enodes={options.max_enodes}"
    return ""


def _fallback(inexact: int) -> str:
    if not inexact:
        return ""
    return (
        f"in {inexact} part(s) of the graph the search ran out of steps: the choice there "
        "is sound and the best found, but may not be the cheapest"
    )
