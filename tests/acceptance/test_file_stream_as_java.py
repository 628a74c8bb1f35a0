"""FileStream connectors compared with Java's: the same file results in the same records, and the
same topic in the same file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from java_worker import JavaWorker
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker

JSON = "org.apache.kafka.connect.json.JsonConverter"
LINES = (
    b'plain\n\n  blanks around  \nwindows\r\n\r\nold mac\rnext\r\r\nquote " back \\ tab \t nul '
    b"\x00 end\n"
    + "ümläut € 😀\n".encode()
    + b"bad \xff\xfe utf\n"
    + b"x" * 20_000
    + b"\nunfinished"
)
VALUES: tuple[tuple[bytes | None, bytes | None], ...] = (
    (b'"k"', b'{"a":1,"b":[true,null,1.5],"c":{"d":"x"}}'),
    (None, b'"text"'),
    (None, None),
    (None, b"12345678901"),
    (None, b"1.0"),
    (None, b"1e30"),
    (None, b"[]"),
    (None, b"{}"),
    (None, '"ü\\n"'.encode()),
    (None, b"false"),
)


def read(servers: str, topic: str, count: int) -> list[tuple[Any, ...]]:
    """Partition, key, value, headers of the records of a topic."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": f"{topic}-r", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: list[tuple[Any, ...]] = []
    for _ in range(600):
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            found.append((message.partition(), message.key(), message.value(), message.headers()))
        if len(found) >= count:
            break
    consumer.close()
    return found


def offsets(worker: WorkerProcess, name: str) -> Any:
    return worker.get(f"/connectors/{name}/offsets")["offsets"]


def run(
    worker: WorkerProcess, servers: str, shared: str, source: Path, folder: Path, position: int
) -> dict[str, Any]:
    """Have a worker read the file to this position and write the topic `shared` to another; what
    that led to."""
    who = worker.group
    creation = {
        "topic.creation.default.partitions": "1",
        "topic.creation.default.replication.factor": "1",
    }
    reading = {
        "connector.class": "FileStreamSource",
        "file": str(source),
        "topic": f"{who}-lines",
        "batch.size": "2",
    }
    target = folder / f"{who}.out"
    writing = {"connector.class": "FileStreamSink", "file": str(target), "topics": shared}
    schemaless = {
        "key.converter": JSON,
        "key.converter.schemas.enable": "false",
        "value.converter": JSON,
        "value.converter.schemas.enable": "false",
    }
    waiting = {**reading, "topic": f"{who}-never-made"}
    worker.start()
    try:
        worker.put("in", {**reading, **creation})
        worker.put(f"{who}-out", {**writing, **schemaless})  # its name determines a consumer group
        worker.put("waiting", waiting)
        records = read(servers, f"{who}-lines", 11)
        worker.wait_until(
            lambda: [pair["offset"] for pair in offsets(worker, "in")] == [{"position": position}],
            30,
            str(position),
        )
        lines = len(VALUES)
        worker.wait_until(
            lambda: target.exists() and target.read_bytes().count(b"\n") >= lines,
            30,
            "the sink's lines",
        )
        configs: Mapping[str, Any] = {
            t["id"]["task"]: t["config"] for t in worker.get("/connectors/in/tasks")
        }
        return {
            "records": records,
            "partition": [pair["partition"] for pair in offsets(worker, "in")],
            "written": target.read_bytes(),
            "task": {key: value for key, value in configs[0].items() if key != "topic"},
            "without a topic": worker.states("waiting"),
        }
    finally:
        worker.close()


@pytest.mark.long  # a worker in Java and one of ours, one after the other
@pytest.mark.timeout(300)
def test_file_stream_connectors_produce_the_same_data_as_java(
    kafka_broker: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    servers, shared, source = (
        kafka_broker.bootstrap_servers,
        f"{topic_prefix}values",
        tmp_path / "in.txt",
    )
    source.write_bytes(LINES)
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(shared, 1, 1)])[shared].result(30)
    producer = Producer({"bootstrap.servers": servers})
    for key, value in VALUES:
        producer.produce(shared, value, key)
    producer.flush(30)
    whole = LINES.removesuffix(b"unfinished")
    # Java counts UTF-16 characters: after text beyond ASCII, it repeats lines after a restart.
    characters = len(whole.decode(errors="replace")) + 1
    java_worker = JavaWorker(tmp_path / "java", servers, f"{topic_prefix}java")
    java = run(java_worker, servers, shared, source, tmp_path, characters)
    our_worker = WorkerProcess(tmp_path / "ours", servers, f"{topic_prefix}ours")
    assert run(our_worker, servers, shared, source, tmp_path, len(whole)) == java
