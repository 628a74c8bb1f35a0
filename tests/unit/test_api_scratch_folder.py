"""Temporary folders of processes that were killed go when the next one makes its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from connect_py.process.scratch_folder import scratch_folder

PREFIX = "connect-py-test-"
CHILD = f"""
import sys
from connect_py.process.scratch_folder import scratch_folder
print(scratch_folder({PREFIX!r}), flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


@contextmanager
def child(above: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process with a folder in which there is a file."""
    environment = {**os.environ, "TMPDIR": str(above)}
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    with process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        (folder / "file").write_text("x")
        try:
            yield process, folder
        finally:
            process.kill()


def test_scratch_folder_of_killed_process_is_removed_by_next_process(above: Path) -> None:
    with child(above) as (process, left):
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert left.is_dir()
        mine = scratch_folder(PREFIX)
    assert list(above.iterdir()) == [mine]


def test_folders_of_living_processes_and_other_names_stay(above: Path) -> None:
    others = [
        above / f"{PREFIX}abcdefgh",
        above / f"{PREFIX}1-2-3",
        above / "connect-py-other-1-abcdefgh",
    ]
    for other in others:
        other.mkdir()
    with child(above) as (_, theirs):
        mine, more = scratch_folder(PREFIX), scratch_folder(PREFIX)
        assert {*above.iterdir()} == {mine, more, theirs, *others}
    assert mine.name.startswith(f"{PREFIX}{os.getpid()}-")
    assert mine.stat().st_mode & 0o077 == 0
