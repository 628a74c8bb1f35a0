"""`connect-distributed` as users start it: a process, a properties file, HTTP."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from connect_py.embedded.broker import KafkaBroker

COMMAND = [
    sys.executable,
    "-c",
    "from connect_py.cli import connect_distributed; connect_distributed()",
]
SECONDS = 30.0


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def properties(bootstrap_servers: str, prefix: str, port: int, **more: str) -> dict[str, str]:
    props = {
        "bootstrap.servers": bootstrap_servers,
        "group.id": f"{prefix}g",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "offset.flush.interval.ms": "500",
        "listeners": f"http://127.0.0.1:{port}",
    }
    for storage in ("config", "status", "offset"):
        props[f"{storage}.storage.topic"] = f"{prefix}{storage}"
        props[f"{storage}.storage.replication.factor"] = "1"
    return {**props, **more}


def start(folder: Path, props: Mapping[str, str]) -> subprocess.Popen[bytes]:
    file = folder / "worker.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in props.items()))
    with (folder / "worker.log").open("ab") as log:
        return subprocess.Popen([*COMMAND, str(file)], stdout=log, stderr=subprocess.STDOUT)


@dataclass
class Running:
    process: subprocess.Popen[bytes]
    http: httpx.Client
    log: Path

    def state(self, name: str) -> tuple[str, list[str]]:
        """The connector's state and its tasks'; empty when nothing is known."""
        answer = self.http.get(f"/connectors/{name}/status")
        if answer.status_code != 200:
            return "", []
        body = answer.json()
        return body["connector"]["state"], [task["state"] for task in body["tasks"]]


def eventually(check: Callable[[], bool], seconds: float = SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, "did not come true in time"
        time.sleep(0.05)


@contextmanager
def worker(folder: Path, props: Mapping[str, str]) -> Iterator[Running]:
    process = start(folder, props)
    with httpx.Client(base_url=props["listeners"], timeout=SECONDS) as http:
        one = Running(process, http, folder / "worker.log")

        def healthy() -> bool:
            assert process.poll() is None, one.log.read_text()
            try:
                return http.get("/health").status_code == 200
            except httpx.TransportError:
                return False

        try:
            eventually(healthy)
            yield one
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            try:
                process.wait(SECONDS)
            finally:
                process.kill()
    assert process.returncode == 0, one.log.read_text()


def test_file_sink_survives_every_rest_operation_and_a_worker_restart(
    kafka_broker: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    servers = kafka_broker.bootstrap_servers
    topic, output = f"{topic_prefix}lines", tmp_path / "out.txt"
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(SECONDS)
    producer = Producer({"bootstrap.servers": servers})

    def produce(line: str) -> None:
        producer.produce(topic, line)
        producer.flush(SECONDS)

    def lines() -> list[str]:
        return output.read_text().splitlines() if output.exists() else []

    props = properties(servers, topic_prefix, free_port())
    config = {"connector.class": "FileStreamSink", "topics": topic, "file": str(output)}
    produce("one")
    with worker(tmp_path, props) as one:
        assert (
            one.http.post("/connectors", json={"name": "fs", "config": config}).status_code == 201
        )
        eventually(lambda: one.state("fs") == ("RUNNING", ["RUNNING"]))
        eventually(lambda: lines() == ["one"])
        one.http.put("/connectors/fs/pause")
        eventually(lambda: one.state("fs") == ("PAUSED", ["PAUSED"]))
        produce("two")
        one.http.put("/connectors/fs/resume")
        eventually(lambda: lines() == ["one", "two"])
        assert one.http.put("/connectors/fs/stop").status_code == 204
        eventually(lambda: one.state("fs") == ("STOPPED", []))
        produce("three")
        one.http.put("/connectors/fs/resume")
        eventually(lambda: lines() == ["one", "two", "three"])
        assert one.http.post("/connectors/fs/restart?includeTasks=true").status_code == 202
        eventually(lambda: one.state("fs") == ("RUNNING", ["RUNNING"]))
        assert one.http.get("/connectors/fs/topics").json() == {"fs": {"topics": [topic]}}
        front = psutil.Process(one.process.pid)
        assert front.memory_info().rss < 100e6, "the front process loads something heavy"
    produce("four")
    with worker(tmp_path, props) as one:
        eventually(lambda: one.state("fs") == ("RUNNING", ["RUNNING"]))
        eventually(lambda: lines()[-1] == "four")
        assert lines() == ["one", "two", "three", "four"]
        assert one.http.delete("/connectors/fs").status_code == 204
        eventually(lambda: one.state("fs") == ("", []))
        text = one.log.read_text()
    for line in (
        "Kafka Connect started",
        "Herder started",
        "Joined group at generation",
        "Rebalance started",
        "Starting connectors and tasks using config offset",
        "Finished starting connectors and tasks",
    ):
        assert line in text


def outcome(folder: Path, props: Mapping[str, str]) -> tuple[int, str]:
    process = start(folder, props)
    try:
        status = process.wait(SECONDS)
    finally:
        process.kill()
        process.wait()
    return status, (folder / "worker.log").read_text()


def test_wrong_command_line_prints_usage_and_exits_with_1(tmp_path: Path) -> None:
    for arguments in ([], ["a", "b"], ["--log-level", "LOUD", "a"], ["--no-such-option", "a"]):
        command = [*COMMAND, *arguments]
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS, cwd=tmp_path, check=False
        )
        usage = (
            "Usage: connect-distributed [-daemon] [--log-level [logger=]LEVEL]... "
            "worker.properties\n"
        )
        assert answer.returncode == 1
        assert answer.stderr.endswith(usage)


def test_bad_properties_end_with_2_and_javas_words(tmp_path: Path) -> None:
    status, text = outcome(tmp_path, {"group.id": "g"})
    assert status == 2
    assert 'Missing required configuration "key.converter" which has no default value.' in text


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            {"ssl.endpoint.identification.algorithm": "foo"},
            "Failed to create new KafkaAdminClient: ",
        ),
        pytest.param(
            {"security.protocol": "SASL_SSL"},
            "sasl.mechanism: GSSAPI (Kerberos), the default, is supported only by Java clients",
            marks=pytest.mark.long,
        ),
        pytest.param(
            {"key.converter": "com.example.Nope"},
            "Class com.example.Nope could not be found.",
            marks=pytest.mark.long,
        ),
    ],
)
def test_worker_exits_with_2_when_client_or_plugin_refuses_settings(
    kafka_broker: KafkaBroker, tmp_path: Path, topic_prefix: str, more: dict[str, str], said: str
) -> None:
    status, text = outcome(
        tmp_path, properties(kafka_broker.bootstrap_servers, topic_prefix, free_port(), **more)
    )
    assert status == 2
    assert said in text
    assert "Traceback" not in text


def test_port_in_use_ends_with_2_and_names_it(
    kafka_broker: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        status, text = outcome(
            tmp_path, properties(kafka_broker.bootstrap_servers, topic_prefix, port)
        )
    assert status == 2
    assert f"cannot listen on 127.0.0.1:{port}" in text


@pytest.mark.parametrize(
    ("partitions", "policy", "text"),
    [
        (1, "delete", "is required to have 'cleanup.policy=compact'"),
        pytest.param(
            2, "compact", "is required to have a single partition", marks=pytest.mark.long
        ),
    ],
)
def test_config_topic_that_does_not_fit_ends_with_2(
    kafka_broker: KafkaBroker,
    topic_prefix: str,
    tmp_path: Path,
    partitions: int,
    policy: str,
    text: str,
) -> None:
    name = f"{topic_prefix}config"
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers})
    new = NewTopic(name, partitions, 1, config={"cleanup.policy": policy})
    admin.create_topics([new])[name].result(SECONDS)
    props = properties(kafka_broker.bootstrap_servers, topic_prefix, free_port())
    status, log = outcome(tmp_path, props)
    assert status == 2
    assert f"Topic '{name}' supplied via the 'config.storage.topic' property {text}" in log


def test_unreachable_kafka_is_named_while_it_is_tried_again(
    tmp_path: Path, topic_prefix: str
) -> None:
    process = start(tmp_path, properties(f"127.0.0.1:{free_port()}", topic_prefix, free_port()))
    try:
        eventually(lambda: "retrying" in (tmp_path / "worker.log").read_text())
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.long
def test_child_processes_end_after_their_worker_is_killed(
    kafka_broker: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    props = properties(kafka_broker.bootstrap_servers, topic_prefix, free_port())
    process = start(tmp_path, props)
    try:
        with httpx.Client(base_url=props["listeners"], timeout=SECONDS) as http:

            def running() -> bool:
                try:
                    return http.get("/health").status_code == 200
                except httpx.TransportError:
                    return False

            eventually(running)
            config = {
                "connector.class": "FileStreamSink",
                "topics": f"{topic_prefix}t",
                "file": str(tmp_path / "o"),
            }
            http.post("/connectors", json={"name": "fs", "config": config})
            eventually(lambda: len(psutil.Process(process.pid).children(recursive=True)) >= 3)
        children = psutil.Process(process.pid).children(recursive=True)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    _, left = psutil.wait_procs(children, timeout=5.0)
    for child in left:
        child.kill()
    assert not left
