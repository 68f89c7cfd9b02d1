import hashlib
import io
import operator
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
import torch
from torch import fx

from lowering import cli, demo
from lowering.canonical import canonical_text
from lowering.demo import FORMS, AttentionBlock, Compiled, Form, make_inputs
from lowering.diff import Diff, Line, code_lines
from lowering.graphs import capture
from lowering.pipeline import saturate
from lowering.report import Report
from tests.processes import in_a_process

aten = torch.ops.aten

# Code -------------------------------------------------------------------------------------------


def test_code_has_a_line_a_node() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.ones(4, 5)
    split = graph.call_function(aten.split_with_sizes.default, (x, [2, 3], -1))
    first = graph.call_function(operator.getitem, (split, 0))
    second = graph.call_function(operator.getitem, (split, 1))
    rest = graph.call_function(aten.slice.Tensor, (second, 1, 1, 2**63 - 1))
    total = graph.call_function(aten.sum.dim_IntList, (first, [-1]), {"dtype": torch.float64})
    graph.output((rest, total))
    lines = (
        "x: float32[4, 5]",
        "split_with_sizes_default = aten.split_with_sizes(x, [2, 3], -1)",
        "getitem = split_with_sizes_default[0]",
        "getitem_1 = split_with_sizes_default[1]",
        "slice_tensor = aten.slice.Tensor(getitem_1, 1, 1, sys.maxsize)",
        "sum_dim_int_list = aten.sum.dim_IntList(getitem, [-1], dtype=torch.float64)",
        "return (slice_tensor, sum_dim_int_list)",
    )
    assert code_lines(graph) == lines
    assert code_lines(fx.GraphModule(torch.nn.Module(), graph)) == lines


def test_code_shows_every_kind_of_node_and_argument() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    weight = graph.get_attr("weight")
    called = graph.call_module("layer", (x,), {"bias": None})
    method = graph.call_method("add", (called, weight), {"alpha": 2})
    function = graph.call_function(torch.stack, ([x, method], -1))
    graph.output((function, {"k": (1.5, "s")}))
    assert code_lines(graph) == (
        "x: NoneType",
        "weight = self.weight",
        "layer = self.layer(x, bias=None)",
        "add = layer.add(weight, alpha=2)",
        "stack = torch.stack([x, add], -1)",
        "return (stack, {'k': (1.5, 's')})",
    )


def test_code_shows_symbolic_sizes() -> None:
    (module,) = capture(lambda x: x + x.size(0), torch.ones(4, 5), dynamic=True)
    lines = code_lines(module)
    assert any(line.endswith(": int  # s77") for line in lines), lines
    assert any("float32[s77, " in line for line in lines), lines


# Diff -------------------------------------------------------------------------------------------

BEFORE = ("a: float32[4]", "b = f(a)", "c = g(b)", "d = g(b)", "e = h(c, d)", "return e")
AFTER = ("a: float32[4]", "b = f(a)", "c = g(b)", "e = h(c, c)", "return e")


def test_a_diff_marks_what_went_and_what_came() -> None:
    diff = Diff.of(BEFORE, AFTER)
    assert diff.lines == (
        Line(" ", "a: float32[4]"),
        Line(" ", "b = f(a)"),
        Line(" ", "c = g(b)"),
        Line("-", "d = g(b)"),
        Line("-", "e = h(c, d)"),
        Line("+", "e = h(c, c)"),
        Line(" ", "return e"),
    )
    assert [diff.count("-"), diff.count("+"), diff.count(" ")] == [2, 1, 4]
    assert diff.text() == str(diff)
    assert str(diff).splitlines() == [
        "  ... 2 lines unchanged",
        "  c = g(b)",
        "- d = g(b)",
        "- e = h(c, d)",
        "+ e = h(c, c)",
        "  return e",
    ]


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        ([], [], []),
        (["a"], ["a"], ["  a"]),
        (["a", "b"], ["a", "b"], ["  ... 2 lines unchanged"]),
        ([], ["a"], ["+ a"]),
        (["a"], [], ["- a"]),
        # What a new line reads is shown, wherever it stands; what is called like it isn't.
        (
            ["x = 1", "y = 2", "f = 3", "z = 4", "return"],
            ["x = 1", "y = 2", "f = 3", "z = 4", "n = m.f(x)", "return"],
            ["  x = 1", "  ... 2 lines unchanged", "  z = 4", "+ n = m.f(x)", "  return"],
        ),
    ],
)
def test_a_diff_leaves_out_what_says_nothing(
    before: list[str], after: list[str], text: list[str]
) -> None:
    assert Diff.of(before, after).text().splitlines() == text


def test_a_diff_of_many_equal_lines_finds_the_one_that_changed() -> None:
    before = ["x = relu(x)"] * 1000
    assert Diff.of(before, [*before[:500], "y", *before[500:]]).count("+") == 1


@pytest.mark.parametrize("context", [0, 1, 3])
def test_context_is_a_number_of_lines(context: int) -> None:
    before = [f"line {i}" for i in range(20)]
    after = ["changed" if i == 10 else line for i, line in enumerate(before)]
    shown = Diff.of(before, after).text(context=context).splitlines()
    assert len([line for line in shown if line.startswith("  line")]) == 2 * context


def test_long_lines_are_broken_and_keep_their_mark() -> None:
    text = f"cat = aten.cat([{', '.join(f'getitem_{i}' for i in range(30))}], -1)"
    shown = Diff.of([], [text]).text(width=60).splitlines()
    assert len(shown) > 1
    assert all(line.startswith("+ ") and len(line) <= 60 for line in shown)
    assert " ".join(line[2:].strip() for line in shown) == text


def test_colour_is_added_to_marks_not_put_in_their_place() -> None:
    diff = Diff.of(BEFORE, AFTER)
    plain, painted = diff.text().splitlines(), diff.text(colour=True).splitlines()
    assert "\x1b" not in diff.text()
    assert painted[2] == f"\x1b[31m{plain[2]}\x1b[0m"
    assert painted[4] == f"\x1b[32m{plain[4]}\x1b[0m"
    assert [line.split("m", 1)[1].removesuffix("\x1b[0m") for line in painted] == plain


class _Text(HTMLParser):
    """The text of each cell; every tag is closed in its turn."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.cells.append(data)


def test_html_holds_what_the_text_holds() -> None:
    diff = Diff.of(BEFORE, (*AFTER[:-1], "return e < 1 & e"))
    parser = _Text()
    parser.feed(diff._repr_html_())
    assert parser.open == []
    assert parser.cells == diff.text().splitlines()


# Forms ------------------------------------------------------------------------------------------


def make_compiled(form: Form) -> Compiled:
    """Return what `compile_form` returns, without making kernels."""
    torch.manual_seed(0)
    block, inputs = AttentionBlock().eval(), make_inputs()
    with torch.no_grad():
        (module,) = capture(block, *inputs)
        form.respell(module.graph)
        module.graph.lint()
        before, reached = code_lines(module), hash_of(module)
        report = saturate(module)
        (output,) = module(*bind(module, block, inputs))
        error = (output - block(*inputs)).abs().max().item()
    diff = Diff.of(before, code_lines(module))
    return Compiled(form, diff, reached, hash_of(module), report, error, error < 1e-4, 0.02, 8.0)


def hash_of(module: fx.GraphModule) -> str:
    return hashlib.sha256(canonical_text(module).encode()).hexdigest()[:12]


def bind(
    module: fx.GraphModule, block: AttentionBlock, inputs: tuple[torch.Tensor, ...]
) -> list[torch.Tensor]:
    """Return the graph's arguments: the block's parameters and inputs, by their shapes and use."""
    left = [*block.parameters(), *inputs]
    arguments = []
    for node in module.graph.find_nodes(op="placeholder"):
        val = node.meta["val"]
        at = next(i for i, each in enumerate(left) if each.shape == val.shape)
        arguments.append(left.pop(at))
    return arguments


@pytest.fixture(scope="module")
def compiled() -> list[Compiled]:
    return [make_compiled(form) for form in FORMS]


def test_the_forms_differ_and_one_graph_comes_out(compiled: list[Compiled]) -> None:
    assert len({each.reached for each in compiled}) == 3
    assert len({each.canonical for each in compiled}) == 1
    assert [each.error for each in compiled] == pytest.approx([0, 0, 0], abs=1e-5)


def test_nothing_is_scattered_in_what_comes_out(compiled: list[Compiled]) -> None:
    for each in compiled:
        assert each.report.before["aten.slice_scatter.default"] > 0
        assert "aten.slice_scatter.default" not in each.report.after
        assert each.report.after["aten.split_with_sizes.default"] == 4


@pytest.mark.parametrize(
    ("form", "is_left"),
    [
        (FORMS[1], lambda names: "aten.slice.Tensor" not in names),
        (FORMS[2], lambda names: not any("split" in name for name in names)),
    ],
    ids=lambda value: value.name if isinstance(value, Form) else "",
)
def test_a_form_is_what_it_is_called(form: Form, is_left: Callable[[set[str]], bool]) -> None:
    torch.manual_seed(0)
    with torch.no_grad():
        (module,) = capture(AttentionBlock().eval(), *make_inputs())
    form.respell(module.graph)
    report = saturate(module)
    assert is_left(set(report.before))
    if form.name == "duplicated splits":
        lists = module.graph.find_nodes(op="call_function", target=aten.split_with_sizes.default)
        assert report.before["aten.split_with_sizes.default"] > len(lists)


def test_overlapping_pieces_stay_slices_among_duplicated_splits() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x[:, :4].sin(), x[:, 4:].cos(), x[:, 2:6].exp()

    x = torch.randn(3, 8)
    (module,) = capture(function, x)
    demo.duplicate_splits(module.graph)
    module.graph.lint()
    module.recompile()
    torch.testing.assert_close(module(x), function(x))


# What is printed --------------------------------------------------------------------------------


def test_it_fits_a_terminal_and_says_all(compiled: list[Compiled]) -> None:
    lines = "\n".join(cli.tell(compiled)).splitlines()
    assert max(map(len, lines)) <= 100
    text = "\n".join(lines)
    assert "\x1b" not in text
    assert "FAILED" not in text
    assert lines[-1].startswith("OK: 3 forms went in, 1 came out")
    for each in compiled:
        assert each.form.name in text
    assert text.count("more lines: fxsat demo --all") == 2
    assert "20 ms   0.2%" in text  # 0.02 s of 8 s, rounded to even


def test_all_of_each_diff_is_shown_on_demand(compiled: list[Compiled]) -> None:
    text = "\n".join(cli.tell(compiled, show_all=True))
    for each in compiled:
        assert each.diff.text() in text


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda last: replace(last, canonical="another"), "the canonical graphs differ"),
        (lambda last: replace(last, close=False, error=0.5), "slices: the result differs"),
        (
            lambda last: replace(last, report=Report(False, "failed", "boom")),
            "slices: failed: boom",
        ),
        (
            lambda last: replace(last, report=Report(False, "iterations", "too many")),
            "slices: iterations: too many",
        ),
    ],
)
def test_a_claim_that_does_not_hold_is_a_failure(
    compiled: list[Compiled], spoil: Callable[[Compiled], Compiled], said: str
) -> None:
    spoiled = [*compiled[:-1], spoil(compiled[-1])]
    lines = cli.tell(spoiled)
    assert lines[-1].startswith(f"FAILED: {said}")
    assert not any(line.startswith("OK") for line in lines)


def test_forms_that_are_the_same_show_nothing(compiled: list[Compiled]) -> None:
    same = [*compiled[:-1], replace(compiled[-1], reached=compiled[0].reached)]
    assert cli.failures(same) == ["two of the graphs that reached the hook are the same"]
    assert cli.failures(compiled) == []


class _Stream(io.StringIO):
    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


@pytest.mark.parametrize(
    ("terminal", "no_color", "colour"),
    [(True, None, True), (True, "", True), (True, "1", False), (False, None, False)],
)
def test_colour_is_for_terminals(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, no_color: str | None, colour: bool
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color is not None:
        monkeypatch.setenv("NO_COLOR", no_color)
    assert cli.has_colour(_Stream(terminal)) is colour


# The command ------------------------------------------------------------------------------------


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["--version"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out.startswith("fxsat ")


@pytest.mark.parametrize("arguments", [[], ["nothing"], ["demo", "--none"]])
def test_misuse(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(arguments)
    assert stopped.value.code == 2
    assert "usage: fxsat" in capsys.readouterr().err


@pytest.mark.parametrize(("canonical", "code"), [(None, 0), ("another", 1)])
def test_exit_code(
    compiled: list[Compiled],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    canonical: str | None,
    code: int,
) -> None:
    results = {each.form.name: each for each in compiled}
    if canonical is not None:
        results["slices"] = replace(results["slices"], canonical=canonical)
    monkeypatch.setattr(demo, "compile_form", lambda block, inputs, form: results[form.name])
    assert cli.main(["demo"]) == code
    printed = capsys.readouterr()
    assert ("OK: " in printed.out) is (code == 0)
    assert printed.err == ""


def test_without_a_compiler_it_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from torch._inductor import cpp_builder, exc

    def no_compiler() -> str:
        raise exc.InvalidCxxCompiler

    monkeypatch.setattr(cpp_builder, "get_cpp_compiler", no_compiler)
    assert cli.main(["demo"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "needs a C++ compiler" in printed.err


@pytest.mark.slow
def test_the_demo_from_end_to_end() -> None:
    code = "import sys; from lowering.cli import main; sys.exit(main(['demo', '--all']))"
    ran = in_a_process(code, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stderr == ""
    assert "\nOK: 3 forms went in, 1 came out" in ran.stdout
