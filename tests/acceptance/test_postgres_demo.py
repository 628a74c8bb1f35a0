"""From PostgreSQL to Iceberg according to the page: the tour, a manual change, and the manual
steps.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from rich.console import Console
from worker_process import free_port

from connect_py.demo.demo import Demo
from connect_py.demo.tour import take_tour
from connect_py.embedded.postgres import PostgresError, find_postgres

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "quickstart" / "postgres.md"
BIN = Path(sys.executable).parent
RUN_SECONDS = 230.0
END_SECONDS = 60.0
BY_HAND = "\n## The same by hand\n"
# commands of the page that keep running
WAITS = ("connect-py java-connect ", "connect-py worker ")

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]


@pytest.fixture(autouse=True)
def _postgres() -> None:
    try:
        find_postgres()
    except PostgresError as error:
        pytest.skip(str(error).splitlines()[0])


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "demo data"
    shutil.rmtree(tmp_path / "demo data", ignore_errors=True)


def rows(folder: Path, table: str) -> list[dict[str, Any]]:
    catalog = SqlCatalog(
        "shop", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse"
    )
    try:
        found: list[dict[str, Any]] = (
            catalog.load_table(f"shop.{table}").scan().to_arrow().to_pylist()
        )
    finally:
        catalog.close()
    return found


def psql(folder: Path, statement: str) -> str:
    command = [folder / "psql", "-A", "-t", "-c", statement]
    done = subprocess.run(command, capture_output=True, text=True, timeout=END_SECONDS, check=True)
    return done.stdout.strip()


def test_tour_lands_every_change_and_the_page_shows_it(folder: Path) -> None:
    shown = io.StringIO()
    demo = Demo(folder, None, Console(file=shown, width=80))
    seen: list[bool] = []

    def story(running: Demo) -> None:
        take_tour(running)
        check_tables(folder)
        seen.append(running.verdict())
        running.parts.worker.close()  # nothing lands from now on
        psql(folder, "UPDATE products SET price = price + 1 WHERE weight IS NULL")

    try:
        equal = demo.run(story)
    finally:
        print(shown.getvalue())
    assert seen == [True]
    assert not equal  # a change that did not land shows
    text = shown.getvalue()
    assert "rows are missing or differ" in text
    assert_shown(text)


def check_tables(folder: Path) -> None:
    """Check the result of the tour on both sides, independently of the tour."""
    customers = {row["id"]: row for row in rows(folder, "customers")}
    assert (customers[7]["city"], customers[7]["vip"]) == ("Faro", True)
    assert [row["email"] for row in customers.values() if row["name"] == "Grace"] == [
        "grace@example.org"
    ]
    orders = rows(folder, "orders")
    assert 9 not in {row["id"] for row in orders}
    assert 9 not in {row["order_id"] for row in rows(folder, "order_lines")}
    asked = (
        "SELECT count(*), sum(total), count(note), max(ordered_at)::timestamp(3), sum(id) FROM "
        "orders"
    )
    count, total, notes, last, ids = psql(folder, asked).split("|")
    assert len(orders) == int(count) == 2499
    assert f"{sum(row['total'] for row in orders):.2f}" == total
    assert sum(row["note"] is not None for row in orders) == int(notes)
    assert sum(row["id"] for row in orders) == int(ids)
    newest = max(row["ordered_at"] for row in orders)
    assert abs(newest.replace(tzinfo=None) - newest.fromisoformat(last)).total_seconds() < 0.002
    credit = psql(folder, "SELECT sum(credit) FROM customers")
    assert f"{sum(row['credit'] for row in customers.values()):.2f}" == credit
    assert len(rows(folder, "reviews")) == 2
    products = {str(row["sku"]): row for row in rows(folder, "products")}
    asked = (
        "SELECT sku, array_to_string(tags, ','), attributes->>'colour' FROM products WHERE "
        "tags <> '{}' LIMIT 1"
    )
    sku, tags, colour = psql(folder, asked).split("|")
    assert products[sku]["tags"] == tags.split(",")
    assert colour in (products[sku]["attributes"] or "")


def assert_shown(text: str) -> None:
    """The page has the tour's commands, in its order; ports and process ids differ."""
    page = PAGE.read_text().split(BY_HAND)[0]
    commands = [
        plain(command) for command in re.findall(r"^\$ (.*(?:\\\n.*|\n  .*)*)", text, re.MULTILINE)
    ]
    written = [
        plain(command)
        for command in re.findall(r"^    \$ (.*(?:\\\n.*|\n      .*)*)", page, re.MULTILINE)
    ]
    assert len(commands) > 12
    assert commands == written
    of_ours = [
        line
        for line in text.splitlines()
        if not line.startswith(("$", "  ", "{")) and "data" not in line
    ]
    assert max(map(len, of_ours)) <= 80


def plain(command: str) -> str:
    command = re.sub(r"'?\S*demo[- ]data'?/", "demo-data/", command)
    return re.sub(r"\d{4,}", "N", " ".join(command.replace("\\\n", " ").split()))


def test_the_pages_change_by_hand_lands_before_seconds_end(tmp_path: Path) -> None:
    update, spark_sql, python = first_steps()
    command = [str(BIN / "connect-py"), "demo", "--seconds", "15"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    children: list[psutil.Process] = []
    lines = []
    try:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if "change rows" in line:
                children = psutil.Process(process.pid).children(recursive=True)
                run(tmp_path, update)
        status = process.wait(END_SECONDS)
    finally:
        process.kill()
        process.communicate()
        print("".join(lines))
    text = "".join(lines)
    assert status == 0, text
    assert re.search(r"UPDATE shop\.customers id=7: in Iceberg after \d+\.\d s", text)
    assert len(children) >= 5  # PostgreSQL, Kafka, Java's Connect, our worker and its processes
    assert [
        child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE
    ] == []
    # The tables stay, for the page's other commands.
    assert run(tmp_path, spark_sql).split("\t")[3] == "Faro"
    (tmp_path / "page.py").write_text(python)
    assert "'city': 'Faro'" in run(tmp_path, f"{BIN}/python page.py")


def first_steps() -> tuple[str, str, str]:
    """The page's change by psql, its query for Spark, and its program for PyIceberg."""
    text = PAGE.read_text().split("\n## Change a row\n")[1].split("\n## ")[0]
    psql_line, spark_line = re.findall(r"^    (demo-data/.*)$", text, re.MULTILINE)
    (python,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert " UPDATE " in psql_line.replace('"', " ")
    return psql_line, spark_line, python


def run(folder: Path, command: str) -> str:
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class PageByHand:
    """The files and commands of the page's second part, made to run in a folder of the test on free
    ports."""

    def __init__(self, home: Path) -> None:
        self.home = home
        text = PAGE.read_text().split(BY_HAND)[1]
        ports = {port: str(free_port()) for port in ("15432", "19092", "18083", "18084")}
        for port, free in ports.items():
            assert port in text
            text = text.replace(port, free)
        assert "/tmp/pg-demo" in text
        text = text.replace("/tmp/pg-demo", str(home))
        # output, no commands
        text = re.sub(r"^They print:\n(?:\n|    .*\n)+", "", text, flags=re.MULTILINE)
        self.steps: list[tuple[str, str]] = []  # a file's name and content, or "" and commands
        pattern = r"Write `([\w.-]+)`[^\n]*(?:\n[^\n`]+)*\n\n```\w+\n(.*?)```|((?:^    [^\n]+\n)+)"
        for found in re.finditer(pattern, text, re.DOTALL | re.MULTILINE):
            if found[1]:
                self.steps.append((found[1], found[2]))
            else:
                self.steps.append(("", re.sub(r"^    ", "", found[3], flags=re.MULTILINE)))
        self.urls = [f"http://127.0.0.1:{ports[port]}/connectors" for port in ("18084", "18083")]

    def script(self) -> str:
        """All of it for bash: what keeps running does so in the background, until its port
        answers."""
        lines = ["set -eu"]
        for name, text in self.steps:
            if name:
                lines += [f"cat > {name} <<'END OF FILE'", text.rstrip("\n"), "END OF FILE"]
                continue
            for command in re.sub(r"\\\n\s*", "", text).splitlines():
                lines += self._lines(command)
        return "\n".join(lines) + "\n"

    def _lines(self, command: str) -> list[str]:
        if command.startswith(("mkdir", "cd ")):
            return [f"cd {shlex.quote(str(self.home))}"]
        if command.startswith(WAITS):
            wait = f"import sys, time, httpx\nurl = {self.urls.pop(0)!r}\n" + WAIT
            log = command.split()[1]
            return [
                f"{command} > {log}.log 2>&1 &",
                f"echo $! >> pids\npython - <<'END OF FILE'\n{wait}\nEND OF FILE",
            ]
        if command.startswith("connect-py kafka stop"):
            return ["kill -TERM $(cat pids)", "wait || true", command]  # Ctrl-C in both terminals
        if command.startswith(("initdb", "pg_ctl")) and os.geteuid() == 0:
            return [f"setpriv --reuid=postgres --regid=postgres --clear-groups {command}"]
        return [command]


WAIT = """\
for _ in range(600):
    try:
        if httpx.get(url, timeout=10).status_code == 200:
            sys.exit()
    except httpx.TransportError:
        time.sleep(0.1)
sys.exit(f"{url} does not answer")
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that another user may pass through and write in, as PostgreSQL is not run by
    root."""
    made = Path(
        subprocess.run(
            ["mktemp", "-d", "/tmp/pg-demo-XXXXXX"],
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        ).stdout.strip()
    )
    made.chmod(0o777)
    yield made
    pids = made / "pids"
    for pid in pids.read_text().split() if pids.exists() else []:
        _end(int(pid))
    for stop in (
        f"{BIN}/connect-py kafka stop --dir {made}/kafka",
        f"kill -QUIT $(head -n 1 {made}/pg/postmaster.pid)",
    ):
        subprocess.run(stop, shell=True, capture_output=True, timeout=END_SECONDS, check=False)
    shutil.rmtree(made, ignore_errors=True)


def _end(pid: int) -> None:
    if not psutil.pid_exists(pid):
        return
    process = psutil.Process(pid)
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(END_SECONDS)
    except psutil.TimeoutExpired:
        process.kill()


def test_the_commands_of_the_page_by_hand_land_a_change(open_folder: Path) -> None:
    page = PageByHand(open_folder)
    script = open_folder / "script.sh"
    script.write_text(page.script())
    environment = {
        **os.environ,
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "PYTHONUNBUFFERED": "1",
    }
    log = open_folder / "script.log"
    started = time.monotonic()
    with log.open("wb") as output:
        done = subprocess.run(
            ["bash", "-x", str(script)],
            cwd=open_folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            timeout=RUN_SECONDS,
            check=False,
        )
    said = log.read_text(errors="replace")
    print(f"{time.monotonic() - started:.0f} s\n{said}")
    assert done.returncode == 0, said[-4000:]
    assert re.search(r"\{'id': 1, 'name': 'Ada', 'city': 'Faro'", said), said[-3000:]
    assert "'id': 2" in said
    assert "proven" in said
