"""The page of the first connector, followed from an empty folder to the row in the table, and to
the end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from worker_process import free_port

PAGE = Path(__file__).parents[2] / "docs" / "quickstart" / "first-connector.md"
BIN = Path(sys.executable).parent
SECONDS = 120.0
pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


class Reader:
    """Follows the page in a folder, on free ports."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
        self.port = free_port()
        self.text = PAGE.read_text().replace("/tmp/people", f"{folder}/people")
        self.text = self.text.replace("localhost:8083", f"127.0.0.1:{self.port}")

    def file(self, name: str, **replaced: str) -> None:
        """Write a file of the page."""
        found = re.search(rf"Write `{re.escape(name)}`.*?```\w+\n(.*?)```", self.text, re.DOTALL)
        assert found is not None
        text = found[1]
        for shown, here in replaced.items():
            text = text.replace(shown, here)
        (self.folder / name).write_text(text)

    def line(self, begin: str, more: str = "") -> str:
        """Run the only line of the page with this beginning; return its output."""
        (line,) = re.findall(rf"^    ({re.escape(begin)}.*)$", self.text, re.MULTILINE)
        done = subprocess.run(
            f"{line}{more}",
            shell=True,
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def worker(self) -> subprocess.Popen[bytes]:
        assert "    connect-distributed worker.properties\n" in self.text
        with (self.folder / "worker.properties").open("a") as properties:
            properties.write(f"listeners=http://127.0.0.1:{self.port}\n")
        with (self.folder / "worker.log").open("wb") as log:
            return subprocess.Popen(
                ["connect-distributed", "worker.properties"],
                cwd=self.folder,
                env=self._environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def read(self) -> str:
        (program,) = re.findall(r"```python\n(.*?)```", self.text, re.DOTALL)
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        return done.stdout

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + SECONDS
        while not condition():
            log = (self.folder / "worker.log").read_text()
            assert time.monotonic() < deadline, f"waited for {what}\n{log[-4000:]}"
            time.sleep(1)


def test_row_of_the_first_connector_page_lands(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    said = reader.line("connect-py kafka start", f" --dir {tmp_path}/kafka")
    worker = None
    try:
        found = re.search(r"^(127\.0\.0\.1:\d+)$", said, re.MULTILINE)
        assert found is not None, said
        reader.file("worker.properties", **{"127.0.0.1:39327": found[1]})
        reader.line("connect-py jars spark")
        worker = reader.worker()
        reader.wait(
            lambda: "INFO Kafka Connect started" in (tmp_path / "worker.log").read_text(),
            "the worker",
        )
        reader.file("people-source.json")
        reader.line("echo")
        answer = reader.line(
            "curl -X POST -H 'Content-Type: application/json' -d @people-source.json"
        )
        assert answer.startswith(
            '{"name":"people-source","config":{"connector.class":"FileStreamSource"'
        )
        reader.file("people-sink.json")
        reader.line("curl -X POST -H 'Content-Type: application/json' -d @people-sink.json")
        status = f"curl 127.0.0.1:{reader.port}/connectors/people-sink/status"
        reader.wait(
            lambda: '"tasks":[{"id":0,"state":"RUNNING"' in reader.line(status), "the sink to run"
        )
        reader.wait(lambda: reader.read() == "[{'id': 1, 'name': 'Ada'}]\n", "the row")
        os.killpg(worker.pid, signal.SIGINT)  # as Ctrl-C in its terminal
        assert worker.wait(SECONDS) in (0, 130)
    finally:
        if worker is not None and worker.poll() is None:
            os.killpg(worker.pid, signal.SIGKILL)
            worker.wait(SECONDS)
        reader.line("connect-py kafka stop", f" --dir {tmp_path}/kafka")
