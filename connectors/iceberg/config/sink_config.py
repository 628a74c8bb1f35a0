"""Configuration of the Iceberg sink: the keys of both Java sinks, and our own below `iceberg.ext.` and
`iceberg.spark.`. Standard library only.

`CONFIG_DEF` defines the keys, `validate` answers the validate endpoint, `IcebergSinkConfig.parse` makes the one frozen
object that everything after `start` reads.
"""

# ruff: noqa: RUF009 - a call defines the key whose value a member is

from __future__ import annotations

import difflib
import hashlib
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from types import MappingProxyType
from typing import Any, TypeVar

from connect_py.api.config import (
    ConfigDef,
    ConfigValue,
    Importance,
    Parsed,
    Type,
    Validator,
    at_least,
    one_of,
    with_prefix,
)
from connect_py.api.errors import ConfigError
from connectors.iceberg.config.hadoop_files import read_hadoop_files
from connectors.iceberg.config.java_pattern import compile_java_pattern
from connectors.iceberg.config.remote_url import check_installed, remote_address
from connectors.iceberg.schema.schema_change import ChangeAction, ChangeKind, EvolutionPolicy
from connectors.iceberg.schema.table import WriteMode
from connectors.iceberg.staging.partition_by import (
    PartitionTerm,
    list_items,
    parse_partition_by,
    split_outside_brackets,
)

OWN_PREFIX = "iceberg."
CATALOG_PREFIX = "iceberg.catalog."
HADOOP_PREFIX = "iceberg.hadoop."
KAFKA_PREFIX = "iceberg.kafka."
SPARK_PREFIX = "iceberg.spark."
AUTO_CREATE_PREFIX = "iceberg.tables.auto-create-props."
WRITE_PREFIXES = ("iceberg.table.write-props.", "iceberg.tables.write-props.")  # the second wins
TABLE_PREFIX = "iceberg.table."

TABLES = "iceberg.tables"
DYNAMIC = "iceberg.tables.dynamic-enabled"
ROUTE_FIELD = "iceberg.tables.route-field"
COMMIT_BRANCH = "iceberg.tables.default-commit-branch"
ID_COLUMNS = "iceberg.tables.default-id-columns"
PARTITION_BY = "iceberg.tables.default-partition-by"
CDC_FIELD = "iceberg.tables.cdc-field"
UPSERT_MODE = "iceberg.tables.upsert-mode-enabled"
AUTO_CREATE = "iceberg.tables.auto-create-enabled"
EVOLVE_SCHEMA = "iceberg.tables.evolve-schema-enabled"
CATALOG_NAME = "iceberg.catalog"
HADOOP_CONF_DIR = "iceberg.hadoop-conf-dir"
CONTROL_GROUP = "iceberg.control.group-id"
CONNECT_GROUP = "iceberg.connect.group-id"
COMMIT_INTERVAL = "iceberg.control.commit.interval-ms"
COMMIT_TIMEOUT = "iceberg.control.commit.timeout-ms"
COMMIT_THREADS = "iceberg.control.commit.threads"
COMMIT_MAX_FAILURES = "iceberg.control.commit.max-consecutive-failures"

WRITE_MODE = "iceberg.ext.write-mode"
COMMIT_ENGINE = "iceberg.ext.commit-engine"
TOPIC_TO_TABLE = "iceberg.ext.topic-to-table"
EVOLVE_ADD = "iceberg.ext.evolution.add-column"
EVOLVE_WIDEN = "iceberg.ext.evolution.widen"
EVOLVE_OPTIONAL = "iceberg.ext.evolution.make-optional"
EVOLVE_RENAME = "iceberg.ext.evolution.rename"
EVOLVE_INCOMPATIBLE = "iceberg.ext.evolution.incompatible"
_EVOLVE: Mapping[ChangeKind, str] = MappingProxyType({
    ChangeKind.ADD: EVOLVE_ADD, ChangeKind.WIDEN: EVOLVE_WIDEN, ChangeKind.OPTIONAL: EVOLVE_OPTIONAL,
    ChangeKind.RENAME: EVOLVE_RENAME, ChangeKind.VERSION: EVOLVE_INCOMPATIBLE,
})  # fmt: skip
LOGICAL_TYPES = "iceberg.ext.logical-types"
JSON_TYPE = "iceberg.ext.json-type"
ORDERING_COLUMNS = "iceberg.ext.ordering-columns"
UNAVAILABLE_VALUE = "iceberg.ext.unavailable-value"
UNKNOWN_VALUE = "iceberg.ext.unknown-value"
ENVELOPE = "iceberg.ext.envelope"
SNAPSHOT_EVENTS = "iceberg.ext.snapshot-events"
CHANGELOG_SUFFIX = "iceberg.ext.changelog-suffix"
FAIL_AFTER_WAITING = "iceberg.ext.fail-after-waiting-ms"
MAX_STAGED_BYTES = "iceberg.ext.max-staged-bytes"
TARGET_FILE_SIZE = "iceberg.ext.target-file-size-bytes"
DEAD_LETTER_TABLE = "errors.deadletterqueue.iceberg.table"
REPLAY_TOPIC = "errors.deadletterqueue.iceberg.replay.topic"

UNAVAILABLE_DEFAULT = "__debezium_unavailable_value"
MEGABYTE = 1 << 20
TARGET_FILE_BYTES = 512 * MEGABYTE  # where neither the configuration nor the table says otherwise
LONGEST_TOPIC = 249  # characters, as brokers have it
_UNSAFE_IN_TOPIC = re.compile(r"[^a-zA-Z0-9._-]")

_SECRETS = (
    "iceberg.catalog.credential", "iceberg.catalog.token", "iceberg.catalog.jdbc.password",
    "iceberg.catalog.s3.access-key-id", "iceberg.catalog.s3.secret-access-key", "iceberg.catalog.s3.session-token",
    "iceberg.kafka.sasl.jaas.config", "iceberg.kafka.sasl.password", "iceberg.kafka.ssl.key.password",
    "iceberg.kafka.ssl.keystore.password", "iceberg.kafka.ssl.truststore.password",
)  # fmt: skip

T = TypeVar("T")


class ClassFamily(Enum):
    """Under which name the user asked for the sink; group names and defaults of new tables differ."""

    APACHE = "apache"
    TABULAR = "tabular"

    @staticmethod
    def of(connector_class: str) -> ClassFamily:
        return ClassFamily.TABULAR if connector_class.startswith("io.tabular.") else ClassFamily.APACHE


class Unrouted(Enum):
    """What becomes of a row that no table takes."""

    IGNORE = "ignore"
    FAIL = "fail"
    DLQ = "dlq"


class LogicalTypes(Enum):
    """Which logical names decide the type of a new column."""

    CONNECT = "connect"  # Connect's own; all others give the base type, as Java's sink does
    FULL = "full"  # Debezium's and Avro's too


class OutOfRange(Enum):
    """What becomes of a moment that Iceberg cannot hold: infinity, years of five digits, 24:00."""

    ERROR = "error"
    NULL = "null"
    CLAMP = "clamp"


def _one_of(choices: type[Enum], *, auto: bool = False) -> Validator:
    return one_of(*(["auto"] if auto else []), *(choice.value for choice in choices))


def _at_least_one_if_set(name: str, value: Parsed) -> None:
    if value is not None:
        at_least(1)(name, value)


H, M, L = Importance.HIGH, Importance.MEDIUM, Importance.LOW
BOOLEAN, STRING, INT, LONG, LIST = Type.BOOLEAN, Type.STRING, Type.INT, Type.LONG, Type.LIST
CONFIG_DEF = ConfigDef()
_CHANGES = (
    ". `apply` changes the table, `ignore` leaves it. `hold` stops the rows until a user changes the table. "
    f"`dead-letter` makes bad records of them. `auto` is `apply` with {EVOLVE_SCHEMA}, else `ignore`."
)


def _define(
    key: str, kind: Type, default: Parsed, importance: Importance, doc: str, validator: Validator | None = None
) -> None:  # fmt: skip
    CONFIG_DEF.define(key, kind, default=default, importance=importance, validator=validator, doc=doc)


def _option(
    key: str, kind: Type, default: Parsed, importance: Importance, doc: str, validator: Validator | None = None,
    read: Callable[[Any], Any] = lambda value: value,
) -> Any:  # fmt: skip
    """A key whose value is a member of the configuration, read so, unless `_parse` says what else it is."""
    _define(key, kind, default, importance, doc, validator)
    return field(metadata={"key": key, "read": read})


def _either(key: str, default: str, other: str, importance: Importance, doc: str) -> Any:
    """A key that has one of two values; the member says whether it is the other one."""
    return _option(key, STRING, default, importance, doc, one_of(default, other), lambda value: value == other)


def _tuple(items: Sequence[str] | None) -> tuple[str, ...]:
    return tuple(items or ())


def _path(text: str | None) -> tuple[str, ...]:
    return tuple(text.strip().split(".")) if text else ()


def _text(text: str | None) -> str | None:
    return (text or "").strip() or None


_OLD_SPELLINGS: Mapping[str, str] = MappingProxyType({
    "iceberg.tables.dynamic.enabled": DYNAMIC,
    "iceberg.tables.routeField": ROUTE_FIELD,
    "iceberg.tables.defaultCommitBranch": COMMIT_BRANCH,
    "iceberg.tables.cdcField": CDC_FIELD,
    "iceberg.tables.upsertModeEnabled": UPSERT_MODE,
    "iceberg.tables.autoCreateEnabled": AUTO_CREATE,
    "iceberg.tables.evolveSchemaEnabled": EVOLVE_SCHEMA,
    "iceberg.control.group.id": CONTROL_GROUP,
    "iceberg.control.commitIntervalMs": COMMIT_INTERVAL,
    "iceberg.control.commitTimeoutMs": COMMIT_TIMEOUT,
    "iceberg.control.commitThreads": COMMIT_THREADS,
})  # fmt: skip
_OLD_TABLE_SPELLINGS: Mapping[str, str] = MappingProxyType(
    {"routeRegex": "route-regex", "idColumns": "id-columns", "commitBranch": "commit-branch"}
)
NEVER_VALID: Mapping[str, str] = MappingProxyType({
    "iceberg.tables.id-columns": f"has no effect; did you mean {ID_COLUMNS}?",
    "iceberg.tables.partition-by": f"has no effect; did you mean {PARTITION_BY}?",
    "iceberg.table.namespace": f"has no effect; the namespace is part of a table's name, as in {TABLES}=sales.orders",
    "iceberg.tables.namespace": f"has no effect; the namespace is part of a table's name, as in {TABLES}=sales.orders",
    "iceberg.tables.drop-col-enabled": "belongs to a fork; columns are never dropped",
    "iceberg.write-exception.handler": "belongs to a fork; use errors.tolerance and a dead-letter queue",
    "iceberg.writer-exception.handler": "belongs to a fork; use errors.tolerance and a dead-letter queue",
    "experimental.write-exception-handler.class": "belongs to a fork; use errors.tolerance and a dead-letter queue",
    "iceberg.ext.preserve-case": "has no effect; names of the route field are lower-cased, others keep their case",
    "iceberg.ext.channel-replication-factor": "has no effect; create the topics before, or set the broker's default",
    "iceberg.ext.quick-jvm": "has no effect; the worker's connect_py.spark.driver.extraJavaOptions sets the JVM's",
    "iceberg.ext.evolution.view": "has no effect; create a view that coalesces the columns c, c_v2 and so on",
    "iceberg.ext.variable-decimal-scale": "has no effect; create the column as decimal, else it becomes a string",
    "iceberg.ext.deleted-column": "has no effect; the column is __deleted",
    "iceberg.ext.set-identifier-fields": "has no effect; new tables get the identifier fields of their keys",
})  # fmt: skip
# Below these there may be anything; it is for Iceberg, Hadoop, Kafka or Spark.
_FREE_PREFIXES = (CATALOG_PREFIX, HADOOP_PREFIX, KAFKA_PREFIX, SPARK_PREFIX, AUTO_CREATE_PREFIX, *WRITE_PREFIXES)
_TABLE_SETTINGS = ("id-columns", "partition-by", "commit-branch", "route-regex", "renamed")
_ALIKE = 0.75  # how like a known key a misspelt one is
_FORK_PREFIXES = ("iceberg.tables.deadletter.", "iceberg.write-exception.handler.properties.")


@dataclass(frozen=True, slots=True)
class TopicRule:
    """One pair of `iceberg.ext.topic-to-table`.

        pairs    := pair ("," pair)*       commas inside (), [] and {} do not split, nor do those after a backslash
        pair     := pattern ":" templates  the last colon counts, so a pattern may hold some
        pattern  := a Java regular expression that must match the whole topic
        templates := template ("+" template)*  every row goes to each of these tables
        template := a table name; {topic} is the topic, {1} the first group, {name} the group of that name

    Pairs are tried in order, the first match decides. Names keep their case.
    """

    pattern: re.Pattern[str]
    templates: tuple[str, ...]

    def tables(self, topic: str) -> tuple[str, ...] | None:
        """The tables of a topic, or None when the pattern does not match all of it."""
        match = self.pattern.fullmatch(topic)
        if match is None:
            return None

        def filled(place: re.Match[str]) -> str:
            group = place[1]
            return topic if group == "topic" else match[int(group) if group.isdecimal() else group] or ""

        return tuple(dict.fromkeys(_PLACE.sub(filled, template) for template in self.templates))


_PLACE = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class TableConfig:
    """What is configured for one table, defaults filled in."""

    name: str
    id_columns: tuple[str, ...] = ()
    partition_by: tuple[PartitionTerm, ...] = ()
    commit_branch: str | None = None  # None: main
    route_regex: re.Pattern[str] | None = None
    renamed: Mapping[str, str] = field(default_factory=dict)  # field of the records -> the name it had


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergSinkConfig:
    """The configuration, parsed once. Secrets do not show in its `repr`."""

    connector: str
    family: ClassFamily
    default_table: TableConfig
    warnings: tuple[str, ...]  # to be logged when the connector starts
    topic_rules: tuple[TopicRule, ...]
    evolution: EvolutionPolicy
    auto_create_props: Mapping[str, str]
    write_props: Mapping[str, str]
    table_props: Mapping[str, str] = field(repr=False)  # everything below `iceberg.table.`, new spellings
    catalog: Mapping[str, str] = field(repr=False)
    hadoop: Mapping[str, str] = field(repr=False)
    kafka: Mapping[str, str] = field(repr=False)
    spark: Mapping[str, str] = field(repr=False)  # keys as Spark knows them: `spark.master`
    # Each key beside the member that it is, in the order of the reference; `_define`: it is read together with others.
    # fmt: off
    tables: tuple[str, ...] = _option(TABLES, LIST, None, H, "Destination tables, comma separated.", read=_tuple)
    dynamic: bool = _option(DYNAMIC, BOOLEAN, False, M, "Take each row's table name from the route field, lower-cased.")
    route_field: tuple[str, ...] = _option(  # a path; empty: none
        ROUTE_FIELD, STRING, None, M, "Field whose value routes a row; dots lead into nested fields.", read=_path)
    _define(COMMIT_BRANCH, STRING, None, M,
        "Branch to commit to, for tables without a commit-branch of their own. Unset: main.")
    _define(ID_COLUMNS, STRING, None, M, "Comma separated key columns, for tables without id-columns of their own.")
    _define(PARTITION_BY, STRING, None, M,
        "Partition fields of tables that the sink creates, such as `days(ts),bucket(id, 16)`.")
    cdc_field: tuple[str, ...] = _option(CDC_FIELD, STRING, None, M,  # a path; empty: none
        "Field that holds the kind of change (I, U, D or Debezium's c, r, u, d). Setting it turns on MERGE.",
        read=_path)
    _define(UPSERT_MODE, BOOLEAN, False, M, "Keep one row per key: the last one. Setting it turns on MERGE.")
    auto_create: bool = _option(AUTO_CREATE, BOOLEAN, False, M, "Create tables that are missing.")
    _define(EVOLVE_SCHEMA, BOOLEAN, False, M,
        "Add columns, widen int and float columns and relax required ones as the records ask for it.")
    force_optional: bool = _option("iceberg.tables.schema-force-optional", BOOLEAN, False, M,
        "Make every column optional that the sink creates, on every level.")
    case_insensitive: bool = _option(
        "iceberg.tables.schema-case-insensitive", BOOLEAN, False, M, "Find columns whatever the case of their names.")
    catalog_name: str = _option(CATALOG_NAME, STRING, "iceberg", M, "Name of the catalog.")
    hadoop_conf_dir: str | None = _option(HADOOP_CONF_DIR, STRING, None, M,
        "Folder with core-site.xml, hdfs-site.xml and hive-site.xml; iceberg.hadoop.* wins.")
    control_topic: str = _option("iceberg.control.topic", STRING, "control-iceberg", M,
        "Topic on which commits are announced; `<this>-<connect group id>` carries the sink's own messages, with what "
        "a topic's name cannot have quoted.")
    _define("iceberg.control.group-id-prefix", STRING, "cg-control-", L,
        "Accepted for compatibility; the sink needs no such groups.")
    control_group: str = _option(CONTROL_GROUP, STRING, None, L,
        "Group in which the Tabular sink kept offsets; read when taking over. Unset: `cg-control-<name>`.")
    connect_group: str = _option(
        CONNECT_GROUP, STRING, None, L, "The connector's consumer group. Unset: `connect-<name>`.")
    commit_interval_ms: int = _option(
        COMMIT_INTERVAL, INT, 300_000, M, "Milliseconds between table commits.", at_least(1))
    commit_timeout_ms: int = _option(COMMIT_TIMEOUT, INT, 30_000, M,
        "Milliseconds to wait for all tasks; then what was reported is committed.", at_least(1))
    _define(COMMIT_THREADS, INT, 2 * (os.cpu_count() or 1), M,
        "Accepted without effect: one thread commits the tables, one after the other.", at_least(1))
    commit_max_failures: int | None = _option(  # None: not set; a table that cannot be committed holds its rows
        COMMIT_MAX_FAILURES, INT, 1, M,
        "Consecutive cycles without a commit of a table, after which the task fails. Commit intervals count, too, if "
        "the table is not available or the coordinator cannot start. Without this key the rows wait, and other tables "
        "go on.", at_least(1))
    transactional_prefix: str = _option("iceberg.coordinator.transactional.prefix", STRING, None, L,
        "Prefix of transactional ids, where access rules ask for one.", read=lambda text: text or "")
    _define("iceberg.coordinator-executor-keep-alive-timeout-ms", LONG, 120_000, L,
        "Accepted for compatibility.", at_least(0))
    mode: WriteMode = _option(WRITE_MODE, STRING, "auto", M,
        "`append` writes every record as a row, `merge` keeps the last row per key; `auto` merges when cdc-field or "
        "upsert-mode-enabled is set.", _one_of(WriteMode, auto=True))
    full_merge: bool = _option(COMMIT_ENGINE, STRING, "auto", M,
        "`merge` has Spark's MERGE insert and update rows itself. By default MERGE removes replaced rows, and staged "
        "files join the table as they are. `append` and `delta` are accepted, and mean the default.",
        one_of("auto", "append", "merge", "delta"), lambda engine: engine == "merge")
    keep_write_mode: bool = _option("iceberg.ext.keep-write-mode", BOOLEAN, False, L,
        "Whether a merge table without the property `write.merge.mode` stays so: Spark then rewrites whole files. By "
        "default the sink sets the property to merge-on-read, once.")
    commit_attempt_timeout_ms: int = _option("iceberg.ext.commit-attempt-timeout-ms", LONG, 600_000, L,
        "Milliseconds that a table's commit may take. Then its statement is interrupted, and the commit is tried "
        "again.", at_least(1_000))
    _define(TOPIC_TO_TABLE, STRING, None, M,
        "Tables by topic: `pattern:template` pairs, comma separated, the first full match wins. Patterns are regular "
        "expressions; templates may hold {topic}, {1}, {2} and named groups, and several are joined by `+`.")
    unrouted: Unrouted = _option("iceberg.ext.unrouted", STRING, "ignore", M,
        "What becomes of rows that no table takes: counted and ignored, an error, or dead letters.",
        _one_of(Unrouted), Unrouted)
    skip_missing: bool = _either("iceberg.ext.missing-table", "fail", "skip", M,
        "A table is not available or takes no commit. `fail`: its partitions wait for it, without limit unless "
        "iceberg.control.commit.max-consecutive-failures is set. `skip`: its rows are counted and left out.")
    lenient: bool = _option("iceberg.ext.lenient-conversion", BOOLEAN, False, M,
        "Convert as Java's sink does where that loses data: numbers wrap, decimals are rounded, any other text is "
        "false.")
    _define(EVOLVE_ADD, STRING, "auto", M, f"A field has no column{_CHANGES}", _one_of(ChangeAction, auto=True))
    _define(EVOLVE_WIDEN, STRING, "auto", M,
        f"A field is wider than its column (long for int, double for float, more digits){_CHANGES}",
        _one_of(ChangeAction, auto=True))
    _define(EVOLVE_OPTIONAL, STRING, "auto", M, f"A field is optional, but its column is required{_CHANGES}",
        _one_of(ChangeAction, auto=True))
    _define(EVOLVE_RENAME, STRING, "ignore", M,
        "A field has a column under a former name, which an alias of its schema or iceberg.table.<table>.renamed "
        "gives. `apply` renames the column, `ignore` adds a new one, `hold` stops the rows, `dead-letter` makes bad "
        "records.",
        _one_of(ChangeAction))
    _define(EVOLVE_INCOMPATIBLE, STRING, "ignore", M,
        "A field's type does not fit its column. `apply` adds a column for it, `ignore` converts each value or "
        "refuses it, `hold` stops the rows, `dead-letter` makes bad records.", _one_of(ChangeAction))
    logical_types: LogicalTypes = _option(LOGICAL_TYPES, STRING, "auto", M,
        "Column types of new columns: `connect` knows Connect's logical types only, `full` Debezium's and Avro's too. "
        "`auto` is full for MERGE under the Apache class name, else connect. Tables that are merged get no columns of "
        "type time, because Spark cannot read them.", _one_of(LogicalTypes, auto=True))
    json_variants: bool = _either(JSON_TYPE, "string", "variant", L,
        "New columns of texts whose schema says that they are JSON: `string`, or `variant` in tables of format 3.")
    out_of_range: OutOfRange = _option("iceberg.ext.out-of-range", STRING, "error", M,
        "Dates and times that Iceberg cannot hold (infinity, 24:00): a data error, null, or the nearest.",
        _one_of(OutOfRange), OutOfRange)
    skip_null_keys: bool = _either("iceberg.ext.null-key", "fail", "skip", M,
        "MERGE: a row with a null in its key is a data error (`fail`) or counted and left out (`skip`).")
    ordering_columns: tuple[str, ...] = _option(ORDERING_COLUMNS, LIST, None, L,
        "MERGE: fields that order changes of one key over several partitions, the most significant first. They are "
        "paths into the value (`source.sequence` of an envelope, `__source_sequence` of a row), or names of headers.",
        read=_tuple)
    null_unknown: bool = _either(UNKNOWN_VALUE, "error", "null", M,
        "MERGE: the insert of a changed key lacks values, and no partition has the delete of the old key. The task "
        "fails (`error`), or the values are null (`null`).")
    key_change_wait_ms: int = _option("iceberg.ext.key-change-wait-ms", LONG, 600_000, L,
        "MERGE: milliseconds that a partition waits before the insert of a changed key for the delete of the old key. "
        "That delete may be in another partition.", at_least(0))
    unavailable_value: bytes = _option(UNAVAILABLE_VALUE, STRING, UNAVAILABLE_DEFAULT, L,
        "MERGE: Debezium's placeholder for a value that it could not read; the table keeps its value. `hex:` starts "
        "bytes.")
    envelopes: bool = _either(ENVELOPE, "none", "debezium", M,  # as Debezium makes them: op, before, after, source
        "`debezium`: values are Debezium's change events as they come, without a transformation that unwraps them. "
        "The sink takes the row from `after` and the kind of change from `op`.")
    apply_truncates: bool = _either("iceberg.ext.truncate-events", "ignore", "apply", M,
        "MERGE: an event with op `t` does nothing (`ignore`), or empties the table (`apply`).")
    ignore_snapshots: bool = _either(SNAPSHOT_EVENTS, "apply", "ignore", M,
        "MERGE: an event with op `r` comes from a snapshot of the source. It is a new state (`apply`), or is left out "
        "(`ignore`).")
    mark_deletes: bool = _either("iceberg.ext.delete-mode", "remove", "mark", M,
        "MERGE: a delete removes the row (`remove`), or makes its column `__deleted` true and leaves the rest "
        "(`mark`).")
    record_keys: bool = _either("iceberg.ext.key-source", "table", "record", L,
        "MERGE: `record` takes the key columns of a table without id-columns and identifier fields from its records' "
        "keys, or from `_cdc.key`.")
    changelog_suffix: str | None = _option(CHANGELOG_SUFFIX, STRING, None, L,
        "MERGE with envelopes: each table gets a change log, whose name ends with this suffix. Its rows are the row "
        "before and the row after each change. No other table's name may end so. Unset: none.", read=_text)
    refuse_foreign_rows: bool = _either("iceberg.ext.foreign-writers", "allow", "refuse", L,
        "MERGE: `refuse` fails a commit when another writer added rows since the scan.")
    restart_recreated: bool = _either("iceberg.ext.recreated-topic", "stop", "restart", L,
        "A topic that was deleted and created again stops the connector, or is read from its start.")
    fail_after_waiting_ms: int | None = _option(FAIL_AFTER_WAITING, INT, None, M,
        "Milliseconds after which a task fails that waits for something: the catalog, a table, a commit, a schema "
        "registry. Unset: it waits without a limit, and its status shows it.", _at_least_one_if_set)
    max_staged_cycles: int = _option(
        "iceberg.ext.max-staged-cycles", INT, 2, L, "Cycles that may wait for their commit before tasks pause.",
        at_least(1))
    max_staged_bytes: int = _option(MAX_STAGED_BYTES, LONG, 4096 * MEGABYTE, L,
        "Bytes of rows, in memory and on disk, that a task collects for one cycle; beyond, it pauses.",
        at_least(MEGABYTE))
    staging_memory_bytes: int = _option("iceberg.ext.staging-memory-bytes", LONG, 128 * MEGABYTE, L,
        "Bytes of rows that a task holds in memory; more goes to disk.", at_least(MEGABYTE))
    target_file_size_bytes: int | None = _option(TARGET_FILE_SIZE, LONG, TARGET_FILE_BYTES, L,  # None: not set
        "Bytes of rows after which a staged file is followed by another one. Unless it is set, the table's property "
        "`write.target-file-size-bytes` wins over the default.", at_least(MEGABYTE))
    own_driver: bool = _either("iceberg.ext.spark-driver", "shared", "own", L,
        "`own` gives the connector a Spark driver process of its own. By default connectors of a worker share one if "
        "their static settings of Spark are equal. The worker's `connect_py.spark.drivers.max` limits their number.")
    dead_letter_table: str | None = _option(DEAD_LETTER_TABLE, STRING, None, M,
        "Table in which records that fail are kept with their original bytes, exactly once; beside or instead of the "
        "dead-letter topic. Needs `errors.tolerance=all`. Unset: none.", read=_text)
    replay_topic: str | None = _option(REPLAY_TOPIC, STRING, None, M,
        "Topic from which the connector reads dead letters again that `connect-py dlq replay` writes there; it is "
        "created. The connector then reads committed records only. Unset: none.", read=_text)
    # fmt: on

    def hadoop_settings(self) -> dict[str, str]:
        """Hadoop's settings: those of the files in `iceberg.hadoop-conf-dir`, and `iceberg.hadoop.*`, which win.

        Reads the files.

        Raises:
            ConfigError: The folder is not there, or a file is not of Hadoop's form.
        """
        files = read_hadoop_files(HADOOP_CONF_DIR, self.hadoop_conf_dir) if self.hadoop_conf_dir else {}
        return {**files, **self.hadoop}

    def catalog_properties(self) -> dict[str, str]:
        """Those of the catalog and its storage, in Iceberg's words and in Spark's, which win as in the driver."""
        return {**self.catalog, **with_prefix(self.spark, f"spark.sql.catalog.{self.catalog_name}.")}

    @property
    def channel_topic(self) -> str:
        """The topic that carries messages between tasks and coordinator.

        `<control>-<group>`, where a topic may have that name. Else `<control>.` and the group with what is not safe as
        `_` and six hexadecimal digits, or, if that is too long, its beginning and its digest: no group that makes a
        safe name has this one, and no other group.
        """
        control, group = self.control_topic, self.connect_group
        plain = f"{control}-{group}"
        if len(plain) <= LONGEST_TOPIC and not _UNSAFE_IN_TOPIC.search(group):
            return plain
        quoted = re.sub(r"[^a-zA-Z0-9-]", lambda found: f"_{ord(found[0]):06x}", group)
        room = LONGEST_TOPIC - len(control) - 1
        if len(quoted) > room:
            digest = hashlib.sha256(group.encode()).hexdigest()
            quoted = f"{quoted[: max(room - len(digest) - 1, 0)]}.{digest}"
        return f"{control}.{quoted}"

    @property
    def coordinator_transactional_id(self) -> str:
        return f"{self.transactional_prefix}connect-{self.connector}-coordinator"

    def format_version(self, name: str = "") -> int:
        """The format version of a table if the sink creates it; no name: of those that rows are routed to."""
        given = self.auto_create_props.get("format-version")
        if given is not None:
            return int(given)
        merged = self.mode_of(name) is WriteMode.MERGE and self.family is ClassFamily.APACHE
        return 3 if merged or self.json_variants else 2

    def mode_of(self, name: str) -> WriteMode:
        """How rows reach a table: dead letters and changes are facts, whatever the others are."""
        return WriteMode.APPEND if name == self.dead_letter_table or self.is_changelog(name) else self.mode

    def is_changelog(self, name: str) -> bool:
        """Whether a table holds the changes of another one."""
        return self.changelog_suffix is not None and name.endswith(self.changelog_suffix)

    def marks_deletes(self, name: str) -> bool:
        """Whether deleted rows of a table stay, and say so."""
        return self.mark_deletes and self.mode_of(name) is WriteMode.MERGE

    def may_create(self, name: str) -> bool:
        """Whether the sink creates a table that is missing; the dead letters' always."""
        return self.auto_create or name == self.dead_letter_table

    def table(self, name: str) -> TableConfig:
        """The settings of a table by its full name. Defaults are not for the dead letters' table.

        Raises:
            ConfigError: One of them does not parse; possible for dynamic tables only, static ones are checked before.
        """
        default = TableConfig("") if name == self.dead_letter_table else self.default_table
        return _table_config(self.table_props, name, default, [])

    @staticmethod
    def parse(props: Mapping[str, str]) -> IcebergSinkConfig:
        """Parse a connector's or task's properties.

        Raises:
            ConfigError: A value or a combination is not acceptable.
        """
        config, problems = _parse(props)
        if config is None:
            key, why = problems[0]
            raise ConfigError("" if key in _WHOLE_MESSAGES else key, why)
        return config


for _name in _SECRETS:
    _define(_name, Type.PASSWORD, None, L, "A secret, passed on.")
_WHOLE_MESSAGES = frozenset({CATALOG_PREFIX, TABLES, ROUTE_FIELD, DYNAMIC})  # Java's texts stand alone


def validate(props: Mapping[str, str | None]) -> dict[str, ConfigValue]:
    """What the validate endpoint shows: every key, with the problems of values and of combinations.

    Keys that are not defined (per table, below a prefix) are shown if they have a problem, without their value.
    """
    given = {key: value for key, value in props.items() if value is not None}
    known, _ = respelled(given)
    values = CONFIG_DEF.validate({**props, **known})
    if any(value.errors for value in values.values()):
        return values
    _, problems = _parse(given)
    for key, why in problems:
        shown = CATALOG_NAME if key == CATALOG_PREFIX else key
        values.setdefault(shown, ConfigValue(shown)).errors.append(why)
    return values


def respelled(props: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Properties under their new names, and what to say about it."""
    apache = ClassFamily.of(props.get("connector.class", "")) is ClassFamily.APACHE
    known: dict[str, str] = dict(props)
    warnings: list[str] = []
    for old, new in _OLD_SPELLINGS.items():
        if old not in props:
            continue
        if old == "iceberg.control.group.id" and apache:
            warnings.append(f"{old} has no effect under this class name")
            continue
        known.setdefault(new, known.pop(old))
        warnings.append(f"{old} is an old spelling, use {new}")
    for key in props:
        for old, new in _OLD_TABLE_SPELLINGS.items():
            if key.startswith(TABLE_PREFIX) and key.endswith("." + old):
                renamed = key.removesuffix(old) + new
                known.setdefault(renamed, known.pop(key))
                warnings.append(f"{key} is an old spelling, use {renamed}")
        if key in NEVER_VALID:
            warnings.append(f"{key} {NEVER_VALID[key]}")
        elif key.startswith(_FORK_PREFIXES):
            warnings.append(f"{key} belongs to a fork; use errors.tolerance and a dead-letter queue")
    return known, warnings


def _unknown_keys(known: Mapping[str, str], tables: Collection[str]) -> list[str]:
    """What to say of keys below `iceberg.` that nothing reads. `tables`: all that rows may go to; empty: not known."""
    defined = [key for key in CONFIG_DEF.keys if key.startswith(OWN_PREFIX)]
    short = {name.rpartition(".")[2] for name in tables}
    warnings = []
    for key in known:
        read = key in CONFIG_DEF.keys or key in _OLD_SPELLINGS or key in NEVER_VALID or key.startswith(_FORK_PREFIXES)
        if read or not key.startswith(OWN_PREFIX) or key.startswith(_FREE_PREFIXES):
            continue
        table, _, setting = key.removeprefix(TABLE_PREFIX).rpartition(".")
        if not key.startswith(TABLE_PREFIX) or not table:
            meant = _nearest(OWN_PREFIX, key, [*defined, *_below_prefixes(key)])
            warnings.append(f"{key} is not known and has no effect{meant}")
        elif setting not in _TABLE_SETTINGS:
            near = [f"{TABLE_PREFIX}{table}.{each}" for each in _TABLE_SETTINGS]
            own = f"{TABLE_PREFIX}{table}."
            warnings.append(f"{key} is not known and has no effect{_nearest(own, key, near)}")
        elif tables and table not in tables and table not in short:
            warnings.append(f"{key} has no effect: no rows go to a table {table}{_nearest('', table, tables)}")
    return warnings


def _below_prefixes(key: str) -> list[str]:
    """The key below each prefix under which anything may stand, where its own beginning is like that prefix."""
    found = []
    for prefix in _FREE_PREFIXES:
        depth = prefix.count(".")
        parts = key.split(".")
        begins = ".".join(parts[:depth]) + "."
        alike = difflib.SequenceMatcher(None, begins[len(OWN_PREFIX) :], prefix[len(OWN_PREFIX) :]).ratio()
        if len(parts) > depth and alike >= _ALIKE:
            found.append(prefix + ".".join(parts[depth:]))
    return found


def _nearest(common: str, key: str, known: Collection[str]) -> str:
    """What may have been meant, if something is alike in what follows the common beginning."""
    start = len(common)
    nearest = difflib.get_close_matches(key[start:], [name[start:] for name in known], 1, _ALIKE)
    return f"; did you mean {common}{nearest[0]}?" if nearest else ""


def _checked(key: str, read: Callable[[str], T], text: str) -> T:
    """What a text of a key is read as."""
    try:
        return read(text)
    except ValueError as error:
        raise ConfigError(key, str(error)) from error


def _table_config(table_props: Mapping[str, str], name: str, default: TableConfig, warnings: list[str]) -> TableConfig:
    short = name.rpartition(".")[2]

    def read(setting: str, parse: Callable[[str], T], default: T) -> T:
        key, found = f"{TABLE_PREFIX}{name}.{setting}", table_props.get(f"{name}.{setting}")
        if found is None and short != name:
            found = table_props.get(f"{short}.{setting}")
            if found is not None:
                warnings.append(f"{TABLE_PREFIX}{short}.{setting} names the table by its last part only, use {key}")
        return default if found is None else _checked(key, parse, found)

    return TableConfig(
        name, read("id-columns", list_items, default.id_columns), read("partition-by", _terms, default.partition_by),
        read("commit-branch", _text, default.commit_branch), read("route-regex", compile_java_pattern, None),
        read("renamed", _renamed, {}),
    )  # fmt: skip


def _renamed(text: str) -> Mapping[str, str]:
    """`new:old` pairs, comma separated. ValueError: not of that form."""
    pairs = [item.partition(":") for item in text.split(",") if item.strip()]
    if not all(new.strip() and old.strip() for new, _, old in pairs):
        raise ValueError("expected new:old, comma separated")
    return {new.strip(): old.strip() for new, _, old in pairs}


def _evolution(values: Mapping[str, Any]) -> EvolutionPolicy:
    usual = ChangeAction.APPLY if values[EVOLVE_SCHEMA] else ChangeAction.IGNORE
    given = {kind: values[key] for kind, key in _EVOLVE.items()}
    return {kind: usual if action == "auto" else ChangeAction(action) for kind, action in given.items()}


def _terms(text: str) -> tuple[PartitionTerm, ...]:
    return parse_partition_by(list_items(text))


def _topic_rules(text: str | None) -> tuple[TopicRule, ...]:
    rules = []
    for item in split_outside_brackets(text or ""):
        pattern, colon, template = item.rpartition(":")
        if not colon or not pattern.strip() or not template.strip():
            raise ConfigError(TOPIC_TO_TABLE, f"{item} is not of the form pattern:template")
        matches = _checked(TOPIC_TO_TABLE, compile_java_pattern, pattern.strip())
        rule = TopicRule(matches, tuple(part.strip() for part in template.split("+")))
        for part in rule.templates:
            _check_template(rule.pattern, part)
        rules.append(rule)
    return tuple(rules)


def _check_template(pattern: re.Pattern[str], template: str) -> None:
    for place in _PLACE.findall(template):
        known = place == "topic" or place in pattern.groupindex
        if not known and not (place.isdecimal() and int(place) <= pattern.groups):
            raise ConfigError(TOPIC_TO_TABLE, f"{{{place}}} in {template} names no group of the pattern")
    if re.search(r"[{}]", _PLACE.sub("", template)):
        raise ConfigError(TOPIC_TO_TABLE, f"{template} has a brace that belongs to no {{group}}")
    if not is_table_name(_PLACE.sub("x", template)):
        raise ConfigError(TOPIC_TO_TABLE, f"{template or 'an empty template'} is not a table name")


def is_table_name(text: str) -> bool:
    """Whether a text can name a table: parts between dots, none of them empty."""
    return all(part.strip() for part in text.split("."))


def _remote_problems(spark: Mapping[str, str], engine: str) -> tuple[list[tuple[str, str]], list[str]]:
    """What does not go together with Spark Connect: problems by key, and warnings."""
    remote = SPARK_PREFIX + "remote"
    problems: list[tuple[str, str]] = []
    try:
        remote_address(spark["spark.remote"])
        check_installed()
    except ConfigError as error:
        problems.append((remote, error.why))
    if "spark.master" in spark:
        problems.append((remote, f"names a Spark, and {SPARK_PREFIX}master another one"))
    if engine == "delta":
        problems.append((COMMIT_ENGINE, f"delta is not SQL: it cannot go through {remote}"))
    ours = ("spark.remote", "spark.driver.memory", "spark.driver.extraJavaOptions")
    idle = [key for key in spark if key not in ours and not key.startswith(("spark.sql.", "spark.hadoop."))]
    hints = [f"{SPARK_PREFIX}{key.removeprefix('spark.')} has no effect with {remote}" for key in sorted(idle)]
    return problems, hints


def _unavailable(text: str) -> bytes:
    if not text.startswith("hex:"):
        return text.encode()
    try:
        return bytes.fromhex(text.removeprefix("hex:"))
    except ValueError as error:
        raise ConfigError(UNAVAILABLE_VALUE, "expected hexadecimal digits after hex:") from error


def _parse(props: Mapping[str, str]) -> tuple[IcebergSinkConfig | None, list[tuple[str, str]]]:
    """The configuration, or the (key, problem) pairs that stand against it."""
    known, warnings = respelled(props)
    values = CONFIG_DEF.parse(known)
    problems: list[tuple[str, str]] = []
    connector = props.get("name", "")
    family = ClassFamily.of(props.get("connector.class", ""))

    tables = tuple(values[TABLES]) if values[TABLES] is not None else None
    route_field = (values[ROUTE_FIELD] or "").strip()
    catalog = {key: value for key, value in with_prefix(known, CATALOG_PREFIX).items() if key}
    if not catalog:
        problems.append((CATALOG_PREFIX, "Must specify Iceberg catalog properties"))
    if "type" in catalog and "catalog-impl" in catalog:
        problems.append((CATALOG_PREFIX, "Cannot create catalog, both type and catalog-impl are set"))
    by_topic = bool((values[TOPIC_TO_TABLE] or "").strip())
    if tables is not None and values[DYNAMIC]:
        problems.append((TABLES, "Cannot specify both static and dynamic table names"))
    elif by_topic and (tables or values[DYNAMIC]):
        problems.append((TOPIC_TO_TABLE, f"cannot be combined with {TABLES} or {DYNAMIC}"))
    elif values[DYNAMIC] and not route_field:
        problems.append((ROUTE_FIELD, "Must specify a route field if using dynamic table names"))
    elif not values[DYNAMIC] and not by_topic and not any(tables or ()):
        problems.append((TABLES, "Must specify table name(s)"))
    if tables and any(tables):
        wrong = [name or "an empty item" for name in tables if not is_table_name(name)]
        problems += [(TABLES, f"{name} is not a table name") for name in wrong]
    table_props = with_prefix(known, TABLE_PREFIX)
    default_table = TableConfig("")
    rules: tuple[TopicRule, ...] = ()
    unavailable = b""
    try:
        default_table = TableConfig(
            "",
            _checked(ID_COLUMNS, list_items, values[ID_COLUMNS] or ""),
            _checked(PARTITION_BY, _terms, values[PARTITION_BY] or ""),
            values[COMMIT_BRANCH] or None,
        )
        rules = _topic_rules(values[TOPIC_TO_TABLE])
        unavailable = _unavailable(values[UNAVAILABLE_VALUE])
        for name in tables or ():
            table = _table_config(table_props, name, default_table, warnings)
            if table.route_regex is not None and not route_field:
                raise ConfigError(f"{TABLE_PREFIX}{name}.route-regex", f"has no effect without {ROUTE_FIELD}")
    except ConfigError as error:
        problems.append((error.key, error.why))

    asked = bool(values[CDC_FIELD]) or values[UPSERT_MODE]
    envelopes = values[ENVELOPE] == "debezium"
    if envelopes and values[CDC_FIELD]:
        problems.append((ENVELOPE, f"says itself what each change is; cannot be combined with {CDC_FIELD}"))
    usual_mode = WriteMode.MERGE if asked else WriteMode.APPEND
    mode = usual_mode if values[WRITE_MODE] == "auto" else WriteMode(values[WRITE_MODE])
    apache_merges = mode is WriteMode.MERGE and family is ClassFamily.APACHE
    if envelopes and mode is not WriteMode.MERGE:
        problems.append((ENVELOPE, f"needs MERGE: set {UPSERT_MODE}"))
    no_operations = not envelopes and (values[CDC_FIELD] or "").rpartition(".")[2] not in ("op", "__op")
    if values[SNAPSHOT_EVENTS] == "ignore" and (no_operations or mode is not WriteMode.MERGE):
        needed = f"{ENVELOPE}=debezium, or a {CDC_FIELD} that is Debezium's own op or __op"
        problems.append((SNAPSHOT_EVENTS, f"needs {needed}"))
    if values[CHANGELOG_SUFFIX] and (not envelopes or mode is not WriteMode.MERGE):
        problems.append((CHANGELOG_SUFFIX, f"needs MERGE, and {ENVELOPE}=debezium to see the rows before"))
    elif values[CHANGELOG_SUFFIX]:
        named = [*(tables or ()), *(name for rule in rules for name in rule.templates), values[DEAD_LETTER_TABLE] or ""]
        wrong = [name for name in named if name.strip().endswith(values[CHANGELOG_SUFFIX])]
        why = "ends so itself, and would be taken for the changes of another one"
        problems += [(CHANGELOG_SUFFIX, f"table {name} {why}") for name in wrong]
    if asked and apache_merges:
        warnings.append(f"{CDC_FIELD} and {UPSERT_MODE} turn on MERGE; Apache's sink ignored them")
    engine = values[COMMIT_ENGINE]
    if engine in ("append", "delta"):
        warnings.append(f"{COMMIT_ENGINE}={engine} means auto: there is one engine now")
    if engine == "merge" and mode is WriteMode.APPEND:
        problems.append((COMMIT_ENGINE, "merge needs keys; rows are appended here"))
    usual_types = LogicalTypes.FULL if apache_merges else LogicalTypes.CONNECT
    logical = usual_types if values[LOGICAL_TYPES] == "auto" else LogicalTypes(values[LOGICAL_TYPES])
    if COMMIT_TIMEOUT in props and values[COMMIT_TIMEOUT] >= values[COMMIT_INTERVAL]:
        warnings.append(f"{COMMIT_TIMEOUT} is not below {COMMIT_INTERVAL}: a slow task delays the next commit")
    if COMMIT_THREADS in props:
        warnings.append(f"{COMMIT_THREADS} has no effect: tables are committed one after the other")
    group = values[CONNECT_GROUP] or f"connect-{connector}"
    real_group = props.get("consumer.override.group.id", f"connect-{connector}")
    if group != real_group:
        warnings.append(f"{CONNECT_GROUP} is {group}, but the connector reads in group {real_group}")
    create = with_prefix(known, AUTO_CREATE_PREFIX)
    # `iceberg.spark.master` is `spark.master`; so is `iceberg.spark.spark.master`.
    spark = {"spark." + key.removeprefix("spark."): value for key, value in with_prefix(known, SPARK_PREFIX).items()}
    if spark.get("spark.remote"):
        found, hints = _remote_problems(spark, engine)
        problems += found
        warnings += hints
    version = create.get("format-version", "2")
    if version not in ("1", "2", "3"):
        problems.append((AUTO_CREATE_PREFIX + "format-version", f"{version} is not 1, 2 or 3"))
    elif values[JSON_TYPE] == "variant" and version != "3" and "format-version" in create:
        problems.append((JSON_TYPE, "variant needs format version 3"))
    elif version == "1" and mode is WriteMode.MERGE:
        problems.append((AUTO_CREATE_PREFIX + "format-version", "MERGE needs format version 2 or 3"))
    dead_letters = (values[DEAD_LETTER_TABLE] or "").strip()
    if dead_letters:
        if not is_table_name(dead_letters) or "." not in dead_letters:
            problems.append((DEAD_LETTER_TABLE, f"{dead_letters} is not of the form namespace.table"))
        elif dead_letters in (tables or ()):
            problems.append((DEAD_LETTER_TABLE, f"{dead_letters} is one of {TABLES}: dead letters need their own"))
        elif (props.get("errors.tolerance") or "none").strip().lower() != "all":
            warnings.append(f"{DEAD_LETTER_TABLE} has no effect without errors.tolerance=all")
    replay = (values[REPLAY_TOPIC] or "").strip()
    if replay and not dead_letters:
        problems.append((REPLAY_TOPIC, f"has no effect without {DEAD_LETTER_TABLE}"))
    elif replay and replay in [topic.strip() for topic in (props.get("topics") or "").split(",")]:
        problems.append((REPLAY_TOPIC, f"{replay} is one of the connector's own topics"))
    if replay and mode is WriteMode.MERGE and not values[ORDERING_COLUMNS]:
        warnings.append(
            f"{REPLAY_TOPIC}: of merged tables without {ORDERING_COLUMNS} it is not known whether a record that is "
            "tried again is older than its row: it is inserted where its key is missing, and left out elsewhere"
        )
    if problems:
        return None, problems
    changelogs = [name + values[CHANGELOG_SUFFIX] for name in tables or () if values[CHANGELOG_SUFFIX]]
    warnings += _unknown_keys(known, list(filter(None, [*tables, *changelogs, dead_letters])) if tables else ())
    options = [(member.name, member.metadata) for member in fields(IcebergSinkConfig) if member.metadata]
    members = {name: option["read"](values[option["key"]]) for name, option in options} | {
        "mode": mode,
        "logical_types": logical,
        "unavailable_value": unavailable,
        "connect_group": group,
        "control_group": values[CONTROL_GROUP] or f"cg-control-{connector}",
        "commit_max_failures": values[COMMIT_MAX_FAILURES] if COMMIT_MAX_FAILURES in known else None,
        "target_file_size_bytes": values[TARGET_FILE_SIZE] if TARGET_FILE_SIZE in known else None,
    }
    return IcebergSinkConfig(
        connector=connector, family=family, default_table=default_table, warnings=tuple(dict.fromkeys(warnings)),
        topic_rules=rules, evolution=_evolution(values), auto_create_props=create,
        write_props={k: v for prefix in WRITE_PREFIXES for k, v in with_prefix(known, prefix).items()},
        table_props=table_props, catalog=catalog, hadoop=with_prefix(known, HADOOP_PREFIX),
        kafka=with_prefix(known, KAFKA_PREFIX), spark=spark, **members,
    ), []  # fmt: skip
