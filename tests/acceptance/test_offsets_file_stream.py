"""Offsets of FileStream connectors, read and changed over REST on a worker that runs as a
process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker

STRING = "org.apache.kafka.connect.storage.StringConverter"
CONVERTERS = {"key.converter": STRING, "value.converter": STRING}
SECONDS = 30.0
STOPPED_ONLY = (
    "Connectors must be in the STOPPED state before their offsets can be modified. This can be "
    "done for the specified "
    "connector by issuing a 'PUT' request to the '/connectors/{}/stop' endpoint"
)
ZOMBIES = (
    "Failed to {verb} consumer group offsets for connector {name} either because its tasks "
    "haven't stopped completely yet or the connector was resumed before the request to {verb} its "
    "offsets could be successfully completed. If the connector is in a stopped state, this "
    "operation can be safely retried. If it doesn't eventually succeed, the Connect cluster may "
    "need to be restarted to get rid of the zombie sink tasks."
)


@pytest.fixture(scope="module")
def worker(
    kafka_broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WorkerProcess]:
    directory = tmp_path_factory.mktemp("offsets")
    process = WorkerProcess(directory, kafka_broker.bootstrap_servers, "offsets-file-stream")
    try:
        yield process.start()
    finally:
        process.close()


@pytest.fixture(scope="module")
def client(worker: WorkerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=worker.url, timeout=100) as client:
        yield client


class Offsets:
    """The offsets of one connector."""

    def __init__(self, worker: WorkerProcess, client: httpx.Client, name: str) -> None:
        self._worker = worker
        self._client = client
        self.name = name
        self._url = f"/connectors/{name}"

    def listed(self) -> list[tuple[Any, Any]]:
        return [
            (o["partition"], o["offset"])
            for o in self._client.get(f"{self._url}/offsets").json()["offsets"]
        ]

    def patch(self, *entries: Mapping[str, Any]) -> tuple[int, str]:
        return self._told(
            self._client.patch(f"{self._url}/offsets", json={"offsets": list(entries)})
        )

    def delete(self) -> tuple[int, str]:
        return self._told(self._client.delete(f"{self._url}/offsets"))

    def _told(self, response: httpx.Response) -> tuple[int, str]:
        return response.status_code, response.json()["message"]

    def stop(self) -> None:
        assert self._client.put(f"{self._url}/stop").status_code == 204
        self._worker.wait_for_states(self.name, "STOPPED", seconds=SECONDS)

    def resume(self) -> None:
        assert self._client.put(f"{self._url}/resume").status_code == 202


def create(broker: KafkaBroker, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)


def kafka(topic: str, partition: object, offset: object = ...) -> dict[str, Any]:
    entry: dict[str, Any] = {"partition": {"kafka_topic": topic, "kafka_partition": partition}}
    if offset is not ...:
        entry["offset"] = None if offset is None else {"kafka_offset": offset}
    return entry


@pytest.mark.timeout(150)  # a worker starts, a connector stops and starts again
def test_stopped_sink_resumes_at_altered_offsets(
    worker: WorkerProcess,
    client: httpx.Client,
    kafka_broker: KafkaBroker,
    topic_prefix: str,
    tmp_path: Path,
) -> None:
    topic, name, target = f"{topic_prefix}t", f"{topic_prefix}sink", tmp_path / "out.txt"
    create(kafka_broker, topic, partitions=2)
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers})
    for number in range(5):
        producer.produce(topic, str(number), partition=0)
    producer.flush(10)
    offsets = Offsets(worker, client, name)
    assert (
        client.get(f"/connectors/{name}/offsets").json()["message"] == f"Connector {name} not found"
    )
    worker.put(
        name,
        {"connector.class": "FileStreamSink", "topics": topic, "file": str(target), **CONVERTERS},
    )
    first = ({"kafka_partition": 0, "kafka_topic": topic}, {"kafka_offset": 5})
    worker.wait_until(lambda: first in offsets.listed(), SECONDS, "offsets to be committed")
    assert offsets.patch(kafka(topic, 0, 1)) == (400, STOPPED_ONLY.format(name))
    assert client.put(f"/connectors/{name}/pause").status_code == 202
    assert offsets.delete() == (400, STOPPED_ONLY.format(name))

    offsets.stop()
    assert offsets.patch(kafka(topic, "0", "3")) == (
        200,
        "The offsets for this connector have been altered successfully",
    )
    assert ({"kafka_partition": 0, "kafka_topic": topic}, {"kafka_offset": 3}) in offsets.listed()
    failed = f"Failed to alter consumer group offsets for connector {name}"
    assert offsets.patch(kafka(topic, 0, {})) == (
        400,
        "Failed to parse the following Kafka offset value in the provided offsets: '{}'. "
        "Offset values for sink connectors need to be integers.",
    )
    assert offsets.patch(kafka(topic, 0, -1)) == (
        500,
        f"Failed to modify offsets for sink connector {name}",
    )
    assert offsets.patch(kafka(f"{topic}-none", 0, 1)) == (500, failed)
    assert offsets.patch(kafka(topic, 7, 1)) == (500, failed)
    offsets.resume()
    worker.wait_until(
        lambda: target.read_text().split() == ["0", "1", "2", "3", "4", "3", "4"],
        SECONDS,
        "lines to come again",
    )
    worker.wait_until(lambda: first in offsets.listed(), SECONDS, "offsets to be committed")

    offsets.stop()
    zombie = Consumer(
        {"bootstrap.servers": kafka_broker.bootstrap_servers, "group.id": f"connect-{name}"}
    )
    zombie.subscribe([topic])
    worker.wait_until(
        lambda: zombie.poll(0.1) is not None or bool(zombie.assignment()), SECONDS, "a member"
    )
    assert offsets.patch(kafka(topic, 0, 0)) == (500, ZOMBIES.format(name=name, verb="alter"))
    assert offsets.patch(kafka(topic, 0)) == (500, ZOMBIES.format(name=name, verb="alter"))
    assert offsets.delete() == (500, ZOMBIES.format(name=name, verb="reset"))
    zombie.close()
    # the last one counts
    assert offsets.patch(kafka(topic, 1, 9), kafka(topic, 0, 4), kafka(topic, 0, None))[0] == 200
    # beyond the end
    assert offsets.listed() == [({"kafka_partition": 1, "kafka_topic": topic}, {"kafka_offset": 9})]
    done = (200, "The offsets for this connector have been reset successfully")
    assert offsets.delete() == done
    assert offsets.listed() == []
    assert offsets.delete() == done  # a missing group is fine
    assert offsets.patch(kafka(topic, 0, None)) == (500, failed)
    worker.delete(name)


@pytest.mark.timeout(150)  # a connector stops and starts again, twice
@pytest.mark.parametrize("own", [False, True], ids=["the worker's topic", "a topic of its own"])
def test_stopped_source_resumes_at_altered_offsets(
    worker: WorkerProcess,
    client: httpx.Client,
    kafka_broker: KafkaBroker,
    topic_prefix: str,
    tmp_path: Path,
    own: bool,
) -> None:
    topic, name, source = f"{topic_prefix}t", f"{topic_prefix}source", tmp_path / "in.txt"
    source.write_text("one\ntwo\nthree\n")
    reader = Consumer(
        {
            "bootstrap.servers": kafka_broker.bootstrap_servers,
            "group.id": topic,
            "auto.offset.reset": "earliest",
        }
    )
    create(kafka_broker, topic, partitions=1)
    reader.subscribe([topic])
    lines: list[str] = []

    def arrived(*wanted: str) -> bool:
        message = reader.poll(0.1)
        if message is not None and message.error() is None:
            lines.append(message.value().decode())
        return lines == list(wanted)

    config = {
        "connector.class": "FileStreamSource",
        "topic": topic,
        "file": str(source),
        **CONVERTERS,
    }
    if own:
        config["offsets.storage.topic"] = f"{topic}-offsets"
    offsets = Offsets(worker, client, name)
    worker.put(name, config)
    worker.wait_until(lambda: arrived("one", "two", "three"), SECONDS, "lines")
    file = {"filename": str(source)}
    worker.wait_until(
        lambda: offsets.listed() == [(file, {"position": 14})], SECONDS, "offsets to be committed"
    )
    assert offsets.patch({"partition": file, "offset": {"position": 0}}) == (
        400,
        STOPPED_ONLY.format(name),
    )

    offsets.stop()
    assert offsets.patch({"partition": file, "offset": {}}) == (
        500,
        "Offset objects should either be null or contain the key 'position'",
    )
    assert offsets.patch({"partition": file, "offset": {"position": 3, "z": [1]}}) == (
        500,
        "Offsets may only contain primitive types as values, but field z contains ARRAY",
    )
    altered = (200, "The offsets for this connector have been altered successfully")
    assert offsets.patch({"partition": file, "offset": {"position": 8, "more": "kept"}}) == altered
    assert offsets.listed() == [(file, {"position": 8, "more": "kept"})]
    offsets.resume()
    worker.wait_until(
        lambda: arrived("one", "two", "three", "three"), SECONDS, "a line to come again"
    )

    offsets.stop()
    assert (
        offsets.patch({"partition": None, "offset": None}, {"partition": {}, "offset": None})
        == altered
    )
    done = (200, "The offsets for this connector have been reset successfully")
    assert offsets.delete() == done
    assert offsets.listed() == []
    assert offsets.delete() == done
    offsets.resume()
    again = ("one", "two", "three", "three", "one", "two", "three")
    worker.wait_until(lambda: arrived(*again), SECONDS, "all lines to come again")
    reader.close()
    worker.delete(name)


@pytest.mark.long
@pytest.mark.timeout(150)  # a dedicated worker, on two shared cores
def test_with_exactly_once_sources_zombies_are_fenced_before_offsets_change(
    kafka_broker: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    topic, name, source, group = (
        f"{topic_prefix}t",
        "source",
        tmp_path / "in.txt",
        f"{topic_prefix}g",
    )
    source.write_text("one\ntwo\n")
    create(kafka_broker, topic, partitions=1)
    properties = {"exactly.once.source.support": "enabled"}
    worker = WorkerProcess(tmp_path / "worker", kafka_broker.bootstrap_servers, group, properties)
    settings = {
        "bootstrap.servers": kafka_broker.bootstrap_servers,
        "transactional.id": f"{group}-{name}-0",
    }
    file = {"filename": str(source)}
    try:
        worker.start()
        with httpx.Client(base_url=worker.url, timeout=100) as client:
            offsets = Offsets(worker, client, name)
            worker.put(
                name,
                {
                    "connector.class": "FileStreamSource",
                    "topic": topic,
                    "file": str(source),
                    **CONVERTERS,
                },
            )
            worker.wait_until(
                lambda: offsets.listed() == [(file, {"position": 8})], SECONDS, "offsets"
            )
            offsets.stop()
            zombie = Producer(settings)
            zombie.init_transactions(SECONDS)
            zombie.begin_transaction()
            zombie.produce(
                f"{group}-offset", b'{"position":8}', f'["{name}",{{"filename":"{source}"}}]'
            )
            zombie.flush(SECONDS)
            assert offsets.patch({"partition": file, "offset": {"position": 4}})[0] == 200
            with pytest.raises(KafkaException):
                zombie.commit_transaction(SECONDS)
            assert offsets.listed() == [(file, {"position": 4})]
            offsets.resume()
            worker.wait_until(
                lambda: offsets.listed() == [(file, {"position": 8})], SECONDS, "offsets"
            )
        reader = Consumer({"bootstrap.servers": kafka_broker.bootstrap_servers, "group.id": topic})
        reader.assign([TopicPartition(topic, 0, 0)])
        found = [m.value() for m in reader.consume(4, 5.0) if m.error() is None]
        reader.close()
        assert found == [b"one", b"two", b"two"]
    finally:
        worker.close()
