"""Start and end of a load: `earliest`, `latest`, a time, or offsets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from connect_py.api.cluster import SinkCluster
from connect_py.api.errors import ConfigError
from connect_py.api.record import TopicPartition
from connectors.iceberg.config.stop_at import parse_stop_at, valid_stop_at

EARLIEST: Final = "earliest"


def offsets_at(
    cluster: SinkCluster, bound_spec: str, partitions: Iterable[TopicPartition], option: str
) -> dict[TopicPartition, int]:
    """Return the offset that a bound denotes in each partition, limited to the log's range.

    Args:
        cluster: The cluster that contains the partitions.
        bound_spec: `earliest`, or a value of `iceberg.ext.stop-at`. If it lists offsets, other
            partitions are omitted.
        partitions: The partitions that the connector consumes.
        option: Name of the command-line option for error messages.

    Raises:
        ConfigError: The bound is invalid, is a time in the future or before 1970, or contains a
            partition that the connector does not consume.
        RetriableError: The cluster does not respond.
    """
    consumed = list(partitions)
    committed = cluster.client_config("consumer").get("isolation.level") == "read_committed"
    ranges = cluster.log_range(consumed, committed=committed)
    if bound_spec.lower() == EARLIEST:
        return {tp: start for tp, (start, _) in ranges.items()}
    if not bound_spec.strip():
        raise ConfigError(option, "is empty")
    valid_stop_at(option, bound_spec)
    bound = parse_stop_at(bound_spec)
    if bound is not None and bound.time_ms is not None and bound.time_ms < 0:
        raise ConfigError(option, f"{bound_spec} is before 1970 and therefore before any record")
    if unknown := sorted(set(bound.offsets if bound is not None else ()) - set(consumed)):
        raise ConfigError(
            option, f"{unknown[0]} does not exist or is not consumed by the connector"
        )
    if bound is None or (bound.time_ms is None and not bound.offsets):
        return {tp: end for tp, (_, end) in ranges.items()}
    offsets = (
        bound.offsets if bound.time_ms is None else cluster.offsets_at(consumed, bound.time_ms)
    )
    return {tp: min(max(offset, ranges[tp][0]), ranges[tp][1]) for tp, offset in offsets.items()}
