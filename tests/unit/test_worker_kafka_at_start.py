"""Messages of a worker about Kafka at its start."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from connect_py import worker_process
from connect_py.api.errors import ConfigError, ConnectError
from connect_py.config.bootstrap_servers import check_resolvable, hosts_and_ports
from connect_py.distributed_worker import DistributedWorker
from connect_py.storage.storage_clients import StorageClients


def test_servers_are_read_in_every_form_that_java_takes() -> None:
    assert hosts_and_ports(
        ["a:9092", " SASL_SSL://b.c-d:1 ", "[::1]:9093", "10.0.0.1:65535", ""]
    ) == [
        ("a", 9092),
        ("b.c-d", 1),
        ("::1", 9093),
        ("10.0.0.1", 65535),
    ]


@pytest.mark.parametrize(
    ("servers", "told"),
    [
        (["a:1", "localhost"], "Invalid url in bootstrap.servers: localhost"),
        (["localhost:"], "Invalid url in bootstrap.servers: localhost:"),
        (["a:70000"], "Invalid port in bootstrap.servers: a:70000"),
        ([" "], "No resolvable bootstrap urls given in bootstrap.servers"),
    ],
)
def test_malformed_bootstrap_server_is_refused_with_javas_message(
    servers: list[str], told: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        hosts_and_ports(servers)
    assert str(refused.value) == told


def test_unresolvable_servers_are_logged_and_one_must_be_resolvable(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def look_up(host: str, *_: Any, **__: Any) -> list[Any]:
        if host != "known":
            raise socket.gaierror("Name or service not known")
        return []

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    check_resolvable(["a:1", "known:1"])
    assert caplog.messages == [
        "Couldn't resolve server a:1 from bootstrap.servers: Name or service not known"
    ]
    with pytest.raises(ConfigError, match="No resolvable bootstrap urls"):
        check_resolvable(["a:1", "b:1"])


def test_a_worker_that_does_not_find_kafka_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_process, "CLUSTER_SECONDS", 0)
    monkeypatch.setattr(worker_process, "CLUSTER_ATTEMPT_SECONDS", 0.5)
    with pytest.raises(ConnectError) as refused:
        DistributedWorker()._cluster_id(
            StorageClients({"bootstrap.servers": "localhost:9"}, "test-")
        )
    assert "bootstrap.servers=localhost:9: the Kafka cluster did not respond" in str(refused.value)
    assert "failed: Connection refused" in str(refused.value)
    assert "KafkaError{" not in str(refused.value)
