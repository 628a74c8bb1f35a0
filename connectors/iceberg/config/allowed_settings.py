"""Spark, Hadoop, and catalog settings that connectors may use without the worker's permission.

Users who create connectors over the REST API must not be able to run code on the worker's machine.
Therefore, the worker property `connect_py.spark.settings.allowed` must permit each setting that
loads code, runs code, or writes to arbitrary locations.
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
from connectors.iceberg.config.worker_defaults import is_worker_default

# worker property with a comma-separated list of glob patterns for keys
ALLOWED: Final = "connect_py.spark.settings.allowed"
# worker property with a comma-separated list of glob patterns for keys whose values are SQL or
# function names
USER_CODE: Final = "connect_py.spark.user-code.allowed"
REMOTE: Final = "spark.remote"  # Spark Connect; see docs/decisions/0013-no-spark-connect.md

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
# keys whose values are names of classes that Java loads
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
    """Iterate over the settings that the worker does not permit, as pairs of key and error message.

    Args:
        props: The configuration of the connector.
        worker_settings: Returns the worker properties that start with a prefix.
    """
    allowed = _patterns(worker_settings, ALLOWED)
    for key, value in props.items():
        reason = _refusal(key, value)
        if reason is None or is_worker_default(key, value, worker_settings):
            continue
        if not any(fnmatchcase(key, pattern) for pattern in allowed):
            yield key, f"{reason}; add the key to the worker's property {ALLOWED} to allow it"


def no_spark_connect(master_key: str) -> str:
    """Return the error message for `spark.remote`.

    Args:
        master_key: Key or CLI option for the Spark master, which the message recommends.
    """
    return (
        "Spark Connect is no longer supported; to run commits on a Spark cluster, "
        f"set {master_key} to spark://host:port, yarn, or k8s://https://host:port"
    )


def refused_code(
    props: Mapping[str, str], worker_settings: Callable[[str], Mapping[str, str]]
) -> Iterator[tuple[str, str]]:
    """Iterate over the SQL and functions that the worker does not permit.

    The items are pairs of key and error message.
    """
    allowed = _patterns(worker_settings, USER_CODE)
    for key in (*expectation_keys(props), *cycle_step_keys(props), *aggregate_keys(props)):
        if not any(fnmatchcase(key, pattern) for pattern in allowed):
            kind = "code" if key.endswith("transform") else "SQL"
            yield (
                key,
                f"runs {kind} in the worker's Spark driver; add the key to the worker's property "
                f"{USER_CODE} to allow it",
            )


def check_allowed(
    props: Mapping[str, str], worker_settings: Callable[[str], Mapping[str, str]]
) -> None:
    """Raise an error if the worker does not permit a key of a configuration.

    The REST API rejects such configurations, but a configuration may also have been written to the
    config topic directly.

    Raises:
        ConfigError: The worker does not permit a key.
    """
    for key, reason in [
        *refused_settings(props, worker_settings),
        *refused_code(props, worker_settings),
    ]:
        raise ConfigError(key, reason)


def _patterns(worker_settings: Callable[[str], Mapping[str, str]], name: str) -> list[str]:
    return [part.strip() for part in worker_settings(name).get(name, "").split(",") if part.strip()]


def _refusal(key: str, value: str) -> str | None:
    if key.startswith(SPARK_PREFIX):
        name = key.removeprefix(SPARK_PREFIX)
        return _refusal_of_spark_setting(
            name if name.startswith("spark.") else f"spark.{name}", value
        )
    if key.startswith((CATALOG_PREFIX, HADOOP_PREFIX)):
        return _refusal_of_class(key, value)
    if key == OPENLINEAGE_FILE and value.strip():
        return "writes to an arbitrary file"
    return None


def _refusal_of_spark_setting(name: str, value: str) -> str | None:
    if (catalog := _SPARK_CATALOG.fullmatch(name)) is not None:
        if catalog[2] is None:
            return (
                None if value in _ICEBERG_CATALOGS else f"{value} is not an Iceberg catalog class"
            )
        return _refusal_of_class(name, value)
    if name.startswith("spark.hadoop."):
        return _refusal_of_class(name, value)
    if name == REMOTE:  # rejected by a separate check, which no worker property can disable
        return None
    if _TUNING.fullmatch(name) is not None and _NAMES_CLASS.fullmatch(name) is None:
        return None
    return "may load code, run code, or write to an arbitrary location"


def _refusal_of_class(name: str, value: str) -> str | None:
    if _NAMES_CLASS.fullmatch(name) is not None:
        classes = [part.strip() for part in value.split(",")]
        if any("." in part and not part.startswith(_KNOWN_CLASSES) for part in classes):
            return "names a class that is not part of Iceberg"
    if name.endswith(".uri") and _CODE_IN_URI.search(value):
        return "has a parameter whose value is a class"
    return None
