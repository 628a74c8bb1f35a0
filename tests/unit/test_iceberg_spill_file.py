"""Rows on disk: each table is read back unchanged, and a killed process leaves no file."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa

from connectors.iceberg.staging.row_buffer import SpillFile

TABLES = [
    pa.table({"id": list(range(1000)), "text": ["é" * n for n in range(1000)]}),
    pa.table({"id": pa.array([], pa.int64())}),
    pa.table({"other": [{"a": [1, None]}, None]}),
]


def test_tables_come_back_in_any_order_and_outlive_the_file(tmp_path: Path) -> None:
    file = SpillFile(tmp_path)
    places = [file.append(rows) for rows in TABLES]
    assert list(tmp_path.iterdir()) == []  # it has no name
    again = [file.read(place) for place in reversed(places)]
    file.close()
    for found, rows in zip(again, reversed(TABLES), strict=True):
        found.validate(full=True)
        assert found.equals(rows)


def test_a_process_that_is_killed_leaves_no_rows_behind(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys, pathlib, pyarrow as pa\n"
        "from connectors.iceberg.staging.row_buffer import SpillFile\n"
        "file = SpillFile(pathlib.Path(sys.argv[1]))\n"
        "file.append(pa.table({'id': list(range(100_000))}))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program, str(tmp_path)], timeout=50, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []
