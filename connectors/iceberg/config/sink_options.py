"""`SinkOptions`: every option of the sink, with its definition beside the member that it
becomes."""

# ruff: noqa: RUF009 - a call defines the key whose value a member is

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
from connectors.iceberg.config.hadoop_files import read_hadoop_files
from connectors.iceberg.config.maintenance_policy import SETTINGS
from connectors.iceberg.config.stop_at import StopAt, parse_stop_at, valid_stop_at
from connectors.iceberg.config.table_config import TableConfig, optional_text, table_config
from connectors.iceberg.config.topic_rules import TopicRule
from connectors.iceberg.table.schema_change import ChangeAction, EvolutionPolicy
from connectors.iceberg.table.table import WriteMode

UNAVAILABLE_DEFAULT = "__debezium_unavailable_value"
MEGABYTE = 1 << 20
TARGET_FILE_BYTES = 512 * MEGABYTE  # where neither the configuration nor the table says otherwise
LONGEST_TOPIC = 249  # characters, as brokers have it
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
    """Under which name the user asked for the sink; group names and defaults of new tables
    differ."""

    APACHE = "apache"
    TABULAR = "tabular"

    @staticmethod
    def of(connector_class: str) -> ClassFamily:
        return (
            ClassFamily.TABULAR if connector_class.startswith("io.tabular.") else ClassFamily.APACHE
        )


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
    ". `apply` changes the table, `ignore` leaves it. `hold` stops the rows until a user changes "
    "the table. `dead-letter` makes bad records of them. `auto` is `apply` with "
    f"{keys.EVOLVE_SCHEMA}, else `ignore`."
)


def _define(
    key: str,
    kind: Type,
    default: Parsed,
    importance: Importance,
    doc: str,
    validator: Validator | None = None,
) -> None:
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
    """A key whose value is a member of the configuration, read so, unless `_parse` says what else
    it is."""
    _define(key, kind, default, importance, doc, validator)
    return field(metadata={"key": key, "read": read})


def _either(key: str, default: str, other: str, importance: Importance, doc: str) -> Any:
    """A key that has one of two values; the member says whether it is the other one."""
    return _option(
        key, STRING, default, importance, doc, one_of(default, other), lambda value: value == other
    )


def _tuple(items: Sequence[str] | None) -> tuple[str, ...]:
    return tuple(items or ())


def _path(text: str | None) -> tuple[str, ...]:
    return tuple(text.strip().split(".")) if text else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """The configuration, parsed once. Secrets do not show in its `repr`."""

    connector: str
    family: ClassFamily
    default_table: TableConfig
    warnings: tuple[str, ...]  # to be logged when the connector starts
    topic_rules: tuple[TopicRule, ...]
    evolution: EvolutionPolicy
    auto_create_props: Mapping[str, str]
    write_props: Mapping[str, str]
    # everything below `iceberg.table.`, new spellings
    table_props: Mapping[str, str] = field(repr=False)
    catalog: Mapping[str, str] = field(repr=False)
    hadoop: Mapping[str, str] = field(repr=False)
    kafka: Mapping[str, str] = field(repr=False)
    changelogs_only: bool  # each table is a change log, with no mirror beside it
    spark: Mapping[str, str] = field(repr=False)  # keys as Spark knows them: `spark.master`
    # Each key beside the member that it is, in the order of the reference; `_define`: it is read
    # together with others.
    tables: tuple[str, ...] = _option(
        keys.TABLES, LIST, None, H, "Destination tables, comma separated.", read=_tuple
    )
    dynamic: bool = _option(
        keys.DYNAMIC,
        BOOLEAN,
        False,
        M,
        "Take each row's table name from the route field, lower-cased.",
    )
    route_field: tuple[str, ...] = _option(  # a path; empty: none
        keys.ROUTE_FIELD,
        STRING,
        None,
        M,
        "Field whose value routes a row; dots lead into nested fields.",
        read=_path,
    )
    _define(
        keys.COMMIT_BRANCH,
        STRING,
        None,
        M,
        "Branch to commit to, for tables without a commit-branch of their own. Unset: main.",
    )
    _define(
        keys.ID_COLUMNS,
        STRING,
        None,
        M,
        "Comma separated key columns, for tables without id-columns of their own.",
    )
    _define(
        keys.PARTITION_BY,
        STRING,
        None,
        M,
        "Partition fields of tables that the sink creates, such as `days(ts),bucket(id, 16)`.",
    )
    cdc_field: tuple[str, ...] = _option(
        keys.CDC_FIELD,
        STRING,
        None,
        M,  # a path; empty: none
        "Field that holds the kind of change (I, U, D or Debezium's c, r, u, d). Setting it turns "
        "on MERGE.",
        read=_path,
    )
    _define(
        keys.UPSERT_MODE,
        BOOLEAN,
        False,
        M,
        "Keep one row per key: the last one. Setting it turns on MERGE.",
    )
    auto_create: bool = _option(
        keys.AUTO_CREATE, BOOLEAN, False, M, "Create tables that are missing."
    )
    _define(
        keys.EVOLVE_SCHEMA,
        BOOLEAN,
        False,
        M,
        "Add columns, widen int and float columns and relax required ones as the records ask for "
        "it.",
    )
    force_optional: bool = _option(
        "iceberg.tables.schema-force-optional",
        BOOLEAN,
        False,
        M,
        "Make every column optional that the sink creates, on every level.",
    )
    case_insensitive: bool = _option(
        "iceberg.tables.schema-case-insensitive",
        BOOLEAN,
        False,
        M,
        "Find columns whatever the case of their names.",
    )
    catalog_name: str = _option(keys.CATALOG_NAME, STRING, "iceberg", M, "Name of the catalog.")
    hadoop_conf_dir: str | None = _option(
        keys.HADOOP_CONF_DIR,
        STRING,
        None,
        M,
        "Folder with core-site.xml, hdfs-site.xml and hive-site.xml; iceberg.hadoop.* wins.",
    )
    control_topic: str = _option(
        "iceberg.control.topic",
        STRING,
        "control-iceberg",
        M,
        "Topic on which commits are announced; `<this>-<connect group id>` carries the sink's own "
        "messages, with what a topic's name cannot have quoted.",
    )
    _define(
        "iceberg.control.group-id-prefix",
        STRING,
        "cg-control-",
        L,
        "Accepted for compatibility; the sink needs no such groups.",
    )
    control_group: str = _option(
        keys.CONTROL_GROUP,
        STRING,
        None,
        L,
        "Group in which the Tabular sink kept offsets; read when taking over. Unset: "
        "`cg-control-<name>`.",
    )
    connect_group: str = _option(
        keys.CONNECT_GROUP,
        STRING,
        None,
        L,
        "The connector's consumer group. Unset: `connect-<name>`.",
    )
    commit_interval_ms: int = _option(
        keys.COMMIT_INTERVAL, INT, 300_000, M, "Milliseconds between table commits.", at_least(1)
    )
    commit_timeout_ms: int = _option(
        keys.COMMIT_TIMEOUT,
        INT,
        30_000,
        M,
        "Milliseconds to wait for all tasks; then what was reported is committed.",
        at_least(1),
    )
    commit_threads: int = _option(
        keys.COMMIT_THREADS,
        INT,
        min(2 * (os.cpu_count() or 1), 4),
        M,
        "Tables that are opened or committed at the same time, each in its own Spark session.",
        at_least(1),
    )
    # None: not set; a table that cannot be committed holds its rows
    commit_max_failures: int | None = _option(
        keys.COMMIT_MAX_FAILURES,
        INT,
        1,
        M,
        "Consecutive cycles without a commit of a table, after which the task fails. Commit "
        "intervals count, too, if the table is not available or the coordinator cannot start. "
        "Without this key the rows wait, and other tables go on.",
        at_least(1),
    )
    transactional_prefix: str = _option(
        "iceberg.coordinator.transactional.prefix",
        STRING,
        None,
        L,
        "Prefix of transactional ids, where access rules ask for one.",
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
        "`append` writes every record as a row, `merge` keeps the last row per key, `changelog` "
        "writes the row before and the row after each change of Debezium's events; `auto` merges "
        "when cdc-field or upsert-mode-enabled is set.",
        one_of("auto", "append", "merge", "changelog"),
    )
    full_merge: bool = _option(
        keys.COMMIT_ENGINE,
        STRING,
        "auto",
        M,
        "`merge` has Spark's MERGE insert and update rows itself. By default MERGE removes "
        "replaced rows, and staged files join the table as they are. `append` and `delta` are "
        "accepted, and mean the default.",
        one_of("auto", "append", "merge", "delta"),
        lambda engine: engine == "merge",
    )
    keep_write_mode: bool = _option(
        "iceberg.ext.keep-write-mode",
        BOOLEAN,
        False,
        L,
        "Whether a merge table without the property `write.merge.mode` stays so: Spark then "
        "rewrites whole files. By default the sink sets the property to merge-on-read, once.",
    )
    commit_attempt_timeout_ms: int = _option(
        keys.ATTEMPT_TIMEOUT,
        LONG,
        600_000,
        L,
        "Milliseconds that a table's commit may take. Then its statement is interrupted, and the "
        "commit is tried again.",
        at_least(1_000),
    )
    _define(
        keys.TOPIC_TO_TABLE,
        STRING,
        None,
        M,
        "Tables by topic: `pattern:template` pairs, comma separated, the first full match wins. "
        "Patterns are regular expressions; templates may hold {topic}, {1}, {2} and named groups, "
        "and several are joined by `+`.",
    )
    only_tables: tuple[str, ...] = _option(
        keys.ONLY_TABLES,
        LIST,
        None,
        L,
        "The tables that this connector writes, of all that its rows are routed to; rows of "
        "others are left out. Unset: all of them.",
        read=_tuple,
    )
    unrouted: Unrouted = _option(
        "iceberg.ext.unrouted",
        STRING,
        "ignore",
        M,
        "What becomes of rows that no table takes: counted and ignored, an error, or dead letters.",
        _one_of(Unrouted),
        Unrouted,
    )
    skip_missing: bool = _either(
        "iceberg.ext.missing-table",
        "fail",
        "skip",
        M,
        "A table is not available or takes no commit. `fail`: its partitions wait for it, without "
        "limit unless iceberg.control.commit.max-consecutive-failures is set. `skip`: its rows "
        "are counted and left out.",
    )
    lenient: bool = _option(
        "iceberg.ext.lenient-conversion",
        BOOLEAN,
        False,
        M,
        "Convert as Java's sink does where that loses data: numbers wrap, decimals are rounded, "
        "any other text is false.",
    )
    _define(
        keys.EVOLVE_ADD,
        STRING,
        "auto",
        M,
        f"A field has no column{_CHANGES}",
        _one_of(ChangeAction, auto=True),
    )
    _define(
        keys.EVOLVE_WIDEN,
        STRING,
        "auto",
        M,
        f"A field is wider than its column (long for int, double for float, more digits){_CHANGES}",
        _one_of(ChangeAction, auto=True),
    )
    _define(
        keys.EVOLVE_OPTIONAL,
        STRING,
        "auto",
        M,
        f"A field is optional, but its column is required{_CHANGES}",
        _one_of(ChangeAction, auto=True),
    )
    _define(
        keys.EVOLVE_RENAME,
        STRING,
        "ignore",
        M,
        "A field has a column under a former name (alias of its schema, or "
        "iceberg.table.<table>.renamed). `apply` renames it, `ignore` adds a column, `hold` stops "
        "the rows, `dead-letter` makes bad records.",
        _one_of(ChangeAction),
    )
    _define(
        keys.EVOLVE_INCOMPATIBLE,
        STRING,
        "ignore",
        M,
        "A field's type does not fit its column. `apply` adds a column for it, `ignore` converts "
        "each value or refuses it, `hold` stops the rows, `dead-letter` makes bad records.",
        _one_of(ChangeAction),
    )
    evolve_partitions: bool = _either(
        keys.EVOLVE_PARTITIONS,
        "ignore",
        "apply",
        L,
        "A table that is there has other partition fields than `partition-by` says. `apply` "
        "changes its partition spec for new files, `ignore` leaves it.",
    )
    logical_types: LogicalTypes = _option(
        keys.LOGICAL_TYPES,
        STRING,
        "auto",
        M,
        "Column types of new columns: `connect` knows Connect's logical types only, `full` "
        "Debezium's and Avro's too. `auto` is full for MERGE under the Apache class name, else "
        "connect. Tables that are merged get no columns of type time, because Spark cannot read "
        "them.",
        _one_of(LogicalTypes, auto=True),
    )
    json_variants: bool = _either(
        keys.JSON_TYPE,
        "string",
        "variant",
        L,
        "New columns of texts whose schema says that they are JSON: `string`, or `variant` in "
        "tables of format 3.",
    )
    out_of_range: OutOfRange = _option(
        "iceberg.ext.out-of-range",
        STRING,
        "error",
        M,
        "Dates and times that Iceberg cannot hold (infinity, 24:00): a data error, null, or the "
        "nearest.",
        _one_of(OutOfRange),
        OutOfRange,
    )
    skip_null_keys: bool = _either(
        "iceberg.ext.null-key",
        "fail",
        "skip",
        M,
        "MERGE: a row with a null in its key is a data error (`fail`) or counted and left out "
        "(`skip`).",
    )
    ordering_columns: tuple[str, ...] = _option(
        keys.ORDERING_COLUMNS,
        LIST,
        None,
        L,
        "MERGE: fields that order changes of one key over several partitions, the most "
        "significant first. They are paths into the value (`source.sequence` of an envelope, "
        "`__source_sequence` of a row), or names of headers.",
        read=_tuple,
    )
    null_unknown: bool = _either(
        keys.UNKNOWN_VALUE,
        "error",
        "null",
        M,
        "MERGE: the insert of a changed key lacks values, and no partition has the delete of the "
        "old key. The task fails (`error`), or the values are null (`null`).",
    )
    key_change_wait_ms: int = _option(
        "iceberg.ext.key-change-wait-ms",
        LONG,
        600_000,
        L,
        "MERGE: milliseconds that a partition waits before the insert of a changed key for the "
        "delete of the old key. That delete may be in another partition.",
        at_least(0),
    )
    unavailable_value: bytes = _option(
        keys.UNAVAILABLE_VALUE,
        STRING,
        UNAVAILABLE_DEFAULT,
        L,
        "MERGE: Debezium's placeholder for a value that it could not read; the table keeps its "
        "value. `hex:` starts bytes.",
    )
    # as Debezium makes them: op, before, after, source
    envelopes: bool = _either(
        keys.ENVELOPE,
        "none",
        "debezium",
        M,
        "`debezium`: values are Debezium's change events as they come, without a transformation "
        "that unwraps them. The sink takes the row from `after` and the kind of change from `op`.",
    )
    apply_truncates: bool = _either(
        "iceberg.ext.truncate-events",
        "ignore",
        "apply",
        M,
        "MERGE: an event with op `t` does nothing (`ignore`), or empties the table (`apply`).",
    )
    ignore_snapshots: bool = _either(
        keys.SNAPSHOT_EVENTS,
        "apply",
        "ignore",
        M,
        "MERGE: an event with op `r` comes from a snapshot of the source. It is a new state "
        "(`apply`), or is left out (`ignore`).",
    )
    mark_deletes: bool = _either(
        "iceberg.ext.delete-mode",
        "remove",
        "mark",
        M,
        "MERGE: a delete removes the row (`remove`), or makes its column `__deleted` true and "
        "leaves the rest (`mark`).",
    )
    record_keys: bool = _either(
        "iceberg.ext.key-source",
        "table",
        "record",
        L,
        "MERGE: `record` takes the key columns of a table without id-columns and identifier "
        "fields from its records' keys, or from `_cdc.key`.",
    )
    changelog_suffix: str | None = _option(
        keys.CHANGELOG_SUFFIX,
        STRING,
        None,
        L,
        "MERGE with envelopes: each table gets a change log, whose name ends with this suffix. "
        "Its rows are the row before and the row after each change. No other table's name may end "
        "so. Unset: none.",
        read=optional_text,
    )
    refuse_foreign_rows: bool = _either(
        "iceberg.ext.foreign-writers",
        "allow",
        "refuse",
        L,
        "MERGE: `refuse` fails a commit when another writer added rows since the scan.",
    )
    restart_recreated: bool = _either(
        "iceberg.ext.recreated-topic",
        "stop",
        "restart",
        L,
        "A topic that was deleted and created again stops the connector, or is read from its "
        "start.",
    )
    fail_after_waiting_ms: int | None = _option(
        keys.FAIL_AFTER_WAITING,
        INT,
        None,
        M,
        "Milliseconds after which a task fails that waits for something: the catalog, a table, a "
        "commit, a schema registry. Unset: it waits without a limit, and its status shows it.",
        _at_least_one_if_set,
    )
    max_staged_cycles: int = _option(
        "iceberg.ext.max-staged-cycles",
        INT,
        2,
        L,
        "Cycles that may wait for their commit before tasks pause.",
        at_least(1),
    )
    max_staged_bytes: int = _option(
        keys.MAX_STAGED_BYTES,
        LONG,
        4096 * MEGABYTE,
        L,
        "Bytes of rows, in memory and on disk, that a task collects for one cycle; beyond, it "
        "pauses.",
        at_least(MEGABYTE),
    )
    staging_memory_bytes: int = _option(
        "iceberg.ext.staging-memory-bytes",
        LONG,
        128 * MEGABYTE,
        L,
        "Bytes of rows that a task holds in memory; more goes to disk.",
        at_least(MEGABYTE),
    )
    # None: not set
    target_file_size_bytes: int | None = _option(
        keys.TARGET_FILE_SIZE,
        LONG,
        TARGET_FILE_BYTES,
        L,
        "Bytes of rows after which a staged file is followed by another one. Unless it is set, "
        "the table's property `write.target-file-size-bytes` wins over the default.",
        at_least(MEGABYTE),
    )
    own_driver: bool = _either(
        "iceberg.ext.spark-driver",
        "shared",
        "own",
        L,
        "`own` gives the connector a Spark driver process of its own. By default connectors of a "
        "worker share one if their static settings of Spark are equal. The worker's "
        "`connect_py.spark.drivers.max` limits their number.",
    )
    dead_letter_table: str | None = _option(
        keys.DEAD_LETTER_TABLE,
        STRING,
        None,
        M,
        "Table in which records that fail are kept with their original bytes, exactly once; "
        "beside or instead of the dead-letter topic. Needs `errors.tolerance=all`. Unset: none.",
        read=optional_text,
    )
    _define(
        keys.CYCLE_SQL,
        STRING,
        None,
        L,
        "Query of Spark SQL over `staged`, the rows of a commit: what it returns is merged or "
        "appended in their place. `iceberg.table.<table>.cycle-sql` wins. Needs the worker's "
        "`connect_py.spark.user-code.allowed`.",
    )
    _define(
        keys.CYCLE_TRANSFORM,
        STRING,
        None,
        L,
        "The same by a function of PySpark: `module:function`, of a DataFrame and the facts of "
        "the commit. `iceberg.table.<table>.cycle-transform` wins.",
    )
    stop_at: StopAt | None = _option(
        keys.STOP_AT,
        STRING,
        None,
        L,
        "Where the connector stops by itself: `latest` (the ends of the logs when it starts), a "
        "time such as `2026-01-02T03:04:05Z` (the first record at or after it), or offsets such "
        "as `orders:0:1234,orders:1:99`. Rows from there on stay out of the tables. Once all "
        "tables have all rows before, the connector is stopped. Unset: it goes on.",
        valid_stop_at,
        parse_stop_at,
    )
    _define(
        keys.TAGS,
        STRING,
        None,
        L,
        "Tags of each table: `hourly`, `daily`, `weekly` and `monthly`, comma separated, each "
        "with an age that ends it, as in `daily:keep 14d,monthly`. A tag names the table's last "
        "state in that period, in UTC; the first commit after it sets the tag. "
        "`iceberg.table.<table>.tags` wins. Unset: none.",
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
        "Address of a server that takes OpenLineage events: one for each commit, with its topics, "
        "offsets and table. Unset: none.",
        read=optional_text,
    )
    openlineage_endpoint: str = _option(
        "iceberg.ext.openlineage.endpoint", STRING, "api/v1/lineage", L, "Path below that address."
    )
    openlineage_api_key: Password | None = _option(
        "iceberg.ext.openlineage.api-key", Type.PASSWORD, None, L, "Key that the server asks for."
    )
    openlineage_file: str | None = _option(
        keys.OPENLINEAGE_FILE,
        STRING,
        None,
        L,
        "File on the worker to which OpenLineage events are appended, one a line, instead of a "
        "server. It needs the worker's leave.",
        read=optional_text,
    )
    openlineage_namespace: str = _option(
        "iceberg.ext.openlineage.namespace",
        STRING,
        "kafka-connect",
        L,
        "Namespace of the job, whose name is the connector's.",
    )
    notices_webhook: str | None = _option(
        keys.NOTICES_WEBHOOK,
        STRING,
        None,
        L,
        "Address to which notices are posted as JSON: changes of schemas, rows that wait or are "
        "not as expected, commits that readers do not see, stale tables. Unset: none.",
        read=optional_text,
    )
    notices_topic: str | None = _option(
        "iceberg.ext.notices.topic",
        STRING,
        None,
        L,
        "Topic to which the same notices are written. Unset: none.",
        read=optional_text,
    )
    stale_after_ms: int | None = _option(
        "iceberg.ext.notices.stale-after-ms",
        LONG,
        None,
        L,
        "Milliseconds that a table may lag behind its topics before a notice says so. Unset: no "
        "such notice.",
        _at_least_one_if_set,
    )
    replay_topic: str | None = _option(
        keys.REPLAY_TOPIC,
        STRING,
        None,
        M,
        "Topic from which the connector reads dead letters again that `connect-py dlq replay` "
        "writes there; it is created. The connector then reads committed records only. Unset: "
        "none.",
        read=optional_text,
    )

    def writes(self, table: str) -> bool:
        """Whether rows that are routed to a table reach it."""
        return not self.only_tables or table in self.only_tables

    def hadoop_settings(self) -> dict[str, str]:
        """Hadoop's settings: those of the files in `iceberg.hadoop-conf-dir`, and
        `iceberg.hadoop.*`, which win.

        Reads the files.

        Raises:
            ConfigError: The folder is not there, or a file is not of Hadoop's form.
        """
        files = (
            read_hadoop_files(keys.HADOOP_CONF_DIR, self.hadoop_conf_dir)
            if self.hadoop_conf_dir
            else {}
        )
        return {**files, **self.hadoop}

    def catalog_properties(self) -> dict[str, str]:
        """Those of the catalog and its storage, in Iceberg's words and in Spark's, which win as in
        the driver."""
        return {
            **self.catalog,
            **with_prefix(self.spark, f"spark.sql.catalog.{self.catalog_name}."),
        }

    @property
    def channel_topic(self) -> str:
        """The topic that carries messages between tasks and coordinator.

        `<control>-<group>`, where a topic may have that name. Else `<control>.` and the group with
        what is not safe as `_` and six hexadecimal digits, or, if that is too long, its beginning
        and its digest: no group that makes a safe name has this one, and no other group.
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
        """The format version of a table if the sink creates it; no name: of those that rows are
        routed to."""
        given = self.auto_create_props.get("format-version")
        if given is not None:
            return int(given)
        merged = self.mode_of(name) is WriteMode.MERGE and self.family is ClassFamily.APACHE
        return 3 if merged or self.json_variants else 2

    def mode_of(self, name: str) -> WriteMode:
        """How rows reach a table: dead letters and changes are facts, whatever the others are."""
        return (
            WriteMode.APPEND
            if name == self.dead_letter_table or self.is_changelog(name)
            else self.mode
        )

    def is_changelog(self, name: str) -> bool:
        """Whether a table holds the changes of another one."""
        if self.changelogs_only:
            return name != self.dead_letter_table
        return self.changelog_suffix is not None and name.endswith(self.changelog_suffix)

    def marks_deletes(self, name: str) -> bool:
        """Whether deleted rows of a table stay, and say so."""
        return self.mark_deletes and self.mode_of(name) is WriteMode.MERGE

    def may_create(self, name: str) -> bool:
        """Whether the sink creates a table that is missing; the dead letters' always."""
        return self.auto_create or name == self.dead_letter_table

    @property
    def has_full_maintenance(self) -> bool:
        """True if some table has `maintenance.enabled=true`, even one that is not created yet."""
        return self.default_table.maintenance.is_full or any(
            key.endswith(".maintenance.enabled") and value.strip().lower() == "true"
            for key, value in self.table_props.items()
        )

    def table(self, name: str) -> TableConfig:
        """The settings of a table by its full name. Defaults are not for the dead letters' table.

        Raises: ConfigError: One of them does not parse; possible for dynamic tables only, static
            ones are checked before.
        """
        default = TableConfig("") if name == self.dead_letter_table else self.default_table
        # its rows are those of before, too
        if self.is_changelog(name) and not self.changelogs_only:
            default = replace(default, rules=ExpectationRules())
        return table_config(self.table_props, name, default, [])


for _name in _SECRETS:
    _define(_name, Type.PASSWORD, None, L, "A secret, passed on.")
