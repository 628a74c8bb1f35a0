"""Spark events of the quickstart, read from the worker's log."""

from __future__ import annotations

from pathlib import Path

from connect_py.quickstart.spark_lines import SparkLines

STARTED = "[..] INFO service spark-driver (instance 1): started process 9182 (x:1)\n"
SESSION = "[..] INFO Spark session: version 4.1.1, master local[2], UI off, JVM 7 (x:1)\n"
COMMIT = (
    "[..] INFO commit 1-2 to shop.%s: committed by engine %s, %d rows in 2 files, %d "
    "replaced, 90 ms (x:1)\n"
)


def test_sessions_and_commits_are_told_once_each(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    lines = SparkLines(log)
    assert list(lines.new()) == []
    log.write_text(STARTED + SESSION + COMMIT % ("orders", "append", 5, 0))
    starting, session, appended = lines.new()
    assert starting == "Spark is starting"
    assert session == "Spark session: version 4.1.1, master local[2], UI off, JVM 7"
    assert appended.endswith("5 rows to orders")
    with log.open("a") as file:
        file.write(COMMIT % ("orders", "merge", 7, 3) + COMMIT % ("customers", "full merge", 2, 1))
        file.write(COMMIT[:20])  # is being written
    assert list(lines.new()) == ["MERGE INTO matched 3 rows in orders, 1 row in customers"]
    assert list(lines.new()) == []


def test_commit_of_a_single_row_is_recognized(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    log.write_text(
        "[..] INFO commit 1-2 to shop.orders: committed by engine append, 1 row in 1 file, "
        "0 replaced, 90 ms (x:1)\n"
    )
    [appended] = SparkLines(log).new()
    assert appended.endswith(": 1 row to orders")
