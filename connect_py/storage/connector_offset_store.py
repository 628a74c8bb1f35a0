"""`ConnectorOffsetStores`: where the offsets of each source connector are kept, a topic of its own
included."""

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

OWN_TOPIC = "offsets.storage.topic"  # of a connector's configuration
Offsets: TypeAlias = Sequence[tuple[SourcePartition, SourceOffset | None]]
Records: TypeAlias = Sequence[tuple[bytes, bytes | None]]


class ConnectorOffsetStore:
    """The offsets of one source connector. All methods may be called from any thread.

    With a topic of the connector's own, that one counts, and the worker's is what a partition falls
    back to. So a reset goes to the worker's first: the other way round, a crash in between would
    bring an old offset back.
    """

    def __init__(self, connector: str, shared: OffsetStore, own: OffsetStore | None) -> None:
        self._connector = connector
        self._shared = shared
        self._own = own

    @property
    def topic(self) -> str:
        """The topic that counts."""
        return (self._own or self._shared).topic

    @property
    def is_own(self) -> bool:
        """Whether that is the connector's own."""
        return self._own is not None

    def refresh(self, timeout: float) -> None:
        """Read to the ends; LogTimeoutError."""
        if self._own is not None:
            self._own.refresh(timeout)
        self._shared.refresh(timeout)

    def get(self, partition: SourcePartition) -> SourceOffset | None:
        """The offset of one source partition."""
        found = None if self._own is None else self._own.get(self._connector, partition)
        return self._shared.get(self._connector, partition) if found is None else found

    def offsets(self) -> list[tuple[SourcePartition, SourceOffset]]:
        """Every source partition that has an offset."""
        shared = self._shared.offsets(self._connector)
        if self._own is None:
            return shared
        own = self._own.offsets(self._connector)
        known = {canonical(self._connector, partition) for partition, _ in own}
        return own + [pair for pair in shared if canonical(self._connector, pair[0]) not in known]

    def records(self, offsets: Offsets) -> list[tuple[bytes, bytes | None]]:
        """The records that store offsets in `topic`, for who writes them in a transaction;
        DataError: no primitives."""
        return (self._own or self._shared).records(self._connector, offsets)

    def set(self, offsets: Offsets, write: Callable[[Records], None] | None = None) -> Future[None]:
        """Store offsets and wait until they are safe; None resets a partition.

        Args:
            write: Writes the records to `topic`, where that must be done in a transaction.

        Returns:
            As `copy`: before it is done, a copy may come after what others store.

        Raises:
            ConnectError: They were not written, or the outcome is unknown.
        """
        resets = [pair for pair in offsets if pair[1] is None]
        if self._own is not None and resets:
            self._shared.set(self._connector, resets).result()
        if write is None:
            (self._own or self._shared).set(self._connector, offsets).result()
        else:
            write(self.records(offsets))
        return self.copy([pair for pair in offsets if pair[1] is not None])

    def copy(self, offsets: Offsets) -> Future[None]:
        """Have the worker's topic follow what is in the connector's own; does not wait, and also
        logs a failure.

        Done when nothing is on its way any more.
        """
        if self._own is None or not offsets:
            return done(None)
        copied = self._shared.set(self._connector, offsets)
        copied.add_done_callback(self._copied)
        return copied

    def _copied(self, ended: Future[None]) -> None:
        error = ended.exception()
        if error is not None:
            log.warning(
                "offsets of connector %s are in its own topic only: %s", self._connector, error
            )


@dataclass(slots=True)
class _Opened:
    store: OffsetStore
    users: int = 0


class ConnectorOffsetStores:
    """Opens the stores of connectors, and shares what is open already. Safe for several threads.

    A connector's own topic is read by a thread of its own as long as one of its users has it open.
    """

    def __init__(
        self,
        shared: OffsetStore,
        worker_props: Mapping[str, str],
        shared_topic: StorageTopic | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Take the worker's store.

        Args: shared_topic: Where the worker's store is, whose partitions and replication factor a
            connector's own topic
                gets when it is made; None: in a file, and the broker's defaults hold.
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
        """Have a connector's store open, its own topic made when it is missing and read to its end.

        Args:
            config: The connector's, placeholders resolved.
            timeout: Seconds for reading to the end.

        Raises:
            ConnectError: The topic is not available, or cannot be read in time.
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
        like = self._shared_topic
        wanted = StorageTopic(
            topic,
            OWN_TOPIC,
            like.partitions if like else -1,
            like.replication_factor if like else -1,
            {**(like.settings if like else {}), "cleanup.policy": "compact"},
        )
        create = (
            self._worker_props.get("internal.topics.automatic.creation.enable", "true")
            .strip()
            .lower()
            == "true"
        )
        TopicAdmin(clients.admin(), self._clock, create=create).ensure(wanted)

    def _leave(self, key: tuple[str, str, str]) -> None:
        with self._lock:
            opened = self._opened[key]
            opened.users -= 1
            if opened.users == 0:
                del self._opened[key]
        if opened.users == 0:
            opened.store.stop()
