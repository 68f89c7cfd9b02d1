"""Errors inside and outside of egglog, and the end of the process: the engine stays sound."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version

import pytest

from egraph.engine import EngineError, Session, session
from egraph.facts import Facts, Wanted
from tests.egraph.sample_facts import ALL, NOTHING, chain, completed, qkv, run
from tests.processes import in_a_process

CONFLICT = Facts(size=[(0, 0, 4), (0, 0, 5)])
TOO_LARGE = Facts(slice=[(1, 0, 0, 0, 2**63)])
OVERFLOW = Facts(slice=[(1, 0, 0, 2**62, 2**62 + 9), (2, 1, 0, 2**62, 2**62 + 1)])
UNSOUND = Facts(size=[(1, 0, 4), (0, 0, 9), (2, 0, 5)], slice=[(1, 0, 0, 0, 4), (2, 0, 0, 0, 4)])


def panic(each: Session) -> None:
    """Touch an e-graph from a thread that isn't the one that made it."""
    each.saturate(Facts(slice=[(1, 0, 0, 0, 4)]), NOTHING, 5, 1000)
    prepared = each._engine.prepared(ALL)
    prepared.raw.run_program(prepared.sizes)


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


@pytest.mark.skipif(
    int(version("egglog").split(".")[0]) >= 14,
    reason="nothing is known that makes egglog 14 panic on any thread",
)
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
        each.saturate(completed(chain(5)), NOTHING, 30, 1_000_000)
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
        from tests.egraph.sample_facts import qkv, run
        from tests.egraph.test_engine_failures import CONFLICT
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
    from tests.egraph.sample_facts import qkv, run
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
