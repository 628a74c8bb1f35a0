"""The lag of paused partitions follows their logs, though the client fetches nothing of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka import OFFSET_END, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientTopicPartition

from connect_py.api.record import TopicPartition
from connect_py.metrics.client_statistics import ClientStatistics
from connect_py.task.sink.paused_ends import UPDATE_SECONDS, PausedEnds

ORDERS = TopicPartition("orders", 0)
AWAY = KafkaException(KafkaError(KafkaError._TIMED_OUT))


class Cluster:
    """A cluster whose log grows by 100 with each request; also the clock, in seconds."""

    def __init__(self) -> None:
        self.end = 1000
        self.now = 50.0
        self.asked = 0
        self.failure: KafkaException | None = None

    def offsets_for_times(self, asked: list[Any], timeout: float) -> list[Any]:
        self.asked += 1
        self.end += 100
        if self.failure is not None:
            raise self.failure
        assert [each.offset for each in asked] == [OFFSET_END] * len(asked)
        return [ClientTopicPartition(each.topic, each.partition, self.end) for each in asked]


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def statistics() -> ClientStatistics:
    return ClientStatistics("consumer")


@pytest.fixture
def ends(cluster: Cluster, statistics: ClientStatistics) -> PausedEnds:
    client: Any = cluster
    return PausedEnds(client, statistics, lambda: cluster.now)


def lag(statistics: ClientStatistics, **said: int) -> int | None:
    """Return the lag that is reported after these client statistics of its partition."""
    partition = {"partition": 0, "fetch_state": "active", **said}
    topics = {"orders": {"topic": "orders", "partitions": {"0": partition}}}
    brokers = {"b": {"state": "UP"}}
    statistics.take(json.dumps({"client_id": "c", "ts": 1, "topics": topics, "brokers": brokers}))
    assert statistics.report is not None
    return statistics.report.lag.get(("orders", 0))


def test_lag_of_a_paused_partition_grows_with_its_log(
    cluster: Cluster, statistics: ClientStatistics, ends: PausedEnds
) -> None:
    said = {"hi_offset": 900, "ls_offset": 900, "app_offset": 890}
    ends.update(())
    ends.update([ORDERS])
    assert (lag(statistics, **said), cluster.asked) == (10, 0)  # most pauses are short
    for number in (1, 2):
        cluster.now += UPDATE_SECONDS
        for _ in range(3):  # it is polled more often
            ends.update([ORDERS])
        assert (lag(statistics, **said), cluster.asked) == (110 + 100 * number, number)
    ends.update(())
    assert lag(statistics, **said) == 10  # it is fetched again, and the client knows


def test_lag_of_a_never_fetched_partition_counts_from_its_position(
    cluster: Cluster, statistics: ClientStatistics, ends: PausedEnds
) -> None:
    assert lag(statistics, next_offset=300) is None
    ends.update([ORDERS])
    assert lag(statistics, next_offset=300) == cluster.end - 300


def test_unanswered_question_about_ends_keeps_what_was_known(
    cluster: Cluster, statistics: ClientStatistics, ends: PausedEnds
) -> None:
    ends.update([ORDERS])
    cluster.failure = AWAY
    for _ in range(2):
        cluster.now += UPDATE_SECONDS
        ends.update([ORDERS])
    assert (lag(statistics, app_offset=1000), cluster.asked) == (100, 3)
    statistics.cut_off = True
    cluster.now += UPDATE_SECONDS
    ends.update([ORDERS])
    assert cluster.asked == 3
