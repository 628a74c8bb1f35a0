"""`SparkConfig`: the settings for a Spark driver and for a connector's Spark session."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from connect_py.api.config import with_prefix
from connect_py.api.errors import ConfigError
from connectors.iceberg.config.allowed_settings import (
    REMOTE,
    no_spark_connect,
    refused_settings,
)
from connectors.iceberg.config.keys import CATALOG_PREFIX, HADOOP_PREFIX, SPARK_PREFIX
from connectors.iceberg.config.sink_config import IcebergSinkConfig

# catalog for reading staged files and writing completed rows
STAGING_CATALOG: Final = "connect_py_staging"
# catalog for tables on which MERGE is recorded instead of committed
RECORDED_CATALOG: Final = "connect_py_recorded"
DEFAULT_HEAP: Final = "1g"
JARS_VARIABLE: Final = "CONNECT_PY_SPARK_JARS"  # additional jars, separated by os.pathsep
# Java's C2 compiler is disabled. It used 7 of the 17 CPU seconds in a driver's first two minutes,
# to compile code that runs only a few times per minute.
# With C1 alone, Java's code cache has only 48 MB. The classes that Spark generates fill this
# cache within days, and Java then stops compiling. Java's default with C2 is 240 MB, and unused
# memory is not allocated.
# With MaxHeapFreeRatio=50, the old generation may be twice as large as its live objects after a
# full collection. Java's default allows 3.3 times.
JVM_OPTIONS: Final = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:ReservedCodeCacheSize=240m",
    "-XX:MaxHeapFreeRatio=50",
)
WORKER_PREFIX: Final = "connect_py.spark."  # worker properties with the defaults for all drivers
# options from a CLI command, which take precedence over the connector's settings
COMMAND_PREFIX: Final = "connect_py.command.spark."
LOAD_PREFIX: Final = "connect_py.load.spark."  # defaults for bulk loads, with the lowest precedence
DRIVERS_MAX_KEY: Final = f"{WORKER_PREFIX}drivers.max"
DRIVERS_MAX: Final = 4
_CHOOSES_COLLECTOR = re.compile(r"-XX:\+Use\w+GC")
_SPARK_CATALOG = "org.apache.iceberg.spark.SparkCatalog"
_LOOPBACK = "127.0.0.1"
# Spark SQL settings that apply to the whole JVM instead of a session
_STATIC_SQL = re.compile(
    r"spark\.sql\.(extensions|warehouse\.dir|catalogImplementation|ui\.\w+|codegen\.cache\.\w+|event\.\w+.*|"
    r"streaming\.ui\..+|broadcastExchange\..+|subquery\..+|artifact\..+|cache\.serializer|queryExecutionListeners|"
    r"debug|globalTempDatabase|hive\..+|legacy\.sessionInitWithConfigDefaults|sources\.disabledJdbcConnProviderList|"
    r"filesourceTableRelationCacheSize|metadataCacheTTLSeconds|sources\.schemaStringLengthThreshold|shuffleExchange\..+|"
    r"defaultUrlStreamHandlerFactory\..+|redaction.*)"
)


@dataclass(frozen=True, slots=True)
class SparkConfig:
    """Spark settings from the properties of a connector and its worker."""

    catalog: str = "iceberg"  # name of the catalog
    # without the prefix `iceberg.catalog.`
    catalog_properties: Mapping[str, str] = field(default_factory=dict)
    # without the prefix `iceberg.hadoop.`
    hadoop_properties: Mapping[str, str] = field(default_factory=dict)
    spark_properties: Mapping[str, str] = field(default_factory=dict)  # full keys, `spark.…`
    # name of the connector if it has a separate driver process, or empty if the driver is shared
    own_driver_of: str = ""
    drivers_max: int = DRIVERS_MAX  # maximum number of drivers with different settings per worker

    @property
    def local(self) -> bool:
        """True if Spark runs in the driver's JVM instead of on a cluster."""
        return self.spark_properties.get("spark.master", "local").startswith("local")

    def jvm_options(self) -> list[str]:
        """Return the JVM options, which must be set before the Spark session is created."""
        defaults = list(JVM_OPTIONS)
        options = self.spark_properties.get("spark.driver.extraJavaOptions", "").split()
        if any(_CHOOSES_COLLECTOR.fullmatch(option) for option in options):
            # Java accepts only one garbage collector
            defaults = [option for option in defaults if not _CHOOSES_COLLECTOR.fullmatch(option)]
        heap = self.spark_properties.get("spark.driver.memory", DEFAULT_HEAP)
        return [f"-Xmx{heap}", *defaults, *options]

    def static_settings(self) -> dict[str, str]:
        """Return the settings that all sessions in a driver share.

        Connectors with equal static settings may share a driver.
        """
        settings = {
            "spark.app.name": "connect-py",
            "spark.master": f"local[{os.cpu_count() or 1}]",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.scheduler.mode": "FAIR",
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",  # noqa: E501 - one literal
            "spark.sql.catalogImplementation": "in-memory",
            "spark.cleaner.periodicGC.interval": "30min",
            "spark.sql.ui.retainedExecutions": "1",
            "spark.ui.retainedJobs": "1",
            "spark.ui.retainedStages": "1",
        }
        if self.local:  # prevent access to the driver over the network
            settings |= {"spark.driver.host": _LOOPBACK, "spark.driver.bindAddress": _LOOPBACK}
        else:
            settings |= self._jars_for_executors()
        return {**settings, **{k: v for k, v in self.spark_properties.items() if _is_static(k)}}

    def session_settings(self) -> dict[str, str]:
        """Return the settings for the connector's session. User settings take precedence."""
        prefix = f"spark.sql.catalog.{self.catalog}"
        return {
            "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
            "spark.sql.adaptive.enabled": "false",
            f"spark.sql.catalog.{STAGING_CATALOG}": "org.apache.iceberg.spark.SparkRewriteTableCatalog",  # noqa: E501 - one literal
            f"spark.sql.catalog.{RECORDED_CATALOG}": "connectpy.RecordedCatalog",
            "spark.sql.iceberg.distribution-mode": "none",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.ansi.enabled": "true",
            prefix: _SPARK_CATALOG,
            **{f"{prefix}.{key}": value for key, value in self.catalog_settings().items()},
            **{f"{prefix}.hadoop.{key}": value for key, value in self.hadoop_settings().items()},
            **{key: value for key, value in self.spark_properties.items() if not _is_static(key)},
        }

    def catalog_settings(self) -> dict[str, str]:
        """Return the properties of the catalog. Spark settings for the catalog take precedence."""
        spark_settings = with_prefix(self.spark_properties, f"spark.sql.catalog.{self.catalog}.")
        settings = {
            "cache-enabled": "false",
            **self.catalog_properties,
            **{k: v for k, v in spark_settings.items() if not k.startswith("hadoop.")},
        }
        if "type" not in settings and "catalog-impl" not in settings:
            settings["type"] = "hive"  # Iceberg's default
        if settings.get("type") == "jdbc" or settings.get("catalog-impl", "").endswith(
            ".JdbcCatalog"
        ):
            # database schema that PyIceberg's SQL catalog uses
            settings.setdefault("jdbc.schema-version", "V1")
            uri = settings.get("uri", "")
            if uri.startswith("jdbc:sqlite:") and "synchronous=" not in uri.lower():
                # With a lower level, a deleted journal may reappear after a power failure, and
                # SQLite would then roll back a commit.
                settings.setdefault("jdbc.synchronous", "EXTRA")
        return settings

    def hadoop_settings(self) -> dict[str, str]:
        """Return the settings for Hadoop's file systems. Spark settings take precedence."""
        return {
            **self.hadoop_properties,
            **with_prefix(self.spark_properties, "spark.hadoop."),
            **with_prefix(self.spark_properties, f"spark.sql.catalog.{self.catalog}.hadoop."),
        }

    def _jars_for_executors(self) -> dict[str, str]:
        """Return the setting that sends the additional jars to the executors of a cluster.

        The result is empty if the class path of the executors is configured.
        """
        if "spark.executor.extraClassPath" in self.spark_properties:
            return {}
        return {
            "spark.jars": ",".join(
                filter(None, os.environ.get(JARS_VARIABLE, "").split(os.pathsep))
            )
        }


def worker_spark_config(
    config: IcebergSinkConfig, worker_settings: Callable[[str], Mapping[str, str]]
) -> SparkConfig:
    """Return the settings for a connector's Spark driver and session.

    Connector settings take precedence over the worker's `connect_py.spark.*`, and command options
    take precedence over both. The default JVM options for a bulk load are placed first, so that
    later options override them.

    Args:
        config: The configuration of the connector.
        worker_settings: Returns the worker properties that start with a prefix.

    Raises:
        ConfigError: The worker does not permit a setting, or a setting is no longer supported.
    """
    connector_settings = {
        **{SPARK_PREFIX + key.removeprefix("spark."): value for key, value in config.spark.items()},
        **{CATALOG_PREFIX + key: value for key, value in config.catalog.items()},
        **{HADOOP_PREFIX + key: value for key, value in config.hadoop.items()},
    }
    for key, reason in [
        *refused_settings(connector_settings, worker_settings),
        *unsupported_worker_settings(worker_settings),
    ]:
        raise ConfigError(key, reason)
    load_settings, defaults, command_settings = (
        {
            key[len(prefix) - len("spark.") :]: value
            for key, value in worker_settings(prefix).items()
        }
        for prefix in (LOAD_PREFIX, WORKER_PREFIX, COMMAND_PREFIX)
    )
    for worker_key in ("spark.drivers.max", "spark.settings.allowed", "spark.user-code.allowed"):
        defaults.pop(worker_key, None)
    settings = {**defaults, **config.spark, **command_settings}
    for key in load_settings.keys() & settings.keys():
        if key.endswith(".extraJavaOptions"):
            # if options contradict each other, Java uses the last one
            settings[key] = f"{load_settings[key]} {settings[key]}"
    return SparkConfig(
        config.catalog_name,
        config.catalog,
        config.hadoop_settings(),
        {**load_settings, **settings},
        config.connector if config.own_driver else "",
        _drivers_max(worker_settings(DRIVERS_MAX_KEY).get(DRIVERS_MAX_KEY, str(DRIVERS_MAX))),
    )


def unsupported_worker_settings(
    worker_settings: Callable[[str], Mapping[str, str]],
) -> Iterator[tuple[str, str]]:
    """Iterate over the worker's properties that are no longer supported, with error messages."""
    for prefix in (WORKER_PREFIX, COMMAND_PREFIX):
        key = prefix + REMOTE.removeprefix("spark.")
        if key in worker_settings(key):
            yield key, no_spark_connect(f"{prefix}master")


def _drivers_max(text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise ConfigError(
            DRIVERS_MAX_KEY,
            f"invalid value {text!r} in the worker's properties: must be at least 1",
        )
    return int(text)


def _is_static(key: str) -> bool:
    return not key.startswith("spark.sql.") or _STATIC_SQL.fullmatch(key) is not None
