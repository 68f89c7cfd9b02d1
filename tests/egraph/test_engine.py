"""From facts to e-classes: what is read back, how it is numbered, budgets, and failures."""

from __future__ import annotations

import dataclasses
import gc
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from random import Random

import pytest

from egraph.engine import EClasses, EngineError, ENode, Saturation, Session, session
from egraph.facts import Facts, Wanted
from egraph.rules import FAMILIES, table

ALL = tuple(dict.fromkeys(family.name for family in FAMILIES))
NOTHING = Wanted((), ())


def completed(facts: Facts) -> Facts:
    """The facts with those sources that aren't slices themselves told to be outermost."""
    sliced = {row[0] for row in facts.slice}
    rows = {(x, d): None for _, x, d, *_ in facts.slice if x not in sliced}
    return dataclasses.replace(facts, outermost=facts.outermost or list(rows))


def run(
    facts: Facts,
    wanted: Wanted = NOTHING,
    *,
    families: tuple[str, ...] = ALL,
    max_iterations: int = 30,
    max_enodes: int = 1_000_000,
    everything: bool = False,
) -> tuple[EClasses, Saturation]:
    with session(families) as each:
        each.saturate(completed(facts), max_iterations, max_enodes)
        return each.tile(wanted, everything=everything), each.saturation


def chain(length: int) -> Facts:
    """A tensor of `length` elements, and slices of slices that each leave out the first one."""
    facts = Facts(size=[(0, 0, length)])
    for n in range(1, length):
        facts.slice.append((n, n - 1, 0, 1, length - n + 1))
    return facts


def qkv() -> tuple[Facts, Wanted]:
    """Value 0 of 16 elements cut twice into q, k and v, whose first halves meet in a scatter."""
    facts = Facts(size=[(0, 1, 16), (1, 1, 8), (4, 1, 8), (9, 1, 16)])
    cuts = [(0, 8), (8, 12), (12, 16)]
    facts.slice = [(1 + i, 0, 1, a, b) for i, (a, b) in enumerate([*cuts, *cuts])]
    facts.slice += [(7, 1, 1, 0, 4), (8, 4, 1, 0, 4)]
    facts.scatter = [(9, 0, 1, 1, 0, 8)]
    facts.slice += [(10, 9, 1, 0, 8), (11, 9, 1, 8, 12)]
    facts.operand = [(1, 7, 0), (2, 8, 0)]
    facts.op = [(12, 5, 1), (13, 5, 2)]
    facts.alike = [(9, 0)]
    facts.alike_window = [(9, 1, 1, 0)]
    facts.meta = [(1, 3)]
    facts.window = [(9, 1, 0, 8, 3)]
    wanted = [(0, 1, a, b) for a, b in cuts] + [(1, 1, 0, 4), (9, 1, 0, 8), (9, 1, 8, 12)]
    return facts, Wanted(tuple(wanted), ())


# What is read back


def test_equal_slices_are_one_class() -> None:
    classes, saturation = run(Facts(slice=[(1, 0, 0, 2, 4), (2, 0, 0, 2, 4), (3, 0, 0, 2, 5)]))
    assert classes.of == {0: 0, 1: 1, 2: 1, 3: 2}
    assert classes.enodes == [
        [],
        [ENode("slice", (0,), (0, 2, 4))],
        [ENode("slice", (0,), (0, 2, 5))],
    ]
    # Four values and the empty operand list beside the two slices.
    assert saturation == Saturation(iterations=1, enodes=4 + 2 + 2, eclasses=3)


def test_classes_are_numbered_by_their_least_value() -> None:
    # Value 3 equals value 1, and value 0 is computed from both.
    facts = Facts(op=[(0, 7, 1)], operand=[(1, 1, 0)], slice=[(1, 5, 0, 0, 2), (3, 5, 0, 0, 2)])
    classes, _ = run(facts, everything=True)
    assert {n: classes.of[n] for n in (0, 1, 3, 5)} == {0: 0, 1: 1, 3: 1, 5: 2}


def test_congruence_runs_through_operators() -> None:
    classes, _ = run(*qkv())
    assert classes.of[12] == classes.of[13]


def test_a_scatter_is_looked_through() -> None:
    classes, _ = run(*qkv())
    assert classes.of[10] == classes.of[1] == classes.of[4]
    assert classes.of[11] == classes.of[2] == classes.of[5]


def test_a_class_holds_its_slices_and_pieces() -> None:
    classes, saturation = run(*qkv())
    x, q = classes.of[0], classes.of[1]
    (split,) = {e.children[0] for e in classes.enodes[q] if e.op == "piece"}
    assert classes.enodes[split] == [ENode("split", (x,), (1, 0, 8, 12, 16))]
    assert ENode("slice", (x,), (1, 0, 8)) in classes.enodes[q]
    assert saturation.eclasses == len(classes.enodes)


def test_what_is_named_is_read_back_by_class() -> None:
    facts = Facts(slice=[(1, 0, 0, 2, 4)], select=[(2, 0, 0, 3)])
    classes, _ = run(facts, Wanted(((0, 0, 2, 4),), ((0, 0, 3),)))
    assert classes.written == {(0, 0, 2, 4)}
    assert classes.selected == {(0, 0, 3)}


def test_without_wanted_intervals_there_are_no_tilings() -> None:
    facts, _ = qkv()
    classes, saturation = run(facts)
    assert all(enode.op == "slice" for enodes in classes.enodes for enode in enodes)
    assert classes.written == classes.selected == frozenset()
    assert {rule.name for rule in table() if rule.phase in ("chain", "tiling")}.isdisjoint(
        saturation.matches
    )


def test_nothing_in_nothing_out() -> None:
    assert run(Facts()) == (EClasses.none(), Saturation(iterations=1, enodes=2))


def test_symbolic_bounds_are_codes() -> None:
    # Bounds -1 and -2 stand for expressions: equal codes tile, and nothing else is read from them.
    facts = Facts(size=[(0, 0, -2)], slice=[(1, 0, 0, 0, -1), (2, 0, 0, -1, -2)])
    classes, _ = run(facts, Wanted(((0, 0, 0, -1), (0, 0, -1, -2)), ()))
    assert ENode("split", (0,), (0, 0, -1, -2)) in [e for each in classes.enodes for e in each]


def test_everything_reads_all_constructors_back() -> None:
    facts, wanted = qkv()
    facts.cat = [(14, 3, 1)]
    facts.operand += [(3, 1, 4), (4, 2, 0)]
    few, _ = run(facts, wanted)
    classes, _ = run(facts, wanted, everything=True)

    def ops(each: EClasses) -> set[str]:
        return {enode.op for enodes in each.enodes for enode in enodes}

    assert ops(few) == {"slice", "split", "piece"}
    assert ops(classes) == {"slice", "split", "piece", "scatter", "cat", "op", "cons", "nil"}
    assert few.of == classes.of
    of = classes.of
    assert ENode("scatter", (of[0], of[1]), (1, 0, 8)) in classes.enodes[of[9]]
    (cat,) = [enode for enode in classes.enodes[of[14]] if enode.op == "cat"]
    assert cat.params == (1,)
    assert operand_list(classes, cat.children[0]) == [of[1], of[2]]
    (op,) = [enode for enode in classes.enodes[of[12]] if enode.op == "op"]
    assert (op.params, operand_list(classes, op.children[0])) == ((5,), [of[7]])


def operand_list(classes: EClasses, number: int) -> list[int]:
    """The operands of a list's e-class."""
    (enode,) = classes.enodes[number]
    if enode.op == "nil":
        return []
    assert enode.op == "cons"
    first, rest = enode.children
    return [first, *operand_list(classes, rest)]


def test_a_session_may_ask_for_tilings_again() -> None:
    facts, wanted = qkv()
    asked = [wanted, NOTHING, Wanted(wanted.written[:2], ()), wanted]
    expected = [run(facts, each)[0] for each in asked]
    with session(ALL) as engine_session:
        engine_session.saturate(completed(facts), 30, 1_000_000)
        assert [engine_session.tile(each) for each in asked] == expected


def test_a_session_leaves_nothing_to_the_next() -> None:
    small = Facts(size=[(0, 0, 9)], slice=[(1, 0, 0, 2, 4)])
    before = run(small)
    run(*qkv())
    run(chain(20))
    assert run(small) == before


def test_families_that_are_off_have_no_matches() -> None:
    facts, wanted = qkv()
    for off in ALL:
        _, saturation = run(facts, wanted, families=tuple(each for each in ALL if each != off))
        assert {rule.name for rule in table() if rule.family == off}.isdisjoint(saturation.matches)


def test_matches_are_by_the_names_of_rules() -> None:
    _, saturation = run(*qkv())
    assert set(saturation.matches) <= {rule.name for rule in table()}
    assert all(count > 0 for count in saturation.matches.values())
    assert {"scatter-read-back", "scatter-read-after", "partition-is-split"} <= set(
        saturation.matches
    )


# Determinism


def shuffled(facts: Facts, seed: int) -> Facts:
    random = Random(seed)
    rows = {each.name: getattr(facts, each.name) for each in fields(facts)}
    return replace(facts, **{name: random.sample(each, len(each)) for name, each in rows.items()})


@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_the_order_of_the_rows_does_not_matter(seed: int, everything: bool) -> None:
    facts, wanted = qkv()
    expected = run(facts, wanted, everything=everything)
    written = Random(seed).sample(wanted.written, len(wanted.written))
    again = run(shuffled(facts, seed), Wanted(tuple(written), ()), everything=everything)
    assert again[0] == expected[0]
    # How often a rule finds what it has found before does depend on the order.
    assert again[1].matches.keys() == expected[1].matches.keys()
    assert replace(again[1], matches={}) == replace(expected[1], matches={})


PRINT = """
    from egraph.engine import session
    from tests.egraph.test_engine import ALL, chain, qkv, run

    facts, wanted = qkv()
    classes, saturation = run(facts, wanted, everything=True)
    print(classes.of, classes.enodes, sorted(classes.written), sorted(saturation.matches.items()))
    classes, saturation = run(chain(60))
    print(classes.of, classes.enodes, sorted(saturation.matches.items()))
"""


def in_a_process(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": path, **environment},
        cwd=root,
        timeout=20,
        capture_output=True,
        text=True,
        check=False,
    )


def test_hash_seeds_and_thread_counts_do_not_matter() -> None:
    outputs = {
        in_a_process(PRINT, PYTHONHASHSEED=seed, RAYON_NUM_THREADS=threads).stdout
        for seed, threads in [("0", "1"), ("1", "2"), ("2", "4")]
    }
    assert len(outputs) == 1
    assert "partition-is-split" in outputs.pop()


# Budgets


def test_iterations_stop_it() -> None:
    facts = chain(20)
    _, whole = run(facts)
    assert whole.stopped == "saturated"
    assert whole.iterations > 2
    _, first = run(facts, max_iterations=1)
    assert (first.stopped, first.iterations) == ("iterations", 1)
    _, enough = run(facts, max_iterations=whole.iterations)
    assert (enough.stopped, enough.enodes) == ("saturated", whole.enodes)


def test_enodes_stop_it() -> None:
    _, loaded = run(chain(40), max_enodes=1)
    assert (loaded.stopped, loaded.iterations) == ("enodes", 0)
    _, later = run(chain(40), max_enodes=loaded.enodes)
    assert (later.stopped, later.iterations) == ("enodes", 1)
    assert later.enodes > loaded.enodes


@pytest.mark.parametrize("budget", [{"max_iterations": 1}, {"max_enodes": 1}, {"max_enodes": 30}])
def test_what_was_found_before_the_budget_is_sound(budget: dict[str, int]) -> None:
    facts = chain(12)
    classes, saturation = run(facts, **budget)  # type: ignore[arg-type]
    assert saturation.stopped != "saturated"
    # Value n is elements n and up of value 0: no two are equal, and each slice names its elements.
    assert len(set(classes.of.values())) == 12
    value = {number: n for n, number in classes.of.items()}
    for number, enodes in enumerate(classes.enodes):
        for enode in enodes:
            start = value[enode.children[0]] + enode.params[1]
            assert (start, enode.params[2] - enode.params[1]) == (value[number], 12 - value[number])


def test_a_stopped_session_leaves_a_sound_engine() -> None:
    facts, wanted = qkv()
    expected = run(facts, wanted)
    run(chain(40), max_enodes=1)
    assert run(facts, wanted) == expected


# Failures

CONFLICT = Facts(size=[(0, 0, 4), (0, 0, 5)])
TOO_LARGE = Facts(slice=[(1, 0, 0, 0, 2**63)])
OVERFLOW = Facts(slice=[(1, 0, 0, 2**62, 2**62 + 9), (2, 1, 0, 2**62, 2**62 + 1)])
UNSOUND = Facts(size=[(1, 0, 4), (0, 0, 9), (2, 0, 5)], slice=[(1, 0, 0, 0, 4), (2, 0, 0, 0, 4)])


def panic(each: Session) -> None:
    """Touch an e-graph from a thread that isn't the one that made it."""
    each.saturate(Facts(slice=[(1, 0, 0, 0, 4)]), 5, 1000)
    prepared = each._engine.prepared(ALL)
    prepared.raw.run_program(prepared.sizes)


@pytest.fixture
def unraisable(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What goes to sys.unraisablehook, as text: the arguments themselves must not be kept."""
    seen: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: seen.append(str(args.exc_value)))
    return seen


FAILURES = [
    pytest.param(CONFLICT, "size", id="two sizes"),
    pytest.param(TOO_LARGE, "slice.tsv", id="a number that is too large"),
    pytest.param(OVERFLOW, r"primitive \+", id="a sum that overflows"),
    pytest.param(UNSOUND, "size", id="a union of two sizes"),
]


@pytest.mark.parametrize(("facts", "message"), FAILURES)
def test_an_error_of_egglog_is_an_engine_error(
    facts: Facts, message: str, unraisable: list[str]
) -> None:
    good, wanted = qkv()
    expected = run(good, wanted)
    with pytest.raises(EngineError, match=message) as caught:
        run(facts)
    assert run(good, wanted) == expected
    # An e-graph that is dropped on another thread than its maker's leaks and complains.
    del caught
    gc.collect()
    assert unraisable == []


def test_an_error_while_tiling_is_an_engine_error(unraisable: list[str]) -> None:
    good, wanted = qkv()
    expected = run(good, wanted)
    with pytest.raises(EngineError) as caught:
        run(good, Wanted(((2**63, 0, 0, 1),), ()))
    assert run(good, wanted) == expected
    del caught
    gc.collect()
    assert unraisable == []


def test_a_rust_panic_discards_the_egraph(
    unraisable: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    good, wanted = qkv()
    expected = run(good, wanted)
    with pytest.raises(BaseException, match="unsendable") as caught, session(ALL) as each:
        panic(each)
    assert not isinstance(caught.value, Exception)
    assert run(good, wanted) == expected
    assert "panicked" in capfd.readouterr().err  # egglog's own message, which can't be kept quiet


@contextmanager
def loaded_session() -> Iterator[None]:
    with session(ALL) as each:
        each.saturate(completed(chain(5)), 30, 1_000_000)
        yield


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_error_of_the_caller_passes_through(error: type[BaseException]) -> None:
    good, wanted = qkv()
    expected = run(good, wanted)
    with pytest.raises(error), loaded_session():
        raise error
    assert run(good, wanted) == expected


def test_an_error_before_anything_was_loaded_passes_through() -> None:
    with pytest.raises(ValueError, match="boom"), session(("slice",)):
        raise ValueError("boom")
    assert run(chain(5), families=("slice",))[1].stopped == "saturated"


def test_a_session_without_saturation_is_no_error() -> None:
    with session(ALL):
        pass
    assert run(chain(5))[1].stopped == "saturated"


def test_a_session_that_asks_for_nothing_more_leaves_a_sound_engine() -> None:
    facts, wanted = qkv()
    expected = run(facts, wanted)
    with loaded_session():
        pass
    assert run(facts, wanted) == expected


def test_failures_leave_no_files() -> None:
    code = """
        import tempfile
        make = tempfile.mkdtemp

        def recorded(*args, **kwargs):
            made = make(*args, **kwargs)
            print(made)
            return made

        tempfile.mkdtemp = recorded
        from tests.egraph.test_engine import ALL, CONFLICT, qkv, run
        from egraph.engine import EngineError
        for _ in range(3):
            try:
                run(CONFLICT)
            except EngineError:
                pass
            run(*qkv())
            run(*qkv(), families=("slice",))
    """
    done = in_a_process(code)
    assert (done.returncode, done.stderr) == (0, "")
    assert [each for each in done.stdout.split() if os.path.exists(each)] == []


# The end of the process

AT_EXIT = """
    import atexit
    from tests.egraph.test_engine import qkv, run
    from egraph.engine import EngineError

    def late():
        try:
            run(*qkv())
        except (EngineError, RuntimeError):
            pass
        print("late")

    {register}
    run(*qkv())
    print("done")
"""


def test_a_process_ends_quietly() -> None:
    done = in_a_process(AT_EXIT.format(register=""))
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_a_session_in_an_exit_handler_does_not_hang() -> None:
    # Handlers run last registered first: this one runs after the engine's own.
    done = in_a_process(AT_EXIT.format(register="atexit.register(late)"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\nlate\n", "")
