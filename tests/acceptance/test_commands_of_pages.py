"""Every command on a page is executed unchanged, except for addresses, in a shop with the data that
the page requires.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer
from kafka_offsets import caught_up
from lakehouse import Lakehouse
from page_lines import Line, lines_of
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
SECONDS = 240.0
JSON = "org.apache.kafka.connect.json.JsonConverter"
UNWRAP = "org.apache.iceberg.connect.transforms.DebeziumTransform"
NAME, TOPIC, TABLE = "orders-sink", "orders", "shop.orders"
ALLOWED = {"connect_py.spark.user-code.allowed": "iceberg.ext.expect.*"}
# Pages whose commands other tests run as they stand, and single lines.
ELSEWHERE = {
    "docs/how-to/pipelines.md": "test_pipeline_of_a_shop.py",
    "docs/how-to/take-over.md": "test_migrate_java_sink.py",
    "docs/quickstart/postgres.md": "test_postgres_demo.py",
    "docs/quickstart/first-connector.md": "test_first_connector_page.py",
    "docs/how-to/start-a-worker.md": "test_stop_worker.py",
    "connect-py status --url https://worker-1.example.com": "test_rest_options.py",
}
# their pages leave the catalog out
ASKS_A_TABLE = {"history", "at", "diff", "tag", "branch", "rollback"}


class Shop:
    """A worker, a topic of change events, the connector of the pages, and files with the names that
    these have."""

    def __init__(self, folder: Path, broker: KafkaBroker) -> None:
        self.folder = folder
        self.servers = broker.bootstrap_servers
        self.lake = Lakehouse(folder / "lake")
        self.worker = WorkerProcess(folder, self.servers, "shop", ALLOWED)
        self._producer = Producer({"bootstrap.servers": self.servers, "log_level": 0})

    def write(self, page: Page) -> None:
        """The files."""
        config = {
            "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
            "topics": TOPIC,
            "key.converter": JSON,
            "key.converter.schemas.enable": "false",
            "value.converter": JSON,
            "value.converter.schemas.enable": "false",
            "transforms": "unwrap",
            "transforms.unwrap.type": UNWRAP,
            "iceberg.tables.cdc-field": "_cdc.op",
            "iceberg.tables": TABLE,
            "iceberg.tables.auto-create-enabled": "true",
            "iceberg.tables.default-id-columns": "id",
            "iceberg.control.commit.interval-ms": "500",
            **self.lake.sink_config(),
            **page.extra,
        }
        config = {key: value for key, value in config.items() if value}
        self.config = config
        lines = {
            "connector.class": "FileStreamSink",
            "topics": "lines",
            "file": str(self.folder / "lines.txt"),
        }
        people = {**config, "topics": "people", "iceberg.tables": "shop.people"}
        for name, each in {
            NAME: config,
            "customers-sink": config,
            "people-sink": people,
            "lines-out": lines,
            "payments-sink": lines,
            "wrong": {**lines, "tasks.max": "many", "errors.tolerance": "some"},
        }.items():
            (self.folder / f"{name}.json").write_text(json.dumps({"name": name, "config": each}))

    def change(self, op: str, *keys: int, amount: float = 1.25) -> None:
        for key in keys:
            row = {"id": key, "region": "north", "number": "aa", "amount": amount}
            source = {"db": "shop", "table": TOPIC, "ts_ms": 1}
            before, after = (None if op == "c" else row), (None if op == "d" else row)
            event = {"op": op, "before": before, "after": after, "source": source, "ts_ms": 1}
            self._producer.produce(
                TOPIC, json.dumps(event).encode(), json.dumps({"id": key}).encode()
            )
        assert self._producer.flush(30) == 0
        self.follow()

    def produce(self, *values: bytes, topic: str = TOPIC) -> None:
        for value in values:
            self._producer.produce(topic, value)
        assert self._producer.flush(30) == 0

    def follow(self) -> None:
        """Wait until the connector, if it runs, has committed everything."""
        if (
            httpx.get(f"{self.worker.url}/connectors/{NAME}/status", timeout=60).json()[
                "connector"
            ]["state"]
            == "RUNNING"
        ):
            self.worker.wait_until(
                lambda: caught_up(self.servers, NAME, TOPIC), 90, "the connector to catch up"
            )

    def start(self) -> None:
        self.worker.put(NAME, self.config)

    def stop(self) -> None:
        assert (
            httpx.put(f"{self.worker.url}/connectors/{NAME}/stop", timeout=100).status_code == 204
        )
        self.worker.wait_for_states(NAME, "STOPPED")

    def delete(self) -> None:
        assert httpx.delete(f"{self.worker.url}/connectors/{NAME}", timeout=100).status_code == 204

    def run(self, line: Line, *more: str, answer: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command of a page."""
        program, *arguments = line.words()
        for shown, here in {
            "localhost:9092": self.servers,
            "broker:9092": self.servers,
            "http://localhost:8083": self.worker.url,
            "spark://spark:7077": "local[2]",
            "shop.orders/0/1742": f"{TOPIC}/0/20",
        }.items():
            arguments = [each.replace(shown, here) for each in arguments]
        if "type=rest" in arguments:
            arguments = [
                each
                for each in arguments
                if each != "--catalog-property" and not each.startswith("uri=")
            ]
            at = arguments.index("type=rest")
            catalog = {
                "type": "jdbc",
                "uri": f"jdbc:sqlite:{self.lake.directory / 'catalog.db'}",
                "warehouse": self.lake.warehouse,
                "jdbc.schema-version": "V1",
            }
            named = [
                word
                for key, text in catalog.items()
                for word in ("--catalog-property", f"{key}={text}")
            ]
            arguments[at : at + 1] = [*named, "--catalog", "lake"]
        elif arguments[0] in ASKS_A_TABLE and "--config" not in arguments:
            arguments += ["--config", f"{NAME}.json"]
        command = [str(Path(sys.executable).with_name(program)), *arguments, *more]
        environment = {**os.environ, "CONNECT_PY_URL": self.worker.url}
        return subprocess.run(
            command,
            cwd=self.folder,
            env=environment,
            input=answer,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )


Step = Callable[[Shop], Any]


@dataclass(frozen=True)
class Page:
    """Prerequisites of a page. Keys of mappings are beginnings of lines, without `connect-py`."""

    # keys of the connector; empty: without that key
    extra: Mapping[str, str] = field(default_factory=dict)
    # steps that a reader would perform first
    before: Mapping[str, Step] = field(default_factory=dict)
    statuses: Mapping[str, int] = field(default_factory=dict)  # other than 0
    answers: Mapping[str, str] = field(default_factory=dict)  # on standard input
    # options that end the command, or specify the broker
    more: Mapping[str, list[str]] = field(default_factory=dict)


def found(text: str, by_beginning: Mapping[str, Any], default: Any) -> Any:
    return next((each for begin, each in by_beginning.items() if text.startswith(begin)), default)


def show_letters(shop: Shop) -> None:
    """Write the file of the page's line `dlq show ... > letters.jsonl`."""
    line = Line(
        "", f"connect-py dlq show --config {NAME}.json --reason value_converter", whole=True
    )
    letter = json.loads(shop.run(line).stdout.splitlines()[0])
    row = {"id": 99, "region": "north", "number": "aa", "amount": 1.0}
    letter["value"] = {
        "text": json.dumps({"op": "c", "before": None, "after": row, "source": {}, "ts_ms": 1})
    }
    (shop.folder / "letters.jsonl").write_text(json.dumps(letter) + "\n")


DEAD_LETTERS = {
    "errors.tolerance": "all",
    "errors.deadletterqueue.iceberg.table": "shop.dead_letters",
    "errors.deadletterqueue.iceberg.replay.topic": "orders-sink-again",
    "errors.deadletterqueue.iceberg.replay.topic.replication.factor": "1",
}


# Each attempt of a dead-letter record has a separate row if rows are appended.
APPENDED = {"iceberg.ext.write-mode": "append", "iceberg.tables.cdc-field": ""}
CHANGE_LOG = {
    "transforms": "",
    "transforms.unwrap.type": "",
    "iceberg.tables.cdc-field": "",
    "iceberg.ext.envelope": "debezium",
    "iceberg.tables.upsert-mode-enabled": "true",
    "iceberg.ext.changelog-suffix": "_changes",
}


def bad(shop: Shop) -> None:
    shop.produce(b"{no json", json.dumps({"op": "c", "after": {"id": "x"}, "source": {}}).encode())
    shop.follow()


PAGES: dict[str, Page] = {
    "README.md": Page(),
    "docs/how-to/alerts.md": Page(DEAD_LETTERS, {"dlq list": bad}),
    "docs/how-to/audit.md": Page(),
    "docs/how-to/change-tables.md": Page(),
    "docs/how-to/command-line.md": Page(
        before={
            "connectors pause": lambda shop: shop.worker.put(
                "payments-sink",
                {
                    "connector.class": "FileStreamSink",
                    "topics": "lines",
                    "file": str(shop.folder / "payments.txt"),
                },
            ),
            "connectors stop": lambda shop: shop.start(),
            "connectors offsets": lambda shop: shop.change("u", *range(1_100)),
            "kafka consume": lambda shop: shop.produce(b"Ada", topic="people"),
        },
        statuses={"connectors create wrong": 1},
        answers={"connectors delete": "y\n"},
        more={"top": ["--once"], "kafka": ["--bootstrap-server", "localhost:9092"]},
    ),
    "docs/how-to/dead-letters.md": Page(
        DEAD_LETTERS | APPENDED,
        {
            "dlq list": bad,
            f"dlq replay --config {NAME}.json --bootstrap-server localhost:9092 "
            f"--fixed": show_letters,
        },
    ),
    "docs/how-to/debezium.md": Page(CHANGE_LOG),
    "docs/how-to/expect-rows.md": Page(
        {"iceberg.ext.expect.paid": "amount >= 0"},
        {"gate": lambda shop: shop.change("c", 70, amount=-1)},
        {"gate": 1},
    ),
    "docs/how-to/load-on-spark.md": Page(before={"load": lambda shop: shop.stop()}),
    "docs/how-to/maintain-tables.md": Page(),
    "docs/how-to/rebuild-tables.md": Page(CHANGE_LOG),
    "docs/how-to/route-rows.md": Page(
        {
            "iceberg.tables.route-field": "region",
            "iceberg.table.shop.orders.route-regex": "north|south",
        }
    ),
    "docs/how-to/run-on-kubernetes.md": Page(
        before={"connectors create": lambda shop: shop.delete()}
    ),
    "docs/how-to/storage.md": Page(),
    "docs/how-to/table-history.md": Page(
        statuses={"at shop.orders --offset orders:0:99": 1, "diff": 1}
    ),
    "docs/how-to/table-refs.md": Page(
        before={"rewind": lambda shop: shop.stop()}, answers={"rollback": "y\n"}
    ),
    "docs/how-to/try-a-connector.md": Page(),
    "docs/production/back-up-and-restore.md": Page(
        before={
            "connectors stop": lambda shop: shop.change("c", 80, 81),
            "audit": lambda shop: shop.follow(),
        },
    ),
    "docs/production/size-a-worker.md": Page(),
    "docs/production/tls.md": Page(),
}


def commands() -> dict[str, list[Line]]:
    """Return the commands in blocks that no other test executes, by page."""
    by_page: dict[str, list[Line]] = {}
    for line in lines_of("connect-py"):
        if line.whole and line.page not in ELSEWHERE and not found(line.text, ELSEWHERE, ""):
            by_page.setdefault(line.page, []).append(line)
    return by_page


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with KafkaBroker(auto_create_topics=True) as broker:
        made = Shop(tmp_path, broker)
        try:
            yield made
        finally:
            made.worker.close()


def test_every_page_with_commands_has_its_shop() -> None:
    assert set(commands()) == set(PAGES)
    folder = Path(__file__).parents[1]
    assert all(list(folder.rglob(name)) for name in ELSEWHERE.values())


@pytest.mark.parametrize("name", PAGES)
def test_commands_of_a_page_do_what_they_say(shop: Shop, name: str) -> None:
    page = PAGES[name]
    shop.write(page)
    shop.worker.start()
    shop.start()
    shop.change("c", *range(10))
    shop.change("u", *range(5))
    shop.change("d", 9, 8, 7, 6, 5)
    for line in commands()[name]:
        text = line.text.removeprefix("connect-py ")
        found(text, page.before, lambda _: None)(shop)
        more = [each.replace("localhost:9092", shop.servers) for each in found(text, page.more, [])]
        done = shop.run(line, *more, answer=found(text, page.answers, ""))
        said = f"{shlex.join(map(str, done.args))}\n{done.stdout}\n{done.stderr}"
        print(said)
        assert done.returncode == found(text, page.statuses, 0), said
        assert done.stdout or done.stderr, said
        assert "Traceback" not in done.stderr, said
