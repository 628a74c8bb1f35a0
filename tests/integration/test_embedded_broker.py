"""The embedded broker against a real client."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from connect_py.embedded.broker import BrokerError, KafkaBroker


def make_topic(broker: KafkaBroker, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(name, num_partitions=1, replication_factor=1)])[name].result(10)


def produce(broker: KafkaBroker, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    # 1970: kept because nothing expires by time
    producer.produce(topic, value=value, timestamp=1_000)
    assert producer.flush(10) == 0


def consume(broker: KafkaBroker, topic: str, count: int, seconds: float = 20) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": f"{topic}-readers",
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 1_000,
            "heartbeat.interval.ms": 300,
        }
    )
    try:
        consumer.subscribe([topic])
        return [message.value() for message in consumer.consume(count, timeout=seconds)]
    finally:
        consumer.close()


def test_session_broker_takes_records_and_serves_a_group_at_once(
    kafka_broker: KafkaBroker, topic_prefix: str
) -> None:
    topic = f"{topic_prefix}orders"
    make_topic(kafka_broker, topic)
    produce(kafka_broker, topic, b"one")
    started = time.monotonic()
    assert consume(kafka_broker, topic, 1) == [b"one"]
    assert time.monotonic() - started < 10  # the default would wait three seconds for more members


def test_topic_does_not_appear_because_somebody_asked(
    kafka_broker: KafkaBroker, topic_prefix: str
) -> None:
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers})
    assert (
        admin.list_topics(f"{topic_prefix}nobody", timeout=10).topics[f"{topic_prefix}nobody"].error
    )
    assert f"{topic_prefix}nobody" not in admin.list_topics(timeout=10).topics


@pytest.mark.long
def test_killed_broker_comes_back_on_its_port_with_its_data() -> None:
    with KafkaBroker() as broker:
        address = broker.bootstrap_servers
        make_topic(broker, "kept")
        produce(broker, "kept", b"before")
        broker.kill()
        assert not broker.running
        broker.start()
        assert broker.bootstrap_servers == address
        assert consume(broker, "kept", 1) == [b"before"]

        broker.pause()
        admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=1)
        broker.resume()
        assert "kept" in admin.list_topics(timeout=20).topics

        broker.pause()
        broker.stop()  # a graceful stop works anyway
        broker.start()
        assert consume(broker, "kept", 1, seconds=3) == []  # the group's offset was kept too
        directory = broker.directory
    assert not directory.exists()


def test_start_that_fails_tells_what_the_broker_said() -> None:
    with pytest.raises(BrokerError, match=r"log\.retention\.hours"):
        KafkaBroker(properties={"log.retention.hours": "soon"}).__enter__()


def test_port_that_is_taken_is_named_as_the_reason(
    kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    taken = int(kafka_broker.bootstrap_servers.rpartition(":")[2])
    with pytest.raises(BrokerError, match="Address already in use"):
        KafkaBroker(tmp_path, port=taken).start()


def test_broker_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    program = textwrap.dedent("""
        import sys, time, pathlib
        from connect_py.embedded.broker import KafkaBroker
        broker = KafkaBroker(pathlib.Path(sys.argv[1]))
        broker.start()
        print(broker.pid, flush=True)
        time.sleep(60)
    """)
    owner = subprocess.Popen(
        [sys.executable, "-c", program, tmp_path], stdout=subprocess.PIPE, text=True
    )
    with owner:
        assert owner.stdout is not None
        java = psutil.Process(int(owner.stdout.readline()))
        assert java.is_running()
        os.kill(owner.pid, signal.SIGKILL)
        owner.wait(10)
        psutil.wait_procs([java], timeout=10)
        assert not java.is_running() or java.status() == psutil.STATUS_ZOMBIE
