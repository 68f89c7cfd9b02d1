import copy
import json
import pickle
from html.parser import HTMLParser
from typing import Any

import pytest

from lowering.report import Report, Rewrite

SPLIT = Report(
    changed=True,
    stopped="saturated",
    before={"aten.slice.Tensor": 3, "aten.mm.default": 2},
    after={"aten.split_with_sizes.default": 1, "getitem": 3, "aten.mm.default": 2},
    rewrites=(
        Rewrite("split-partition", ("slice_1", "slice_2", "slice_3"), ("split_with_sizes",)),
        Rewrite("cse", ("mm_1",), ("mm",)),
    ),
    matches={"split-slice": 1234, "cse": 0},
    enodes=1500,
    eclasses=9,
    iterations=3,
    seconds={"read": 0.0004, "extract": 0.0015},
)

SPLIT_TEXT = """\
fxsat: 5 -> 6 nodes, saturated in 3 iterations, 1.9 ms

  nodes                          before  after
  aten.slice.Tensor                   3      0
  aten.split_with_sizes.default       0      1
  getitem                             0      3

  rewrites         times  replaced -> made
  cse                  1  mm_1 -> mm
  split-partition      1  slice_1, slice_2, slice_3 -> split_with_sizes

  rule         matches
  split-slice    1,234

  e-graph: 1,500 e-nodes, 9 e-classes
  time: read 0.4 ms, extract 1.5 ms"""


def test_it_prints_as_a_table() -> None:
    assert str(SPLIT) == SPLIT_TEXT


@pytest.mark.parametrize(
    ("report", "headline"),
    [
        (SPLIT, "fxsat: 5 -> 6 nodes, saturated in 3 iterations, 1.9 ms"),
        (
            Report(False, "saturated", before={"a": 1}, after={"a": 1}, iterations=1),
            "fxsat: 1 node unchanged, saturated in 1 iteration, 0.0 ms",
        ),
        (
            Report(True, "iterations", before={"a": 3}, after={"a": 2}, iterations=30),
            "fxsat: 3 -> 2 nodes, stopped by max_iterations after 30 iterations, 0.0 ms",
        ),
        (
            Report(True, "enodes", before={"a": 3}, after={"a": 2}, enodes=2_000_001),
            "fxsat: 3 -> 2 nodes, stopped by max_enodes at 2,000,001 e-nodes, 0.0 ms",
        ),
        (
            Report(False, "failed", "boom", before={"a": 2}, after={"a": 2}, seconds={"read": 2}),
            "fxsat: 2 nodes unchanged, failed, 2,000.0 ms",
        ),
        (
            Report(False, "unsupported", "no meta"),
            "fxsat: graph unchanged, not a graph that can be read, 0.0 ms",
        ),
    ],
)
def test_the_first_line_says_it_all(report: Report, headline: str) -> None:
    assert str(report).splitlines()[0] == headline == report.headline()


@pytest.mark.parametrize("field", ["reason", "fallback"])
def test_remarks_are_shown(field: str) -> None:
    report = Report(False, "saturated", **{field: "too <large> & wide"})  # type: ignore[arg-type]
    assert f"  {field}: too <large> & wide" in str(report).splitlines()
    assert f"{field}</b>: too &lt;large&gt; &amp; wide<" in report._repr_html_()


def test_an_empty_report_is_its_headline() -> None:
    assert len(str(Report(False, "saturated")).splitlines()) == 1


def test_long_lists_are_cut() -> None:
    report = Report(
        True,
        "saturated",
        rewrites=(
            Rewrite("cat", tuple(f"old_{i}" for i in range(9)), ()),
            *(Rewrite("cse", (f"mm_{i}",), ("mm",)) for i in range(6)),
        ),
    )
    text = str(report)
    assert "old_0, old_1, old_2, old_3, +5 -> nothing" in text
    assert "mm_3 -> mm\n" in text
    assert "mm_4 -> mm" not in text
    assert "... and 2 more" in text


class Cells(HTMLParser):
    """The text of each table cell, and the tags that are open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.rows: list[list[str]] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1] in ("td", "th"):
            self.rows[-1].append(data)


def test_html_holds_what_the_text_holds() -> None:
    cells = Cells()
    cells.feed(SPLIT._repr_html_())
    assert cells.open == []
    shown = [row for row in cells.rows if row]
    printed = [" ".join(line.split()) for line in SPLIT_TEXT.splitlines()]
    assert [row for row in shown if " ".join(row) not in printed] == []
    assert len(shown) == 9


def test_to_dict_is_json() -> None:
    as_dict = SPLIT.to_dict()
    assert json.loads(json.dumps(as_dict)) == as_dict
    assert as_dict["rewrites"][1] == {"rule": "cse", "replaced": ["mm_1"], "made": ["mm"]}
    assert set(as_dict) == set(Report.__dataclass_fields__)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda r: pickle.loads(pickle.dumps(r))])
def test_a_copy_is_equal(copied: Any) -> None:
    assert copied(SPLIT) == SPLIT


def test_names_stand_in_order_and_phases_as_they_came() -> None:
    report = Report(
        False,
        "saturated",
        before={"b": 1, "a": 1},
        matches={"z": 1, "y": 1},
        seconds={"read": 1.0, "extract": 2.0},
    )
    assert list(report.before) == ["a", "b"]
    assert list(report.matches) == ["y", "z"]
    assert list(report.seconds) == ["read", "extract"]


def test_it_keeps_no_hold_of_what_it_was_made_from() -> None:
    counts = {"a": 1}
    report = Report(False, "saturated", before=counts)
    counts["a"] = 2
    assert report.before == {"a": 1}
