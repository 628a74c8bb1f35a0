"""Definitions of the Java Kafka client settings, for client overrides in the REST API.

Only the types of values are checked. For the effects of the settings, see `kafka/client_config.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Final, TypeAlias

from connect_py.api.config import ConfigDef, ConfigKey, Importance, Parsed, Type
from connect_py.config.worker_definitions import (
    BOOLEAN,
    CLASS,
    INT,
    INT_MAX,
    LIST,
    LONG,
    REQUIRED,
    STRING,
    H,
    L,
    M,
    security_config_def,
)

PRODUCER: Final = ("producer",)
CONSUMER: Final = ("consumer",)
ADMIN: Final = ("admin",)
ALL: Final = PRODUCER + CONSUMER + ADMIN
_JAVA_CONSUMER: Final = "org.apache.kafka.clients.consumer"
_ASSIGNORS: Final = (
    f"class {_JAVA_CONSUMER}.RangeAssignor,class {_JAVA_CONSUMER}.CooperativeStickyAssignor"
)

_Row: TypeAlias = tuple[str, Type, Parsed, Importance, tuple[str, ...]]


@cache
def client_config_keys(kind: str) -> Mapping[str, ConfigKey]:
    """Return the settings for a producer, consumer, or admin client (`kind`), keyed by name."""
    definition = ConfigDef()
    doc = f"Setting for the {kind}."
    for name, type_, default, importance, kinds in _ROWS:
        if kind in kinds:
            definition.define(name, type_, default=default, importance=importance, doc=doc)
    security = (replace(key, validator=None, doc=doc) for key in security_config_def())
    return {**definition.keys, **{key.name: key for key in security}}


_ROWS: tuple[_Row, ...] = (
    ("acks", STRING, "all", L, PRODUCER),
    ("allow.auto.create.topics", BOOLEAN, True, M, CONSUMER),
    ("auto.commit.interval.ms", INT, 5_000, L, CONSUMER),
    ("auto.offset.reset", STRING, "latest", M, CONSUMER),
    ("batch.size", INT, 16_384, M, PRODUCER),
    ("bootstrap.controllers", LIST, "", H, ADMIN),
    ("bootstrap.servers", LIST, "", H, ALL),
    ("buffer.memory", LONG, 33_554_432, H, PRODUCER),
    ("check.crcs", BOOLEAN, True, L, CONSUMER),
    ("client.dns.lookup", STRING, "use_all_dns_ips", M, ALL),
    ("client.id", STRING, "", L, CONSUMER),
    ("client.id", STRING, "", M, PRODUCER + ADMIN),
    ("client.rack", STRING, "", L, CONSUMER),
    ("compression.gzip.level", INT, -1, M, PRODUCER),
    ("compression.lz4.level", INT, 9, M, PRODUCER),
    ("compression.type", STRING, "none", H, PRODUCER),
    ("compression.zstd.level", INT, 3, M, PRODUCER),
    ("connections.max.idle.ms", LONG, 300_000, M, ADMIN),
    ("connections.max.idle.ms", LONG, 540_000, M, PRODUCER + CONSUMER),
    ("default.api.timeout.ms", INT, 60_000, M, CONSUMER + ADMIN),
    ("delivery.timeout.ms", INT, 120_000, M, PRODUCER),
    ("enable.auto.commit", BOOLEAN, True, M, CONSUMER),
    ("enable.idempotence", BOOLEAN, True, L, PRODUCER),
    ("enable.metrics.push", BOOLEAN, False, L, ADMIN),
    ("enable.metrics.push", BOOLEAN, True, L, PRODUCER + CONSUMER),
    ("exclude.internal.topics", BOOLEAN, True, M, CONSUMER),
    ("fetch.max.bytes", INT, 52_428_800, M, CONSUMER),
    ("fetch.max.wait.ms", INT, 500, L, CONSUMER),
    ("fetch.min.bytes", INT, 1, H, CONSUMER),
    ("group.id", STRING, None, H, CONSUMER),
    ("group.instance.id", STRING, None, M, CONSUMER),
    ("group.protocol", STRING, "classic", H, CONSUMER),
    ("group.remote.assignor", STRING, None, M, CONSUMER),
    ("heartbeat.interval.ms", INT, 3_000, H, CONSUMER),
    ("interceptor.classes", LIST, "", L, PRODUCER + CONSUMER),
    ("isolation.level", STRING, "read_uncommitted", M, CONSUMER),
    ("key.deserializer", CLASS, REQUIRED, H, CONSUMER),
    ("key.serializer", CLASS, REQUIRED, H, PRODUCER),
    ("linger.ms", LONG, 5, M, PRODUCER),
    ("max.block.ms", LONG, 60_000, M, PRODUCER),
    ("max.in.flight.requests.per.connection", INT, 5, L, PRODUCER),
    ("max.partition.fetch.bytes", INT, 1_048_576, H, CONSUMER),
    ("max.poll.interval.ms", INT, 300_000, M, CONSUMER),
    ("max.poll.records", INT, 500, M, CONSUMER),
    ("max.request.size", INT, 1_048_576, M, PRODUCER),
    ("metadata.max.age.ms", LONG, 300_000, L, ALL),
    ("metadata.max.idle.ms", LONG, 300_000, L, PRODUCER),
    ("metadata.recovery.rebootstrap.trigger.ms", LONG, 300_000, L, ALL),
    ("metadata.recovery.strategy", STRING, "rebootstrap", L, ALL),
    ("metric.reporters", LIST, "org.apache.kafka.common.metrics.JmxReporter", L, ALL),
    ("metrics.num.samples", INT, 2, L, ALL),
    ("metrics.recording.level", STRING, "INFO", L, ALL),
    ("metrics.sample.window.ms", LONG, 30_000, L, ALL),
    ("partition.assignment.strategy", LIST, _ASSIGNORS, M, CONSUMER),
    ("partitioner.adaptive.partitioning.enable", BOOLEAN, True, L, PRODUCER),
    ("partitioner.availability.timeout.ms", LONG, 0, L, PRODUCER),
    ("partitioner.class", CLASS, None, M, PRODUCER),
    ("partitioner.ignore.keys", BOOLEAN, False, M, PRODUCER),
    ("receive.buffer.bytes", INT, 32_768, M, PRODUCER),
    ("receive.buffer.bytes", INT, 65_536, M, CONSUMER + ADMIN),
    ("reconnect.backoff.max.ms", LONG, 1_000, L, ALL),
    ("reconnect.backoff.ms", LONG, 50, L, ALL),
    ("request.timeout.ms", INT, 30_000, M, ALL),
    ("retries", INT, INT_MAX, H, PRODUCER),
    ("retries", INT, INT_MAX, L, ADMIN),
    ("retry.backoff.max.ms", LONG, 1_000, L, ALL),
    ("retry.backoff.ms", LONG, 100, L, ALL),
    ("security.providers", STRING, None, L, ALL),
    ("send.buffer.bytes", INT, 131_072, M, ALL),
    ("session.timeout.ms", INT, 45_000, H, CONSUMER),
    ("share.acknowledgement.mode", STRING, "implicit", M, CONSUMER),
    ("socket.connection.setup.timeout.max.ms", LONG, 30_000, M, ALL),
    ("socket.connection.setup.timeout.ms", LONG, 10_000, M, ALL),
    ("transaction.timeout.ms", INT, 60_000, L, PRODUCER),
    ("transaction.two.phase.commit.enable", BOOLEAN, False, L, PRODUCER),
    ("transactional.id", STRING, None, L, PRODUCER),
    ("value.deserializer", CLASS, REQUIRED, H, CONSUMER),
    ("value.serializer", CLASS, REQUIRED, H, PRODUCER),
)
