"""From facts to e-classes: what is read back, how it is numbered, and budgets."""

from __future__ import annotations

from dataclasses import fields, replace
from random import Random

import pytest

from egraph.eclasses import EClasses, ENode
from egraph.engine import Saturation, Session, session
from egraph.facts import Facts, Wanted
from egraph.rules import table
from tests.egraph.sample_facts import ALL, NOTHING, chain, completed, qkv, run
from tests.processes import in_a_process

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


def test_a_session_may_saturate_again() -> None:
    facts, wanted = qkv()
    asked = [wanted, NOTHING, Wanted(wanted.written[:2], ()), wanted]
    expected = [run(facts, each)[0] for each in asked]
    with session(ALL) as engine_session:
        found = [engine_session.saturate(completed(facts), each, 30, 1_000_000) for each in asked]
        assert found == expected


def test_a_session_in_a_session_is_refused() -> None:
    with (
        session(ALL),
        pytest.raises(RuntimeError, match="a session is open on this thread"),
        session(ALL),
    ):
        pass
    assert run(*qkv()) == run(*qkv())


def test_an_e_graph_that_was_left_full_is_emptied_first() -> None:
    facts, wanted = qkv()
    expected = run(facts, wanted)
    with session(ALL) as each:
        engine = each._engine
    # As an interrupt leaves it that comes between a session's end and the reset.
    full = completed(chain(5))
    Session(engine, ALL).saturate(full, NOTHING, 30, 1_000_000)
    assert run(facts, wanted) == expected


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
    from tests.egraph.sample_facts import chain, qkv, run

    facts, wanted = qkv()
    classes, saturation = run(facts, wanted, everything=True)
    print(classes.of, classes.enodes, sorted(classes.written), sorted(saturation.matches.items()))
    classes, saturation = run(chain(60))
    print(classes.of, classes.enodes, sorted(saturation.matches.items()))
"""


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
