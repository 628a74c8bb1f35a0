"""The cost of many small commits, in runs that alternate with runs of another checkout.

    python tests/benchmarks/bench_small_commits.py --baseline ../baseline [--pairs 3] [--cycles
        100] [--format 3]
    python tests/benchmarks/bench_small_commits.py --baseline ../baseline --changes 200000
        --keys 1000000 --cycles 10

Each run starts a Spark driver, fills a table with all keys, and commits the same random changes,
cycle after cycle; compaction is off. CPU seconds include the driver's Python and JVM, from the
request to its outcome. At the end, the rows of the table are compared with the expected rows.

Without `--baseline`, only this checkout runs. The baseline needs an environment: its `.venv`, or
this one.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
MEDIAN_CYCLES = slice(30, 60)  # commits whose median is reported
RUN_SECONDS = 3600.0


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run all cycles in the checkout that the module path names; return CPU and wall seconds of
    each commit."""
    import numpy as np
    import psutil
    from bench_merge_cycle import (
        FIELDS,
        Lake,
        LakeSession,
        SparkRuntime,
        cpu_seconds,
        lake_config,
        stage,
    )
    from pyiceberg.io.pyarrow import schema_to_pyarrow
    from pyiceberg.schema import Schema

    from connect_py.embedded.spark_environment import spark_environment
    from connectors.iceberg.protocol.commit_request import EngineName, EngineSettings

    os.environ.update(spark_environment())
    schema = json.dumps({"type": "struct", "schema-id": 0, "fields": FIELDS})
    arrow = schema_to_pyarrow(Schema.model_validate_json(schema), include_field_ids=True)
    random = np.random.default_rng(1)
    cpu, wall, expected = [], [], {}
    with tempfile.TemporaryDirectory(prefix="connect-py-bench-") as folder:
        config = lake_config(Path(folder))
        runtime = SparkRuntime(
            config.jvm_options(), config.static_settings(), Path(folder) / "spark.log"
        )
        try:
            session = runtime.new_session(config.session_settings())
            lake = Lake(
                runtime, LakeSession(session, config.catalog, EngineSettings()), Path(folder)
            )
            properties = dict(each.split("=", 1) for each in options.property)
            sink = lake.make(schema, None, options.format, ("c1",), **properties)
            processes = [psutil.Process(), psutil.Process(runtime.pid)]
            for cycle in range(options.cycles + 1):
                keys = (
                    random.choice(options.keys, options.changes, replace=False)
                    if cycle
                    else np.arange(options.keys)
                )
                files = stage(sink, keys, cycle, arrow)
                before, started = cpu_seconds(processes), time.monotonic()
                sink.commit(files, EngineName.MERGE)
                if cycle:  # the first commit fills the table
                    cpu.append(cpu_seconds(processes) - before)
                    wall.append(time.monotonic() - started)
                for part in range(2):  # as `stage` divides the keys: one of ten changes is a delete
                    own = keys[keys % 2 == part].tolist()
                    cut = len(own) * 9 // 10
                    expected.update(dict.fromkeys(own[:cut], cycle))
                    for key in own[cut:]:
                        expected.pop(key, None)
            rows = lake.catalog.spark.sql(f"SELECT c1, c6 - c1 FROM lake.{sink.name}").collect()
            if len(rows) != len(expected) or any(expected.get(key) != cycle for key, cycle in rows):
                raise SystemExit("the table does not have the rows that the changes must leave")
            metadata_files = len(list(Path(folder).rglob("*.metadata.json")))
        finally:
            runtime.stop()
    return {"cpu": cpu, "wall": wall, "metadata_files": metadata_files}


def run(tree: Path, arguments: Sequence[str]) -> dict[str, Any]:
    """Measure a checkout in a separate process."""
    python = tree / ".venv" / "bin" / "python"
    paths = (tree, tree / "tests" / "benchmarks", tree / "tests" / "fixtures", tree / "tests")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    command = [
        str(python) if python.exists() else sys.executable,
        "-P",
        __file__,
        "--measure",
        *arguments,
    ]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=RUN_SECONDS, check=False
    )
    if done.returncode:
        raise SystemExit(f"{tree}: {done.stderr[-3000:]}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def summary(figures: dict[str, Any]) -> dict[str, float]:
    """Return totals and medians of one run."""
    cpu, wall = figures["cpu"], figures["wall"]
    window = cpu[MEDIAN_CYCLES] or cpu[len(cpu) // 2 :]
    return {
        "total CPU s": sum(cpu),
        "median CPU s": statistics.median(window),
        "last tenth CPU s": statistics.mean(cpu[-max(1, len(cpu) // 10) :]),
        "median wall s": statistics.median(wall[MEDIAN_CYCLES] or wall[len(wall) // 2 :]),
        "metadata files per commit": round((figures["metadata_files"] - 2) / len(cpu), 2),
    }


def main() -> None:
    """Run the pairs and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--baseline", type=Path, help="another checkout to compare with")
    parser.add_argument("--pairs", type=int, default=1)
    parser.add_argument("--cycles", type=int, default=10)
    parser.add_argument("--changes", type=int, default=1000)
    parser.add_argument("--keys", type=int, default=200_000)
    parser.add_argument("--format", type=int, default=3, choices=(2, 3))
    parser.add_argument(
        "--property", action="append", default=[], help="key=value, one more table property"
    )
    parser.add_argument("--json", type=Path, help="file that JSON lines are appended to")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options)))
        return
    from results import DEFAULT_FILE, keep, machine_microseconds, print_table, versions_line

    arguments = [
        f"--{name}={getattr(options, name)}" for name in ("cycles", "changes", "keys", "format")
    ]
    arguments += [f"--property={each}" for each in options.property]
    trees = {"this checkout": ROOT}
    if options.baseline is not None:
        trees["baseline"] = options.baseline.resolve()
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in trees}
    for pair in range(options.pairs):
        for name in list(trees)[:: 1 if pair % 2 else -1]:
            figures = run(trees[name], arguments)
            runs[name].append(summary(figures))
            print(f"pair {pair + 1}, {name}: {runs[name][-1]}", file=sys.stderr, flush=True)
            line = {
                "contender": name,
                "format": options.format,
                "changes": options.changes,
                "keys": options.keys,
                "properties": options.property,
            }
            keep(options.json or DEFAULT_FILE, "small_commits", {**line, **figures})
    rows = []
    for figure in next(iter(runs.values()))[0]:
        medians = {
            name: statistics.median(each[figure] for each in done) for name, done in runs.items()
        }
        cells = [f"{value:.2f}" for value in medians.values()]
        if len(medians) > 1 and medians["baseline"]:
            ratios = [a[figure] / b[figure] for a, b in zip(*runs.values(), strict=True)]
            cells.append(", ".join(f"{ratio:.2f}" for ratio in ratios))
        rows.append([figure, *cells])
    print(
        f"{options.cycles} commits of {options.changes:,} changes into {options.keys:,} rows, "
        f"format {options.format}"
    )
    print(f"{versions_line()}; machine {machine_microseconds():.2f}")
    print_table(["", *runs, *(["ratio of each pair"] if len(runs) > 1 else [])], rows)


if __name__ == "__main__":
    main()
