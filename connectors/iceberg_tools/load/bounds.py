"""Where a load begins and ends, as people say it: `earliest`, `latest`, a time, or offsets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from connect_py.api.cluster import SinkCluster
from connect_py.api.errors import ConfigError
from connect_py.api.record import TopicPartition
from connectors.iceberg.config.stop_at import parse_stop_at, valid_stop_at

EARLIEST: Final = "earliest"


def offsets_at(
    cluster: SinkCluster, text: str, partitions: Iterable[TopicPartition], option: str
) -> dict[TopicPartition, int]:
    """The offset of each partition that a bound means; between the ends of the log.

    Args: cluster: Is asked. text: `earliest`, or as `iceberg.ext.stop-at`. Partitions that are not
        named by offsets are left out. partitions: Those that the connector consumes. option: The
        command's, for errors.

    Raises: ConfigError: It is none of these, a time to come or before 1970, or names a partition
        that the connector does
            not consume.
        RetriableError: The cluster does not answer.
    """
    wanted = list(partitions)
    committed = cluster.client_config("consumer").get("isolation.level") == "read_committed"
    ranges = cluster.log_range(wanted, committed=committed)
    if text.lower() == EARLIEST:
        return {tp: start for tp, (start, _) in ranges.items()}
    if not text.strip():
        raise ConfigError(option, "is empty")
    valid_stop_at(option, text)
    bound = parse_stop_at(text)
    if bound is not None and bound.time_ms is not None and bound.time_ms < 0:
        raise ConfigError(option, f"{text} is before 1970, and so before any record")
    if unknown := sorted(set(bound.offsets if bound is not None else ()) - set(wanted)):
        raise ConfigError(
            option, f"the connector does not consume {unknown[0]}, or it does not exist"
        )
    if bound is None or (bound.time_ms is None and not bound.offsets):
        return {tp: end for tp, (_, end) in ranges.items()}
    found = bound.offsets if bound.time_ms is None else cluster.offsets_at(wanted, bound.time_ms)
    return {tp: min(max(offset, ranges[tp][0]), ranges[tp][1]) for tp, offset in found.items()}
