"""Where a load begins and ends, as people say it: `earliest`, `latest`, a time, or offsets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as ClientTopicPartition

from connect_py.api.cluster import SinkCluster
from connect_py.api.errors import ConfigError, ConnectError
from connect_py.api.record import TopicPartition
from connectors.iceberg.client_error_log import consumer_of

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
_OFFSET = re.compile(r"(?P<topic>[A-Za-z0-9._-]+):(?P<partition>\d+):(?P<offset>\d+)")
_SECONDS: Final = 30.0


def offsets_at(
    cluster: SinkCluster, text: str, partitions: Iterable[TopicPartition], option: str
) -> dict[TopicPartition, int]:
    """The offset of each partition that a bound means; between the ends of the log.

    Args:
        cluster: Is asked.
        text: `earliest`, `latest`, an ISO time, or `topic:partition:offset` with commas between them. Partitions that
            are not named by offsets are left out.
        partitions: Those that the connector consumes.
        option: The command's, for errors.

    Raises:
        ConfigError: It is none of these, or names a partition that the connector does not consume.
        ConnectError: The cluster does not answer.
    """
    wanted = list(partitions)
    committed = cluster.client_config("consumer").get("isolation.level") == "read_committed"
    ranges = cluster.log_range(wanted, committed=committed)
    if text == EARLIEST:
        return {tp: start for tp, (start, _) in ranges.items()}
    if text == LATEST:
        return {tp: end for tp, (_, end) in ranges.items()}
    if ":" in text and _OFFSET.fullmatch(text.split(",")[0].strip()):
        found = _named(text, wanted, option)
    else:
        found = _at_time(cluster, _milliseconds(text, option), ranges)
    return {tp: min(max(offset, ranges[tp][0]), ranges[tp][1]) for tp, offset in found.items()}


def _named(text: str, partitions: Iterable[TopicPartition], option: str) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for item in text.split(","):
        match = _OFFSET.fullmatch(item.strip())
        if match is None:
            raise ConfigError(option, f"{item.strip()} is not of the form topic:partition:offset")
        tp = TopicPartition(match["topic"], int(match["partition"]))
        if tp not in set(partitions):
            raise ConfigError(option, f"the connector does not consume {tp}, or it does not exist")
        found[tp] = int(match["offset"])
    return found


def _milliseconds(text: str, option: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(
            option, f"{text} is neither earliest, latest, a time (2026-01-02T03:04:05Z) nor topic:partition:offset"
        ) from error
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _at_time(
    cluster: SinkCluster, milliseconds: int, ranges: Mapping[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, int]:
    """The first offset at or after a time; behind the last record if there is none."""
    settings = {**cluster.client_config("consumer"), "group.id": "connect-py-load"}
    with consumer_of(settings, "the topics cannot be read") as consumer:
        asked = [ClientTopicPartition(tp.topic, tp.partition, milliseconds) for tp in ranges]
        try:
            answers = consumer.offsets_for_times(asked, _SECONDS)
        except KafkaException as error:
            raise ConnectError(f"Kafka does not say what came at that time: {error}") from error
    found = {TopicPartition(each.topic, each.partition): each.offset for each in answers}
    return {tp: found[tp] if found.get(tp, -1) >= 0 else end for tp, (_, end) in ranges.items()}
