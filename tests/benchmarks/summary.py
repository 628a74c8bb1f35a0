"""One table of results and goals: the newest runs in a file of JSON lines.

    python tests/benchmarks/summary.py [--since 2026-01-01T00:00:00+00:00] [--json
        build/benchmarks.jsonl]

The goals are for a million events, ten million rows, ten minutes at 20,000 changes per second
(freshness), and a cycle per 2 s at 1,000 (commit to visible), on two idle cores: short or disturbed
runs miss some goals.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from freshness import trends
from results import DEFAULT_FILE, print_table

OURS, JAVA, SPARK = "connect-py", "Java sink", "Spark streaming"
# goals, events per CPU second
PIPELINE = {"json": 160_000, "json-schema": 110_000, "avro": 220_000}
PIPELINE_ROWS = 70_000
Line = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured number and its goal, of which there may be none."""

    benchmark: str
    what: str
    value: float
    least: float | None = None
    most: float | None = None

    def row(self) -> list[str]:
        """Return the row of the table."""
        goal, told = "", ""
        if self.least is not None:
            goal, told = f">= {_short(self.least)}", "yes" if self.value >= self.least else "NO"
        elif self.most is not None:
            goal, told = f"<= {_short(self.most)}", "yes" if self.value <= self.most else "NO"
        return [self.benchmark, self.what, _short(self.value), goal, told]


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.2f}".rstrip("0").rstrip(".")


def figures(lines: Sequence[Line]) -> Iterator[Figure]:
    """Yield the figures of the newest run of each kind."""
    newest = {_kind(line): line for line in lines}
    for (benchmark, *_), line in newest.items():
        if benchmark == "pipeline":
            yield from _pipeline(line)
        elif benchmark == "end to end":
            yield from _end_to_end(line)
        elif benchmark == "peers" and line["contender"] == OURS:
            theirs = newest.get(
                ("peers", line["format"], line["mode"], JAVA if line["mode"] == "append" else SPARK)
            )
            yield from _peers(line, theirs)
        elif benchmark == "freshness":
            yield from _freshness(line)
        elif benchmark == "large table":
            yield Figure(
                benchmark,
                f"CPU s per cycle, {line['changes']:,} in {line['rows']:,} rows",
                line["warm"],
                most=1.5,
            )


def _kind(line: Line) -> tuple[str, ...]:
    """Return the kind of a line, which a later run replaces."""
    match line["benchmark"]:
        case "peers":
            names = ("format", "mode", "contender")
        case "pipeline":
            names = ("format", "mode", "path", "transformations")
        case "end to end":
            names = ("format", "mode")
        case "freshness":
            names = ("rate", "interval_ms")
        case _:
            names = ()
    return line["benchmark"], *(str(line.get(name)) for name in names)


def _pipeline(line: Line) -> Iterator[Figure]:
    goals = {"columns": PIPELINE[line["format"]], "rows": PIPELINE_ROWS}
    goal = goals.get(line.get("path", "")) if line["mode"] == "append" else None
    what = f"{line['mode']} {line['format']}, {line.get('path')}: events per CPU s"
    yield Figure("pipeline", what, line["events_per_cpu_second"], least=goal)


def _end_to_end(line: Line) -> Iterator[Figure]:
    what = f"{line['mode']} {line['format']}, {line['events']:,} events: "
    yield Figure("end to end", what + "per CPU s, whole", line["whole"])
    if line["steady"]:
        yield Figure("end to end", what + "per CPU s, steady", line["steady"])


def _peers(ours: Line, theirs: Line | None) -> Iterator[Figure]:
    what = f"{ours['mode']} {ours['format']}, {ours['events']:,} events: "
    upsert = ours["mode"] == "upsert"
    yield Figure(
        "peers", what + "per CPU s, whole", ours["whole"], least=60_000 if upsert else None
    )
    if ours["steady"]:
        yield Figure(
            "peers", what + "per CPU s, steady", ours["steady"], least=130_000 if upsert else None
        )
    if theirs is not None:
        peer = theirs["contender"]
        yield Figure("peers", f"{what}{peer}, whole", theirs["whole"])
        yield Figure("peers", f"{what}{peer}, steady", theirs["steady"])
        yield Figure(
            "peers",
            f"{what}times {peer}'s whole",
            ours["whole"] / theirs["whole"],
            least=3.5 if upsert else 5,
        )
    yield Figure("peers", what + "peak MB of all processes", ours["MB"], most=1_500)


def _freshness(line: Line) -> Iterator[Figure]:
    name = (
        f"freshness, {line['rate']:,}/s, a commit per {line['interval_ms'] / 1000:g} s, "
        f"{line['seconds']} s"
    )
    for trend in trends(line):
        yield Figure(name, f"{trend.name}: gain until the end", trend.gain, most=trend.most)
    commit = line["commit_to_visible"]
    goal = 1.0 if line["interval_ms"] <= 2000 else None
    yield Figure(
        name, "commit to visible, median s", commit[len(commit) // 2] if commit else 0.0, most=goal
    )
    yield Figure(name, "produced to visible, median s", line["produced_to_visible"]["0.5"])
    yield Figure(name, "peak MB of all processes", line["peak MB"], most=1_500)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--since", default="", help="runs before are left out; a time as in the file"
    )
    parser.add_argument("--json", type=Path, default=DEFAULT_FILE)
    options = parser.parse_args()
    lines = [json.loads(text) for text in options.json.read_text().splitlines()]
    rows = [
        figure.row() for figure in figures([line for line in lines if line["at"] >= options.since])
    ]
    print_table(["benchmark", "figure", "measured", "goal", "reached"], rows)


if __name__ == "__main__":
    main()
