"""What `saturate` did to one graph, as plain data, and how a person reads it."""

import html
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

Stopped = Literal["saturated", "iterations", "enodes", "unsupported", "failed"]

_SHOWN_REWRITES = 4
_SHOWN_NAMES = 4


class Rewrite(NamedTuple):
    """One change of the graph.

    Attributes:
        rule: Name of the rule that made the new form equal to the old one.
        replaced: Names of the nodes that went.
        made: Names of the nodes that stand in for them, new ones or ones that were there.
    """

    rule: str
    replaced: tuple[str, ...]
    made: tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """What `saturate` did to one graph: plain data, no graph and no e-graph.

    `print(report)` writes a table for a person, a notebook shows the same as HTML, and `to_dict`
    gives JSON.

    Attributes:
        changed: Whether the graph is another one than before.
        stopped: Why it went no further. "saturated": no rule has anything left to add.
            "iterations" and "enodes": that budget was used up, and the graph is the best of what
            had been found by then. "unsupported": a graph of a kind that can't be read. "failed":
            something went wrong. After the last two the graph is exactly as it was.
        reason: For a person, why it stopped, and what to do about it; "" where there's nothing to
            say.
        before: Number of call nodes by name of the overload, in the graph that came in.
        after: The same in the graph that came out.
        rewrites: What was replaced by what, in the order of the graph that came in.
        matches: Number of matches by name of the rule.
        enodes: Number of e-nodes at the end.
        eclasses: Number of e-classes at the end.
        iterations: Number of iterations of the rules.
        seconds: Time by phase, in seconds, in the order of the phases.
        fallback: Why the graph wasn't chosen by exact extraction, "" where it was.
    """

    changed: bool
    stopped: Stopped
    reason: str = ""
    before: Mapping[str, int] = field(default_factory=dict)
    after: Mapping[str, int] = field(default_factory=dict)
    rewrites: tuple[Rewrite, ...] = ()
    matches: Mapping[str, int] = field(default_factory=dict)
    enodes: int = 0
    eclasses: int = 0
    iterations: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    fallback: str = ""

    def __post_init__(self) -> None:
        for name in ("before", "after", "matches"):
            object.__setattr__(self, name, dict(sorted(getattr(self, name).items())))
        object.__setattr__(self, "seconds", dict(self.seconds))

    def headline(self) -> str:
        """Say in one line what became of the graph."""
        duration = _milliseconds(sum(self.seconds.values()))
        return f"fxsat: {self._size()}, {self._outcome()}, {duration}"

    def to_dict(self) -> dict[str, Any]:
        """Return everything in the report as JSON has it: dicts, lists, strings, numbers."""
        return {
            "changed": self.changed,
            "stopped": self.stopped,
            "reason": self.reason,
            "before": dict(self.before),
            "after": dict(self.after),
            "rewrites": [
                {
                    "rule": rewrite.rule,
                    "replaced": list(rewrite.replaced),
                    "made": list(rewrite.made),
                }
                for rewrite in self.rewrites
            ],
            "matches": dict(self.matches),
            "enodes": self.enodes,
            "eclasses": self.eclasses,
            "iterations": self.iterations,
            "seconds": dict(self.seconds),
            "fallback": self.fallback,
        }

    def __repr__(self) -> str:
        return self.headline()

    def __str__(self) -> str:
        lines = [self.headline()]
        lines += [f"  {label}: {text}" for label, text in self._remarks()]
        for table in self._tables():
            lines += ["", *_text_table(table)]
        lines += ["", *(f"  {label}: {text}" for label, text in self._footers())]
        return "\n".join(lines).rstrip()

    def _repr_html_(self) -> str:
        parts = [f'<div style="font-weight:600">{html.escape(self.headline())}</div>']
        parts += [_html_line(label, text) for label, text in self._remarks()]
        parts += [_html_table(table) for table in self._tables()]
        parts += [_html_line(label, text) for label, text in self._footers()]
        return f'<div style="color:inherit;line-height:1.4">{"".join(parts)}</div>'

    def _size(self) -> str:
        before, after = sum(self.before.values()), sum(self.after.values())
        if self.changed:
            return f"{before:,} -> {after:,} nodes"
        return f"{_count(before, 'node')} unchanged" if before else "graph unchanged"

    def _outcome(self) -> str:
        match self.stopped:
            case "saturated":
                return f"saturated in {_count(self.iterations, 'iteration')}"
            case "iterations":
                return f"stopped by max_iterations after {_count(self.iterations, 'iteration')}"
            case "enodes":
                return f"stopped by max_enodes at {_count(self.enodes, 'e-node')}"
            case "unsupported":
                return "not a graph that can be read"
            case "failed":
                return "failed"

    def _remarks(self) -> list[tuple[str, str]]:
        remarks = (("reason", self.reason), ("fallback", self.fallback))
        return [(label, text) for label, text in remarks if text]

    def _tables(self) -> list["_Table"]:
        """Return the tables of the report that have anything in them."""
        overloads = sorted({**self.before, **self.after})
        counts = [(name, self.before.get(name, 0), self.after.get(name, 0)) for name in overloads]
        tables = (
            _Table(
                ("nodes", "before", "after"),
                [(name, f"{old:,}", f"{new:,}") for name, old, new in counts if old != new],
            ),
            _Table(("rewrites", "times", "replaced -> made"), _rewrite_rows(self.rewrites)),
            _Table(
                ("rule", "matches"),
                [(name, f"{times:,}") for name, times in self.matches.items() if times],
            ),
        )
        return [table for table in tables if table.rows]

    def _footers(self) -> list[tuple[str, str]]:
        sizes = f"{_count(self.enodes, 'e-node')}, {_count(self.eclasses, 'e-class', 'e-classes')}"
        phases = (f"{name} {_milliseconds(seconds)}" for name, seconds in self.seconds.items())
        footers = (("e-graph", sizes if self.enodes else ""), ("time", ", ".join(phases)))
        return [(label, text) for label, text in footers if text]


class _Table(NamedTuple):
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]

    def is_number(self, column: int) -> bool:
        """Tell whether all that stands in a column are numbers."""
        return all(row[column].replace(",", "").isdigit() for row in self.rows if row[column])


def _rewrite_rows(rewrites: Iterable[Rewrite]) -> list[tuple[str, ...]]:
    """Return the rows of each rule's rewrites, the first few of them in full."""
    by_rule: dict[str, list[Rewrite]] = {}
    for rewrite in rewrites:
        by_rule.setdefault(rewrite.rule, []).append(rewrite)
    rows: list[tuple[str, ...]] = []
    for rule, group in sorted(by_rule.items()):
        label, times = rule, f"{len(group):,}"
        for rewrite in group[:_SHOWN_REWRITES]:
            rows.append((label, times, f"{_names(rewrite.replaced)} -> {_names(rewrite.made)}"))
            label = times = ""
        if len(group) > _SHOWN_REWRITES:
            rows.append(("", "", f"... and {len(group) - _SHOWN_REWRITES:,} more"))
    return rows


def _names(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:_SHOWN_NAMES]) or "nothing"
    hidden = len(names) - _SHOWN_NAMES
    return f"{shown}, +{hidden}" if hidden > 0 else shown


def _text_table(table: _Table) -> list[str]:
    lines = [table.columns, *table.rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(table.columns))]
    return [
        "  "
        + "  ".join(
            cell.rjust(width) if table.is_number(column) else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]


def _html_table(table: _Table) -> str:
    """Return `table` as HTML that takes the page's own colours, be they dark or light."""

    def row(tag: str, cells: tuple[str, ...], border: str) -> str:
        return "".join(
            f'<{tag} style="text-align:{"right" if table.is_number(column) else "left"};'
            f'padding:1px 12px 1px 0;{border}">{html.escape(cell)}</{tag}>'
            for column, cell in enumerate(cells)
        )

    head = row("th", table.columns, "border-bottom:1px solid rgba(128,128,128,.5)")
    body = "".join(f"<tr>{row('td', cells, '')}</tr>" for cells in table.rows)
    return (
        '<table style="color:inherit;background:transparent;border-collapse:collapse;'
        'margin:8px 0;font-family:monospace">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def _html_line(label: str, text: str) -> str:
    return f"<div><b>{html.escape(label)}</b>: {html.escape(text)}</div>"


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:,.1f} ms"
