"""The distributed worker, put together: properties, stores, herder, worker, REST server; and its end."""

from __future__ import annotations

import importlib.metadata
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import cast

from connect_py.api.errors import ConfigError, ConnectError
from connect_py.clock import SystemClock
from connect_py.config.properties_file import read_properties
from connect_py.config.worker_config import DistributedConfig
from connect_py.herder.distributed_herder import DistributedHerder
from connect_py.herder.status_publisher import StatusPublisher
from connect_py.kafka.client_config import translate
from connect_py.log_context import ContextFilter, TextFormatter
from connect_py.plugins.plugin_registry import PluginRegistry
from connect_py.rest_service import RestService
from connect_py.storage.offset_store import OffsetStore
from connect_py.storage.storage_clients import Settings, StorageClients
from connect_py.storage.topic_admin import TopicAdmin
from connect_py.worker.worker import Worker

log = logging.getLogger(__name__)

FAILED_LATER, FAILED_START = 1, 2  # exit statuses
CLUSTER_SECONDS = 60.0  # how long Kafka may be unreachable at start
CLUSTER_ATTEMPT_SECONDS = 4.0
CONNECTOR_STOP_SECONDS = 5.0
FORWARDING_STOP_SECONDS = 10.0
POLL_SECONDS = 0.2
NOISY_LOGGERS = ("py4j", "uvicorn.error")  # theirs at INFO tell operators nothing


def run_distributed(properties: Path) -> int:
    """Run a worker until SIGTERM or SIGINT and return the process's exit status."""
    _configure_logging()
    log.info("Kafka Connect worker initializing ...")
    try:
        config = DistributedConfig.of(read_properties(properties))
    except (ConfigError, OSError, ValueError) as error:
        return _refuse(error)
    config.log_values()
    stopping = _stop_signals()
    try:
        server = RestService(config)
    except ConnectError as error:
        return _refuse(error)
    try:
        herder = _herder(config, server.advertised_url, stopping)
    except ConnectError as error:
        server.stop()
        return _refuse(error)
    if herder is None:
        server.stop()
        return 0
    herder.start()
    try:
        server.start(herder)
    except ConnectError as error:
        stopping.set()
        _refuse(error)
    log.info("Kafka Connect started")
    while not stopping.wait(POLL_SECONDS) and not herder.wait(0):
        pass
    log.info("Kafka Connect stopping")
    in_time = herder.stop(_stop_seconds(config))
    server.stop()
    log.info("Kafka Connect stopped")
    if herder.failure is not None:
        log.error("Stopping due to error: %s", herder.failure)
        return FAILED_LATER if herder.started() else FAILED_START
    if not in_time:
        log.error("the herder did not stop within %g s", _stop_seconds(config))
        os._exit(FAILED_LATER)  # threads that hang must not keep the process
    return 0


def _configure_logging() -> None:
    """Text lines on standard output, for this process and what its children send."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(TextFormatter())
    handler.addFilter(ContextFilter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.captureWarnings(True)
    for name in NOISY_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)


def _refuse(error: Exception) -> int:
    log.error("Stopping due to error: %s", error)
    return FAILED_START


def _stop_signals() -> threading.Event:
    """The first SIGTERM or SIGINT asks for a graceful stop, the second ends the process at once."""
    stopping = threading.Event()

    def stop(number: int, _frame: FrameType | None) -> None:
        if stopping.is_set():
            os._exit(128 + number)
        stopping.set()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    return stopping


def _herder(config: DistributedConfig, advertised_url: str, stopping: threading.Event) -> DistributedHerder | None:
    """Find the Kafka cluster and make the herder; None when the worker is stopped meanwhile.

    Raises:
        ConnectError: Kafka cannot be reached, or a setting of its clients is wrong.
    """
    log.info("Advertised URI: %s", advertised_url)
    clients = StorageClients(cast(Settings, translate(config.kafka_settings(), "admin")), config.client_id_prefix)
    cluster_id = _cluster_id(clients, stopping)
    if cluster_id is None:
        return None
    log.info("Kafka cluster ID: %s", cluster_id)
    _export_spark_environment()
    return DistributedHerder(
        config,
        clients=clients,
        cluster_id=cluster_id,
        advertised_url=advertised_url,
        commit=importlib.metadata.version("connect-py"),
        make_worker=_make_worker(config),
    )


def _make_worker(config: DistributedConfig) -> Callable[[StatusPublisher, OffsetStore], Worker]:
    def make(listener: StatusPublisher, offsets: OffsetStore) -> Worker:
        return Worker(
            config.props,
            plugins=PluginRegistry.discover(),
            listener=listener,
            resolve=config.resolver.resolve,
            source_offsets=offsets,
        )

    return make


def _cluster_id(clients: StorageClients, stopping: threading.Event) -> str | None:
    """Ask for the cluster's id, for a minute; None when the worker is stopped meanwhile."""
    clock = SystemClock()
    deadline = clock.monotonic() + CLUSTER_SECONDS
    topics = TopicAdmin(clients.admin(), clock)
    while not stopping.is_set():
        try:
            return topics.cluster_id(CLUSTER_ATTEMPT_SECONDS)
        except ConnectError as error:
            if clock.monotonic() >= deadline:
                raise ConnectError(
                    "Failed to connect to and describe Kafka cluster. Check worker's broker connection and security "
                    f"properties. bootstrap.servers={clients.settings.get('bootstrap.servers')}: {error}"
                ) from error
            log.warning("Kafka at %s: %s; trying again", clients.settings.get("bootstrap.servers"), error)
    return None


def _export_spark_environment() -> None:
    """Tell the processes of tasks where Java and Spark's jars are, if that is known without a download."""
    from connect_py.embedded.cache_directory import cache_directory
    from connect_py.embedded.jar_lock import JarLock, JarLockError
    from connect_py.embedded.java_runtime import JavaNotFoundError
    from connect_py.embedded.spark_environment import JARS_VARIABLE, spark_environment

    try:
        lock = JarLock.shipped("spark")
        if JARS_VARIABLE in os.environ or (cache_directory() / "jars" / f"{lock.name}-{lock.fingerprint}").is_dir():
            os.environ.update(spark_environment())
        else:
            log.info("Spark's jars are not in the cache: Iceberg connectors need `connect-py jars spark` first")
    except (JavaNotFoundError, JarLockError, OSError) as error:
        log.warning("Iceberg connectors will not find Spark: %s", error)


def _stop_seconds(config: DistributedConfig) -> float:
    """Tasks, connectors and requests under way, each with its own time."""
    asked = (config["worker.sync.timeout.ms"] + config["task.shutdown.graceful.timeout.ms"]) / 1000
    return float(asked + CONNECTOR_STOP_SECONDS + FORWARDING_STOP_SECONDS)
