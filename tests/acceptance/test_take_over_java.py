"""Java's workers stop, ours start on the same three topics with the same properties; and back
again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from fixtures.topic_reader import read_topic
from java_worker import JavaWorker
from worker_process import WorkerProcess, free_port

from connect_py.embedded.broker import KafkaBroker

SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
STRINGS = "org.apache.kafka.connect.storage.StringConverter"
FOREIGN = "foreign"
FOREIGN_CONFIG = {
    "name": FOREIGN,
    "connector.class": "com.example.ForeignConnector",
    "secret": "${file:/x:y}",
}
FOREIGN_TASK = {"task.class": "com.example.ForeignTask", "part": "1"}
SETTLE_SECONDS = 60.0
START_FAILED = 2  # exit status
PROPERTIES = {
    "plugin.discovery": "service_load",
    "offset.flush.interval.ms": "500",
    "offset.storage.partitions": "3",
    "status.storage.partitions": "2",
    "key.converter": STRINGS,
    "value.converter": STRINGS,
}

pytestmark = pytest.mark.timeout(400)


@dataclass
class Place:
    """One `worker.properties`, the two kinds of workers that run on it, and the files of the
    connectors."""

    java: JavaWorker
    ours: WorkerProcess
    bootstrap_servers: str
    folder: Path
    others: list[WorkerProcess] = field(default_factory=list)

    def other(self, kind: type[WorkerProcess]) -> WorkerProcess:
        """A worker of the same group on another port."""
        folder = self.folder / f"other-{kind.__name__}"
        self.others.append(kind(folder, self.bootstrap_servers, self.java.group, PROPERTIES))
        return self.others[-1]

    def close(self) -> None:
        for worker in (*self.others, self.java, self.ours):
            worker.close()


@pytest.fixture
def place(kafka_broker: KafkaBroker, tmp_path: Path, topic_prefix: str) -> Iterator[Place]:
    topic, admin = (
        f"{topic_prefix}t",
        AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers}),
    )
    for created in admin.create_topics(
        [NewTopic(topic, 1, 1), NewTopic(f"{topic}-other", 1, 1)]
    ).values():
        created.result(30)
    port, servers, group = free_port(), kafka_broker.bootstrap_servers, f"{topic_prefix}g"
    java = JavaWorker(tmp_path, servers, group, PROPERTIES, port=port)
    ours = WorkerProcess(tmp_path, servers, group, PROPERTIES, port=port)
    assert java.properties.read_bytes() == ours.properties.read_bytes()
    place = Place(java, ours, servers, tmp_path)
    try:
        yield place
    finally:
        place.close()


class Lines:
    """Numbered lines, appended to the file that the source reads; the sink writes them to
    another."""

    def __init__(self, folder: Path) -> None:
        self.source, self.sink = folder / "in.txt", folder / "out.txt"
        self._written = 0

    def append(self, count: int) -> None:
        with self.source.open("a") as file:
            file.writelines(
                f"line {number}\n" for number in range(self._written, self._written + count)
            )
        self._written += count

    def arrived(self) -> list[str]:
        return self.sink.read_text().splitlines() if self.sink.exists() else []

    def wait(self, worker: WorkerProcess) -> None:
        """Until every line written has arrived; each must have arrived once, in order."""
        worker.wait_until(
            lambda: len(self.arrived()) >= self._written, SETTLE_SECONDS, "the lines to arrive"
        )
        assert self.arrived() == [f"line {number}" for number in range(self._written)]


def everything(worker: WorkerProcess) -> dict[str, Any]:
    """Return everything that clients can read about all connectors, without generations and
    traces.
    """
    found: dict[str, Any] = {}
    for name, members in worker.get("/connectors?expand=status&expand=info").items():
        if name == FOREIGN:
            continue  # has no offsets that anybody could read
        status = members["status"]
        found[name] = {
            "info": members["info"],
            "config": worker.get(f"/connectors/{name}/config"),
            "states": [status["connector"]["state"], *(task["state"] for task in status["tasks"])],
            "worker": status["connector"]["worker_id"],
            "tasks": worker.get(f"/connectors/{name}/tasks"),
            "topics": sorted(worker.get(f"/connectors/{name}/topics")[name]["topics"]),
            "offsets": worker.get(f"/connectors/{name}/offsets"),
        }
    return found


@pytest.mark.long
def test_connectors_go_from_java_to_ours_and_back(place: Place, topic_prefix: str) -> None:
    lines, topic = Lines(place.folder), f"{topic_prefix}t"
    source = {"connector.class": "FileStreamSource", "file": str(lines.source), "topic": topic}
    rewound = {**source, "file": str(place.folder / "other.txt"), "topic": f"{topic}-other"}
    sink = {"connector.class": SINK, "topics": topic, "file": str(lines.sink)}
    idle = {**sink, "file": "/dev/null"}
    partition = {"filename": rewound["file"]}
    Path(rewound["file"]).write_text("".join(f"{number}\n" for number in range(8)))
    lines.append(50)

    java = place.java.start()
    for name, config in {
        "in-1": source,
        "copied-out": sink,
        "rewound": rewound,
        "paused": idle,
        "stopped-2": idle,
    }.items():
        java.put(name, config)
    java.put("deleted", idle)
    for name in ("rewound", "paused", "stopped-2", "deleted"):
        java.wait_for_states(name, "RUNNING", "RUNNING")
    wait_for_offsets(java, "rewound", [{"position": 16}])
    for name in ("rewound", "stopped-2"):
        call(java, "PUT", name, "stop")
        java.wait_for_states(name, "STOPPED")
    call(java, "PUT", "paused", "pause")
    java.wait_for_states("paused", "PAUSED", "PAUSED")
    java.delete("deleted")
    set_offsets(java, "rewound", partition, {"position": 8})
    set_offsets(
        java, "stopped-2", {"kafka_topic": topic, "kafka_partition": 0}, {"kafka_offset": 7}
    )
    lines.wait(java)
    wait_for_offsets(java, "copied-out", [{"kafka_offset": 50}])
    left = everything(java)
    java.stop()
    add_foreign(place)

    ours = place.ours.start()
    for name, members in left.items():
        ours.wait_for_states(name, *members["states"])
    assert everything(ours) == left
    ours.wait_for_states(FOREIGN, "FAILED", "FAILED")

    lines.append(20)
    lines.wait(ours)
    call(ours, "PUT", "in-1", "pause")
    ours.wait_for_states("in-1", "PAUSED", "PAUSED")
    ours.delete("paused")
    patched = httpx.patch(
        f"{ours.url}/connectors/copied-out/config",
        json={"tasks.max": "2", "note": "é\n"},
        timeout=100,
    )
    assert patched.status_code == 200
    ours.wait_for_states("copied-out", "RUNNING", "RUNNING", "RUNNING")
    call(ours, "PUT", "stopped-2", "resume")
    ours.wait_for_states("stopped-2", "RUNNING", "RUNNING")
    set_offsets(ours, "rewound", partition, {"position": 12})
    ours.put("made-here", {**idle, "tasks.max": "2"})
    ours.wait_for_states("made-here", "RUNNING", "RUNNING", "RUNNING")
    call(ours, "PUT", "made-here", "stop")
    ours.wait_for_states("made-here", "STOPPED")
    for name in ("copied-out", "stopped-2"):
        wait_for_offsets(ours, name, [{"kafka_offset": 70}])
    left = everything(ours)
    assert sorted(left) == ["copied-out", "in-1", "made-here", "rewound", "stopped-2"]
    ours.stop()
    told = generations(place)

    lines.append(30)  # while nobody works
    java.start()
    for name, members in left.items():
        java.wait_for_states(name, *members["states"])
    news = [number for where, number in generations(place).items() if where not in told]
    assert min(news) >= max(told.values())  # or its bad news would not count
    assert everything(java) == left
    assert java.get(f"/connectors/{FOREIGN}/config") == FOREIGN_CONFIG
    assert [task["config"] for task in java.get(f"/connectors/{FOREIGN}/tasks")] == [FOREIGN_TASK]
    call(java, "PUT", "in-1", "resume")
    lines.wait(java)
    call(java, "PUT", "rewound", "resume")
    wait_for_offsets(java, "rewound", [{"position": 16}])
    read = read_topic(place.bootstrap_servers, rewound["topic"])
    assert [record.text for record in read] == [*map(str, range(8)), "6", "7"]


def generations(place: Place) -> dict[tuple[int, int], int]:
    """Return the generation of each status in the topic, by partition and offset."""
    return {
        (record.partition, record.offset): json.loads(record.text)["generation"]
        for record in read_topic(place.bootstrap_servers, f"{place.java.group}-status")
        if record.value is not None
        and (record.key or b"").startswith((b"status-connector-", b"status-task-"))
    }


def add_foreign(place: Place) -> None:
    """Add a connector with a class that no worker has: it must survive unchanged."""
    producer = Producer({"bootstrap.servers": place.bootstrap_servers})
    for key, value in (
        (f"connector-{FOREIGN}", {"properties": FOREIGN_CONFIG}),
        (f"task-{FOREIGN}-0", {"properties": FOREIGN_TASK}),
        (f"commit-{FOREIGN}", {"tasks": 1}),
    ):
        producer.produce(f"{place.java.group}-config", json.dumps(value).encode(), key.encode())
    producer.flush(SETTLE_SECONDS)


def call(worker: WorkerProcess, method: str, name: str, verb: str) -> None:
    response = httpx.request(method, f"{worker.url}/connectors/{name}/{verb}", timeout=100)
    assert response.status_code in (202, 204), response.text


def set_offsets(
    worker: WorkerProcess, name: str, partition: Mapping[str, Any], offset: Mapping[str, Any]
) -> None:
    body = {"offsets": [{"partition": partition, "offset": offset}]}

    # the consumer group of a sink that has just stopped may still have its member
    def done() -> bool:
        return (
            httpx.patch(
                f"{worker.url}/connectors/{name}/offsets", json=body, timeout=100
            ).status_code
            == 200
        )

    worker.wait_until(done, SETTLE_SECONDS, f"offsets of {name} to be changed")


def wait_for_offsets(worker: WorkerProcess, name: str, offsets: list[dict[str, int]]) -> None:
    def committed() -> bool:
        return [
            entry["offset"] for entry in worker.get(f"/connectors/{name}/offsets")["offsets"]
        ] == offsets

    worker.wait_until(committed, SETTLE_SECONDS, f"offsets of {name} to be {offsets}")


@pytest.mark.long
def test_java_worker_and_ours_refuse_to_share_a_group(place: Place) -> None:
    java = place.java.start()
    second = place.other(WorkerProcess).start(wait=False)
    assert second.wait(SETTLE_SECONDS) == START_FAILED
    assert "probably Java workers; stop all of them" in second.log_end()
    assert java.healthy()
    java.stop()

    ours = place.ours.start()
    third = place.other(JavaWorker).start(wait=False)
    refused = "InconsistentGroupProtocolException"
    third.wait_until(
        lambda: refused in third.log_path.read_text(), SETTLE_SECONDS, "Java to be refused"
    )
    third.kill_group()  # it takes three quarters of a minute to stop without help
    assert ours.healthy()
