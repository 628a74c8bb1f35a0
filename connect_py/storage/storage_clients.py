"""Kafka clients that read and write a worker's state.

Every setting that affects correctness is explicit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient

from connect_py.kafka.client_config import ClientConfigs, Kind
from connect_py.kafka.client_log import client_log

Settings: TypeAlias = dict[str, str | int | float]

WRITE_TIMEOUT_MS = 30_000
POLL_INTERVAL_MS = 300_000  # for the group membership client, which polls continuously
# a failed leader's open transaction blocks readers for this long
TRANSACTION_TIMEOUT_MS = 6_000


@dataclass(frozen=True, slots=True)
class StorageClients:
    """Creates clients from the worker's own settings, which use librdkafka's names."""

    settings: Mapping[str, str | int | float]
    client_id_prefix: str

    def base(self, _kind: Kind) -> Mapping[str, str | int | float]:
        """Return the connection settings for a client of this kind."""
        return self.settings

    def consumer_settings(self, client: str, *, read_committed: bool) -> Settings:
        return {
            **self.base("consumer"),
            "client.id": f"{self.client_id_prefix}{client}",
            "group.id": f"{self.client_id_prefix}{client}",  # required by the client, never joined
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed" if read_committed else "read_uncommitted",
            "enable.partition.eof": True,  # reports positions after control records
            "allow.auto.create.topics": False,
            "fetch.queue.backoff.ms": 20,
            # the position after a transaction marker is reported only by the next fetch
            "fetch.wait.max.ms": 100,
            "queued.max.messages.kbytes": 4_096,
        }

    def producer_settings(self, client: str) -> Settings:
        return {
            **self.base("producer"),
            "client.id": f"{self.client_id_prefix}{client}",
            "acks": "all",
            "partitioner": "murmur2_random",
            "enable.idempotence": False,
            "max.in.flight.requests.per.connection": 1,
            "linger.ms": 0,
            "delivery.timeout.ms": WRITE_TIMEOUT_MS,
            "queue.buffering.max.kbytes": 32_768,
        }

    def leader_settings(self, transactional_id: str) -> Settings:
        settings = self.producer_settings("configs-leader")
        settings.update({"enable.idempotence": True, "transactional.id": transactional_id})
        settings.update(
            {
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "delivery.timeout.ms": TRANSACTION_TIMEOUT_MS,
            }
        )
        return settings

    def lone_leader_settings(self) -> Settings:
        """Return settings for an idempotent producer, for a leader that uses no transactions."""
        settings = {**self.producer_settings("configs-leader"), "enable.idempotence": True}
        return {**settings, "delivery.timeout.ms": TRANSACTION_TIMEOUT_MS}

    def heartbeat_settings(self, timeout_ms: int) -> Settings:
        """Return settings for sending heartbeats, each of which is useless after the timeout."""
        return {
            **self.producer_settings("hellos"),
            "delivery.timeout.ms": timeout_ms,
            "request.timeout.ms": timeout_ms,
        }

    def member_settings(
        self, group_id: str, session_timeout_ms: int, heartbeat_interval_ms: int
    ) -> Settings:
        return {
            **self.consumer_settings("member", read_committed=True),
            "group.id": group_id,
            "auto.offset.reset": "latest",
            "enable.partition.eof": False,
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": session_timeout_ms,
            # librdkafka requires this to be at least the session timeout
            "max.poll.interval.ms": max(POLL_INTERVAL_MS, session_timeout_ms),
            "heartbeat.interval.ms": heartbeat_interval_ms,
        }

    def consumer(self, client: str, *, read_committed: bool) -> Consumer:
        return Consumer(
            self.consumer_settings(client, read_committed=read_committed), logger=client_log
        )

    def producer(self, client: str) -> Producer:
        return Producer(self.producer_settings(client), logger=client_log)

    def admin(self, on_error: Callable[[KafkaError], None] | None = None) -> AdminClient:
        """Return an admin client.

        Client errors are logged, or passed to `on_error` when the client is polled.
        """
        settings: dict[str, Any] = {
            **self.base("admin"),
            "client.id": f"{self.client_id_prefix}shared-admin",
        }
        if on_error is None:
            return AdminClient(settings, logger=client_log)
        settings |= {"log_level": 2, "error_cb": on_error}
        return AdminClient(settings)


@dataclass(frozen=True, slots=True)
class ConnectorStorageClients(StorageClients):
    """Creates clients for a connector's own topic.

    The connector's client overrides may select a different cluster.
    """

    configs: ClientConfigs

    @classmethod
    def of(cls, configs: ClientConfigs) -> ConnectorStorageClients:
        return cls({}, f"connector-{configs.connector}-", configs)

    def base(self, kind: Kind) -> Mapping[str, str | int | float]:
        return cast(Settings, self.configs.of(kind))
