"""`ConnectorOffsetStores`: offset stores for source connectors, which may have their own topics."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeAlias

from connect_py.clock import Clock, SystemClock
from connect_py.config.worker_config import StorageTopic
from connect_py.futures import done
from connect_py.kafka.client_config import ClientConfigs
from connect_py.storage.kafka_based_log import KafkaLogs
from connect_py.storage.offset_store import OffsetStore
from connect_py.storage.offset_table import SourceOffset, SourcePartition, canonical
from connect_py.storage.storage_clients import ConnectorStorageClients, StorageClients
from connect_py.storage.topic_admin import TopicAdmin

log = logging.getLogger(__name__)

OWN_TOPIC = "offsets.storage.topic"  # key in a connector configuration
Offsets: TypeAlias = Sequence[tuple[SourcePartition, SourceOffset | None]]
Records: TypeAlias = Sequence[tuple[bytes, bytes | None]]


class ConnectorOffsetStore:
    """Offset store of one source connector. Thread-safe.

    If the connector has its own topic, an offset in that topic takes precedence over an offset in
    the worker's topic for the same source partition. Therefore, a reset is written to the worker's
    topic first. In the opposite order, a crash between the two writes would restore an old offset.
    """

    def __init__(self, connector: str, shared: OffsetStore, own_store: OffsetStore | None) -> None:
        self._connector = connector
        self._shared = shared
        self._own_store = own_store

    @property
    def topic(self) -> str:
        """Name of the primary topic."""
        return (self._own_store or self._shared).topic

    @property
    def is_own(self) -> bool:
        """True if the primary topic is the connector's own topic."""
        return self._own_store is not None

    def refresh(self, timeout: float) -> None:
        """Read all topics to the end. Raises LogTimeoutError on timeout."""
        if self._own_store is not None:
            self._own_store.refresh(timeout)
        self._shared.refresh(timeout)

    def get(self, partition: SourcePartition) -> SourceOffset | None:
        """Return the offset of one source partition."""
        offset = (
            None if self._own_store is None else self._own_store.get(self._connector, partition)
        )
        return self._shared.get(self._connector, partition) if offset is None else offset

    def offsets(self) -> list[tuple[SourcePartition, SourceOffset]]:
        """Return every source partition that has an offset, with its offset."""
        shared = self._shared.offsets(self._connector)
        if self._own_store is None:
            return shared
        own_offsets = self._own_store.offsets(self._connector)
        own_keys = {canonical(self._connector, partition) for partition, _ in own_offsets}
        return own_offsets + [
            pair for pair in shared if canonical(self._connector, pair[0]) not in own_keys
        ]

    def records(self, offsets: Offsets) -> list[tuple[bytes, bytes | None]]:
        """Return the records that store offsets in `topic`, for use in a transaction.

        Raises:
            DataError: A value is not primitive.
        """
        return (self._own_store or self._shared).records(self._connector, offsets)

    def set(self, offsets: Offsets, write: Callable[[Records], None] | None = None) -> Future[None]:
        """Store offsets and wait until they are acknowledged. An offset of None resets a partition.

        Args:
            offsets: Source partitions with their new offsets.
            write: Function that writes the records to `topic` in a transaction. None if no
                transaction is required.

        Returns:
            The future that `copy` returns. Until it completes, the copy may overwrite later changes
            by other writers.

        Raises:
            ConnectError: The offsets were not written, or the outcome is unknown.
        """
        resets = [pair for pair in offsets if pair[1] is None]
        if self._own_store is not None and resets:
            self._shared.set(self._connector, resets).result()
        if write is None:
            (self._own_store or self._shared).set(self._connector, offsets).result()
        else:
            write(self.records(offsets))
        return self.copy([pair for pair in offsets if pair[1] is not None])

    def copy(self, offsets: Offsets) -> Future[None]:
        """Copy offsets from the connector's own topic to the worker's topic without blocking.

        The returned future completes when the copies are acknowledged. Failures are also logged.
        """
        if self._own_store is None or not offsets:
            return done(None)
        copy = self._shared.set(self._connector, offsets)
        copy.add_done_callback(self._copied)
        return copy

    def _copied(self, copy: Future[None]) -> None:
        error = copy.exception()
        if error is not None:
            log.warning(
                "offsets of connector %s were stored only in its own topic: %s",
                self._connector,
                error,
            )


@dataclass(slots=True)
class _Opened:
    store: OffsetStore
    users: int = 0


class ConnectorOffsetStores:
    """Opens the offset stores of connectors and shares open stores. Thread-safe.

    A connector's own topic is read by a dedicated thread as long as at least one caller has the
    store open.
    """

    def __init__(
        self,
        shared: OffsetStore,
        worker_props: Mapping[str, str],
        shared_topic: StorageTopic | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Create the object on top of the worker's store.

        Args:
            shared: The worker's store.
            worker_props: Worker properties.
            shared_topic: Topic of the worker's store. New connector topics get the same
                partition count and replication factor. None if the worker's store is a file. New
                topics then get the broker's defaults.
            clock: Source of monotonic time.
        """
        self._shared = shared
        self._worker_props = dict(worker_props)
        self._shared_topic = shared_topic
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._opened: dict[tuple[str, str, str], _Opened] = {}

    @contextlib.contextmanager
    def open(
        self, connector: str, config: Mapping[str, str], timeout: float
    ) -> Iterator[ConnectorOffsetStore]:
        """Open a connector's store.

        The connector's own topic is created if necessary and read to its end.

        Args:
            connector: Name of the connector.
            config: Resolved configuration of the connector.
            timeout: Timeout in seconds for reading the topic to its end.

        Raises:
            ConnectError: The topic is not available or cannot be read in time.
        """
        topic = (config.get(OWN_TOPIC) or "").strip()
        clients = ConnectorStorageClients.of(ClientConfigs(self._worker_props, config, connector))
        servers = str(clients.base("consumer").get("bootstrap.servers"))
        if not topic or self._is_shared(topic, servers):
            yield ConnectorOffsetStore(connector, self._shared, None)
            return
        key = connector, topic, servers
        self._ensure(topic, clients)
        opened = self._enter(key, clients)
        try:
            opened.store.refresh(timeout)
            yield ConnectorOffsetStore(connector, self._shared, opened.store)
        finally:
            self._leave(key)

    def _is_shared(self, topic: str, servers: str) -> bool:
        if self._shared_topic is None or topic != self._shared_topic.name:
            return False
        return servers == self._worker_props.get("bootstrap.servers", servers)

    def _enter(self, key: tuple[str, str, str], clients: StorageClients) -> _Opened:
        with self._lock:
            opened = self._opened.get(key)
            if opened is None:
                opened = self._opened[key] = _Opened(OffsetStore(key[1], KafkaLogs(clients)))
                opened.store.start()
            opened.users += 1
            return opened

    def _ensure(self, topic: str, clients: StorageClients) -> None:
        template = self._shared_topic
        new_topic = StorageTopic(
            topic,
            OWN_TOPIC,
            template.partitions if template else -1,
            template.replication_factor if template else -1,
            {**(template.settings if template else {}), "cleanup.policy": "compact"},
        )
        create = (
            self._worker_props.get("internal.topics.automatic.creation.enable", "true")
            .strip()
            .lower()
            == "true"
        )
        TopicAdmin(clients.admin(), self._clock, create=create).ensure(new_topic)

    def _leave(self, key: tuple[str, str, str]) -> None:
        with self._lock:
            opened = self._opened[key]
            opened.users -= 1
            if opened.users == 0:
                del self._opened[key]
        if opened.users == 0:
            opened.store.stop()
