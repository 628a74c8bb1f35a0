"""Large messages, rows, and partition counts, slow catalogs, and full disks. Memory does not
grow.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import httpx
import psutil
import pyarrow.compute as pc
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka_offsets import caught_up
from lakehouse import Lakehouse
from sink_case import KAFKA_SECONDS, SinkCase
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker

FAULTS = "faults"  # the file in which processes look for faults, next to the worker's folder
MEGABYTE = 1 << 20
# bytes of a message; by default, a request to a broker may have 104,857,600
LARGEST = 104_000_000
ALL_PROCESSES_MB = 1900  # of which the JVM of the Spark driver 750
BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
STRINGS = "org.apache.kafka.connect.storage.StringConverter"


class MemoryWatch:
    """The largest proportional set size, in MB, of all Python processes and of all JVMs of a worker
    together."""

    def __init__(self, worker: WorkerProcess) -> None:
        self._root = psutil.Process(worker.pid)
        self._ended = threading.Event()
        self.python = self.java = self.together = 0
        self._thread = threading.Thread(target=self._watch, name="memory-watch", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._ended.wait(0.25):
            python = java = 0
            for process in [self._root, *self._root.children(recursive=True)]:
                try:
                    size, name = process.memory_full_info().pss >> 20, process.name()
                except psutil.Error:
                    continue
                if name == "java":
                    java += size
                else:
                    python += size
            self.python, self.java = max(self.python, python), max(self.java, java)
            self.together = max(self.together, python + java)

    def end(self) -> dict[str, int]:
        self._ended.set()
        self._thread.join(10)
        return {"python_mb": self.python, "jvm_mb": self.java, "together_mb": self.together}


@pytest.fixture(scope="module")
def worker(
    kafka_broker: KafkaBroker,
    spark_environment: Mapping[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[WorkerProcess]:
    folder = tmp_path_factory.mktemp("sizes")
    environment = {**spark_environment, "CONNECT_PY_FAULTS": f"@{folder / FAULTS}"}
    running = WorkerProcess(
        folder / "worker", kafka_broker.bootstrap_servers, folder.name, environment=environment
    )
    try:
        yield running.start()
    finally:
        running.close()


@pytest.fixture
def case(worker: WorkerProcess, tmp_path: Path, topic_prefix: str) -> Iterator[SinkCase]:
    made = SinkCase(worker, Lakehouse(tmp_path / "lake"), worker.servers, f"{topic_prefix}sizes")
    yield made
    worker.delete(made.name)


def create(case: SinkCase, partitions: int = 1, topic: str | None = None) -> None:
    config = {"max.message.bytes": str(LARGEST + 1000)}
    name = topic or case.name
    admin = AdminClient({"bootstrap.servers": case.bootstrap_servers})
    admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(KAFKA_SECONDS)


def produce(case: SinkCase, values: list[bytes], topic: str | None = None) -> None:
    """Largest first or last: requests are sent in order."""
    producer = Producer(
        {
            "bootstrap.servers": case.bootstrap_servers,
            "message.max.bytes": LARGEST + 10_000,
            "queue.buffering.max.kbytes": 2 * LARGEST // 1024,
        }
    )
    failed = []
    for number, value in enumerate(values):
        producer.produce(
            topic or case.name,
            value,
            str(number),
            partition=0,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
        if len(value) > MEGABYTE:
            producer.flush(KAFKA_SECONDS)
    assert producer.flush(KAFKA_SECONDS) == 0
    assert not failed


def told(figures: Mapping[str, object]) -> None:
    print(json.dumps(figures))


def await_all(case: SinkCase, seconds: float, *topics: str) -> float:
    """Seconds until everything is committed."""
    began = time.monotonic()
    topics = topics or (case.name,)
    case.worker.wait_until(
        lambda: caught_up(case.bootstrap_servers, case.name, *topics),
        seconds,
        "everything committed",
    )
    return round(time.monotonic() - began, 1)


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_message_of_a_hundred_megabytes_passes_among_others(case: SinkCase) -> None:
    create(case)
    sizes = [10] * 1000 + [MEGABYTE] * 60 + [LARGEST - 1000] + [10] * 1000
    values = [
        b'{"id":%d,"note":"' % number + b"x" * size + b'"}' for number, size in enumerate(sizes)
    ]
    produce(case, values)
    del values
    watch = MemoryWatch(case.worker)
    case.start()
    told({"seconds": await_all(case, 120), **(figures := watch.end())})
    rows = case.lakehouse.rows(case.table).sort_by("id")
    assert rows.column("id").to_pylist() == list(range(len(sizes)))
    assert pc.binary_length(rows.column("note")).to_pylist() == sizes
    assert figures["together_mb"] < ALL_PROCESSES_MB


def faults(case: SinkCase, text: str) -> None:
    """Set the faults from now on; written atomically, because processes read it at any time."""
    path = case.worker.directory.parent / FAULTS
    (path.parent / "next").write_text(text)
    (path.parent / "next").replace(path)


def spread(
    case: SinkCase, topics: tuple[str, ...], partitions: int, round_: int, rows: int
) -> None:
    """Yield rows for every partition of every topic; keys stay in their partition and repeat each
    round.
    """
    producer = Producer({"bootstrap.servers": case.bootstrap_servers})
    for place, topic in enumerate(topics):
        for partition in range(partitions):
            for row in range(rows):
                key = (place * partitions + partition) * rows + row
                producer.produce(
                    topic, json.dumps({"id": key, "round": round_}), str(key), partition
                )
        producer.flush(KAFKA_SECONDS)


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("partitions", "mode"),
    [(30, "upsert"), (150, "append"), (150, "upsert")],
)
def test_hundreds_of_partitions_are_committed_in_cycles_of_all(
    case: SinkCase, partitions: int, mode: str
) -> None:
    topics, rows = (f"{case.name}-a", f"{case.name}-b"), 3
    for topic in topics:
        create(case, partitions, topic)
    more = {
        "topics": ",".join(topics),
        "tasks.max": "2",
        "iceberg.control.commit.interval-ms": "1000",
    }
    if mode == "upsert":
        more |= {
            "iceberg.tables.default-id-columns": "id",
            "iceberg.tables.upsert-mode-enabled": "true",
        }
    watch = MemoryWatch(case.worker)
    seconds = []
    for round_ in range(3):
        spread(case, topics, partitions, round_, rows)
        if round_ == 0:
            case.worker.put(case.name, {**case.config(), **more})
        seconds.append(await_all(case, 100, *topics))
    told({"partitions": 2 * partitions, "mode": mode, "seconds": seconds, **watch.end()})
    found = case.lakehouse.rows(case.table)
    keys = len(topics) * partitions * rows
    if mode == "append":
        assert sorted(found.column("id").to_pylist()) == sorted([*range(keys)] * 3)
    else:
        assert sorted(found.column("id").to_pylist()) == list(range(keys))
        assert set(found.column("round").to_pylist()) == {2}
    case.lakehouse.assert_ledgers_chain(case.table)


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("levels", [40, 60])  # as columns, and row by row
def test_rows_of_two_thousand_columns_and_deep_ones_pass(case: SinkCase, levels: int) -> None:
    create(case)
    columns = 2000
    deep: dict[str, object] = {"end": 1}
    for level in range(levels):
        deep = {f"level{level}": deep, "beside": level}
    rows = [
        {"id": row, **{f"c{n:04}": n * row for n in range(columns)}, "deep": deep}
        for row in range(200)
    ]
    produce(case, [json.dumps(row).encode() for row in rows])
    watch = MemoryWatch(case.worker)
    case.start()
    told({"columns": columns, "levels": levels, "seconds": await_all(case, 100), **watch.end()})
    found = case.lakehouse.rows(case.table).sort_by("id")
    assert found.num_columns == columns + 2
    assert found.to_pylist() == rows


@pytest.mark.timeout(400)  # two runs of a sink with its JVM, and a slow catalog
@pytest.mark.parametrize(
    ("delay", "feeding"),
    [pytest.param(6, 10, marks=pytest.mark.long), pytest.param(30, 100, marks=pytest.mark.long)],
)
def test_slow_catalog_pauses_reading_and_full_disk_fails_the_task(
    case: SinkCase, delay: int, feeding: int
) -> None:
    create(case, 4)
    case.start(
        iceberg__control__commit__interval_ms="300",
        iceberg__control__commit__timeout_ms="5000",
        iceberg__ext__max_staged_bytes=str(MEGABYTE),
        iceberg__ext__staging_memory_bytes=str(MEGABYTE),
        consumer__override__max__poll__interval__ms="6000",
        consumer__override__session__timeout__ms="6000",
    )
    produce_kilobytes(case, range(100))
    await_all(case, 60)
    members = group_members(case)
    faults(case, f"before_compare_and_swap=delay:{delay * 1000}@1+")
    watch, sent, lag = MemoryWatch(case.worker), 100, 0.0
    try:
        began = time.monotonic()
        while time.monotonic() < began + feeding:
            produce_kilobytes(case, range(sent, sent + 500))
            sent += 500
            time.sleep(0.2)
            lag = max(lag, told_lag(case))
    finally:
        faults(case, "")
    figures = watch.end()
    seconds = await_all(case, 120)
    told({"rows": sent, "largest_lag": lag, "seconds": seconds, **figures})
    case.await_log("pausing until the cycle closes")
    assert lag > 1000 or feeding < 30, (
        "the client looks for the ends of paused partitions every 10 s"
    )
    assert group_members(case) == members, "nobody left the group"
    assert figures["python_mb"] < 400

    faults(case, "staging_write=raise:full@1+")
    try:
        case.produce_ids(range(sent, sent + 100))
        trace = case.await_failure()
    finally:
        faults(case, "")
    assert "staged files of cycle" in trace
    assert "No space left on device" in trace
    case.restart_task()
    case.assert_complete(range(sent + 100))


def produce_kilobytes(case: SinkCase, ids: Iterable[int]) -> None:
    case.produce(*({"id": number, "note": "x" * 1000} for number in ids))


def told_lag(case: SinkCase) -> float:
    """Return the largest lag of a partition that the worker reports."""
    lines = httpx.get(f"{case.worker.url}/metrics", timeout=30).text.splitlines()
    return max(
        (
            float(line.split()[-1])
            for line in lines
            if "records_lag_max{" in line and case.name in line
        ),
        default=0,
    )


def group_members(case: SinkCase) -> list[str]:
    admin = AdminClient({"bootstrap.servers": case.bootstrap_servers})
    group = f"connect-{case.name}"
    described = admin.describe_consumer_groups([group])[group].result(KAFKA_SECONDS)
    return sorted(member.member_id for member in described.members)


BAD = b'{"id":7,"note":"' + b"x" * (LARGEST - 1000)  # the end is missing


@pytest.fixture
def large_heap(
    spark_environment: Mapping[str, str], tmp_path: Path, topic_prefix: str
) -> Iterator[SinkCase]:
    """A broker with memory for several requests of a hundred megabytes, and a dedicated worker."""
    with KafkaBroker(java_options=("-Xmx1500m",)) as broker:
        worker = WorkerProcess(
            tmp_path / "worker",
            broker.bootstrap_servers,
            topic_prefix,
            environment=spark_environment,
        )
        try:
            yield SinkCase(
                worker.start(), Lakehouse(tmp_path / "lake"), worker.servers, f"{topic_prefix}sizes"
            )
        finally:
            worker.close()


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("letters", ["refused", "topic", "table"])
def test_a_bad_message_of_a_hundred_megabytes_is_not_lost(
    large_heap: SinkCase, letters: str
) -> None:
    case = large_heap
    create(case)
    more = {"errors.tolerance": "all"}
    if letters == "table":
        more["errors.deadletterqueue.iceberg.table"] = "db.letters"
    else:
        more["errors.deadletterqueue.topic.name"] = case.dead_letters
        more["errors.deadletterqueue.topic.replication.factor"] = "1"
    if letters == "topic":
        create(case, topic=case.dead_letters)
        more["producer.override.max.request.size"] = str(LARGEST + 10_000)
    produce(case, [b'{"id":1}', BAD, b'{"id":2}'])
    watch = MemoryWatch(case.worker)
    case.worker.put(case.name, {**case.config(), **more})
    if letters == "refused":
        trace = case.await_failure()
        told({"letters": letters, **watch.end()})
        assert "failed to write a record to dead-letter topic" in trace
        assert case.offset() <= 1
        return
    told({"letters": letters, "seconds": await_all(case, 120), **(figures := watch.end())})
    assert case.ids() == [1, 2]
    assert figures["together_mb"] < ALL_PROCESSES_MB
    if letters == "table":
        assert case.lakehouse.rows("db.letters").column("value").to_pylist() == [BAD]
    else:
        consumer = Consumer(
            {
                "bootstrap.servers": case.bootstrap_servers,
                "group.id": "r",
                "receive.message.max.bytes": 2**31 - 1,
            }
        )
        consumer.assign([TopicPartition(case.dead_letters, 0, 0)])
        message = consumer.poll(60)
        consumer.close()
        assert message is not None
        assert message.value() == BAD
