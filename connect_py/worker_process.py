"""`WorkerProcess`: startup, run, and shutdown of a worker process in either mode."""

from __future__ import annotations

import importlib.metadata
import logging
import os
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar, Final, Generic, TypeVar, cast

from confluent_kafka import KafkaException

from connect_py.api.config import ConfigValueError
from connect_py.api.errors import ConfigError, ConnectError
from connect_py.api.plugin import PluginKind
from connect_py.clock import SystemClock
from connect_py.config.bootstrap_servers import check_resolvable
from connect_py.config.properties_file import read_properties
from connect_py.config.worker_config import StorageTopic, WorkerConfig
from connect_py.connector_file import ConnectorFile
from connect_py.herder.connect_herder import ConnectHerder
from connect_py.kafka.broker_errors import LastBrokerError
from connect_py.kafka.client_config import translate
from connect_py.log_output import configure_logging, set_log_levels
from connect_py.plugins.plugin_registry import PluginRegistry
from connect_py.rest_service import RestService
from connect_py.storage.connector_offset_store import ConnectorOffsetStores
from connect_py.storage.offset_store import OffsetStore
from connect_py.storage.storage_clients import Settings, StorageClients
from connect_py.storage.topic_admin import TopicAdmin
from connect_py.worker.source_task_session import SourceTaskGate
from connect_py.worker.worker import Worker
from connect_py.worker.worker_listener import WorkerListener

log = logging.getLogger(__name__)

ENDED, NOT_STARTED, STARTED_BADLY = 1, 2, 3  # exit statuses
NO_CLIENT: Final = "Failed to create new KafkaAdminClient"  # Java's message
CLUSTER_SECONDS: Final = 60.0  # maximum time to wait for Kafka at startup
CLUSTER_ATTEMPT_SECONDS: Final = 4.0
CONNECTOR_STOP_SECONDS: Final = 5.0
FORWARDING_STOP_SECONDS: Final = 10.0
SERVICE_STOP_SECONDS: Final = 8.0  # for a graceful stop and, if it fails, a kill
POLL_SECONDS: Final = 0.2
CONVERTERS: Final = {
    "key.converter": PluginKind.CONVERTER,
    "value.converter": PluginKind.CONVERTER,
    "header.converter": PluginKind.HEADER_CONVERTER,
}

C = TypeVar("C", bound=WorkerConfig)


class WorkerProcess(ABC, Generic[C]):
    """Runs a worker on the main thread. Subclasses create the herder."""

    config_type: ClassVar[type[Any]]

    def __init__(self, log_levels: Mapping[str, str] | None = None) -> None:
        """Create the process.

        Args:
            log_levels: Levels by logger, from the command line. "root" applies to all loggers.
                These levels override the levels in the properties file.
        """
        self._log_levels = dict(log_levels or {})
        self._stopping = threading.Event()

    @abstractmethod
    def make_herder(
        self,
        config: C,
        plugins: PluginRegistry,
        clients: StorageClients,
        cluster_id: str,
        rest: RestService,
    ) -> ConnectHerder:
        """Create the herder without starting it."""

    def after_start(self, herder: ConnectHerder) -> None:
        """Perform the actions that the command line requests. An error causes exit status 3."""

    def run(self, properties: Path) -> int:
        """Run a worker until SIGTERM or SIGINT, and return the exit status."""
        clock = SystemClock()
        started_at = clock.monotonic()
        configure_logging()
        log.info("Kafka Connect worker initializing ...")
        try:
            config = self._read(properties)
            config.log_values()
            self._listen_to_signals()
            rest = RestService(config)
        except (ConnectError, OSError, ValueError) as error:
            return _refuse(error)
        try:
            herder = self._herder(config, rest)
        except ConnectError as error:
            rest.stop()
            return _refuse(error)
        if herder is None:
            rest.stop()
            return 0
        log.info(
            "Kafka Connect worker initialization took %d ms",
            1000 * (clock.monotonic() - started_at),
        )
        status = self._serve(config, herder, rest)
        log.info("Kafka Connect stopped")
        return status

    def _read(self, properties: Path) -> C:
        config = cast(C, self.config_type.of(read_properties(properties)))
        configure_logging(config["connect_py.log.format"])
        set_log_levels(config.log_levels() | self._log_levels)
        return config

    def _serve(self, config: C, herder: ConnectHerder, rest: RestService) -> int:
        log.info("Kafka Connect starting")
        herder.start()
        herder.prestart_services(_announced_connectors(config["connect_py.services.connectors"]))
        status = 0
        try:
            rest.start(herder)
        except ConnectError as error:
            log.error("Failed to start Connect: %s", error)
            status = STARTED_BADLY
        if status == 0:
            log.info("Kafka Connect started")
            try:
                self.after_start(herder)
            except (ConnectError, OSError, ValueError) as error:
                log.error("Stopping after connector error: %s", error)
                status = STARTED_BADLY
        while status == 0 and not self._stopping.wait(POLL_SECONDS) and not herder.wait(0):
            pass
        log.info("Kafka Connect stopping")
        additional_seconds = CONNECTOR_STOP_SECONDS + SERVICE_STOP_SECONDS + FORWARDING_STOP_SECONDS
        in_time = herder.stop(config.stop_ms() / 1000 + additional_seconds)
        rest.stop()
        if herder.failure is not None:
            log.error("Stopping due to error: %s", herder.failure)
            return ENDED if herder.started() else NOT_STARTED
        if not in_time:
            log.error("the herder did not stop in time")
            logging.shutdown()
            os._exit(status or ENDED)  # threads that hang must not keep the process running
        return status

    def _listen_to_signals(self) -> None:
        """Install signal handlers.

        The first SIGTERM or SIGINT requests a graceful stop. The second one ends the process
        immediately.
        """

        def stop(number: int, _frame: FrameType | None) -> None:
            if self._stopping.is_set():
                os._exit(128 + number)
            self._stopping.set()

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)

    def _herder(self, config: C, rest: RestService) -> ConnectHerder | None:
        """Connect to the Kafka cluster and create the herder.

        Return None if the worker is stopped in the meantime.

        Raises:
            ConnectError: Kafka cannot be reached, or a client setting is invalid.
        """
        log.info("Advertised URI: %s", rest.advertised_url)
        try:
            check_resolvable(config["bootstrap.servers"])
        except ConfigError as error:
            raise ConfigError("", f"{NO_CLIENT}: {error.why}") from error
        clients = StorageClients(
            cast(Settings, translate(config.kafka_settings(), "admin")), config.client_id_prefix
        )
        try:
            cluster_id = self._cluster_id(clients)
        except KafkaException as error:
            raise ConnectError(f"{NO_CLIENT}: {error.args[0].str()}") from error
        if cluster_id is None:
            return None
        log.info("Kafka cluster ID: %s", cluster_id)
        _export_spark_environment()
        return self.make_herder(config, _plugins(config), clients, cluster_id, rest)

    def _cluster_id(self, clients: StorageClients) -> str | None:
        """Request the cluster ID for up to one minute. Return None if the worker is stopped."""
        clock = SystemClock()
        deadline = clock.monotonic() + CLUSTER_SECONDS
        broker_error = LastBrokerError()
        admin = clients.admin(broker_error.record)
        topics = TopicAdmin(admin, clock)
        while not self._stopping.is_set():
            try:
                return topics.cluster_id(CLUSTER_ATTEMPT_SECONDS)
            except ConnectError as error:
                admin.poll(0)
                reason = f"{error} ({broker_error.reason})" if broker_error.reason else str(error)
                if clock.monotonic() >= deadline:
                    raise ConnectError(
                        "Failed to connect to and describe Kafka cluster. Check worker's broker "
                        "connection and security properties. "
                        f"bootstrap.servers={clients.settings.get('bootstrap.servers')}: {reason}"
                    ) from error
                log.warning(
                    "Kafka at %s is unreachable, retrying: %s",
                    clients.settings.get("bootstrap.servers"),
                    reason,
                )
        return None


def _announced_connectors(paths: Iterable[str]) -> dict[str, Mapping[str, str | None]]:
    """Return the configurations in these files, keyed by connector name.

    Files that cannot be read are logged and skipped.
    """
    configs = {}
    for path in paths:
        try:
            file = ConnectorFile.read(Path(path))
            configs[file.name] = file.config
        except (ConnectError, OSError, ValueError) as error:
            log.warning("connect_py.services.connectors: %s cannot be read: %s", path, error)
    return configs


def version() -> str:
    """Return the version of connect-py, which is reported alongside Kafka Connect's version."""
    return importlib.metadata.version("connect-py")


def make_worker(
    config: WorkerConfig,
    plugins: PluginRegistry,
    listener: WorkerListener,
    offsets: OffsetStore,
    gate: SourceTaskGate | None = None,
    *,
    offset_topic: StorageTopic | None = None,
) -> Worker:
    """Create the worker for either mode. Without `offset_topic`, offsets are stored in a file."""
    return Worker(
        config.props,
        plugins=plugins,
        listener=listener,
        resolve=config.resolver.resolve,
        source_offsets=offsets,
        offset_stores=ConnectorOffsetStores(offsets, config.props, offset_topic),
        gate=gate,
    )


def _plugins(config: WorkerConfig) -> PluginRegistry:
    """Return the installed plugins, which must include the worker's own converters.

    Raises:
        ConfigError: A converter is not installed.
    """
    plugins = PluginRegistry.discover(config["plugin.path"] or ())
    for key, kind in CONVERTERS.items():
        try:
            plugins.find(config[key], kind, versions=config[f"{key}.plugin.version"])
        except ConnectError as error:
            raise ConfigValueError(
                key, config[key], f"Class {config[key]} could not be found."
            ) from error
    return plugins


def _refuse(error: Exception) -> int:
    log.error("Stopping due to error: %s", error)
    return NOT_STARTED


def _export_spark_environment() -> None:
    """Export the locations of Java and of Spark's jars to task processes.

    If Java or the jars are missing, export the reason instead. Nothing is downloaded.
    """
    from connect_py.embedded.jar_lock import JarLock, JarLockError
    from connect_py.embedded.java_runtime import JavaNotFoundError
    from connect_py.embedded.spark_environment import (
        JARS_VARIABLE,
        PROBLEM_VARIABLE,
        spark_environment,
    )

    os.environ.pop(PROBLEM_VARIABLE, None)
    try:
        if JARS_VARIABLE in os.environ or JarLock.shipped("spark").fetched:
            os.environ.update(spark_environment())
            return
        problem = "Spark's jars are missing: run `connect-py jars spark` and restart the worker"
    except JavaNotFoundError as error:
        problem = f"{error}: install Java 17 or 21, or set JAVA_HOME, and restart the worker"
    except (JarLockError, OSError) as error:
        problem = f"{error}: run `connect-py jars spark` and restart the worker"
    os.environ[PROBLEM_VARIABLE] = problem
    log.warning("Iceberg connectors cannot start Spark: %s", problem)
