"""A worker that cannot join its group reports the reason instead of waiting."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import Consumer

from connect_py.herder.group.group_member import GroupMember
from connect_py.storage.storage_clients import StorageClients

SECONDS = 30.0


def test_client_settings_refused_by_kafka_become_a_membership_problem() -> None:
    changed = threading.Event()
    settings = {
        "bootstrap.servers": "localhost:1",
        "group.id": "g",
        "session.timeout.ms": 400_000,
        "max.poll.interval.ms": 300_000,
    }
    member = GroupMember("control", settings, changed.set)
    member.start()
    assert changed.wait(SECONDS)
    member.stop()
    assert "failed to join the worker group" in str(member.problem)
    assert "session.timeout.ms" in str(member.problem)


@pytest.mark.parametrize("session_ms", [10_000, 1_800_000])  # a broker may permit half an hour
def test_any_session_timeout_that_a_broker_permits_makes_a_client(session_ms: int) -> None:
    clients = StorageClients({"bootstrap.servers": "localhost:1"}, "c-")
    Consumer(clients.member_settings("g", session_ms, 3_000)).close()
