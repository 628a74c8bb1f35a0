"""Statistics for a Kafka client: each partition's lag, and record and byte totals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

INTERVAL_MS = 5_000  # interval at which a client reports statistics


class _Partition(msgspec.Struct):
    partition: int
    app_offset: int = -1001  # next offset that the task reads
    committed_offset: int = -1001
    next_offset: int = -1001  # next offset that the client fetches
    hi_offset: int = -1001
    ls_offset: int = -1001
    fetch_state: str = ""


class _Topic(msgspec.Struct):
    topic: str
    partitions: dict[str, _Partition] = {}


class _Broker(msgspec.Struct):
    state: str = ""


class _Statistics(msgspec.Struct):
    client_id: str
    ts: int  # monotonic time in microseconds
    txmsgs: int = 0
    txmsg_bytes: int = 0
    rxmsgs: int = 0
    rxmsg_bytes: int = 0
    topics: dict[str, _Topic] = {}
    brokers: dict[str, _Broker] = {}


_CONNECTED = frozenset({"UP", "UPDATE"})
_DECODER = msgspec.json.Decoder(_Statistics)


@dataclass(frozen=True, slots=True)
class ClientReport:
    """Statistics for one client: totals, rates, and the lag by topic and partition."""

    client_id: str
    values: Mapping[str, float]
    lag: Mapping[tuple[str, int], int]


class ClientStatistics:
    """Receives statistics on the thread that polls the client. Reading `report` is thread-safe."""

    def __init__(self, group: str) -> None:
        """Create the object. `group` is `consumer` or `producer`."""
        self._group = group
        self._before: _Statistics | None = None
        self.report: ClientReport | None = None
        self.known_ends: Mapping[
            tuple[str, int], int
        ] = {}  # end offsets of partitions that the client does not fetch, set by the caller
        self.cut_off = False  # True if the latest statistics show no connected broker

    def take(self, text: str) -> None:
        """Process statistics. Used as the client's callback."""
        now = _DECODER.decode(text)
        before, self._before = self._before, now
        self.cut_off = not any(broker.state in _CONNECTED for broker in now.brokers.values())
        seconds = (now.ts - before.ts) / 1_000_000 if before is not None else 0.0
        lag: dict[tuple[str, int], int] = {}
        if self._group == "consumer":
            lag = _lag(now, self.known_ends)
            totals = {"records-consumed": now.rxmsgs, "bytes-consumed": now.rxmsg_bytes}
            earlier = (before.rxmsgs, before.rxmsg_bytes) if before else (0, 0)
        else:
            totals = {"record-send": now.txmsgs, "byte": now.txmsg_bytes}
            earlier = (before.txmsgs, before.txmsg_bytes) if before else (0, 0)
        values: dict[str, float] = {}
        for (name, total), previous_total in zip(totals.items(), earlier, strict=True):
            values[f"{name}-total"] = total
            values[f"{name}-rate"] = (total - previous_total) / seconds if seconds > 0 else 0.0
        if lag:
            values["records-lag-max"] = max(lag.values())
        self.report = ClientReport(now.client_id, values, lag)


def _lag(
    statistics: _Statistics, known_ends: Mapping[tuple[str, int], int]
) -> dict[tuple[str, int], int]:
    """Return the lag of each active partition. Partitions with an unknown end are omitted."""
    lag = {}
    for topic in statistics.topics.values():
        for p in topic.partitions.values():
            known_end = known_ends.get((topic.topic, p.partition), -1)
            end = max(p.hi_offset, p.ls_offset, known_end)
            position = p.app_offset if p.app_offset >= 0 else p.committed_offset
            # the partition was assigned at an offset, and nothing has been fetched since
            if position < 0 and known_end >= 0:
                position = p.next_offset
            if p.partition >= 0 and p.fetch_state == "active" and end >= 0 and position >= 0:
                lag[topic.topic, p.partition] = max(0, end - position)
    return lag
