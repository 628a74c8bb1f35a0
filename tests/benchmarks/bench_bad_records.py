"""The cost of bad records: one in 10,000, in one stage at a time, compared with the same load
without them.

    python tests/benchmarks/bench_bad_records.py [-n 200000] [--formats json,avro] [--stages
        TASK_PUT,all] [--json FILE]

Consumed messages are created in advance; pipeline and sink task convert, transform, report, and
stage them to Parquet in one process, with alternating clean and bad passes; the slowdown is the
median of these pairs. All bad records must be in the dead-letter topic and in the table's files.

With --polls, pairs of single polls are compared instead, one of them with a bad record, and no file
is closed: the median of the differences is robust on a busy machine. The slowdown counts five polls
per bad record.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "fixtures"))
import pyarrow as pa
from bad_records import EVERY, FORMATS, STAGES, BadRecords
from bad_records_task import BadRecordsTask
from results import DEFAULT_FILE, keep, machine_microseconds, print_table
from schema_registry_stub import schema_registry

from connect_py.process.child_runtime import collect_rarely
from connect_py.task.sink.sink_loop import POLL_RECORDS

# per cycle: dead-letter records are in a separate file, which costs 2 ms per cycle
PASS_RECORDS = 50_000
SHORT_POLL = 2_000
WARM_PAIRS = 4  # schemas are learned
_SHOWN = ("format", "stage", "records", "bad", "clean_us", "bad_us", "slower_percent")


def main() -> None:
    """Measure every wanted format."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-n", "--records", type=int, default=200_000)
    parser.add_argument("--formats", default=",".join(FORMATS))
    parser.add_argument(
        "--stages", default=",".join(STAGES), help="`all`: five bad records in 10,000"
    )
    parser.add_argument("--polls", type=int, default=0, help="pairs of single polls")
    parser.add_argument(
        "--json", type=Path, default=DEFAULT_FILE, help="file that JSON lines are appended to"
    )
    options = parser.parse_args()
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    collect_rarely()  # as a task process does
    shown = []
    for form in options.formats.split(","):
        for stage in options.stages.split(","):
            measured = (
                measure_polls(form, stage, options.polls)
                if options.polls
                else measure(form, stage, options.records)
            )
            keep(options.json, "bad_records", measured)
            shown.append([measured[name] for name in _SHOWN])
    print_table(["format", "stage", "records", "bad", "clean us", "with bad us", "slower %"], shown)


def measure(form: str, stage: str, records: int) -> dict[str, Any]:
    """Run both loads, pass by pass; microseconds of CPU per record."""
    load = BadRecords(form, STAGES if stage == "all" else [stage])
    seconds: dict[str, list[float]] = {"clean": [], "bad": []}
    with schema_registry(load.registered()) as stub, tempfile.TemporaryDirectory() as folder:
        tasks = {kind: BadRecordsTask(load, stub.url, Path(folder) / kind) for kind in seconds}
        for start in range(0, records, PASS_RECORDS):
            order = list(tasks) if start // PASS_RECORDS % 2 else list(reversed(tasks))
            for kind in order:
                polls = list(
                    _polls(
                        tasks[kind],
                        start,
                        min(start + PASS_RECORDS, records),
                        clean=kind == "clean",
                    )
                )
                gc.collect()
                begun = time.process_time()
                for messages in polls:
                    tasks[kind].poll(messages)
                tasks[kind].close_cycle()
                seconds[kind].append(time.process_time() - begun)
        for kind, task in tasks.items():
            task.check({} if kind == "clean" else load.all_bad(records), records)
    # the first pass learns schemas
    warm = slice(1, None) if len(seconds["clean"]) > 1 else slice(None)
    counted = sum(
        min(PASS_RECORDS, records - s) for s in list(range(0, records, PASS_RECORDS))[warm]
    )
    clean, bad = (1e6 * sum(seconds[kind][warm]) / counted for kind in ("clean", "bad"))
    slower = median(
        b / c for b, c in zip(seconds["bad"][warm], seconds["clean"][warm], strict=True)
    )
    return {
        "format": form,
        "stage": stage,
        "records": records,
        "bad": len(load.all_bad(records)),
        "clean_us": round(clean, 2),
        "bad_us": round(bad, 2),
        "slower_percent": round(100 * (slower - 1), 1),
        "machine": round(machine_microseconds(), 2),
    }


def measure_polls(form: str, stage: str, pairs: int) -> dict[str, Any]:
    """Compare polls with one bad record and without; microseconds of CPU per record."""
    load = BadRecords(form, [stage])
    clean, differences = [], []
    with schema_registry(load.registered()) as stub, tempfile.TemporaryDirectory() as folder:
        task = BadRecordsTask(load, stub.url, Path(folder) / "task")
        bad = iter(load.all_bad(EVERY * (pairs + WARM_PAIRS)))
        for pair in range(-WARM_PAIRS, pairs):
            first = next(bad) - SHORT_POLL * (pair % 5) // 5  # it is not always in the same place
            seconds = []
            for is_clean in (True, False):
                messages = task.messages(range(first, first + SHORT_POLL), clean=is_clean)
                begun = time.process_time()
                task.poll(messages)
                seconds.append(time.process_time() - begun)
            if pair >= 0:
                clean.append(seconds[0])
                differences.append(seconds[1] - seconds[0])
    usual, more = 1e6 * median(clean), 1e6 * median(differences)
    return {
        "format": form,
        "stage": stage,
        "records": pairs * SHORT_POLL,
        "bad": pairs,
        "clean_us": round(usual / SHORT_POLL, 2),
        "bad_us": round((usual + more) / SHORT_POLL, 2),
        "slower_percent": round(100 * more / (usual * EVERY / SHORT_POLL), 1),
        "machine": round(machine_microseconds(), 2),
    }


def _polls(task: BadRecordsTask, start: int, stop: int, *, clean: bool) -> Iterator[list[Any]]:
    for first in range(start, stop, POLL_RECORDS):
        yield task.messages(range(first, min(first + POLL_RECORDS, stop)), clean=clean)


if __name__ == "__main__":
    main()
