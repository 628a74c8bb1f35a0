"""`ConnectorOffsets`: reads and changes the committed offsets of connectors."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Final, TypeAlias, TypeVar

from connect_py.api.errors import ConnectError
from connect_py.api.plugin import Plugin, PluginKind
from connect_py.api.record import OffsetAndMetadata, TopicPartition
from connect_py.clock import Clock
from connect_py.kafka.client_config import ClientConfigs, exactly_once_sources
from connect_py.kafka.cluster_admin import ClusterAdmin, GroupNotEmptyError
from connect_py.log_context import log_context
from connect_py.model import ConnectorOffset
from connect_py.plugins.plugin_registry import PluginRegistry
from connect_py.storage.connector_offset_store import (
    ConnectorOffsetStore,
    ConnectorOffsetStores,
    Records,
)
from connect_py.storage.offset_table import check_primitives
from connect_py.storage.transactional_offset_writer import write_in_transaction
from connect_py.worker.connector_hosts import ConnectorHosts
from connect_py.worker.connector_messages import AlterOffsets

REQUEST_SECONDS: Final = 90.0  # maximum duration of a user's request
READ_SECONDS: Final = 30.0
COPY_SECONDS: Final = 10.0  # maximum wait for the copy to the worker's offsets topic
THREADS: Final = 4  # maximum number of requests that wait for Kafka or a connector concurrently

Props: TypeAlias = Mapping[str, str]
SinkOffsets: TypeAlias = Mapping[TopicPartition, int | None]

log = logging.getLogger(__name__)

T = TypeVar("T")


class ConnectorOffsets:
    """Reads and changes committed offsets on dedicated threads, and returns futures.

    Callers pass unresolved configurations. Before a change, the caller must check that the
    connector is stopped. It must also fence the tasks of a source connector that has exactly-once
    support. A sink's consumer group cannot be changed while tasks are running.
    """

    def __init__(
        self,
        worker_props: Props,
        plugins: PluginRegistry,
        connectors: ConnectorHosts,
        stores: ConnectorOffsetStores | None,
        resolve: Callable[[Props], Props],
        clock: Clock,
    ) -> None:
        """Create the object. If `stores` is None, requests for source connectors fail."""
        self._worker_props = worker_props
        self._plugins = plugins
        self._connectors = connectors
        self._stores = stores
        self._resolve = resolve
        self._clock = clock
        self._executor = ThreadPoolExecutor(THREADS, "connector-offsets")

    def close(self) -> None:
        """Reject new requests, and cancel requests that have not started."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    # Reading

    def read(self, name: str, config: Props) -> Future[list[ConnectorOffset]]:
        """Return all committed offsets of a connector, whether it is running or not.

        Errors: ConnectError with Kafka Connect's message.
        """
        return self._submit(name, lambda: self._read(name, config))

    def _read(self, name: str, config: Props) -> list[ConnectorOffset]:
        plugin, props = self._plugin(config), self._resolve(config)
        if plugin.kind is PluginKind.SINK:
            with _wrapped_errors(
                f"Failed to retrieve consumer group offsets for sink connector {name}"
            ):
                clients = self._clients(name, props)
                return _sink_offsets(self._admin(clients).group_offsets(clients.group_id()))
        with (
            _wrapped_errors(f"Failed to retrieve offsets for source connector {name}"),
            self._store(name, props) as store,
        ):
            return [ConnectorOffset(partition, offset) for partition, offset in store.offsets()]

    # Changing a sink's offsets

    def alter_sink(
        self, name: str, config: Props, offsets: SinkOffsets | None, start_number: int
    ) -> Future[str]:
        """Change a sink's offsets, or reset all of them. Returns Kafka Connect's message.

        Args:
            name: Name of the connector.
            config: Configuration of the connector.
            offsets: Offset of the next record to read for each partition, or None to reset the
                partition. If the mapping is None, all offsets are reset.
            start_number: Config topic offset of the record that last started or changed the
                connector.

        Errors: ConnectError, with Kafka Connect's message if there is one.
        """
        return self._submit(name, lambda: self._alter_sink(name, config, offsets, start_number))

    def _alter_sink(
        self, name: str, config: Props, offsets: SinkOffsets | None, start_number: int
    ) -> str:
        deadline = self._clock.monotonic() + REQUEST_SECONDS
        with _wrapped_errors(f"Failed to modify offsets for sink connector {name}", keep=True):
            plugin, props = self._plugin(config), self._resolve(config)
            clients = self._clients(name, props)
            admin, group = self._admin(clients), clients.group_id()
            new_offsets: SinkOffsets
            if offsets is None:
                with _wrapped_errors(
                    f"Failed to list offsets prior to resetting offsets for sink connector {name}"
                ):
                    new_offsets = dict.fromkeys(admin.group_offsets(group))
            else:
                new_offsets = offsets
            response = self._call_alter_offsets(
                name, plugin, props, new_offsets, start_number, "sink", deadline
            )
            with _wrapped_group_errors(name, reset=offsets is None):
                if isinstance(response, Mapping):
                    admin.alter_group_offsets(
                        group, {tp: at for tp, at in response.items() if at is not None}
                    )
                    admin.delete_group_offsets(
                        group, [tp for tp, at in response.items() if at is None]
                    )
                elif offsets is None:
                    admin.delete_group(group)
                else:
                    _alter_group(admin, group, new_offsets)
            return _message(offsets is None, bool(response) or isinstance(response, Mapping))

    # Changing a source's offsets

    def alter_source(
        self, name: str, config: Props, offsets: Sequence[ConnectorOffset] | None, start_number: int
    ) -> Future[str]:
        """Change a source's offsets, or reset all of them if `offsets` is None.

        The other arguments and the errors are the same as for `alter_sink`.
        """
        return self._submit(name, lambda: self._alter_source(name, config, offsets, start_number))

    def _alter_source(
        self, name: str, config: Props, offsets: Sequence[ConnectorOffset] | None, start_number: int
    ) -> str:
        deadline = self._clock.monotonic() + REQUEST_SECONDS
        with _wrapped_errors(f"Failed to modify offsets for source connector {name}", keep=True):
            plugin, props = self._plugin(config), self._resolve(config)
            with self._store(name, props) as store:
                new_offsets: list[tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]]
                if offsets is None:
                    new_offsets = [(partition, None) for partition, _ in store.offsets()]
                else:
                    new_offsets = [(entry.partition, entry.offset) for entry in offsets]
                for partition, offset in new_offsets:
                    check_primitives(partition)
                    check_primitives(offset)
                response = self._call_alter_offsets(
                    name, plugin, props, new_offsets, start_number, "source", deadline
                )
                if new_offsets:
                    with _wrapped_errors(f"Failed to modify offsets for source connector {name}"):
                        copied = store.set(new_offsets, self._transaction(name, props, store))
                        if not wait([copied], COPY_SECONDS).done:
                            log.warning(
                                "offsets of connector %s are still being copied to the worker's "
                                "topic",
                                name,
                            )
                else:
                    log.info("source connector %s has no offsets to reset", name)
            return _message(offsets is None, bool(response))

    def _transaction(
        self, name: str, props: Props, store: ConnectorOffsetStore
    ) -> Callable[[Records], None] | None:
        """Return a function that writes offsets in a transaction.

        Returns None if source tasks do not use transactions.
        """
        if not exactly_once_sources(self._worker_props):
            return None
        settings = self._clients(name, props).transactional_producer(0)

        def write(records: Records) -> None:
            write_in_transaction(settings, store.topic, records, READ_SECONDS)
            store.refresh(READ_SECONDS)

        return write

    # Common methods

    def _submit(self, name: str, call: Callable[[], T]) -> Future[T]:
        def run() -> T:
            with log_context(name, scope="offsets"):
                try:
                    return call()
                except ConnectError as error:
                    log.error("%s", error, exc_info=error.__cause__)
                    raise

        return self._executor.submit(run)

    def _plugin(self, config: Props) -> Plugin:
        return self._plugins.connector_of(config)

    def _clients(self, name: str, props: Props) -> ClientConfigs:
        return ClientConfigs(self._worker_props, props, name)

    def _admin(self, clients: ClientConfigs) -> ClusterAdmin:
        return ClusterAdmin(clients.admin("connector-worker-adminclient"))

    @contextlib.contextmanager
    def _store(self, name: str, props: Props) -> Iterator[ConnectorOffsetStore]:
        """Open the connector's offset store and read it to the end."""
        if self._stores is None:
            raise ConnectError("this worker does not store offsets for source connectors")
        with self._stores.open(name, props, READ_SECONDS) as store:
            store.refresh(READ_SECONDS)
            yield store

    def _call_alter_offsets(
        self,
        name: str,
        plugin: Plugin,
        props: Props,
        offsets: object,
        start_number: int,
        kind: str,
        deadline: float,
    ) -> Any:
        """Call the connector's `alter_offsets`."""
        response = self._connectors.host_of(plugin.location).request(
            AlterOffsets(plugin, name, dict(props), offsets, self._worker_props, start_number)
        )
        try:
            return response.result(max(0.0, deadline - self._clock.monotonic()))
        except NotImplementedError as error:
            raise ConnectError(
                f"Failed to modify offsets for connector {name} because it doesn't support "
                "external modification of offsets"
            ) from error
        except FutureTimeoutError as error:
            raise ConnectError(
                f"Timed out while calling the 'alterOffsets' method for {kind} connector {name}"
            ) from error


@contextlib.contextmanager
def _wrapped_errors(message: str, *, keep: bool = False) -> Iterator[None]:
    """Wrap errors in a ConnectError with this message, which is Kafka Connect's.

    If `keep` is true, raise a ConnectError unchanged.
    """
    try:
        yield
    except Exception as error:
        if keep and isinstance(error, ConnectError):
            raise
        raise ConnectError(message) from error


@contextlib.contextmanager
def _wrapped_group_errors(connector: str, *, reset: bool) -> Iterator[None]:
    """Wrap errors from changing consumer group offsets.

    The change fails while the group has members.
    """
    verb = "reset" if reset else "alter"
    try:
        yield
    except GroupNotEmptyError as error:
        raise ConnectError(
            f"Failed to {verb} consumer group offsets for connector {connector} either because "
            "its tasks haven't stopped completely yet or the connector was resumed before the "
            f"request to {verb} its offsets could be successfully completed. If the connector is "
            "in a stopped state, this operation can be safely retried. If it doesn't eventually "
            "succeed, the Connect cluster may need to be restarted to get rid of the zombie sink "
            "tasks."
        ) from error
    except ConnectError as error:
        label = "sink connector" if reset else "connector"
        raise ConnectError(
            f"Failed to {verb} consumer group offsets for {label} {connector}"
        ) from error


def _alter_group(admin: ClusterAdmin, group: str, offsets: SinkOffsets) -> None:
    if any(offset is not None and offset < 0 for offset in offsets.values()):
        raise ValueError("Invalid negative offset")
    admin.alter_group_offsets(
        group, {tp: OffsetAndMetadata(at) for tp, at in offsets.items() if at is not None}
    )
    admin.delete_group_offsets(group, [tp for tp, at in offsets.items() if at is None])


def _sink_offsets(committed: Mapping[TopicPartition, OffsetAndMetadata]) -> list[ConnectorOffset]:
    return [
        ConnectorOffset(
            {"kafka_partition": tp.partition, "kafka_topic": tp.topic}, {"kafka_offset": at.offset}
        )
        for tp, at in sorted(committed.items())
    ]


def _message(reset: bool, handled_by_connector: bool) -> str:
    verb = "reset" if reset else "altered"
    if handled_by_connector:
        return f"The offsets for this connector have been {verb} successfully"
    return (
        f"The Connect framework-managed offsets for this connector have been {verb} successfully. "
        "However, if this connector manages offsets externally, they will need to be manually "
        f"{verb} in the system that the connector uses."
    )
