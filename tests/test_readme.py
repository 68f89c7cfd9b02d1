"""Every snippet of README.md runs and prints what it says; its tables are those of the code."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import io
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch._inductor.config

import lowering
from lowering.options import Options, UnsupportedOption
from lowering.report import Report

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")

FENCE = re.compile(
    r"(?:^<!-- (?P<marker>[^\n]*) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S
)


class Block(NamedTuple):
    """A fenced block, and the comment in the line before it."""

    language: str
    text: str
    marker: str
    line: int


def blocks(text: str, first_line: int = 1) -> list[Block]:
    return [
        Block(
            match["language"],
            match["text"],
            match["marker"] or "",
            first_line + text.count("\n", 0, match.start("text")),
        )
        for match in FENCE.finditer(text)
    ]


def sections() -> Iterator[tuple[str, list[Block]]]:
    """Yield title and blocks of each section; the code of one runs in one namespace."""
    line = 1
    for part in re.split(r"^(?=##? )", README, flags=re.M):
        title = part.partition("\n")[0].lstrip("# ")
        if found := blocks(part, line):
            yield title, found
        line += part.count("\n")


SECTIONS = dict(sections())
MARKERS = {"", "output", "demo", "test", "needs vLLM"}


def normalised(text: str) -> str:
    """Mask times, and how much work the engine did, which isn't what a snippet is to show."""
    text = re.sub(r"[\d.,]+ ms", "# ms", text)
    text = re.sub(r"[\d,]+ (e-nodes|e-class|e-classes|iterations?)\b", r"# \1", text)
    before, rule, after = text.partition("\n  rule  ")
    return before + rule + re.sub(r"^  ([a-z-]+) +[\d,]+$", r"  \1 #", after, flags=re.M)


# Commands ---------------------------------------------------------------------------------------


def extracted(name: str) -> str:
    """Return what .ci/run takes for the commands of a marker, by its own code."""
    code = re.search(
        r"^readme_commands\(\) \{\n.*?^\}$", (ROOT / ".ci/run").read_text(), re.M | re.S
    )
    assert code is not None, ".ci/run has no readme_commands"
    script = f'set -euo pipefail\n{code[0]}\nreadme_commands "$1"\n'
    command = ["bash", "-c", script, "bash", name]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return ran.stdout


@pytest.mark.parametrize("name", ["demo", "test"])
def test_ci_runs_the_commands_that_a_reader_sees(name: str) -> None:
    (block,) = [each for each in blocks(README) if each.marker == name]
    assert block.language == "bash"
    assert extracted(name) == block.text
    subprocess.run(["bash", "-n", "-c", block.text], check=True)


def test_the_commands_are_what_they_are_for() -> None:
    assert extracted("demo").splitlines()[-1] == ".venv/bin/fxsat demo"
    assert extracted("test").splitlines()[-1] == ".venv/bin/python -m pytest"
    for name in ("demo", "test"):
        assert extracted(name).startswith("python3 -m venv .venv\n")


def test_nothing_else_is_marked() -> None:
    assert {block.marker for block in blocks(README)} == MARKERS
    assert README.count("```") == 2 * len(blocks(README))


# Snippets ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("title", SECTIONS)
def test_its_code_runs_and_prints_what_it_says(title: str) -> None:
    namespace: dict[str, Any] = {"__name__": "readme"}
    printed = ""
    # A snippet sets this for the whole process.
    with torch._inductor.config.patch(post_grad_custom_pre_pass=None):
        for block in SECTIONS[title]:
            if block.marker == "output":
                if torch.__version__.startswith("2.13."):
                    assert normalised(printed) == normalised(block.text)
                printed = ""
            elif block.language == "python":
                assert printed == "", f"what the code before line {block.line} prints isn't shown"
                code = compile("\n" * (block.line - 1) + block.text, "README.md", "exec")
                if block.marker != "needs vLLM":
                    with contextlib.redirect_stdout(io.StringIO()) as stdout:
                        exec(code, namespace)
                    printed = stdout.getvalue()
    assert printed == ""
    torch._dynamo.reset()


def test_code_is_run_in_most_sections() -> None:
    languages = [block.language for found in SECTIONS.values() for block in found]
    assert languages.count("python") >= 8
    assert set(languages) == {"python", "bash", "text", "diff"}


# vLLM -------------------------------------------------------------------------------------------


def test_vllm_finds_the_hook_by_its_name() -> None:
    (command,) = [block for block in SECTIONS["In vLLM"] if block.language == "text"]
    quoted = re.search(r"'(\{.*\})'", command.text)
    assert quoted is not None
    passes = json.loads(quoted[1])["inductor_passes"]
    assert list(passes) == ["post_grad_custom_pre_pass"]
    assert hasattr(torch._inductor.config, "post_grad_custom_pre_pass")
    # vLLM imports all before the last dot, and looks the rest up in what __import__ returns.
    module, _, name = passes["post_grad_custom_pre_pass"].rpartition(".")
    assert __import__(module).__dict__[name] is lowering.hook


def test_the_pass_that_is_given_to_vllm_can_be_made() -> None:
    (code,) = [block for block in SECTIONS["In vLLM"] if block.marker == "needs vLLM"]
    (call,) = [
        node
        for node in ast.walk(ast.parse(code.text))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "SaturatePass"
    ]
    made = eval(ast.unparse(call), vars(lowering))
    assert isinstance(made, lowering.SaturatePass)


# Tables -----------------------------------------------------------------------------------------


def table(title: str, header: str) -> list[list[str]]:
    """Return the cells of the rows of the table with that header in that section."""
    section = README.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    rows = section.partition(f"\n{header}\n")[2].partition("\n\n")[0].splitlines()[1:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


OPTIONS = table("Options", "| option | default | meaning | |")


def test_every_option_is_listed_with_its_default() -> None:
    listed = {name.strip("`"): ast.literal_eval(value.strip("`")) for name, value, *_ in OPTIONS}
    defaults = {field.name: field.default for field in dataclasses.fields(Options)}
    assert listed == defaults


ANOTHER: dict[str, object] = {"rules": (object(),), "cost": lambda: None}


@pytest.mark.parametrize(("name", "when"), [(row[0].strip("`"), row[-1]) for row in OPTIONS])
def test_an_option_is_there_or_not_yet(name: str, when: str) -> None:
    if when == "not yet":
        with pytest.raises(UnsupportedOption):
            Options(**{name: ANOTHER.get(name, True)})
    else:
        assert when == ""
        assert getattr(Options(), name) is not None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (row[0].strip("`"), ast.literal_eval(value))
        for row in OPTIONS
        if row[0] in ("`prefer`", "`emit`")
        for value in re.findall(r'`("\w+")`', row[1] + row[2])
    ],
)
def test_the_values_that_are_named_can_be_set(name: str, value: str) -> None:
    assert getattr(Options(**{name: value}), name) == value


def test_every_way_to_stop_is_listed() -> None:
    rows = table("Read the report", "| `report.stopped` | what happened | the graph |")
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row[0])}
    assert listed == set(Report.__dataclass_fields__["stopped"].type.__args__)


# Names ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:\w+/)+\w*(?:\.\w+)?)`", README))))
def test_files_that_are_named_exist(path: str) -> None:
    assert (ROOT / path).exists()
