"""Which settings of Spark, Hadoop and the catalog a connector may have: those that tune.

A user who creates connectors by REST must not run code on the worker's machine. Settings that load
code, run code, or write to places of one's choice need the worker's leave: the property
`connect_py.spark.settings.allowed` names them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Final

from connect_py.api.errors import ConfigError
from connectors.iceberg.config.cycle_aggregate import aggregate_keys
from connectors.iceberg.config.cycle_step import cycle_step_keys
from connectors.iceberg.config.expectations import expectation_keys
from connectors.iceberg.config.keys import (
    CATALOG_PREFIX,
    HADOOP_PREFIX,
    OPENLINEAGE_FILE,
    SPARK_PREFIX,
)
from connectors.iceberg.config.worker_defaults import is_of_worker

# worker property: patterns of keys, comma separated, `*` is any
ALLOWED: Final = "connect_py.spark.settings.allowed"
# the same, for keys whose values are SQL or name code
USER_CODE: Final = "connect_py.spark.user-code.allowed"
REMOTE: Final = "spark.remote"  # of Spark Connect, see docs/decisions/0013-no-spark-connect.md

_TUNING: Final = re.compile(
    r"spark\.("
    r"master|app\.name|log\.level|cores\.max|default\.parallelism|authenticate|authenticate\.secret|"
    r"driver\.(memory|cores|host|port|bindAddress|blockManager\.port|maxResultSize|memoryOverhead\w*)|"
    r"executor\.(memory|cores|instances|pyspark\.memory|heartbeatInterval|memoryOverhead\w*|processTreeMetrics\..*)|"
    r"(blockManager|port|network|rpc|task|stage|memory|storage|shuffle|broadcast|locality|scheduler|speculation|"
    r"dynamicAllocation|cleaner|reducer|io\.compression|kryoserializer\.buffer|excludeOnFailure|barrier|ssl)\..*|"
    r"speculation|kryoserializer\.buffer|ui\.(enabled|port|showConsoleProgress|retained\w+|reverseProxy)|"
    r"metrics\.namespace|eventLog\.(enabled|compress|rolling\..*|logBlockUpdates\..*)|"
    r"kubernetes\.(namespace|container\.image|authenticate\..*|driver\.label\..*|executor\.(label|request|limit)\..*)|"
    r"yarn\.(queue|tags|maxAppAttempts|am\..*|executor\.nodeLabelExpression)|"
    r"sql\.(adaptive|ansi|autoBroadcastJoinThreshold|broadcastTimeout|codegen|debug|files|iceberg|inMemoryColumnarStorage|"
    r"join|optimizer|orc|parquet|session|shuffle|sources|sort|statistics|storeAssignmentPolicy|timestampType|execution|"
    r"ui|variable|caseSensitive|cbo|legacy)(\..*)?"
    r")"
)
# Values of these keys are names of classes, which Java loads.
_NAMES_CLASS: Final = re.compile(
    r".*(-impl|\.impl|[.-]factory|[.-]class|\.provider|\.providers|\.plugin|-reporter)"
)
_KNOWN_CLASSES: Final = (
    "org.apache.iceberg.",
    "org.apache.hadoop.fs.",
    "org.apache.hadoop.hdfs.",
    "org.apache.parquet.",
    "software.amazon.awssdk.auth.credentials.",
    "com.amazonaws.auth.",
    "com.google.cloud.hadoop.fs.",
)
_SPARK_CATALOG: Final = re.compile(r"spark\.sql\.catalog\.([^.]+)(\..+)?")
_ICEBERG_CATALOGS: Final = (
    "org.apache.iceberg.spark.SparkCatalog",
    "org.apache.iceberg.spark.SparkSessionCatalog",
)
_CODE_IN_URI: Final = re.compile(
    r"(?i)[?&;](socketFactory\w*|sslfactory|sslpasswordcallback|init|autoDeserialize|queryInterceptors)="
)


def refused_settings(
    props: Mapping[str, str], worker_settings: Callable[[str], Mapping[str, str]]
) -> Iterator[tuple[str, str]]:
    """The connector's keys that need the worker's leave and do not have it, each with what to do.

    Args:
        props: The connector's configuration.
        worker_settings: Of `SharedServices`.
    """
    allowed = _patterns(worker_settings, ALLOWED)
    for key, value in props.items():
        why = _why_refused(key, value)
        if why is None or is_of_worker(key, value, worker_settings):
            continue
        if not any(fnmatchcase(key, pattern) for pattern in allowed):
            yield key, f"{why}; the worker's property {ALLOWED} has to name this key"


def no_spark_connect(master_key: str) -> str:
    """Return why `spark.remote` is refused. `master_key`: the key or option that selects a Spark
    cluster instead."""
    return (
        "Spark Connect is no longer supported; to run commits on a Spark cluster, "
        f"set {master_key} to spark://host:port, yarn, or k8s://https://host:port"
    )


def refused_code(
    props: Mapping[str, str], worker_settings: Callable[[str], Mapping[str, str]]
) -> Iterator[tuple[str, str]]:
    """As `refused_settings`, of the keys that hold SQL of the connector's own, or name code."""
    allowed = _patterns(worker_settings, USER_CODE)
    for key in (*expectation_keys(props), *cycle_step_keys(props), *aggregate_keys(props)):
        if not any(fnmatchcase(key, pattern) for pattern in allowed):
            what = "names code" if key.endswith("transform") else "is SQL"
            yield (
                key,
                f"{what} that runs in the worker's Spark; the worker's property {USER_CODE} has to "
                f"name this key",
            )


def check_allowed(
    props: Mapping[str, str], worker_settings: Callable[[str], Mapping[str, str]]
) -> None:
    """Refuse a configuration that came another way than by a request, which is validated.

    Raises:
        ConfigError: A key needs the worker's leave, and does not have it.
    """
    for key, why in [
        *refused_settings(props, worker_settings),
        *refused_code(props, worker_settings),
    ]:
        raise ConfigError(key, why)


def _patterns(worker_settings: Callable[[str], Mapping[str, str]], name: str) -> list[str]:
    return [part.strip() for part in worker_settings(name).get(name, "").split(",") if part.strip()]


def _why_refused(key: str, value: str) -> str | None:
    if key.startswith(SPARK_PREFIX):
        name = key.removeprefix(SPARK_PREFIX)
        return _of_spark(name if name.startswith("spark.") else f"spark.{name}", value)
    if key.startswith((CATALOG_PREFIX, HADOOP_PREFIX)):
        return _of_class(key, value)
    if key == OPENLINEAGE_FILE and value.strip():
        return "writes to a file of one's choice"
    return None


def _of_spark(name: str, value: str) -> str | None:
    if (catalog := _SPARK_CATALOG.fullmatch(name)) is not None:
        if catalog[2] is None:
            return None if value in _ICEBERG_CATALOGS else f"{value} is no catalog of Iceberg's"
        return _of_class(name, value)
    if name.startswith("spark.hadoop."):
        return _of_class(name, value)
    if name == REMOTE:  # a validation error of its own, which no worker property can lift
        return None
    if _TUNING.fullmatch(name) is not None and _NAMES_CLASS.fullmatch(name) is None:
        return None
    return "may load code, run code, or write to a place of one's choice"


def _of_class(name: str, value: str) -> str | None:
    if _NAMES_CLASS.fullmatch(name) is not None:
        named = [part.strip() for part in value.split(",")]
        if any("." in part and not part.startswith(_KNOWN_CLASSES) for part in named):
            return "names a class that is none of Iceberg's"
    if name.endswith(".uri") and _CODE_IN_URI.search(value):
        return "has a parameter that names a class"
    return None
