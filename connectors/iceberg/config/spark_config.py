"""`SparkConfig`: what a Spark driver and a connector's session are made from."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from connect_py.api.config import with_prefix
from connect_py.api.errors import ConfigError
from connectors.iceberg.config.allowed_settings import REMOTE, no_spark_connect, refused_settings
from connectors.iceberg.config.keys import CATALOG_PREFIX, HADOOP_PREFIX, SPARK_PREFIX
from connectors.iceberg.config.sink_config import IcebergSinkConfig

# Spark reads staged files through it, and writes completed rows
STAGING_CATALOG: Final = "connect_py_staging"
# of tables whose MERGE is recorded instead of committed
RECORDED_CATALOG: Final = "connect_py_recorded"
DEFAULT_HEAP: Final = "1g"
JARS_VARIABLE: Final = "CONNECT_PY_SPARK_JARS"  # jars beside pyspark's own, joined by os.pathsep
# Without C2: it took 7 of the 17 CPU seconds of a driver's first two minutes, for work that comes a
# few times a minute. With C1 alone, Java reserves 48 MB for compiled code; the classes that Spark
# generates fill it within days, and then Java stops compiling. 240 MB is Java's own default with
# C2. Only used memory counts.
JVM_OPTIONS: Final = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:ReservedCodeCacheSize=240m",
)
WORKER_PREFIX: Final = "connect_py.spark."  # of worker properties: the defaults of all drivers
# what a command's options say: it wins over the connector
COMMAND_PREFIX: Final = "connect_py.command.spark."
LOAD_PREFIX: Final = "connect_py.load.spark."  # the defaults of a load, below all others
DRIVERS_MAX_KEY: Final = f"{WORKER_PREFIX}drivers.max"
DRIVERS_MAX: Final = 4
_CHOOSES_COLLECTOR = re.compile(r"-XX:\+Use\w+GC")
_SPARK_CATALOG = "org.apache.iceberg.spark.SparkCatalog"
_LOOPBACK = "127.0.0.1"
# Settings of Spark SQL that belong to the JVM, not to a session.
_STATIC_SQL = re.compile(
    r"spark\.sql\.(extensions|warehouse\.dir|catalogImplementation|ui\.\w+|codegen\.cache\.\w+|event\.\w+.*|"
    r"streaming\.ui\..+|broadcastExchange\..+|subquery\..+|artifact\..+|cache\.serializer|queryExecutionListeners|"
    r"debug|globalTempDatabase|hive\..+|legacy\.sessionInitWithConfigDefaults|sources\.disabledJdbcConnProviderList|"
    r"filesourceTableRelationCacheSize|metadataCacheTTLSeconds|sources\.schemaStringLengthThreshold|shuffleExchange\..+|"
    r"defaultUrlStreamHandlerFactory\..+|redaction.*)"
)


@dataclass(frozen=True, slots=True)
class SparkConfig:
    """Parsed once from the connector's properties."""

    catalog: str = "iceberg"  # name of the catalog
    # without `iceberg.catalog.`
    catalog_properties: Mapping[str, str] = field(default_factory=dict)
    hadoop_properties: Mapping[str, str] = field(default_factory=dict)  # without `iceberg.hadoop.`
    spark_properties: Mapping[str, str] = field(default_factory=dict)  # `spark.…`
    # the connector that has a driver process of its own; empty: it is shared
    own_driver_of: str = ""
    drivers_max: int = DRIVERS_MAX  # drivers with different settings that a worker may run

    @property
    def local(self) -> bool:
        """Whether Spark runs in the driver's JVM, and not on a cluster."""
        return self.spark_properties.get("spark.master", "local").startswith("local")

    def jvm_options(self) -> list[str]:
        """Options that Spark cannot apply itself, because the JVM runs before the session
        exists."""
        own = list(JVM_OPTIONS)
        extra = self.spark_properties.get("spark.driver.extraJavaOptions", "").split()
        if any(_CHOOSES_COLLECTOR.fullmatch(option) for option in extra):  # Java refuses two
            own = [option for option in own if not _CHOOSES_COLLECTOR.fullmatch(option)]
        return [
            f"-Xmx{self.spark_properties.get('spark.driver.memory', DEFAULT_HEAP)}",
            *own,
            *extra,
        ]

    def static_settings(self) -> dict[str, str]:
        """Settings that all sessions of a driver share; connectors with equal ones may share the
        driver."""
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
        if self.local:  # else any process of the network could reach the driver
            settings |= {"spark.driver.host": _LOOPBACK, "spark.driver.bindAddress": _LOOPBACK}
        else:
            settings |= self._jars_for_executors()
        return {**settings, **{k: v for k, v in self.spark_properties.items() if _is_static(k)}}

    def session_settings(self) -> dict[str, str]:
        """Return the settings of the connector's session. Settings of the user come last and
        win."""
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
        """What Iceberg's catalog is made from; what is said in Spark's words wins."""
        in_sparks_words = with_prefix(self.spark_properties, f"spark.sql.catalog.{self.catalog}.")
        said = {k: v for k, v in in_sparks_words.items() if not k.startswith("hadoop.")}
        settings = {"cache-enabled": "false", **self.catalog_properties, **said}
        if "type" not in settings and "catalog-impl" not in settings:
            settings["type"] = "hive"  # as in Iceberg
        if settings.get("type") == "jdbc" or settings.get("catalog-impl", "").endswith(
            ".JdbcCatalog"
        ):
            # what PyIceberg's SQL catalog makes and reads
            settings.setdefault("jdbc.schema-version", "V1")
            uri = settings.get("uri", "")
            if uri.startswith("jdbc:sqlite:") and "synchronous=" not in uri.lower():
                # Else a power loss may bring a deleted journal back, and SQLite takes a commit back
                # with it.
                settings.setdefault("jdbc.synchronous", "EXTRA")
        return settings

    def hadoop_settings(self) -> dict[str, str]:
        """The settings that Hadoop's file systems get; what is said in Spark's words wins."""
        in_sparks_words = with_prefix(self.spark_properties, "spark.hadoop.")
        of_the_catalog = with_prefix(
            self.spark_properties, f"spark.sql.catalog.{self.catalog}.hadoop."
        )
        return {**self.hadoop_properties, **in_sparks_words, **of_the_catalog}

    def _jars_for_executors(self) -> dict[str, str]:
        """A cluster's executors get Iceberg from here, unless it is said where they have it."""
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
    """What a connector's session is made from: its own settings, and the worker's
    `connect_py.spark.*` below them.

    Options of a command come above both. What a load adds to the JVMs' options stands before what
    others say of them.

    `worker_settings`: of `SharedServices`.

    Raises:
        ConfigError: A setting needs the worker's leave, or is no longer supported.
    """
    given = {
        **{SPARK_PREFIX + key.removeprefix("spark."): value for key, value in config.spark.items()},
        **{CATALOG_PREFIX + key: value for key, value in config.catalog.items()},
        **{HADOOP_PREFIX + key: value for key, value in config.hadoop.items()},
    }
    for key, why in [
        *refused_settings(given, worker_settings),
        *unsupported_worker_settings(worker_settings),
    ]:
        raise ConfigError(key, why)
    of_load, defaults, of_command = (
        {
            key[len(prefix) - len("spark.") :]: value
            for key, value in worker_settings(prefix).items()
        }
        for prefix in (LOAD_PREFIX, WORKER_PREFIX, COMMAND_PREFIX)
    )
    for of_worker in ("spark.drivers.max", "spark.settings.allowed", "spark.user-code.allowed"):
        defaults.pop(of_worker, None)
    said = {**defaults, **config.spark, **of_command}
    for key in of_load.keys() & said.keys():
        if key.endswith(".extraJavaOptions"):
            said[key] = f"{of_load[key]} {said[key]}"  # of two that differ Java takes the last
    own = config.connector if config.own_driver else ""
    return SparkConfig(
        config.catalog_name,
        config.catalog,
        config.hadoop_settings(),
        {**of_load, **said},
        own,
        _drivers_max(worker_settings(DRIVERS_MAX_KEY).get(DRIVERS_MAX_KEY, str(DRIVERS_MAX))),
    )


def unsupported_worker_settings(
    worker_settings: Callable[[str], Mapping[str, str]],
) -> Iterator[tuple[str, str]]:
    """Yield the worker's properties for Spark that are no longer supported, each with the
    alternatives."""
    for prefix in (WORKER_PREFIX, COMMAND_PREFIX):
        key = prefix + REMOTE.removeprefix("spark.")
        if key in worker_settings(key):
            yield key, no_spark_connect(f"{prefix}master")


def _drivers_max(text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise ConfigError(
            DRIVERS_MAX_KEY, f"of the worker must be a number of at least 1, not {text}"
        )
    return int(text)


def _is_static(key: str) -> bool:
    return not key.startswith("spark.sql.") or _STATIC_SQL.fullmatch(key) is not None
