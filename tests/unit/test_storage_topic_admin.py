"""Internal topics that the cluster cannot make, or not yet."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from fixtures.storage_fake_clock import FakeClock

from connect_py.api.errors import ConfigError, ConnectError
from connect_py.config.worker_config import StorageTopic
from connect_py.storage.topic_admin import CREATE_SECONDS, TopicAdmin

OFFSETS = StorageTopic("connect-offsets", "offset.storage.topic", 25, 3)
REASON = "offset.storage.replication.factor is 3, but the cluster has only 1 broker"


class SmallCluster:
    """One broker; the others come, if they do, after so many requests."""

    def __init__(self, complete_after: int | None = None) -> None:
        self.asked = 0
        self._complete_after = complete_after

    def list_topics(self, **_: Any) -> Any:
        return SimpleNamespace(topics={}, brokers={1: "a"})

    def create_topics(self, topics: list[Any], **_: Any) -> dict[str, Future[None]]:
        self.asked += 1
        answer: Future[None] = Future()
        if self.asked == self._complete_after:
            answer.set_result(None)
        else:
            answer.set_exception(KafkaException(KafkaError(KafkaError.INVALID_REPLICATION_FACTOR)))
        return {topics[0].topic: answer}


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_too_many_replicas_are_logged_once_then_refused_after_timeout(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = FakeClock()
    with pytest.raises(ConfigError, match=REASON):
        TopicAdmin(cast(AdminClient, SmallCluster()), clock).ensure(OFFSETS)
    assert CREATE_SECONDS <= clock.now < CREATE_SECONDS + 2
    assert len(warnings(caplog)) == 1
    assert REASON in warnings(caplog)[0]


def test_brokers_that_are_still_starting_are_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    TopicAdmin(cast(AdminClient, SmallCluster(complete_after=4)), FakeClock()).ensure(OFFSETS)
    assert len(warnings(caplog)) == 1


def test_a_worker_that_stops_does_not_wait_for_brokers() -> None:
    cluster = SmallCluster()
    with pytest.raises(ConnectError, match=REASON):
        TopicAdmin(cast(AdminClient, cluster), FakeClock(), pause=lambda _: True).ensure(OFFSETS)
    assert cluster.asked == 1


@pytest.mark.parametrize(
    ("named_by", "factor"),
    [
        ("status.storage.topic", "status"),
        ("control.storage.topic", "config"),
        ("offsets.storage.topic", "offset"),
    ],
)
def test_every_internal_topic_knows_who_gives_its_replication_factor(
    named_by: str, factor: str
) -> None:
    assert (
        StorageTopic("x", named_by, 1, 1).replication_property()
        == f"{factor}.storage.replication.factor"
    )


class LateCluster:
    """Has a topic of another policy, whose settings are known after so many questions."""

    def __init__(self, known_after: int) -> None:
        self.asked = 0
        self._known_after = known_after

    def list_topics(self, **_: Any) -> Any:
        topic = SimpleNamespace(error=None, partitions=range(25))
        return SimpleNamespace(topics={OFFSETS.name: topic}, brokers={1: "a"})

    def describe_configs(self, resources: list[Any], **_: Any) -> dict[Any, Future[Any]]:
        self.asked += 1
        answer: Future[Any] = Future()
        if self.asked < self._known_after:
            answer.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
        else:
            answer.set_result({"cleanup.policy": SimpleNamespace(value="delete")})
        return {resources[0]: answer}


def test_policy_of_a_new_topic_is_requested_until_known() -> None:
    with pytest.raises(ConfigError, match=r"currently has 'cleanup\.policy=delete'"):
        TopicAdmin(cast(AdminClient, LateCluster(3)), FakeClock()).ensure(OFFSETS)


def test_topic_with_unknown_cleanup_policy_is_accepted_after_timeout() -> None:
    clock = FakeClock()
    TopicAdmin(cast(AdminClient, LateCluster(1_000_000)), clock).ensure(OFFSETS)
    assert CREATE_SECONDS <= clock.now < CREATE_SECONDS + 2
