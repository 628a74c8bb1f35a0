"""Options for commands that load topics with Spark, and the worker properties that they set."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from connect_py.api.errors import ConfigError
from connectors.iceberg_tools.commands.kafka_options import BootstrapServer
from connectors.iceberg_tools.commands.key_values import key_values

# Unlike a connector, a load spends most of its time in the JVM, where Arrow's checks take longer
# than the work itself.
_QUICK_ARROW = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
SPARK = {
    "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=4 {_QUICK_ARROW}",
    "spark.executor.extraJavaOptions": _QUICK_ARROW,
}

_MASTER = re.compile(r"local(\[.+\])?|local-cluster\[.+\]|spark://.+|yarn|k8s://.+")


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """Options of a load. `settings` converts them to worker properties."""

    bootstrap_server: BootstrapServer = None
    master: Annotated[
        str | None,
        typer.Option(
            help="Spark master: local[*], spark://host:port, yarn, or k8s://...",
            show_default="as configured, or local[*]",
        ),
    ] = None
    step_rows: Annotated[
        int, typer.Option(help="Records per commit, in total over all partitions.", min=1)
    ] = 2_000_000
    split: Annotated[
        int,
        typer.Option(
            help="Ranges of one partition to read in parallel, with one commit each.",
            min=1,
            max=64,
        ),
    ] = 1
    conf: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A Spark setting; may be repeated."),
    ] = None
    kafka_property: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="A property of all Kafka clients, with its Java name; may be repeated.",
        ),
    ] = None
    archive: Annotated[
        Path | None,
        typer.Option(
            help="Archive from `connect-py spark-archive`, for executors without connect-py.",
            exists=True,
        ),
    ] = None

    def settings(self) -> dict[str, str]:
        """Return the options as worker properties.

        Raises:
            ConfigError: A value is not of the form key=value, or is not a Spark setting or master.
        """
        return self._kafka_settings() | self._spark_settings()

    def _kafka_settings(self) -> dict[str, str]:
        kafka = key_values("--kafka-property", self.kafka_property)
        settings = dict(kafka)
        if self.bootstrap_server:
            settings["bootstrap.servers"] = self.bootstrap_server
        for client in ("consumer", "producer", "admin"):
            settings |= {f"{client}.{key}": value for key, value in kafka.items()}
        return settings

    def _spark_settings(self) -> dict[str, str]:
        """Return the command's Spark settings, and defaults that other settings can override."""
        from connectors.iceberg.config.allowed_settings import REMOTE, no_spark_connect
        from connectors.iceberg.config.spark_config import COMMAND_PREFIX, LOAD_PREFIX

        spark: dict[str, str] = {}
        if self.archive is not None:
            unpacked = "connect-py"
            spark = {
                "spark.archives": f"{self.archive.resolve()}#{unpacked}",
                "spark.pyspark.python": f"./{unpacked}/bin/python3",
            }
        spark |= key_values("--conf", self.conf)
        if self.master is not None:
            spark["spark.master"] = self.master
        if foreign_keys := [key for key in spark if not key.startswith("spark.")]:
            raise ConfigError(
                "--conf",
                f"{foreign_keys[0]} is not a Spark setting; the names begin with `spark.`",
            )
        if REMOTE in spark:
            raise ConfigError("--conf", no_spark_connect("--master"))
        master = spark.get("spark.master", "local")
        if not _MASTER.fullmatch(master):
            raise ConfigError(
                "--master",
                f"unknown Spark master {master!r}: expected local[*], spark://host:port, yarn, "
                "or k8s://...",
            )
        defaults = {"spark.pyspark.python": sys.executable, **SPARK}
        return {
            **{LOAD_PREFIX + key.removeprefix("spark."): value for key, value in defaults.items()},
            **{COMMAND_PREFIX + key.removeprefix("spark."): value for key, value in spark.items()},
        }
