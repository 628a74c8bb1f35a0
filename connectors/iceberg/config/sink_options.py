"""`SinkOptions`: the sink's config options, each declared with the attribute for its value."""

# ruff: noqa: RUF009 - the default of each attribute is a call that declares its key

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from connect_py.api.config import (
    ConfigDef,
    Importance,
    Parsed,
    Password,
    Type,
    Validator,
    at_least,
    one_of,
    with_prefix,
)
from connectors.iceberg.config import keys
from connectors.iceberg.config.expectations import ExpectationRules
from connectors.iceberg.config.maintenance_policy import SETTINGS
from connectors.iceberg.config.stop_at import StopAt, parse_stop_at, valid_stop_at
from connectors.iceberg.config.storage_settings import read_hadoop_files
from connectors.iceberg.config.table_config import TableConfig, optional_text, table_config
from connectors.iceberg.config.topic_rules import TopicRule
from connectors.iceberg.table.schema_change import ChangeAction, EvolutionPolicy
from connectors.iceberg.table.table import WriteMode

UNAVAILABLE_DEFAULT = "__debezium_unavailable_value"
MEGABYTE = 1 << 20
TARGET_FILE_BYTES = 512 * MEGABYTE  # default for the option and for the table property
LONGEST_TOPIC = 249  # characters; Kafka's limit for topic names
_UNSAFE_IN_TOPIC = re.compile(r"[^a-zA-Z0-9._-]")

_SECRETS = (
    "iceberg.catalog.credential",
    "iceberg.catalog.token",
    "iceberg.catalog.jdbc.password",
    "iceberg.catalog.s3.access-key-id",
    "iceberg.catalog.s3.secret-access-key",
    "iceberg.catalog.s3.session-token",
    "iceberg.kafka.sasl.jaas.config",
    "iceberg.kafka.sasl.password",
    "iceberg.kafka.ssl.key.password",
    "iceberg.kafka.ssl.keystore.password",
    "iceberg.kafka.ssl.truststore.password",
)


class ClassFamily(Enum):
    """Origin of the connector class name, which determines group names and table defaults."""

    APACHE = "apache"
    TABULAR = "tabular"

    @staticmethod
    def of(connector_class: str) -> ClassFamily:
        """Return the family of a connector class name."""
        return (
            ClassFamily.TABULAR if connector_class.startswith("io.tabular.") else ClassFamily.APACHE
        )


class Unrouted(Enum):
    """Handling of rows that are not routed to any table."""

    IGNORE = "ignore"
    FAIL = "fail"
    DLQ = "dlq"


class LogicalTypes(Enum):
    """Logical types that determine the types of new columns."""

    # Kafka Connect's logical types; other logical types are ignored, as in the Java sink
    CONNECT = "connect"
    FULL = "full"  # logical types of Kafka Connect, Debezium, and Avro


class OutOfRange(Enum):
    """Handling of times that Iceberg cannot represent, such as infinity and 24:00."""

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
_ACTIONS = (
    ": `apply` changes the table, `ignore` leaves it unchanged, `hold` delays the rows until a "
    "user changes the table, and `dead-letter` rejects the rows. `auto` is `apply` if "
    f"{keys.EVOLVE_SCHEMA} is true, and `ignore` otherwise."
)


def _define(
    key: str,
    kind: Type,
    default: Parsed,
    importance: Importance,
    doc: str,
    validator: Validator | None = None,
) -> None:
    """Declare a key that `OptionParser` reads together with other keys."""
    CONFIG_DEF.define(
        key, kind, default=default, importance=importance, validator=validator, doc=doc
    )


def _option(
    key: str,
    kind: Type,
    default: Parsed,
    importance: Importance,
    doc: str,
    validator: Validator | None = None,
    read: Callable[[Any], Any] = lambda value: value,
) -> Any:
    """Declare a key, and the attribute to which `read` converts its value.

    `OptionParser` may replace the attribute with a value that depends on other keys.
    """
    _define(key, kind, default, importance, doc, validator)
    return field(metadata={"key": key, "read": read})


def _either(key: str, default: str, other: str, importance: Importance, doc: str) -> Any:
    """Declare a key with two values. The attribute is True if the value is not the default."""
    return _option(
        key, STRING, default, importance, doc, one_of(default, other), lambda value: value == other
    )


def _tuple(items: Sequence[str] | None) -> tuple[str, ...]:
    return tuple(items or ())


def _path(text: str | None) -> tuple[str, ...]:
    return tuple(text.strip().split(".")) if text else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """Parsed configuration of the sink. Its `repr` contains no secrets."""

    connector: str
    family: ClassFamily
    default_table: TableConfig
    warnings: tuple[str, ...]  # logged when the connector starts
    topic_rules: tuple[TopicRule, ...]
    evolution: EvolutionPolicy
    auto_create_props: Mapping[str, str]
    write_props: Mapping[str, str]
    # keys without the prefix `iceberg.table.`, in their current spelling
    table_props: Mapping[str, str] = field(repr=False)
    catalog: Mapping[str, str] = field(repr=False)
    hadoop: Mapping[str, str] = field(repr=False)
    kafka: Mapping[str, str] = field(repr=False)
    changelogs_only: bool  # every table is a change log
    spark: Mapping[str, str] = field(repr=False)  # full keys, such as `spark.master`
    # The reference page lists the keys in this order. `_define` declares keys without an attribute.
    tables: tuple[str, ...] = _option(
        keys.TABLES, LIST, None, H, "Comma-separated list of destination tables.", read=_tuple
    )
    dynamic: bool = _option(
        keys.DYNAMIC,
        BOOLEAN,
        False,
        M,
        "Whether the route field of each row contains the name of its table. The name is converted "
        "to lower case.",
    )
    route_field: tuple[str, ...] = _option(  # path of the field, or empty if there is none
        keys.ROUTE_FIELD,
        STRING,
        None,
        M,
        "Field whose value determines the table of a row. Dots separate the names of nested "
        "fields.",
        read=_path,
    )
    _define(
        keys.COMMIT_BRANCH,
        STRING,
        None,
        M,
        "Branch to commit to, for tables without a `commit-branch`. If unset, the branch is main.",
    )
    _define(
        keys.ID_COLUMNS,
        STRING,
        None,
        M,
        "Comma-separated list of key columns, for tables without `id-columns`.",
    )
    _define(
        keys.PARTITION_BY,
        STRING,
        None,
        M,
        "Comma-separated list of partition fields for tables that the sink creates, such as "
        "`days(ts),bucket(id, 16)`.",
    )
    cdc_field: tuple[str, ...] = _option(
        keys.CDC_FIELD,
        STRING,
        None,
        M,  # path of the field, or empty if there is none
        "Field with the operation of a change: I, U, or D, or Debezium's c, r, u, or d. If this is "
        "set, changes are merged by key.",
        read=_path,
    )
    _define(
        keys.UPSERT_MODE,
        BOOLEAN,
        False,
        M,
        "Whether to keep only the last row of each key. If true, rows are merged by key.",
    )
    auto_create: bool = _option(
        keys.AUTO_CREATE, BOOLEAN, False, M, "Whether to create missing tables."
    )
    _define(
        keys.EVOLVE_SCHEMA,
        BOOLEAN,
        False,
        M,
        "Whether to add columns, widen int and float columns, and make required columns optional "
        "if the records require it.",
    )
    force_optional: bool = _option(
        "iceberg.tables.schema-force-optional",
        BOOLEAN,
        False,
        M,
        "Whether to create all columns as optional, including nested fields.",
    )
    case_insensitive: bool = _option(
        "iceberg.tables.schema-case-insensitive",
        BOOLEAN,
        False,
        M,
        "Whether to ignore case when matching field names with column names.",
    )
    catalog_name: str = _option(keys.CATALOG_NAME, STRING, "iceberg", M, "Name of the catalog.")
    hadoop_conf_dir: str | None = _option(
        keys.HADOOP_CONF_DIR,
        STRING,
        None,
        M,
        "Folder with core-site.xml, hdfs-site.xml, and hive-site.xml. The `iceberg.hadoop.*` keys "
        "take precedence.",
    )
    control_topic: str = _option(
        "iceberg.control.topic",
        STRING,
        "control-iceberg",
        M,
        "Topic for commit events. The sink's internal messages use a second topic, "
        "`<control topic>-<connect group ID>`, in which characters that are not allowed in topic "
        "names are escaped.",
    )
    _define(
        "iceberg.control.group-id-prefix",
        STRING,
        "cg-control-",
        L,
        "Accepted for compatibility. The sink does not use control groups.",
    )
    control_group: str = _option(
        keys.CONTROL_GROUP,
        STRING,
        None,
        L,
        "Consumer group in which the Tabular sink stored its offsets, which are read during a "
        "migration. The default is `cg-control-<name>`.",
    )
    connect_group: str = _option(
        keys.CONNECT_GROUP,
        STRING,
        None,
        L,
        "Consumer group of the connector. The default is `connect-<name>`.",
    )
    commit_interval_ms: int = _option(
        keys.COMMIT_INTERVAL,
        INT,
        300_000,
        M,
        "Time between commits to the tables, in milliseconds.",
        at_least(1),
    )
    commit_timeout_ms: int = _option(
        keys.COMMIT_TIMEOUT,
        INT,
        30_000,
        M,
        "Maximum time to wait for the reports of all tasks, in milliseconds. After this time, the "
        "reported rows are committed.",
        at_least(1),
    )
    commit_threads: int = _option(
        keys.COMMIT_THREADS,
        INT,
        min(2 * (os.cpu_count() or 1), 4),
        M,
        "Number of tables that are opened or committed concurrently, each in a separate Spark "
        "session.",
        at_least(1),
    )
    # if None, the number of consecutive failed commits is not limited, and the rows wait
    commit_max_failures: int | None = _option(
        keys.COMMIT_MAX_FAILURES,
        INT,
        1,
        M,
        "Number of consecutive failed commit cycles for a table after which the task fails. Commit "
        "intervals in which the table is unavailable or the coordinator cannot start also count. "
        "If this is not set, the rows of the table wait, and other tables are not affected.",
        at_least(1),
    )
    transactional_prefix: str = _option(
        "iceberg.coordinator.transactional.prefix",
        STRING,
        None,
        L,
        "Prefix of the coordinator's transactional ID, for ACLs that require one.",
        read=lambda text: text or "",
    )
    _define(
        "iceberg.coordinator-executor-keep-alive-timeout-ms",
        LONG,
        120_000,
        L,
        "Accepted for compatibility.",
        at_least(0),
    )
    mode: WriteMode = _option(
        keys.WRITE_MODE,
        STRING,
        "auto",
        M,
        "`append` writes every record as a row. `merge` keeps the last row of each key. "
        "`changelog` writes the rows before and after each change of a Debezium event. `auto` is "
        f"`merge` if {keys.CDC_FIELD} or {keys.UPSERT_MODE} is set, and `append` otherwise.",
        one_of("auto", "append", "merge", "changelog"),
    )
    full_merge: bool = _option(
        keys.COMMIT_ENGINE,
        STRING,
        "auto",
        M,
        "With `merge`, Spark's MERGE inserts and updates rows. By default, MERGE only deletes the "
        "replaced rows, and the staged files are added to the table unchanged. `append` and "
        "`delta` are accepted as synonyms of `auto`.",
        one_of("auto", "append", "merge", "delta"),
        lambda engine: engine == "merge",
    )
    keep_write_mode: bool = _option(
        "iceberg.ext.keep-write-mode",
        BOOLEAN,
        False,
        L,
        "Whether to leave `write.merge.mode` unset for merged tables that do not have this "
        "property. Spark then rewrites whole files. By default, the sink sets the property to "
        "merge-on-read once.",
    )
    commit_attempt_timeout_ms: int = _option(
        keys.ATTEMPT_TIMEOUT,
        LONG,
        600_000,
        L,
        "Timeout for a commit to one table, in milliseconds. The statement is then interrupted and "
        "the commit is retried.",
        at_least(1_000),
    )
    _define(
        keys.TOPIC_TO_TABLE,
        STRING,
        None,
        M,
        "Comma-separated list of `pattern:template` pairs that map topics to tables. Patterns are "
        "regular expressions, and the first pattern that matches the whole topic name applies. "
        "Templates may contain {topic}, {1}, {2}, and named groups. `+` separates multiple "
        "templates.",
    )
    only_tables: tuple[str, ...] = _option(
        keys.ONLY_TABLES,
        LIST,
        None,
        L,
        "Comma-separated list of the tables to which this connector writes. Rows that are routed "
        "to other tables are skipped. If unset, the connector writes to all tables.",
        read=_tuple,
    )
    unrouted: Unrouted = _option(
        "iceberg.ext.unrouted",
        STRING,
        "ignore",
        M,
        "Handling of rows that are not routed to any table: `ignore` counts and skips them, `fail` "
        "fails the task, and `dlq` writes dead-letter records.",
        _one_of(Unrouted),
        Unrouted,
    )
    skip_missing: bool = _either(
        "iceberg.ext.missing-table",
        "fail",
        "skip",
        M,
        "Handling of rows whose table is unavailable or cannot be committed to. With `fail`, their "
        "partitions wait for the table, indefinitely unless "
        f"{keys.COMMIT_MAX_FAILURES} is set. With `skip`, these rows are counted and skipped.",
    )
    lenient: bool = _option(
        "iceberg.ext.lenient-conversion",
        BOOLEAN,
        False,
        M,
        "Whether to convert values as the Java sink does, even if data is lost: numbers overflow, "
        "decimals are rounded, and all strings except true are converted to false.",
    )
    _define(
        keys.EVOLVE_ADD,
        STRING,
        "auto",
        M,
        f"Action if a field has no column{_ACTIONS}",
        _one_of(ChangeAction, auto=True),
    )
    _define(
        keys.EVOLVE_WIDEN,
        STRING,
        "auto",
        M,
        "Action if a field is wider than its column, such as a long for an int, a double for a "
        f"float, or a decimal with more digits{_ACTIONS}",
        _one_of(ChangeAction, auto=True),
    )
    _define(
        keys.EVOLVE_OPTIONAL,
        STRING,
        "auto",
        M,
        f"Action if a field is optional, but its column is required{_ACTIONS}",
        _one_of(ChangeAction, auto=True),
    )
    _define(
        keys.EVOLVE_RENAME,
        STRING,
        "ignore",
        M,
        "Action if a column has the former name of a field, which is an alias in the schema of the "
        "field or is listed in iceberg.table.<table>.renamed: `apply` renames the column, `ignore` "
        "adds a column, `hold` delays the rows until a user changes the table, and `dead-letter` "
        "rejects the rows.",
        _one_of(ChangeAction),
    )
    _define(
        keys.EVOLVE_INCOMPATIBLE,
        STRING,
        "ignore",
        M,
        "Action if the type of a field is incompatible with its column: `apply` adds a column for "
        "it, `ignore` converts each value or rejects it, `hold` delays the rows until a user "
        "changes the table, and `dead-letter` rejects the rows.",
        _one_of(ChangeAction),
    )
    evolve_partitions: bool = _either(
        keys.EVOLVE_PARTITIONS,
        "ignore",
        "apply",
        L,
        "Action if the partition fields of an existing table differ from `partition-by`: `apply` "
        "changes the partition spec for new files, and `ignore` leaves it unchanged.",
    )
    logical_types: LogicalTypes = _option(
        keys.LOGICAL_TYPES,
        STRING,
        "auto",
        M,
        "Logical types that determine the types of new columns: `connect` supports only Kafka "
        "Connect's types, and `full` also supports Debezium's and Avro's types. `auto` is `full` "
        "if rows are merged and the class name is Apache's, and `connect` otherwise. Merged tables "
        "have no columns of type time, because Spark cannot read them.",
        _one_of(LogicalTypes, auto=True),
    )
    json_variants: bool = _either(
        keys.JSON_TYPE,
        "string",
        "variant",
        L,
        "Type of new columns for fields whose schema declares JSON strings: `string`, or `variant` "
        "in tables of format version 3.",
    )
    out_of_range: OutOfRange = _option(
        "iceberg.ext.out-of-range",
        STRING,
        "error",
        M,
        "Handling of dates and times that Iceberg cannot represent, such as infinity and 24:00: "
        "`error` raises a data error, `null` writes null, and `clamp` writes the nearest valid "
        "value.",
        _one_of(OutOfRange),
        OutOfRange,
    )
    skip_null_keys: bool = _either(
        "iceberg.ext.null-key",
        "fail",
        "skip",
        M,
        "Merged tables: handling of rows with a null in their key. `fail` raises a data error, and "
        "`skip` counts and skips the rows.",
    )
    ordering_columns: tuple[str, ...] = _option(
        keys.ORDERING_COLUMNS,
        LIST,
        None,
        L,
        "Merged tables: comma-separated list of fields that order the changes of one key across "
        "partitions, with the most significant field first. Each field is a path in the value, "
        "such as `source.sequence` in an envelope or `__source_sequence` in a row, or the name of "
        "a header.",
        read=_tuple,
    )
    null_unknown: bool = _either(
        keys.UNKNOWN_VALUE,
        "error",
        "null",
        M,
        "Merged tables: handling of a key change whose insert lacks values if no partition "
        "contains the delete of the old key. `error` fails the task, and `null` sets the missing "
        "values to null.",
    )
    key_change_wait_ms: int = _option(
        "iceberg.ext.key-change-wait-ms",
        LONG,
        600_000,
        L,
        "Merged tables: maximum time, in milliseconds, for which the insert of a key change waits "
        "for the delete of the old key, which may be in another partition.",
        at_least(0),
    )
    unavailable_value: bytes = _option(
        keys.UNAVAILABLE_VALUE,
        STRING,
        UNAVAILABLE_DEFAULT,
        L,
        "Merged tables: Debezium's placeholder for a value that it could not read. The existing "
        "value in the table is retained. The prefix `hex:` specifies bytes.",
    )
    # True if the record values are Debezium envelopes with the fields op, before, after, and source
    envelopes: bool = _either(
        keys.ENVELOPE,
        "none",
        "debezium",
        M,
        "With `debezium`, values are Debezium change events, and no transformation is required to "
        "unwrap them. The row is in `after`, and the operation is in `op`.",
    )
    apply_truncates: bool = _either(
        "iceberg.ext.truncate-events",
        "ignore",
        "apply",
        M,
        "Merged tables: handling of truncate events, whose op is `t`. `ignore` skips them, and "
        "`apply` deletes all rows of the table.",
    )
    ignore_snapshots: bool = _either(
        keys.SNAPSHOT_EVENTS,
        "apply",
        "ignore",
        M,
        "Merged tables: handling of events with op `r`, which Debezium emits for a snapshot. "
        "`apply` writes their rows, and `ignore` skips them.",
    )
    mark_deletes: bool = _either(
        "iceberg.ext.delete-mode",
        "remove",
        "mark",
        M,
        "Merged tables: handling of deletes. `remove` deletes the row, and `mark` sets its column "
        "`__deleted` to true and retains its other values.",
    )
    record_keys: bool = _either(
        "iceberg.ext.key-source",
        "table",
        "record",
        L,
        "Merged tables: with `record`, the record keys or `_cdc.key` determine the key columns of "
        "tables that have neither `id-columns` nor identifier fields.",
    )
    changelog_suffix: str | None = _option(
        keys.CHANGELOG_SUFFIX,
        STRING,
        None,
        L,
        "Merged tables with envelopes: suffix for change log tables. Each table has a change log "
        "with the rows before and after each change. The names of other tables must not end with "
        "the suffix. If unset, there are no change logs.",
        read=optional_text,
    )
    refuse_foreign_rows: bool = _either(
        "iceberg.ext.foreign-writers",
        "allow",
        "refuse",
        L,
        "Merged tables: with `refuse`, a commit fails if another writer has added rows since the "
        "scan.",
    )
    restart_recreated: bool = _either(
        "iceberg.ext.recreated-topic",
        "stop",
        "restart",
        L,
        "Handling of a topic that was deleted and recreated: `stop` fails the connector, and "
        "`restart` reads the new topic from its beginning.",
    )
    fail_after_waiting_ms: int | None = _option(
        keys.FAIL_AFTER_WAITING,
        INT,
        None,
        M,
        "Maximum time, in milliseconds, that a task waits for the catalog, a table, a commit, or a "
        "schema registry before it fails. If unset, the task waits indefinitely, and its status "
        "shows that it is waiting.",
        _at_least_one_if_set,
    )
    max_staged_cycles: int = _option(
        "iceberg.ext.max-staged-cycles",
        INT,
        2,
        L,
        "Number of commit cycles that may be pending before a task pauses its partitions.",
        at_least(1),
    )
    max_staged_bytes: int = _option(
        keys.MAX_STAGED_BYTES,
        LONG,
        4096 * MEGABYTE,
        L,
        "Maximum size of the rows that a task stages for one cycle, in memory and on disk, in "
        "bytes. The task pauses its partitions at this size.",
        at_least(MEGABYTE),
    )
    staging_memory_bytes: int = _option(
        "iceberg.ext.staging-memory-bytes",
        LONG,
        128 * MEGABYTE,
        L,
        "Maximum size of the rows that a task keeps in memory, in bytes. Additional rows are "
        "written to disk.",
        at_least(MEGABYTE),
    )
    # if None, the table property applies or, if it is not set, the default
    target_file_size_bytes: int | None = _option(
        keys.TARGET_FILE_SIZE,
        LONG,
        TARGET_FILE_BYTES,
        L,
        "Size at which a staged file is closed and a new file is started, in bytes. If this is not "
        "set, the table property `write.target-file-size-bytes` takes precedence over the default.",
        at_least(MEGABYTE),
    )
    own_driver: bool = _either(
        "iceberg.ext.spark-driver",
        "shared",
        "own",
        L,
        "With `own`, the connector uses a separate Spark driver process. By default, the "
        "connectors of a worker share a driver if their static Spark settings are equal. The "
        "worker property `connect_py.spark.drivers.max` limits the number of drivers.",
    )
    dead_letter_table: str | None = _option(
        keys.DEAD_LETTER_TABLE,
        STRING,
        None,
        M,
        "Table for failed records and their original bytes. Each record is written exactly once, "
        "in addition to or instead of a dead-letter topic. Requires `errors.tolerance=all`. If "
        "unset, failed records are not written to a table.",
        read=optional_text,
    )
    _define(
        keys.CYCLE_SQL,
        STRING,
        None,
        L,
        "Spark SQL query that reads `staged`, the rows of a commit. Its result is merged or "
        "appended instead of these rows. `iceberg.table.<table>.cycle-sql` takes precedence. The "
        "worker property `connect_py.spark.user-code.allowed` must permit the key.",
    )
    _define(
        keys.CYCLE_TRANSFORM,
        STRING,
        None,
        L,
        "PySpark function, `module:function`, that is called with a DataFrame of the rows of a "
        "commit and a description of the commit. Its result is merged or appended instead of these "
        "rows. `iceberg.table.<table>.cycle-transform` takes precedence. The worker property "
        "`connect_py.spark.user-code.allowed` must permit the key.",
    )
    stop_at: StopAt | None = _option(
        keys.STOP_AT,
        STRING,
        None,
        L,
        "Point at which the connector stops automatically: `latest` (the log end offsets when it "
        "starts), a time such as `2026-01-02T03:04:05Z` (the first record at or after it), or "
        "offsets such as `orders:0:1234,orders:1:99`. Later rows are not written. The connector "
        "stops when all earlier rows are committed. If unset, it does not stop automatically.",
        valid_stop_at,
        parse_stop_at,
    )
    _define(
        keys.TAGS,
        STRING,
        None,
        L,
        "Comma-separated list of scheduled tags for each table: `hourly`, `daily`, `weekly`, and "
        "`monthly`, optionally with the age at which they expire, such as `daily:keep "
        "14d,monthly`. A tag refers to the last state of the table in that period, in UTC. The "
        "first commit after the period creates the tag. `iceberg.table.<table>.tags` takes "
        "precedence. If unset, no tags are created.",
    )
    for _setting in SETTINGS:
        _define(
            keys.MAINTENANCE_PREFIX + _setting.name,
            STRING,
            _setting.default or None,
            L,
            _setting.doc,
        )
    openlineage_url: str | None = _option(
        keys.OPENLINEAGE_URL,
        STRING,
        None,
        L,
        "URL of a server that receives an OpenLineage event for each commit, with its topics, "
        "offsets, and table. If unset, no events are sent.",
        read=optional_text,
    )
    openlineage_endpoint: str = _option(
        "iceberg.ext.openlineage.endpoint",
        STRING,
        "api/v1/lineage",
        L,
        "Path that is appended to the URL of the OpenLineage server.",
    )
    openlineage_api_key: Password | None = _option(
        "iceberg.ext.openlineage.api-key",
        Type.PASSWORD,
        None,
        L,
        "API key for the OpenLineage server.",
    )
    openlineage_file: str | None = _option(
        keys.OPENLINEAGE_FILE,
        STRING,
        None,
        L,
        "File on the worker to which OpenLineage events are appended, one per line, instead of "
        "being sent to a server. The worker property `connect_py.spark.settings.allowed` must "
        "permit the key.",
        read=optional_text,
    )
    openlineage_namespace: str = _option(
        "iceberg.ext.openlineage.namespace",
        STRING,
        "kafka-connect",
        L,
        "Namespace of the OpenLineage job. The job has the name of the connector.",
    )
    notices_webhook: str | None = _option(
        keys.NOTICES_WEBHOOK,
        STRING,
        None,
        L,
        "URL to which notices are posted as JSON. Notices report schema changes, waiting rows, "
        "rows that violate expectations, commits awaiting approval, and stale tables. If unset, no "
        "notices are posted.",
        read=optional_text,
    )
    notices_topic: str | None = _option(
        "iceberg.ext.notices.topic",
        STRING,
        None,
        L,
        "Topic to which notices are written. If unset, no notices are written.",
        read=optional_text,
    )
    stale_after_ms: int | None = _option(
        "iceberg.ext.notices.stale-after-ms",
        LONG,
        None,
        L,
        "Time that a table may lag behind its topics before a notice is sent, in milliseconds. If "
        "unset, no such notices are sent.",
        _at_least_one_if_set,
    )
    replay_topic: str | None = _option(
        keys.REPLAY_TOPIC,
        STRING,
        None,
        M,
        "Topic to which `connect-py dlq replay` writes dead-letter records. The topic is created "
        "automatically, and the connector reads the records from it. If this is set, the connector "
        "reads only committed records. If unset, dead-letter records cannot be replayed.",
        read=optional_text,
    )

    def writes(self, table: str) -> bool:
        """Return True if the connector writes the rows that are routed to a table."""
        return not self.only_tables or table in self.only_tables

    def hadoop_settings(self) -> dict[str, str]:
        """Return Hadoop's settings from `iceberg.hadoop.*` and `iceberg.hadoop-conf-dir`.

        Each call reads the files in the folder.

        Raises:
            ConfigError: The folder does not exist, or a file is not a Hadoop configuration file.
        """
        files = (
            read_hadoop_files(keys.HADOOP_CONF_DIR, self.hadoop_conf_dir)
            if self.hadoop_conf_dir
            else {}
        )
        return {**files, **self.hadoop}

    def catalog_properties(self) -> dict[str, str]:
        """Return the properties of the catalog and its storage.

        Spark settings for the catalog take precedence, as they do in the driver.
        """
        return {
            **self.catalog,
            **with_prefix(self.spark, f"spark.sql.catalog.{self.catalog_name}."),
        }

    @property
    def channel_topic(self) -> str:
        """Topic for messages between the tasks and the coordinator.

        The name is `<control topic>-<group>` if that is a valid topic name. Otherwise, it is
        `<control topic>.` followed by the group with each unsafe character escaped as `_` and six
        hexadecimal digits. If that name is too long, the escaped group is truncated, and a digest
        of the group is appended. Different groups have different topics.
        """
        control, group = self.control_topic, self.connect_group
        plain = f"{control}-{group}"
        if len(plain) <= LONGEST_TOPIC and not _UNSAFE_IN_TOPIC.search(group):
            return plain
        quoted = re.sub(r"[^a-zA-Z0-9-]", lambda match: f"_{ord(match[0]):06x}", group)
        length = LONGEST_TOPIC - len(control) - 1
        if len(quoted) > length:
            digest = hashlib.sha256(group.encode()).hexdigest()
            quoted = f"{quoted[: max(length - len(digest) - 1, 0)]}.{digest}"
        return f"{control}.{quoted}"

    @property
    def coordinator_transactional_id(self) -> str:
        """Transactional ID of the coordinator."""
        return f"{self.transactional_prefix}connect-{self.connector}-coordinator"

    def format_version(self, name: str = "") -> int:
        """Return the format version for a table that the sink creates.

        Without a name, the result is the version for destination tables.
        """
        configured = self.auto_create_props.get("format-version")
        if configured is not None:
            return int(configured)
        merges = self.mode_of(name) is WriteMode.MERGE and self.family is ClassFamily.APACHE
        return 3 if merges or self.json_variants else 2

    def mode_of(self, name: str) -> WriteMode:
        """Return the write mode for a table.

        Dead-letter tables and change logs are always appended to.
        """
        return (
            WriteMode.APPEND
            if name == self.dead_letter_table or self.is_changelog(name)
            else self.mode
        )

    def is_changelog(self, name: str) -> bool:
        """Return True if a table is a change log."""
        if self.changelogs_only:
            return name != self.dead_letter_table
        return self.changelog_suffix is not None and name.endswith(self.changelog_suffix)

    def marks_deletes(self, name: str) -> bool:
        """Return True if deletes mark the rows in a table instead of removing them."""
        return self.mark_deletes and self.mode_of(name) is WriteMode.MERGE

    def may_create(self, name: str) -> bool:
        """Return True if the sink creates a table that does not exist."""
        return self.auto_create or name == self.dead_letter_table

    @property
    def has_full_maintenance(self) -> bool:
        """True if any table has `maintenance.enabled=true`, even if it does not exist yet."""
        return self.default_table.maintenance.is_full or any(
            key.endswith(".maintenance.enabled") and value.strip().lower() == "true"
            for key, value in self.table_props.items()
        )

    def table(self, name: str) -> TableConfig:
        """Return the settings for the table with this full name.

        The connector's defaults do not apply to the dead-letter table.

        Raises:
            ConfigError: A setting is not valid. This is possible only for dynamic tables, because
                the settings of static tables have already been checked.
        """
        default = TableConfig("") if name == self.dead_letter_table else self.default_table
        # a change log also contains the rows before each change, to which expectations do not apply
        if self.is_changelog(name) and not self.changelogs_only:
            default = replace(default, rules=ExpectationRules())
        return table_config(self.table_props, name, default, [])


for _name in _SECRETS:
    _define(
        _name,
        Type.PASSWORD,
        None,
        L,
        "Secret that is passed unchanged to the catalog, the storage, or Kafka.",
    )
