"""Sources with exactly-once support on a worker process that is killed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker

STRING = "org.apache.kafka.connect.storage.StringConverter"
ARRIVE_SECONDS = 60.0


@pytest.fixture
def worker(kafka_broker: KafkaBroker, topic_prefix: str, tmp_path: Path) -> Iterator[WorkerProcess]:
    properties = {"exactly.once.source.support": "enabled", "session.timeout.ms": "4000"}
    process = WorkerProcess(
        tmp_path / "worker", kafka_broker.bootstrap_servers, f"{topic_prefix}g", properties
    )
    try:
        yield process
    finally:
        process.close()


def config(path: Path, topic: str, **more: str) -> dict[str, str]:
    return {
        "connector.class": "FileStreamSource",
        "file": str(path),
        "topic": topic,
        "batch.size": "20",
        "exactly.once.support": "required",
        "key.converter": STRING,
        "value.converter": STRING,
        "topic.creation.default.partitions": "1",
        "topic.creation.default.replication.factor": "1",
        "producer.override.transaction.timeout.ms": "20000",
        **more,
    }


class Committed:
    """The records of a topic for a reader of committed records."""

    def __init__(self, servers: str, topic: str) -> None:
        self.values: list[str] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": f"{topic}-reader",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 500,
            }
        )
        self._consumer.subscribe([topic])

    def read(self) -> list[str]:
        while (message := self._consumer.poll(0.2)) is not None:
            if message.error() is None:
                self.values.append((message.value() or b"").decode())
        return self.values

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture
def lines(kafka_broker: KafkaBroker, topic_prefix: str) -> Iterator[Committed]:
    reader = Committed(kafka_broker.bootstrap_servers, f"{topic_prefix}lines")
    yield reader
    reader.close()


class Writer:
    """Appends numbered lines to a file until it is stopped."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.written = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="writer")
        path.touch()

    def _run(self) -> None:
        with self.path.open("a") as file:
            while not self._stopping.wait(0.005):
                file.writelines(f"line {self.written + n}\n" for n in range(5))
                file.flush()
                self.written += 5

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()


def kills(worker: WorkerProcess, lines: Committed, path: Path, topic: str, times: int) -> None:
    worker.start()
    with Writer(path) as writer:
        worker.put("source", config(path, topic))
        for _ in range(times):
            seen = len(lines.values)
            worker.wait_until(
                lambda seen=seen: len(lines.read()) > seen + 200, ARRIVE_SECONDS, "lines to arrive"
            )
            worker.kill_group()
            worker.start()
    expected = [f"line {n}" for n in range(writer.written)]
    worker.wait_until(
        lambda: len(lines.read()) >= len(expected), ARRIVE_SECONDS, f"{len(expected)} lines"
    )
    assert lines.read() == expected


# in every run: test_zombie_source_task_is_fenced_and_its_open_transaction_aborted
@pytest.mark.long
@pytest.mark.timeout(400)  # two runs of a worker, a lease in between
def test_source_worker_killed_mid_stream_writes_each_line_exactly_once(
    worker: WorkerProcess, lines: Committed, topic_prefix: str, tmp_path: Path
) -> None:
    kills(worker, lines, tmp_path / "in.txt", f"{topic_prefix}lines", 1)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_worker_killed_six_times_writes_each_line_exactly_once(
    worker: WorkerProcess, lines: Committed, topic_prefix: str, tmp_path: Path
) -> None:
    kills(worker, lines, tmp_path / "in.txt", f"{topic_prefix}lines", 6)


@pytest.mark.timeout(400)
def test_zombie_source_task_is_fenced_and_its_open_transaction_aborted(
    worker: WorkerProcess,
    lines: Committed,
    kafka_broker: KafkaBroker,
    topic_prefix: str,
    tmp_path: Path,
) -> None:
    topic, path = f"{topic_prefix}lines", tmp_path / "in.txt"
    path.write_text("one\n")
    worker.start()
    worker.put("source", config(path, topic))
    worker.wait_until(lambda: lines.read() == ["one"], ARRIVE_SECONDS, "the first line")
    zombie = Producer(
        {
            "bootstrap.servers": kafka_broker.bootstrap_servers,
            "transactional.id": f"{topic_prefix}g-source-0",
        }
    )
    zombie.init_transactions(30)  # now the running task is the zombie
    with path.open("a") as more:
        more.write("two\n")
    worker.wait_for_states("source", "RUNNING", "FAILED")
    assert "was fenced" in worker.trace("source")
    zombie.begin_transaction()
    zombie.produce(topic, b"from the grave")
    zombie.flush(30)
    restart = worker.post("/connectors/source/tasks/0/restart")
    assert restart.status_code == 204
    worker.wait_until(lambda: len(lines.read()) >= 2, ARRIVE_SECONDS, "the second line")
    with pytest.raises(KafkaException):
        zombie.commit_transaction(10)
    assert lines.read() == ["one", "two"]


def owner_of(workers: list[WorkerProcess], name: str) -> WorkerProcess:
    """Return the worker that runs task 0, as soon as it is reported."""
    alive = workers[0]

    def running() -> WorkerProcess | None:
        task = alive.get(f"/connectors/{name}/tasks/0/status")
        if task["state"] != "RUNNING":
            return None
        return next((worker for worker in workers if worker.url.endswith(task["worker_id"])), None)

    alive.wait_until(lambda: running() is not None, ARRIVE_SECONDS, "the task to run")
    found = running()
    assert found is not None
    return found


@pytest.mark.long
@pytest.mark.timeout(600)
def test_task_moved_between_workers_writes_each_line_exactly_once(
    kafka_broker: KafkaBroker, lines: Committed, topic_prefix: str, tmp_path: Path
) -> None:
    properties = {
        "exactly.once.source.support": "enabled",
        "session.timeout.ms": "4000",
        "scheduled.rebalance.max.delay.ms": "0",
    }
    servers, topic, path = (
        kafka_broker.bootstrap_servers,
        f"{topic_prefix}lines",
        tmp_path / "in.txt",
    )
    workers = [
        WorkerProcess(tmp_path / f"w{n}", servers, f"{topic_prefix}g", properties) for n in range(2)
    ]

    def more_lines(worker: WorkerProcess, count: int) -> None:
        seen = len(lines.values)
        worker.wait_until(lambda: len(lines.read()) > seen + count, ARRIVE_SECONDS, "more lines")

    try:
        for worker in workers:
            worker.start()
        with Writer(path) as writer:
            workers[0].put("source", config(path, topic))
            for _ in range(2):
                more_lines(workers[0], 200)
                dying = owner_of(workers, "source")
                (other,) = [worker for worker in workers if worker is not dying]
                dying.kill_group()
                more_lines(other, 200)
                dying.start()
            sleeping = owner_of(workers, "source")
            (other,) = [worker for worker in workers if worker is not sleeping]
            asleep = [process for process in sleeping.processes() if process.is_running()]
            for process in asleep:
                process.suspend()
            more_lines(other, 200)
            for process in asleep:
                if process.is_running():
                    process.resume()
            more_lines(other, 200)
        expected = [f"line {n}" for n in range(writer.written)]
        other.wait_until(
            lambda: len(lines.read()) >= len(expected), ARRIVE_SECONDS, f"{len(expected)} lines"
        )
        assert lines.read() == expected
    finally:
        for worker in workers:
            worker.close()
