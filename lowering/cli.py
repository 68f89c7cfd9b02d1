"""The `fxsat` command."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from lowering.demo import Compiled

WIDTH = 100
_EXCERPT = 12


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code.

    Args:
        arguments: what follows the command's name; None for those of this process.

    Returns:
        0 if all went well, 1 if the demo's claims don't hold, 2 if it couldn't run.
    """
    options = _parser().parse_args(arguments)
    return run_demo(show_all=options.all)


def run_demo(show_all: bool = False) -> int:
    """Compile one attention block in three forms and print what became of them.

    Args:
        show_all: print all of each form's diff, not just that of the first.

    Returns:
        As of `main`.
    """
    import torch
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    from lowering.demo import FORMS, AttentionBlock, compile_form, make_inputs

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        print(
            "fxsat demo compiles with Inductor, which needs a C++ compiler: install g++ or clang++,"
            " or name one in CXX",
            file=sys.stderr,
        )
        return 2

    torch.manual_seed(0)
    block, inputs = AttentionBlock().eval(), make_inputs()
    print(f"fxsat {_version()} in torch.compile, torch {torch.__version__}\n")
    print(INTRODUCTION, flush=True)
    compiled = []
    for form in FORMS:
        _progress(f"compiling: {form.name} ...")
        compiled.append(compile_form(block, inputs, form))
    _progress("")
    print("\n".join(tell(compiled, show_all, colour=has_colour(sys.stdout))))
    return 1 if failures(compiled) else 0


INTRODUCTION = """\
fxsat brings graphs that compute the same to one canonical graph. Here one attention block (qkv
projection; RMS norm and rope of q and k, in place in qkv; grouped-query attention; SwiGLU) is
compiled three times, and its graph reaches fxsat's hook in three forms: the one that torch makes of
it, and two that other versions of torch make, or users by hand. A pass in front of fxsat makes
those two out of the first."""


def tell(compiled: Sequence[Compiled], show_all: bool = False, colour: bool = False) -> list[str]:
    """Return the lines that the demo prints about the forms that were compiled."""
    lines = [*_heading("1. Three forms reach the hook"), *_forms(compiled), "", *_counts(compiled)]
    for letter, each in zip("abc", compiled, strict=True):
        went, came = each.diff.count("-"), each.diff.count("+")
        lines += _heading(f"2{letter}. {each.form.name}: {went} lines went (-), {came} came (+)")
        lines += _diff(each, whole=show_all or letter == "a", colour=colour)
    lines += [*_heading("3. One graph comes out"), *_results(compiled), ""]
    problems = failures(compiled)
    if problems:
        return lines + [f"FAILED: {problem}" for problem in problems]
    return [
        *lines,
        f"OK: {len(compiled)} forms went in, 1 came out, and the results equal eager's.",
    ]


def failures(compiled: Sequence[Compiled]) -> list[str]:
    """Return what the demo claims and didn't see, "" for nothing."""
    problems = []
    if len({each.reached for each in compiled}) != len(compiled):
        problems.append("two of the graphs that reached the hook are the same")
    if len({each.canonical for each in compiled}) != 1:
        problems.append("the canonical graphs differ")
    for each in compiled:
        if each.report.stopped != "saturated":
            problems.append(f"{each.form.name}: {each.report.stopped}: {each.report.reason}")
        if not each.close:
            problems.append(
                f"{each.form.name}: the result differs from eager's by {each.error:.1e}"
            )
    return problems


def has_colour(stream: TextIO) -> bool:
    """Tell whether to write in colour: to a terminal, unless NO_COLOR is set (no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def _forms(compiled: Sequence[Compiled]) -> Iterator[str]:
    width = max(len(each.form.name) for each in compiled)
    for each in compiled:
        yield f"  {each.form.name:{width}}  {each.form.who}"


def _counts(compiled: Sequence[Compiled]) -> list[str]:
    """The overloads whose number differs between the forms, or between before and after."""
    graphs = [each.report.before for each in compiled] + [compiled[0].report.after]
    rows = [("nodes by overload", *(each.form.name for each in compiled), "came out")]
    for name in sorted({name for graph in graphs for name in graph}):
        numbers = [graph.get(name, 0) for graph in graphs]
        if len(set(numbers)) > 1:
            rows.append((name, *map(str, numbers)))
    return _table([*rows, ("all nodes", *(str(sum(graph.values())) for graph in graphs))])


def _diff(each: Compiled, whole: bool, colour: bool) -> list[str]:
    lines = each.diff.text(width=WIDTH, colour=colour).splitlines()
    hidden = len(lines) - _EXCERPT
    if not whole and hidden > 0:
        lines = [*lines[:_EXCERPT], f"  ... {hidden} more lines: fxsat demo --all"]
    return lines


def _results(compiled: Sequence[Compiled]) -> Iterator[str]:
    rows = [("", "canonical graph", "off eager by", "compile", "of that fxsat", "share")]
    for each in compiled:
        share = each.saturate_seconds / each.compile_seconds
        rows.append(
            (
                each.form.name,
                each.canonical,
                f"{each.error:.1e}",
                f"{each.compile_seconds:.1f} s",
                f"{each.saturate_seconds * 1e3:.0f} ms",
                f"{share:.1%}",
            )
        )
    yield from _table(rows)
    yield ""
    yield REMARK


REMARK = """\
The canonical graph is the hash of lowering.canonical_text: outputs, effects and what they reach,
free of names and of the order of independent nodes. Each compile starts with an empty cache; the
first one in a process also starts Inductor and fxsat's engine."""


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """The rows with their columns aligned, the first to the left, all others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        f"  {row[0]:{widths[0]}}"
        + "".join(f"  {cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))
        for row in rows
    ]


def _heading(text: str) -> list[str]:
    return ["", text, "-" * len(text)]


def _progress(text: str) -> None:
    """Show what goes on in the last line of a terminal, and nothing elsewhere."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def _version() -> str:
    try:
        return version("fxsat")
    except PackageNotFoundError:
        return "(not installed)"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fxsat", description="Equality saturation of FX graphs, in torch.compile."
    )
    parser.add_argument("--version", action="version", version=f"fxsat {_version()}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    demo_parser = commands.add_parser(
        "demo",
        help="compile an attention block in three forms and see one come out",
        description="Compile an attention block with Inductor on the CPU in three forms, and show"
        " the graph before and after, that one form comes out, that results equal eager's, and what"
        " it cost. Takes about half a minute and needs a C++ compiler.",
    )
    demo_parser.add_argument("--all", action="store_true", help="show all of the three diffs")
    return parser
