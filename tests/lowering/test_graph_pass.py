import copy
import json
import logging
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.config
from torch import Tensor, fx
from torch._dynamo.utils import counters
from torch._inductor.utils import fresh_cache

from lowering import graph_pass, hook, pipeline, reports
from lowering.graph_pass import SaturatePass, clear_reports
from lowering.options import Options
from lowering.report import Report, Rewrite
from tests.processes import in_a_process
from tests.rust_panic import RustPanic

SLICES = Options(prefer="slices")
SLOTS = ("post_grad_custom_pre_pass", "post_grad_custom_post_pass")

CHANGED = Report(
    changed=True,
    stopped="saturated",
    before={"aten.slice.Tensor": 3, "aten.mm.default": 2},
    after={"aten.split_with_sizes.default": 1, "getitem": 3, "aten.mm.default": 1},
    rewrites=(
        Rewrite("cse", ("mm_1",), ("mm",)),
        Rewrite("cse", ("mm_2",), ("mm",)),
        Rewrite("partition", ("slice_1", "slice_2", "slice_3"), ("split_with_sizes",)),
    ),
)
UNCHANGED = Report(False, "saturated", before={"aten.mm.default": 1}, after={"aten.mm.default": 1})
FAILED = Report(False, "failed", "boom")


@pytest.fixture(autouse=True)
def _nothing_published(monkeypatch: pytest.MonkeyPatch) -> None:
    clear_reports()
    counters["inductor"].clear()
    # The trace is off while it has no handlers; pytest adds its own to loggers that propagate not.
    trace = logging.getLogger("torch.__trace")
    monkeypatch.setattr(trace, "handlers", [])
    monkeypatch.setattr(trace, "propagate", True)


@pytest.fixture
def saturate_as(monkeypatch: pytest.MonkeyPatch) -> Callable[[Report | BaseException], None]:
    """Make `saturate` return a given report or raise a given error."""

    def install(result: Report | BaseException) -> None:
        def saturate(graph: fx.Graph, options: Options) -> Report:
            if isinstance(result, BaseException):
                raise result
            return result

        monkeypatch.setattr(pipeline, "saturate", saturate)

    return install


@pytest.fixture
def cold_caches() -> Iterator[None]:
    """No compiled code to be found: neither in memory nor on disk."""
    torch._dynamo.reset()
    with fresh_cache():
        yield
    torch._dynamo.reset()


def product(x: Tensor, y: Tensor) -> Tensor:
    # Matrix products call a library: there's no kernel for a C++ compiler to build.
    return x[:, :4] @ y


INPUTS = (torch.ones(2, 8), torch.ones(4, 3))


def compiled(**options: object) -> Callable[[Tensor, Tensor], Tensor]:
    return torch.compile(product, options=options)


# What a pass is


def test_it_holds_its_options_and_nothing_else() -> None:
    assert vars(SaturatePass(SLICES)) == {"options": SLICES}
    assert hook == SaturatePass(Options())


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))]
)
def test_a_copy_is_the_same_pass(copied: Any) -> None:
    original = SaturatePass(SLICES)
    twin = copied(original)
    assert twin == original
    assert hash(twin) == hash(original)
    assert twin.uuid() == original.uuid()


def test_other_options_are_another_pass() -> None:
    assert SaturatePass(SLICES) != hook
    assert SaturatePass(SLICES).uuid() != hook.uuid()


@pytest.mark.parametrize("wrong", [None, {"prefer": "slices"}, Options, SaturatePass])
def test_it_takes_options_only(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"as in SaturatePass\(Options\(prefer='slices'\)\)"):
        SaturatePass(wrong)


# The uuid


def test_the_uuid_is_the_same_in_every_process() -> None:
    code = """
        from lowering import Options, SaturatePass
        print(SaturatePass(Options(prefer="slices")).uuid())
    """
    # Unlike this one's, which changes from run to run.
    ran = in_a_process(code, check=True, PYTHONHASHSEED="0")
    assert ran.stdout.split() == [SaturatePass(SLICES).uuid()]


@pytest.fixture
def _code_hash_made_anew() -> Iterator[None]:
    graph_pass._code_hash.cache_clear()
    yield
    graph_pass._code_hash.cache_clear()


@pytest.mark.usefixtures("_code_hash_made_anew")
@pytest.mark.parametrize("distribution", ["fxsat", "egglog"])
def test_the_uuid_covers_the_versions(monkeypatch: pytest.MonkeyPatch, distribution: str) -> None:
    known, version = hook.uuid(), graph_pass._version
    graph_pass._code_hash.cache_clear()
    monkeypatch.setattr(
        graph_pass, "_version", lambda name: "9.9" if name == distribution else version(name)
    )
    assert hook.uuid() != known


@pytest.mark.usefixtures("_code_hash_made_anew")
def test_the_uuid_covers_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    known = hook.uuid()
    graph_pass._code_hash.cache_clear()
    monkeypatch.setattr(torch, "__version__", "9.9")
    assert hook.uuid() != known


def source_tree(root: Path, **rules: str) -> Path:
    for package in ("egraph", "lowering"):
        (root / package / "rules").mkdir(parents=True)
        (root / package / "rules" / "__pycache__").mkdir()
        (root / package / "rules" / "__pycache__" / "a.pyc").write_text(str(root))
        for name, text in rules.items():
            (root / package / "rules" / f"{name}.py").write_text(text)
    return root


@pytest.mark.usefixtures("_code_hash_made_anew")
def test_the_uuid_covers_the_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    trees = [
        source_tree(tmp_path / "one", a="x", b="y"),
        source_tree(tmp_path / "twin", b="y", a="x"),
        source_tree(tmp_path / "edited", a="x", b="z"),
        source_tree(tmp_path / "renamed", a="x", c="y"),
        source_tree(tmp_path / "added", a="x", b="y", c=""),
        source_tree(tmp_path / "moved", a="xy", b=""),
    ]
    hashes = []
    for tree in trees:
        graph_pass._code_hash.cache_clear()
        monkeypatch.setattr(graph_pass, "files", tree.joinpath)
        hashes.append(graph_pass._code_hash())
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == len(trees) - 1


# Inside torch.compile


@pytest.mark.usefixtures("cold_caches")
@pytest.mark.parametrize("wrap", [lambda p: p, lambda p: [p], lambda p: [p, SaturatePass(SLICES)]])
@pytest.mark.parametrize("slot", SLOTS)
@pytest.mark.parametrize("by", ["options", "config"])
def test_it_runs_in_each_slot(slot: str, by: str, wrap: Any) -> None:
    passes = wrap(SaturatePass())
    if by == "options":
        result = compiled(**{slot: passes})(*INPUTS)
    else:
        with torch._inductor.config.patch({slot: passes}):
            result = compiled()(*INPUTS)
    seen = reports()
    assert len(seen) == (len(passes) if isinstance(passes, list) else 1)
    assert [report.stopped for report in seen] == ["saturated"] * len(seen)
    assert seen[0].before["aten.mm.default"] == 1
    assert torch.equal(result, product(*INPUTS))


@pytest.mark.usefixtures("cold_caches")
def test_inductor_keeps_what_it_compiled_with_the_pass() -> None:
    runs = []
    for options in (Options(), Options(), SLICES):
        torch._dynamo.reset()
        clear_reports()
        compiled(post_grad_custom_pre_pass=SaturatePass(options))(*INPUTS)
        runs.append(len(reports()))
    assert runs == [1, 0, 1]
    assert counters["inductor"]["fxgraph_cache_bypass"] == 0
    assert counters["aot_autograd"]["autograd_cache_bypass"] == 0


# What it tells


def test_reports_come_oldest_first_and_are_bounded(saturate_as: Any) -> None:
    for number in range(1005):
        saturate_as(Report(False, "saturated", iterations=number))
        hook(fx.Graph())
    assert [report.iterations for report in reports()] == list(range(5, 1005))


def test_what_reports_returns_is_the_callers(saturate_as: Any) -> None:
    saturate_as(UNCHANGED)
    hook(fx.Graph())
    reports().clear()
    assert reports() == [UNCHANGED]


def test_it_counts(saturate_as: Any) -> None:
    for report in (CHANGED, UNCHANGED, CHANGED, FAILED):
        saturate_as(report)
        hook(fx.Graph())
    assert counters["inductor"] == {
        "fxsat_graphs": 4,
        "fxsat_changed": 2,
        "fxsat_failed": 1,
        "fxsat_nodes_removed": 8,
        "fxsat_nodes_added": 8,
        "fxsat_cse": 4,
        "fxsat_partition": 2,
    }


@pytest.mark.parametrize(
    ("level", "messages"),
    [
        (logging.DEBUG, [str(CHANGED)]),
        (logging.INFO, [CHANGED.headline()]),
        (logging.WARNING, []),
    ],
)
def test_a_graph_is_one_record(
    saturate_as: Any, caplog: pytest.LogCaptureFixture, level: int, messages: list[str]
) -> None:
    saturate_as(CHANGED)
    with caplog.at_level(level, logger="lowering"):
        hook(fx.Graph())
    assert caplog.messages == messages


def test_torch_logs_and_torch_trace(tmp_path: Path) -> None:
    code = """
        import torch
        from lowering import hook, pipeline
        from lowering.report import Report
        pipeline.saturate = lambda graph, options: Report(False, "saturated", iterations=7)
        hook(torch.fx.Graph())
    """
    ran = in_a_process(code, check=True, TORCH_LOGS="+lowering", TORCH_TRACE=str(tmp_path))
    headline = Report(False, "saturated", iterations=7).headline()
    assert ran.stderr.count(headline) == 1
    (trace,) = tmp_path.iterdir()
    lines = trace.read_text().splitlines()
    (start,) = (number for number, line in enumerate(lines) if '"fxsat_report"' in line)
    assert '"stack"' not in lines[start]
    payload = []
    for line in lines[start + 1 :]:
        if not line.startswith("\t"):
            break
        payload.append(line)
    assert json.loads("\n".join(payload))["iterations"] == 7


def test_nothing_is_written_out_when_nobody_reads(
    saturate_as: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    written = []
    for method in ("to_dict", "headline", "__str__"):
        monkeypatch.setattr(Report, method, lambda _, method=method: written.append(method) or "")
    saturate_as(CHANGED)
    with caplog.at_level(logging.WARNING, logger="lowering"):
        hook(fx.Graph())
    assert written == []
    assert len(reports()) == 1


# What can go wrong


@pytest.mark.parametrize("error", [ValueError("boom"), RecursionError("boom"), RustPanic("boom")])
def test_a_failure_is_one_warning(
    saturate_as: Any, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    saturate_as(error)
    hook(fx.Graph())
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "boom" in record.getMessage()


def test_a_failure_to_publish_is_one_warning(
    saturate_as: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(report: Report) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(graph_pass, "_counts", broken)
    saturate_as(CHANGED)
    hook(fx.Graph())
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "disk full" in caplog.text


def test_a_failed_report_is_not_logged_again(
    saturate_as: Any, caplog: pytest.LogCaptureFixture
) -> None:
    saturate_as(FAILED)
    hook(fx.Graph())
    assert caplog.records == []
    assert reports() == [FAILED]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_passes_through(saturate_as: Any, error: type[BaseException]) -> None:
    saturate_as(error())
    with pytest.raises(error):
        hook(fx.Graph())


def test_threads_lose_nothing(saturate_as: Any) -> None:
    saturate_as(UNCHANGED)

    def run() -> None:
        for _ in range(50):
            hook(fx.Graph())
            assert all(report is UNCHANGED for report in reports())

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(reports()) == counters["inductor"]["fxsat_graphs"] == 400


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform doesn't fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_forked_amid_publishing_can_publish(saturate_as: Any) -> None:
    saturate_as(UNCHANGED)
    stop = threading.Event()

    def run() -> None:
        while not stop.is_set():
            hook(fx.Graph())

    thread = threading.Thread(target=run)
    thread.start()
    try:
        for _ in range(20):
            child = os.fork()
            if child == 0:
                signal.alarm(10)
                hook(fx.Graph())
                os._exit(0 if reports() else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        thread.join()
