"""Load facts, saturate under a budget, read the e-classes back.

With eclasses.py the only place that touches egglog's low-level parts. Commands are built once for a
set of families and run as they are: the high-level API walks all declarations on each call, which
costs more than saturating a small graph does.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Literal

from egglog import EGraph, Schedule, bindings, ruleset, run, union
from egglog.egraph import span as here

from egraph import facts as fact_tables
from egraph.eclasses import CONSTRUCTORS, EClasses, read_back
from egraph.facts import Facts, Wanted, tables, tsv
from egraph.language import nil, operands
from egraph.rules import Phase, table
from egraph.worker import EngineError, Worker

__all__ = ["EngineError", "Saturation", "Session", "session"]


@dataclass
class Saturation:
    """How a run went.

    Attributes:
        stopped: "saturated", or the budget that ended it: "iterations" or "enodes".
        iterations: algebra iterations run.
        enodes: e-nodes when it ended.
        eclasses: e-classes that were read back.
        matches: matches by rule name, rules without a match left out.
    """

    stopped: Literal["saturated", "iterations", "enodes"] = "saturated"
    iterations: int = 0
    enodes: int = 0
    eclasses: int = 0
    matches: dict[str, int] = field(default_factory=dict)


GRAPHS_PER_EGRAPH = 100
"""Graphs after which an e-graph is made anew: each leaves some 14 KB behind in it."""


class _Prepared:
    """An e-graph with its rules and no facts, and the commands that drive it.

    Made, used and dropped on the worker's thread only.
    """

    def __init__(self, families: tuple[str, ...]) -> None:
        egraph = EGraph()
        self.raw = egraph._egraph
        rules = [rule for rule in table() if rule.family in families]
        phases: dict[Phase, Schedule] = {
            phase: run(
                ruleset(*(rule.declaration for rule in rules if rule.phase == phase), name=phase)
            )
            for phase in ("algebra", "span", "chain", "tiling")
        }
        for relation in fact_tables.RELATIONS.values():
            egraph._callable_to_egg(relation)
        egraph.register(union(operands(0)).with_(nil()))

        def command(schedule: Schedule) -> bindings._Command:
            egraph._add_decls(schedule)
            return egraph._state.run_schedule_to_egg(schedule.schedule)

        spans = phases["span"].saturate()
        self.load = command(run(fact_tables.load) + spans)
        self.step = command(phases["algebra"] + spans)
        self.want = command(
            run(fact_tables.want) + phases["chain"].saturate() + phases["tiling"].saturate()
        )
        for each in (self.load, self.step, self.want):
            self.raw.run_program(each)
        names = {rule.declaration.decl: rule.name for rule in rules}
        self.rule_names = {
            key: names[decl]
            for key, decl in egraph._state.rule_name_to_command_decl.items()
            if decl in names
        }
        self.directory = tempfile.mkdtemp(
            prefix="fxsat-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None
        )
        os.rmdir(self.directory)
        self.paths = {
            name: os.path.join(self.directory, f"{name}.tsv") for name in fact_tables.RELATIONS
        }
        self.input = {
            name: bindings.Input(here(0), f"{name}_fact", path) for name, path in self.paths.items()
        }
        self.sizes = bindings.PrintSize(here(0), None)
        # What declared the rules is garbage in reference cycles: whichever thread the collector
        # runs on would drop the e-graph with it.
        vars(egraph._state).pop("egraph")
        self.graphs = 0
        self.used = False

    def keep_for_ever(self) -> None:
        """Never drop the e-graph: its reference is leaked."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.raw))

    def close(self) -> None:
        """Drop the e-graph here and now, whoever still refers to this object."""
        del self.raw

    def push(self) -> None:
        self.raw.run_program(bindings.Push(1))

    def pop(self) -> None:
        self.raw.run_program(bindings.Pop(here(0), 1))

    def read_in(self, rows: list[tuple[str, str]]) -> None:
        """Load relations from (name, tab-separated lines)."""
        # The files are there while they are read, so that a process that is killed leaves none.
        os.mkdir(self.directory, 0o700)
        try:
            for name, text in rows:
                with open(self.paths[name], "w") as file:
                    file.write(text)
            self.raw.run_program(*(self.input[name] for name, _ in rows))
        finally:
            for name, _ in rows:
                with suppress(FileNotFoundError):
                    os.unlink(self.paths[name])
            os.rmdir(self.directory)

    def run(self, command: bindings._Command, saturation: Saturation) -> bool:
        """Run one command, add up its matches and e-nodes; whether it changed anything."""
        done, sizes = self.raw.run_program(command, self.sizes)
        assert isinstance(done, bindings.RunScheduleOutput)
        assert isinstance(sizes, bindings.PrintAllFunctionsSize)
        for key, count in done.report.num_matches_per_rule.items():
            if count and key in self.rule_names:
                name = self.rule_names[key]
                saturation.matches[name] = saturation.matches.get(name, 0) + count
        saturation.enodes = sum(size for name, size in sizes.sizes if name in CONSTRUCTORS)
        return done.report.updated


class Session:
    """A prepared e-graph to oneself, for one graph at a time.

    Attributes:
        saturation: how the last run went.
    """

    def __init__(self, engine: _Engine, families: tuple[str, ...]) -> None:
        self._engine = engine
        self._families = families
        self.saturation = Saturation()

    def saturate(
        self,
        facts: Facts,
        wanted: Wanted,
        max_iterations: int,
        max_enodes: int,
        *,
        everything: bool = False,
    ) -> EClasses:
        """Run the algebra on a graph until nothing new comes, and then tile it.

        Args:
            facts: the graph.
            wanted: intervals named by nodes that are wanted; tilings are proposed from them.
            max_iterations: iterations of the algebra at most.
            max_enodes: e-nodes after which no further iteration starts.
            everything: read scatters, cats, operators and operand lists too, which no rule makes
                and extraction therefore knows already.

        Raises:
            EngineError: egglog failed.
        """
        asked = [(name, tsv(name, rows)) for name, rows in wanted._asdict().items() if rows]
        rows = tables(facts) + asked
        saturation = self.saturation = Saturation()

        def work() -> EClasses:
            prepared = self._engine.fresh(self._families)
            prepared.read_in(rows)
            prepared.run(prepared.load, saturation)
            _iterate(prepared, saturation, max_iterations, max_enodes)
            if asked:
                prepared.run(prepared.want, saturation)
            classes = read_back(prepared.raw, everything)
            saturation.eclasses = len(classes.enodes)
            return classes

        return self._engine.worker.call(work)


def _iterate(
    prepared: _Prepared, saturation: Saturation, max_iterations: int, max_enodes: int
) -> None:
    while True:
        if saturation.enodes > max_enodes:
            saturation.stopped = "enodes"
            return
        if saturation.iterations == max_iterations:
            saturation.stopped = "iterations"
            return
        saturation.iterations += 1
        if not prepared.run(prepared.step, saturation):
            return


class _Engine:
    """The worker of this process, its prepared e-graphs, and the lock that one session holds."""

    def __init__(self, *, forked: bool = False) -> None:
        self.pid = os.getpid()
        self.forked = forked
        self.lock = threading.Lock()
        self.holder: int | None = None
        self.worker = Worker()
        self._prepared: dict[tuple[str, ...], _Prepared] = {}

    def prepared(self, families: tuple[str, ...]) -> _Prepared:
        """The e-graph for these families; only on the worker's thread."""
        found = self._prepared.get(families)
        if found is None:
            if self.forked and os.environ.get("RAYON_NUM_THREADS", "1") not in ("", "0", "1"):
                raise EngineError(
                    "egglog can't run in a process that was forked after it had run with "
                    "RAYON_NUM_THREADS above 1: unset it, or start the process by spawn"
                )
            found = _Prepared(families)
            if self.forked:
                found.keep_for_ever()
            found.push()
            self._prepared[families] = found
        return found

    def fresh(self, families: tuple[str, ...]) -> _Prepared:
        """The e-graph for these families, without facts; only on the worker's thread."""
        if self.prepared(families).used:
            self.reset(families)
        found = self.prepared(families)
        found.used = True
        return found

    def reset(self, families: tuple[str, ...]) -> None:
        """Empty the e-graph for these families of facts; only on the worker's thread."""
        prepared = self._prepared.pop(families, None)
        if prepared is None or self.forked:
            return  # the next session of a forked process makes a new one
        prepared.graphs += 1
        if prepared.graphs == GRAPHS_PER_EGRAPH:
            prepared.close()
            self.prepared(families)
            return
        prepared.pop()
        prepared.push()
        prepared.used = False
        self._prepared[families] = prepared  # sound again; else the next one is made anew

    def discard(self, families: tuple[str, ...]) -> None:
        """Drop an e-graph whose state is unknown; only on the worker's thread."""
        prepared = self._prepared.pop(families, None)
        if prepared is not None:
            prepared.close()

    def keep_for_ever(self) -> None:
        """Never drop the e-graphs: in a forked child, where dropping one waits for ever."""
        for prepared in list(self._prepared.values()):
            if hasattr(prepared, "raw"):
                prepared.keep_for_ever()

    def stop(self) -> None:
        """Drop everything where it was made and end the thread."""
        if self.pid == os.getpid():
            # Listed on the thread: a reset that still runs has its e-graph out of the table.
            self.worker.post(lambda: [self.discard(key) for key in list(self._prepared)])  # type: ignore[func-returns-value]
            self.worker.stop()


_engine: _Engine | None = None
_engine_lock = threading.Lock()
_forked = False


def _current() -> _Engine:
    global _engine
    with _engine_lock:
        if _engine is None or _engine.pid != os.getpid():
            _engine = _Engine(forked=_forked)
            atexit.register(_engine.stop)
        return _engine


def _after_fork_in_child() -> None:
    # Dropping or popping an e-graph waits for egglog's own threads, which a child doesn't have.
    global _engine_lock, _forked
    _engine_lock = threading.Lock()
    _forked = True
    _held.clear()
    if _engine is not None:
        _engine.keep_for_ever()


_held: list[_Engine] = []


def _before_fork() -> None:
    # A lock that egglog holds on the engine's thread would stay locked in the child: fork between
    # two graphs. A thread that forks within its own session gets what it asks for.
    engine = _engine
    if engine is not None and engine.pid == os.getpid() and engine.lock.acquire(timeout=10):
        _held.append(engine)
        with suppress(EngineError):
            engine.worker.call(lambda: None)


def _after_fork_in_parent() -> None:
    while _held:
        _held.pop().lock.release()


os.register_at_fork(
    before=_before_fork,
    after_in_parent=_after_fork_in_parent,
    after_in_child=_after_fork_in_child,
)


@contextmanager
def session(families: tuple[str, ...]) -> Iterator[Session]:
    """Have a prepared e-graph to oneself.

    Sessions of several threads take turns. A session that ends with an exception discards the
    e-graph, so that the next one starts from a sound state.

    Raises:
        RuntimeError: the thread has a session already.
    """
    engine = _current()
    if engine.holder == threading.get_ident():
        raise RuntimeError("a session is open on this thread: end it before you open another")
    with engine.lock:
        engine.holder = threading.get_ident()
        try:
            yield Session(engine, families)
        except BaseException:
            engine.worker.post(lambda: engine.discard(families))
            raise
        finally:
            engine.holder = None
        # Nobody has to wait for this: the next session's calls queue up behind it.
        engine.worker.post(lambda: engine.reset(families))
