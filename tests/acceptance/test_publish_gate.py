"""A worker whose commits await approval: they are published or rejected while it runs and is
killed, and every row is committed once.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from sink_case import SinkCase, case_on_own_worker

from connect_py.embedded.broker import KafkaBroker

# Each decision is tested in one process: `test_iceberg_publish_gate`.
pytestmark = pytest.mark.long
ALLOWED = {"connect_py.spark.user-code.allowed": "iceberg.ext.expect.*"}
EXPECT = {"iceberg.ext.expect.paid": "amount >= 0"}


@dataclass
class Gate:
    """Rows go to a topic; some are not as expected, and a user decides about the commits that have
    them."""

    case: SinkCase
    folder: Path
    good: set[int] = field(default_factory=set)
    bad: set[int] = field(default_factory=set)
    published: set[int] = field(default_factory=set)  # failing rows that the user approved
    next: int = 0

    def produce(self, good: int, bad: int) -> None:
        ids = range(self.next, self.next + good + bad)
        self.next = ids.stop
        amounts = {number: 1 if number < ids.start + good else -1 for number in ids}
        self.good |= {number for number, amount in amounts.items() if amount > 0}
        self.bad |= {number for number, amount in amounts.items() if amount < 0}
        self.case.produce(*({"id": number, "amount": amount} for number, amount in amounts.items()))

    def command(self, *words: str, status: int, name: str = "gate") -> str:
        posted = self.folder / "connector.json"
        posted.write_text(json.dumps({"name": self.case.name, "config": self.case.config()}))
        program = str(Path(sys.executable).parent / "connect-py")
        line = [program, name, self.case.table, *words, "--config", str(posted)]
        done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout

    def operate(self, operation: str, status: int = 200, **arguments: str) -> dict[str, Any]:
        """Over REST."""
        url = f"{self.case.worker.url}/connectors/{self.case.name}/operations/{operation}"
        answer = httpx.post(url, json=arguments, timeout=120)
        assert answer.status_code == status, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def readers(self) -> list[int]:
        return self.case.ids()

    def rejected(self) -> list[int]:
        name = f"{self.case.table}_rejected"
        if self.case.lakehouse.table(name) is None:
            return []
        return sorted(self.case.lakehouse.rows(name).column("id").to_pylist())

    def await_readers(self, ids: Iterable[int]) -> None:
        wanted = sorted(ids)
        self.case.worker.wait_until(
            lambda: self.readers() == wanted, 90, f"readers to see {len(wanted)} rows"
        )

    def await_unpublished(self) -> None:
        """Everything is committed, and readers lack some of it."""
        self.case.await_caught_up()
        assert set(self.operate("unpublished")["tables"]) == {self.case.table}

    def dead_lettered(self) -> list[int]:
        return sorted(self.bad - self.published)


@pytest.fixture
def gate(
    tmp_path: Path, kafka_broker: KafkaBroker, topic_prefix: str, spark_environment: dict[str, str]
) -> Iterable[Gate]:
    with case_on_own_worker(
        tmp_path, kafka_broker.bootstrap_servers, topic_prefix, ALLOWED, EXPECT
    ) as case:
        case.start()
        case.await_running()
        yield Gate(case, tmp_path)


@pytest.mark.timeout(300)  # a worker that is killed, its drivers, and four commands with a JVM each
def test_user_publishes_or_throws_away_what_readers_never_saw(gate: Gate) -> None:
    gate.produce(good=10, bad=0)
    gate.await_readers(range(10))
    gate.produce(good=2, bad=3)
    gate.await_unpublished()
    gate.case.worker.kill_group()
    gate.case.worker.start()
    gate.produce(good=5, bad=0)
    gate.await_unpublished()
    assert gate.readers() == list(range(10))
    assert "unpublished; main is at" in gate.command(status=1)
    table = gate.case.table
    refused = gate.operate("publish", 400, table=table, head="1")
    assert "check the unpublished commits again" in refused["message"]
    gate.operate("publish", table=table)
    gate.published |= gate.bad
    gate.await_readers(range(20))
    assert "no unpublished commits" in gate.operate("publish", 404, table=table)["message"]
    gate.produce(good=0, bad=4)
    gate.produce(good=4, bad=0)
    gate.await_unpublished()
    gate.command("--reject", "dead-letter", status=0)
    gate.await_readers(gate.good | gate.published)
    gate.case.worker.wait_until(
        lambda: gate.rejected() == gate.dead_lettered(), 60, "the rejected rows"
    )
    metrics = httpx.get(f"{gate.case.worker.url}/metrics", timeout=30).text
    assert f'connect_py_iceberg_expectations_failed_total{{connector="{gate.case.name}"' in metrics


@pytest.mark.soak
@pytest.mark.timeout(1800)  # fifteen rounds, most of them with a run of the worker
@pytest.mark.parametrize("seed", [1, 2])
def test_random_decisions_and_deaths_leave_every_row_once(gate: Gate, seed: int) -> None:
    chance = random.Random(seed)
    gate.produce(good=20, bad=0)
    gate.await_readers(range(20))
    for _ in range(15):
        for _ in range(chance.randrange(1, 4)):
            gate.produce(good=chance.randrange(1, 30), bad=chance.choice((0, 0, 1, 5)))
            time.sleep(chance.uniform(0.0, 1.5))
        if chance.random() < 0.6:
            gate.case.worker.kill_group()
            gate.case.worker.start()
        gate.case.await_caught_up()
        if not gate.operate("unpublished")["tables"]:
            assert gate.readers() == sorted(gate.good | gate.published)
            continue
        assert not set(gate.readers()) & (gate.bad - gate.published)
        if chance.random() < 0.5:
            gate.operate("publish", table=gate.case.table)
            gate.published |= gate.bad - set(gate.rejected())
        else:
            gate.operate("reject", table=gate.case.table, rows="dead-letter")
            if chance.random() < 0.5:
                gate.case.worker.kill_group()
                gate.case.worker.start()
        gate.await_readers(gate.good | gate.published)
        gate.case.worker.wait_until(
            lambda: gate.rejected() == gate.dead_lettered(), 60, "the rejected rows"
        )
    assert '"verdict": "proven"' in gate.command("--json", status=0, name="audit")
