"""The three internal topics, as the real Java worker and ours write and read them."""

from __future__ import annotations

import ast
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from fixtures.topic_reader import Record, read_topic
from java_worker import JavaWorker
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker
from connect_py.storage import compact_json
from connect_py.storage.config_state import ClusterConfigState, ConfigTable
from connect_py.storage.offset_table import OffsetTable
from connect_py.storage.status_table import StatusTable

STRINGS = "org.apache.kafka.connect.storage.StringConverter"
SETTLE_SECONDS = 60.0
KINDS = ("config", "status", "offset")
PROPERTIES = {
    "plugin.discovery": "service_load",
    "offset.flush.interval.ms": "500",
    "offset.storage.partitions": "3",
    "status.storage.partitions": "2",
    "key.converter": STRINGS,
    "value.converter": STRINGS,
    "topic.creation.enable": "false",
}
TRICKY = "ä \u2028 \x7f \x01\x1f \t\n\r\b\f \" \\ / 😀 <b>&'"

pytestmark = [pytest.mark.timeout(400), pytest.mark.long]


class Topics:
    """Records that a worker of this group has written."""

    def __init__(self, bootstrap_servers: str, group: str, more: Sequence[str] = ()) -> None:
        names = {kind: f"{group}-{kind}" for kind in KINDS} | {name: name for name in more}
        self.records = {kind: read_topic(bootstrap_servers, name) for kind, name in names.items()}

    def config(self) -> ClusterConfigState:
        table = ConfigTable()
        for record in self.records["config"]:
            table.apply(record.offset, record.key, record.value)
        return table.snapshot()

    def status(self) -> StatusTable:
        table = StatusTable()
        for record in self.records["status"]:
            table.apply(record.partition, record.timestamp, record.key, record.value)
        return table

    def offsets(self, kind: str = "offset") -> OffsetTable:
        table = OffsetTable()
        for record in self.records[kind]:
            table.apply(record.partition, record.timestamp, record.key, record.value)
        return table


class Client:
    """A worker's REST API, with waiting."""

    def __init__(self, worker: WorkerProcess) -> None:
        self.worker = worker

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        response = httpx.request(method, f"{self.worker.url}{path}", json=body, timeout=100)
        assert response.status_code < 300, response.text
        return response.json() if response.content else None

    def settle(self, name: str, *states: str) -> None:
        self.worker.wait_for_states(quote(name), *states)

    def wait(self, path: str, wanted: Any) -> None:
        self.worker.wait_until(
            lambda: self.worker.get(path) == wanted, SETTLE_SECONDS, f"{path} to be {wanted}"
        )

    def told(self, keys: Iterable[str], *states: str) -> None:
        """Wait until the histories of these keys end with the states: RUNNING may still be an
        earlier state.
        """

        def ended() -> bool:
            known = stories(read_topic(self.worker.servers, f"{self.worker.group}-status"))
            return all(known.get(key, [])[-len(states) :] == list(states) for key in keys)

        self.worker.wait_until(ended, SETTLE_SECONDS, f"{keys} to end as {states}")


def operate(worker: WorkerProcess, folder: Path, lines: str) -> None:
    """One of everything that leaves records behind, one after the other."""
    client = Client(worker)
    file = folder / "in.txt"
    file.write_text("".join(f"line {number}\n" for number in range(10)))
    source = {
        "connector.class": "FileStreamSource",
        "file": str(file),
        "topic": lines,
        "tricky": TRICKY,
        "empty": "",
    }
    sink = {"connector.class": "FileStreamSink", "topics": lines, "file": "/dev/null"}
    source_offset = {
        "offsets": [{"partition": {"filename": str(file)}, "offset": {"position": 70}}]
    }
    both = ("connector-é-2", "task-é-2-0")

    client.ask("PUT", "/connectors/in-1-x/config", source)
    client.settle("in-1-x", "RUNNING", "RUNNING")
    client.wait("/connectors/in-1-x/offsets", source_offset)
    client.ask("PUT", f"/connectors/{quote('é-2')}/config", {**sink, "tasks.max": "3"})
    client.settle("é-2", *["RUNNING"] * 4)
    client.wait(f"/connectors/{quote('é-2')}/topics", {"é-2": {"topics": [lines]}})
    client.ask("PUT", f"/connectors/{quote('é-2')}/config", sink)
    client.settle("é-2", *["RUNNING"] * 2)
    client.told(both, "RUNNING", "UNASSIGNED", "RUNNING")
    client.ask("PUT", f"/connectors/{quote('é-2')}/pause")
    client.settle("é-2", *["PAUSED"] * 2)
    client.ask("PUT", f"/connectors/{quote('é-2')}/resume")
    client.settle("é-2", *["RUNNING"] * 2)
    client.ask("POST", f"/connectors/{quote('é-2')}/restart?includeTasks=true")
    client.told(both, "UNASSIGNED", "RESTARTING", "RUNNING")
    client.ask("POST", f"/connectors/{quote('é-2')}/restart?onlyFailed=true")
    client.ask("PUT", f"/connectors/{quote('é-2')}/stop")
    client.settle("é-2", "STOPPED")
    client.ask("POST", "/connectors", {"name": "held", "config": sink, "initial_state": "stopped"})
    client.settle("held", "STOPPED")
    client.ask("PUT", "/connectors/gone/config", sink)
    client.settle("gone", *["RUNNING"] * 2)
    client.ask("DELETE", "/connectors/gone")
    client.worker.wait_until(lambda: not worker.states("gone"), SETTLE_SECONDS, "gone to be gone")
    client.ask("PUT", "/admin/loggers/some.logger?scope=cluster", {"level": "dEbug"})

    client.ask("PUT", "/connectors/in-1-x/stop")
    client.settle("in-1-x", "STOPPED")
    for partition, offset in (
        ({"filename": str(file)}, {"position": 7}),
        (
            {"filename": "/a", "n": -1, "f": 1.5, "t": True, "none": None, "text": TRICKY},
            {"position": 1},
        ),
        (
            {"filename": "/b"},
            {"position": 2, "huge": 1e20, "tiny": 1.25e-7, "whole": 3.0, "none": None, "é": TRICKY},
        ),
        ({"filename": "/c"}, {"position": 3}),
        ({"filename": "/c"}, None),
    ):
        client.ask(
            "PATCH",
            "/connectors/in-1-x/offsets",
            {"offsets": [{"partition": partition, "offset": offset}]},
        )
    client.ask(
        "PUT", "/connectors/own/config", {**source, "offsets.storage.topic": f"{worker.group}-own"}
    )
    client.settle("own", *["RUNNING"] * 2)
    client.wait("/connectors/own/offsets", source_offset)


@dataclass(frozen=True)
class Run:
    """One run of a worker: its responses, and its records in the internal topics."""

    worker: WorkerProcess
    answers: Mapping[str, Any]
    topics: Topics


@pytest.fixture(scope="module")
def runs(kafka_broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """The Java worker, then ours: one after the other, since consumer groups are named after
    connectors."""
    servers, root = kafka_broker.bootstrap_servers, tmp_path_factory.mktemp("topics")
    prefix = f"t{uuid.uuid4().hex[:10]}-"
    admin = AdminClient({"bootstrap.servers": servers})
    for created in admin.create_topics([NewTopic(f"{prefix}lines", 1, 1)]).values():
        created.result(30)
    found: dict[str, Run] = {}
    for name, kind in (("java", JavaWorker), ("ours", WorkerProcess)):
        worker = kind(root / name, servers, f"{prefix}{name}", PROPERTIES)
        try:
            worker.start()
            operate(worker, root, f"{prefix}lines")
            answers = everything(worker)
        finally:
            worker.close()
        found[name] = Run(worker, answers, Topics(servers, worker.group, [f"{worker.group}-own"]))
    return found


def everything(worker: WorkerProcess) -> dict[str, Any]:
    """Return everything that clients can read about all connectors."""
    found: dict[str, Any] = {}
    for name, members in worker.get("/connectors?expand=status&expand=info").items():
        path = f"/connectors/{quote(name)}"
        status = members["status"]
        found[name] = {
            "config": members["info"]["config"],
            "states": [status["connector"]["state"], *(task["state"] for task in status["tasks"])],
            "tasks": [task["config"] for task in worker.get(f"{path}/tasks")],
            "topics": worker.get(f"{path}/topics")[name]["topics"],
            "offsets": plainly(worker.get(f"{path}/offsets")["offsets"]),
        }
    return found


def test_internal_topic_records_of_java_encode_to_the_same_bytes(runs: dict[str, Run]) -> None:
    for kind, records in runs["java"].topics.records.items():
        assert records
        for record in records:
            if record.value is not None:
                assert compact_json.encode(compact_json.decode(record.value)) == record.value
            if kind not in ("config", "status"):
                assert compact_json.encode(compact_json.decode(record.key)) == record.key


def test_both_write_the_same_config_records_in_the_same_order(runs: dict[str, Run]) -> None:
    java, ours = (
        [
            (
                record.key.decode(),
                None if record.value is None else compact_json.decode(record.value),
            )
            for record in run.topics.records["config"]
        ]
        for run in (runs["java"], runs["ours"])
    )
    plain = str(ours[1:]).replace(runs["ours"].worker.group, runs["java"].worker.group)
    assert ast.literal_eval(plain) == java[1:]
    assert java[0][0] == ours[0][0] == "session-key"
    assert [sorted(value) for _, value in (java[0], ours[0])] == [
        ["algorithm", "creation-timestamp", "key"]
    ] * 2


def test_both_end_with_the_same_statuses_in_the_same_partitions(runs: dict[str, Run]) -> None:
    java, ours = (last_values(run.topics.records["status"]) for run in (runs["java"], runs["ours"]))
    topics = {key for key in java if key.startswith(b"status-topic-")}
    assert java.keys() - topics == {key for key in ours if not key.startswith(b"status-topic-")}
    for key, (partition, value) in java.items():
        if key in ours:
            assert ours[key][0] == partition
            assert shape(ours[key][1]) == shape(value)


def test_both_tell_the_same_story_of_each_connector_and_task(runs: dict[str, Run]) -> None:
    java, ours = (stories(run.topics.records["status"]) for run in (runs["java"], runs["ours"]))
    assert ours == java


def stories(records: Sequence[Record]) -> dict[str, list[str]]:
    """Return the states of each connector and task in order, without repetitions, which are
    random.
    """
    found: dict[str, list[str]] = {}
    for record in records:
        if not record.key.startswith(b"status-topic-"):
            state = "-" if record.value is None else compact_json.decode(record.value)["state"]
            story = found.setdefault(record.key.decode().removeprefix("status-"), [])
            if story[-1:] != [state]:
                story.append(state)
    return found


def last_values(records: Sequence[Record]) -> dict[bytes, tuple[int, Any]]:
    return {
        record.key: (
            record.partition,
            None if record.value is None else compact_json.decode(record.value),
        )
        for record in records
    }


def shape(value: Any) -> Any:
    """A status without what differs between any two workers, or the members of a topic's record."""
    if value is None or "topic" in value:
        return value and list(value["topic"])
    return list(value), value["state"], value["trace"]


def test_both_write_the_same_offsets_under_the_same_keys(runs: dict[str, Run]) -> None:
    for topic in ("offset", "own"):
        java, ours = (
            last_values(
                run.topics.records[topic if topic == "offset" else f"{run.worker.group}-own"]
            )
            for run in (runs["java"], runs["ours"])
        )
        assert java == ours


def test_internal_topics_of_java_read_as_its_rest_answers(runs: dict[str, Run]) -> None:
    run = runs["java"]
    config, statuses, offsets = run.topics.config(), run.topics.status(), run.topics.offsets()
    own = run.topics.offsets(f"{run.worker.group}-own")
    assert config.connectors() == sorted(run.answers)
    assert statuses.highest_generation > 0
    for name, answers in run.answers.items():
        assert config.configs[name] == answers["config"]
        assert [dict(task) for task in config.all_task_configs(name)] == answers["tasks"]
        assert sorted(topic.topic for topic in statuses.topics(name)) == answers["topics"]
        assert len(statuses.tasks(name)) == len(answers["states"]) - 1
        state = config.target_state(name)
        assert answers["states"][0] == {"STARTED": "RUNNING"}.get(state.value, state.value)
    for name, table in (("in-1-x", offsets), ("own", own)):
        read = [
            {"partition": partition, "offset": offset} for partition, offset in table.offsets(name)
        ]
        assert plainly(read) == run.answers[name]["offsets"]


def plainly(entries: Iterable[Any]) -> list[str]:
    return sorted(json.dumps(entry, sort_keys=True) for entry in entries)


def test_java_worker_answers_the_same_from_our_internal_topics(runs: dict[str, Run]) -> None:
    ours = runs["ours"]
    java = JavaWorker(ours.worker.directory, ours.worker.servers, ours.worker.group, PROPERTIES)
    try:
        java.start()
        for name, answers in ours.answers.items():
            java.wait_for_states(quote(name), *answers["states"])
        answers = everything(java)
        for name, wanted in ours.answers.items():
            assert answers.pop(name) == wanted
        assert not answers
    finally:
        java.close()


# --- compaction

SINK_CONFIG = {
    "connector.class": "FileStreamSink",
    "topics": "none",
    "file": "/dev/null",
    "tasks.max": "2",
}
PAUSED, STOPPED = (
    {"state": "PAUSED", "state.v2": "PAUSED"},
    {"state": "PAUSED", "state.v2": "STOPPED"},
)


def connector(name: str, **more: Any) -> tuple[str, Any]:
    return f"connector-{name}", {"properties": {"name": name, **SINK_CONFIG, **more}}


def task(name: str, number: int, version: str = "1") -> tuple[str, Any]:
    return f"task-{name}-{number}", {"properties": {"task.class": "x", "version": version}}


def commit(name: str, count: Any) -> tuple[str, Any]:
    return f"commit-{name}", {"tasks": count}


def target(name: str, state: Any = PAUSED) -> tuple[str, Any]:
    return f"target-state-{name}", state


def survivors() -> Iterable[tuple[str, Any]]:
    """Return records that compaction, crashes, and other programs may leave, with one connector per
    case.
    """
    c = "whole"
    yield from (connector(c), task(c, 0), task(c, 1), commit(c, 2), target(c))
    c = "in-dashes-1"
    yield from (connector(c), task(c, 0), commit(c, 1), target(c))
    c = "config-gone"
    yield from (task(c, 0), commit(c, 1), target(c))
    c = "config-after-commit"
    yield from (target(c), task(c, 0), commit(c, 1), connector(c))
    c = "commit-gone"
    yield from (connector(c), task(c, 0), target(c))
    c = "tasks-gone"
    yield from (connector(c), commit(c, 2), target(c))
    c = "one-task-gone"
    yield from (connector(c), task(c, 1), commit(c, 2), target(c))
    c = "next-set-half-written"
    yield from (connector(c), task(c, 1), commit(c, 2), task(c, 0, "2"), target(c))
    c = "next-set-not-committed"
    yield from (connector(c), task(c, 0), commit(c, 1), task(c, 0, "2"), task(c, 1, "2"), target(c))
    c = "next-set-of-another-size"
    yield from (
        connector(c),
        commit(c, 1),
        task(c, 0, "2"),
        task(c, 1, "2"),
        commit(c, 2),
        target(c),
    )
    c = "shrunk"
    yield from (connector(c), task(c, 2, "old"), task(c, 0), commit(c, 1), target(c))
    c = "recovered"
    yield from (connector(c), commit(c, 1), task(c, 0), commit(c, 1), target(c))
    c = "emptied"
    yield from (connector(c), task(c, 0), commit(c, 0), target(c, STOPPED))
    c = "emptied-and-paused"
    yield from (connector(c), commit(c, 0), target(c))
    c = "target-first"
    yield from (target(c), connector(c))
    c = "target-only"
    yield target(c)
    c = "target-unknown"
    yield from (target(c), connector(c), target(c, {"state": "PAUSED", "state.v2": "BOGUS"}))
    c = "target-old"
    yield from (connector(c), target(c, {"state": "PAUSED"}))
    c = "target-forgotten"
    yield from (connector(c), target(c, STOPPED), target(c, None), target(c))
    c = "deleted"
    yield from (
        connector(c),
        task(c, 0),
        commit(c, 1),
        target(c),
        (f"connector-{c}", None),
        target(c, None),
    )
    c = "half-deleted"
    yield from (connector(c), task(c, 0), commit(c, 1), target(c), (f"connector-{c}", None))
    c = "made-again"
    yield from (
        connector(c),
        task(c, 0),
        commit(c, 1),
        target(c),
        (f"connector-{c}", None),
        connector(c, again="1"),
    )
    c = "null-value"
    yield from (
        target(c),
        (f"connector-{c}", {"properties": {"name": c, **SINK_CONFIG, "nothing": None}}),
    )
    for c, value in {
        "no-properties": {},
        "list": {"properties": []},
        "text": {"properties": "x"},
    }.items():
        yield from (target(c), connector(c), (f"connector-{c}", value))
    c = "fenced"
    yield from (
        connector(c),
        task(c, 0),
        commit(c, 1),
        (f"tasks-fencing-{c}", {"task-count": 1}),
        target(c),
    )
    yield from (
        ("task-odd", {"properties": {}}),
        ("task-odd-x", {"properties": {}}),
        ("task-whole-0", None),
    )
    yield from (
        ("restart-connector-whole", {"include-tasks": True}),
        ("restart-connector-none", {}),
    )
    yield from (
        ("logger-cluster-some.logger", {"level": "TRACE"}),
        ("logger-cluster-x", {}),
        ("stranger", {"x": 1}),
    )
    yield ("session-key", {"key": 1})


def test_java_and_we_make_the_same_of_what_compaction_leaves(
    kafka_broker: KafkaBroker, tmp_path: Path, topic_prefix: str
) -> None:
    java = JavaWorker(tmp_path, kafka_broker.bootstrap_servers, f"{topic_prefix}g", PROPERTIES)
    name, servers = f"{java.group}-config", {"bootstrap.servers": kafka_broker.bootstrap_servers}
    admin = AdminClient(servers)
    admin.create_topics([NewTopic(name, 1, 1, config={"cleanup.policy": "compact"})])[name].result(
        30
    )
    producer, table = Producer(servers), ConfigTable()
    for offset, (key, value) in enumerate(survivors()):
        data = None if value is None else compact_json.encode(value)
        producer.produce(name, data, key.encode())
        table.apply(offset, key.encode(), data)
    producer.flush(30)
    ours = table.snapshot()
    try:
        java.start()
        java.wait_until(
            lambda: len(java.get("/connectors?expand=status")) == len(ours.configs),
            SETTLE_SECONDS,
            "statuses",
        )
        assert sorted(java.get("/connectors")) == ours.connectors()
        for connector_name in ours.connectors():
            info = java.get(f"/connectors/{connector_name}")
            assert info["config"] == ours.configs[connector_name]
            assert [item["task"] for item in info["tasks"]] == [
                t.task for t in ours.tasks(connector_name)
            ]
            configs = [item["config"] for item in java.get(f"/connectors/{connector_name}/tasks")]
            if connector_name in ours.inconsistent:
                configs = []  # Java answers nulls here
            assert configs == ours.all_task_configs(connector_name), connector_name
            assert java.get(f"/connectors/{connector_name}/status")["connector"]["state"] == (
                "FAILED"
                if connector_name == "null-value"
                else ours.target_state(connector_name).value
            )
    finally:
        java.close()
