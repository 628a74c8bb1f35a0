"""Options of commands that load topics by Spark, and what they are as properties of a worker."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from connect_py.api.errors import ConfigError
from connectors.iceberg_tools.commands.key_values import key_values

STEP_ROWS = 2_000_000
# A load computes for long in the JVM, unlike the driver of a connector. What Arrow checks costs
# more than what it does.
_QUICK_ARROW = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
SPARK = {
    "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=4 {_QUICK_ARROW}",
    "spark.executor.extraJavaOptions": _QUICK_ARROW,
}

_MASTER = re.compile(r"local(\[.+\])?|local-cluster\[.+\]|spark://.+|yarn|k8s://.+")

Master = Annotated[
    str | None,
    typer.Option(
        help="Spark: local[*], spark://host:port, yarn or k8s://...",
        show_default="as configured, else local[*]",
    ),
]
StepRows = Annotated[
    int, typer.Option(help="Records of one commit, of all partitions together.", min=1)
]
Split = Annotated[
    int,
    typer.Option(
        help="Ranges of one partition that are read at once; each is a commit of its own.",
        min=1,
        max=64,
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="Setting of Spark; may be repeated."),
]
KafkaProperty = Annotated[
    list[str] | None,
    typer.Option(
        "--kafka-property",
        metavar="KEY=VALUE",
        help="For all clients, in Java's names; repeatable.",
    ),
]
Archive = Annotated[
    Path | None,
    typer.Option(
        help="Of `connect-py spark-archive`, for executors without connect-py.", exists=True
    ),
]


def kafka_settings(servers: str | None, properties: list[str] | None) -> dict[str, str]:
    """The options as properties of a worker.

    Raises:
        ConfigError: One is not of the form key=value.
    """
    kafka = key_values("--kafka-property", properties)
    settings = {**kafka, **({"bootstrap.servers": servers} if servers else {})}
    for kind in ("consumer", "producer", "admin"):
        settings |= {f"{kind}.{key}": value for key, value in kafka.items()}
    return settings


def spark_settings(
    master: str | None, conf: list[str] | None, archive: Path | None
) -> dict[str, str]:
    """The same of Spark's, and what a load has where neither these nor the worker nor the connector
    say anything.

    Raises:
        ConfigError: One is not of the form key=value, or is none of Spark's; a master is none.
    """
    from connectors.iceberg.config.allowed_settings import REMOTE, no_spark_connect
    from connectors.iceberg.config.spark_config import COMMAND_PREFIX, LOAD_PREFIX

    said: dict[str, str] = {}
    if archive is not None:
        unpacked = "connect-py"
        said = {
            "spark.archives": f"{archive.resolve()}#{unpacked}",
            "spark.pyspark.python": f"./{unpacked}/bin/python3",
        }
    said |= key_values("--conf", conf)
    if master is not None:
        said["spark.master"] = master
    if others := [key for key in said if not key.startswith("spark.")]:
        raise ConfigError("--conf", f"{others[0]} is no setting of Spark: they begin with `spark.`")
    if REMOTE in said:
        raise ConfigError("--conf", no_spark_connect("--master"))
    if not _MASTER.fullmatch(said.get("spark.master", "local")):
        raise ConfigError(
            "--master",
            f"{said['spark.master']} is none: local[*], spark://host:port, yarn or k8s://...",
        )
    defaults = {"spark.pyspark.python": sys.executable, **SPARK}
    return {
        **{LOAD_PREFIX + key.removeprefix("spark."): value for key, value in defaults.items()},
        **{COMMAND_PREFIX + key.removeprefix("spark."): value for key, value in said.items()},
    }
