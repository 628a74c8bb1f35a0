"""The fields of a pipeline file, each declared once: what it takes, what it means, which key of the
connector it is."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

from connectors.iceberg.config import keys
from connectors.iceberg.config.cycle_step import parse_cycle_sql, parse_cycle_transform
from connectors.iceberg.config.expectations import ExpectationAction
from connectors.iceberg.config.java_pattern import compile_java_pattern
from connectors.iceberg.config.maintenance_policy import SETTINGS
from connectors.iceberg.config.partition_by import list_items, parse_partition_by
from connectors.iceberg.config.sort_by import parse_sort_by
from connectors.iceberg.config.tag_schedule import parse_duration, parse_tags
from connectors.iceberg.config.topic_rules import is_table_name
from connectors.iceberg_tools.pipeline.kinds import (
    Choice,
    Either,
    Field,
    Fields,
    Flag,
    ListOf,
    MapOf,
    Number,
    Text,
)

AUTO: Final = "auto"
JSON, JSON_SCHEMAS, AVRO, JSON_SCHEMA, PROTOBUF, STRING = (
    "json",
    "json-schemas",
    "avro",
    "json-schema",
    "protobuf",
    "string",
)
FORMATS: Final = (JSON, JSON_SCHEMAS, AVRO, JSON_SCHEMA, PROTOBUF)
OF_REGISTRY: Final = (AVRO, JSON_SCHEMA, PROTOBUF)  # formats whose schemas are in a registry
APPEND, MERGE, CHANGELOG = "append", "merge", "changelog"
NONE, ENVELOPE, DEBEZIUM = "none", "envelope", "debezium"  # of `unwrap`
EVOLVE, TRY, IGNORE, HOLD, FAIL = "evolve", "try", "ignore", "hold", "fail"  # of `schema-changes`
SETTING_PREFIX: Final = "{table}."  # of a field's key: below `iceberg.table.<table>.`
_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"


def _address(text: str) -> None:
    if re.fullmatch(r"https?://[^\s/]+.*", text) is None:
        raise ValueError(f"{text} is no address that begins with http:// or https://")


def _table_name(text: str) -> None:
    if not is_table_name(text) or "." not in text or set("{},+") & set(text):
        raise ValueError(f"{text or 'an empty text'} is not of the form namespace.table")


def _column(text: str) -> None:
    if "," in text or not text.strip():
        raise ValueError(f"{text or 'an empty text'} is not the name of a column")


def _partition(text: str) -> None:
    if len(list_items(text)) != 1:
        raise ValueError(f"{text or 'an empty text'} is not one partition field")
    parse_partition_by(list_items(text))


def _of_java(text: str) -> None:
    compile_java_pattern(text)


def text_of(
    check: Callable[[str], object], words: str, hint: str = "", *, resolved: bool = True
) -> Text:
    return Text(words=words, check=check, hint=hint, resolved=resolved)


SETTING: Final = Text("a text, a number, true or false", any_scalar=True)
NAME: Final = Text("a name of letters, digits, `.`, `_` and `-`", pattern=_NAME, resolved=False)
BRANCH: Final = Text("the name of a branch", pattern=_NAME)
ADDRESS: Final = text_of(_address, "an address", "write it as http://host:8081")
WORKER: Final = text_of(_address, "an address", "write it as http://host:8083", resolved=False)
NAMESPACE: Final = Text("a namespace", pattern=r"[^\s{}:,+.]+(\.[^\s{}:,+.]+)*", resolved=False)
TABLE_NAME: Final = text_of(
    _table_name,
    "a table's full name",
    "write namespace and table, as in shop.orders",
    resolved=False,
)
ROUTED: Final = text_of(_of_java, "a regular expression of Java's", resolved=False)
REGEX: Final = text_of(_of_java, "a regular expression of Java's")
TOPIC: Final = Text(
    "a topic's name",
    pattern=r"[A-Za-z0-9._-]{1,249}",
    hint="a regular expression belongs to `topics-pattern`",
)
COLUMNS: Final = ListOf(text_of(_column, "a column", "write several columns as a list: [a, b]"))
DURATION: Final = text_of(parse_duration, "a duration", "write it as 30s, 5m or 1h", resolved=False)
PARTITIONS: Final = ListOf(
    text_of(_partition, "a partition field", "as in days(placed), bucket(id, 16) or region")
)
SORTS: Final = ListOf(text_of(parse_sort_by, "a sort field", "as in placed desc nulls last"))
TAGS: Final = ListOf(text_of(parse_tags, "a schedule of tags"))
SQL: Final = text_of(parse_cycle_sql, "a query over `staged`")
FUNCTION: Final = text_of(parse_cycle_transform, "a function, as module:function")
PROPERTIES: Final = MapOf(SETTING)

MAINTENANCE: Final = Either(
    single=Flag(),
    mapping=Fields(
        tuple(
            Field(
                each.name, Text(f"a value of `{each.name}`", each.parse, any_scalar=True), each.doc
            )
            for each in SETTINGS
        ),
        "settings of maintenance",
    ),
)
EXPECTATION: Final = (
    Field(
        "sql",
        Text("a condition or a query"),
        "Condition on a row, or a query with one value.",
        required=True,
    ),
    Field(
        "action",
        Choice(tuple(each.value for each in ExpectationAction)),
        "What happens otherwise. Default: `hold`.",
    ),
)
_EXPECTATION_NAME = Text("a name of letters, digits, `_` and `-`", pattern="[A-Za-z0-9_-]{1,64}")


def _expectations(*more: Field) -> MapOf:
    of_one = Either(
        single=Text("a condition"), mapping=Fields((*EXPECTATION, *more), "`sql` and `action`")
    )
    return MapOf(of_one, _EXPECTATION_NAME)


# What tables have: of one table the first, of all tables of a target the second.
_COMMIT_STEP = (
    Field(
        "cycle-sql",
        SQL,
        "Query over `staged`, whose rows are committed instead.",
        f"{SETTING_PREFIX}cycle-sql",
    ),
    Field(
        "cycle-transform",
        FUNCTION,
        "The same by a function of PySpark.",
        f"{SETTING_PREFIX}cycle-transform",
    ),
)
TABLE: Final = Fields(
    (
        Field("keys", COLUMNS, "Key columns.", f"{SETTING_PREFIX}id-columns"),
        Field(
            "partition-by",
            PARTITIONS,
            "Partition fields, if the sink creates the table.",
            f"{SETTING_PREFIX}partition-by",
        ),
        Field("sort-by", SORTS, "Sort order.", f"{SETTING_PREFIX}sort-by"),
        Field("branch", BRANCH, "Branch to commit to.", f"{SETTING_PREFIX}commit-branch"),
        Field(
            "when",
            REGEX,
            "Values of the route field whose rows go to the table.",
            f"{SETTING_PREFIX}route-regex",
        ),
        Field(
            "renamed",
            MapOf(Text("a column")),
            "Former names of columns: `new: old`.",
            f"{SETTING_PREFIX}renamed",
        ),
        Field("tags", TAGS, "Tags on a schedule, as `daily:keep 14d`.", f"{SETTING_PREFIX}tags"),
        Field("expectations", _expectations(), "What its rows are expected to be, by name."),
        Field("maintenance", MAINTENANCE, "`true`, or settings of maintenance."),
        *_COMMIT_STEP,
    ),
    "settings of a table",
    may_be_empty=True,
    elsewhere={"write-mode": "it belongs to the target", "format": "it belongs to the target"},
)

ROUTE_RULE: Final = Fields(
    (
        Field("topics", ROUTED, "Regular expression for whole names of topics.", required=True),
        Field(
            "tables",
            ListOf(Text("a table's name")),
            "Tables; `{topic}`, `{1}` and named groups are filled in.",
            required=True,
        ),
    ),
    "`topics` and `tables`",
)
ROUTE_FIELD: Final = Fields(
    (
        Field(
            "field",
            Text("a field's path"),
            "Field whose value routes a row.",
            keys.ROUTE_FIELD,
            required=True,
        ),
        Field(
            "names-table",
            Flag(),
            "The value is the table's name. Default: each table's `when` decides.",
            keys.DYNAMIC,
        ),
    ),
    "`field`",
)
ROUTE: Final = Either(Choice((AUTO,)), ListOf(ROUTE_RULE, single=False), ROUTE_FIELD)

_PLUGIN = (Field("type", Text("a class name"), "Class.", required=True),)
TRANSFORM: Final = Fields(
    (
        *_PLUGIN,
        Field("name", NAME, "Its alias. Default: `t1`, `t2` and so on."),
        Field("predicate", NAME, "A predicate that decides which records it sees."),
        Field("negate", Flag(), "It sees the other records."),
    ),
    "`type` and its settings",
    others=SETTING,
)
DEAD_LETTERS: Final = Fields(
    (
        Field("table", TABLE_NAME, "Table that keeps bad records.", keys.DEAD_LETTER_TABLE),
        Field("topic", TOPIC, "Topic that keeps bad records.", "errors.deadletterqueue.topic.name"),
        Field("replay-topic", TOPIC, "Topic from which they are read again.", keys.REPLAY_TOPIC),
    ),
    "`table` or `topic`",
)
# What targets have, and `defaults` have for all of them.
SHARED: Final = (
    Field("tasks", Number(), "Tasks of the connector. Default: 1.", "tasks.max"),
    Field(
        "format",
        Choice(FORMATS),
        "Format of values, and of keys. Default: the worker's converters.",
    ),
    Field("key-format", Choice((*FORMATS, STRING)), "Format of keys, if it is another one."),
    Field("registry", ADDRESS, "Address of the schema registry."),
    Field("converter", PROPERTIES, "Further settings of both converters."),
    Field(
        "unwrap",
        Choice((NONE, ENVELOPE, DEBEZIUM)),
        "How Debezium's events become rows. `envelope`: the sink reads them as they come. "
        "`debezium`: by `ExtractNewRecordState`. Default: `none`.",
    ),
    Field(
        "transforms", ListOf(TRANSFORM, single=False), "Transformations after that, in this order."
    ),
    Field(
        "predicates",
        MapOf(Fields(_PLUGIN, "`type` and its settings", others=SETTING), NAME),
        "Predicates of the transformations, by name.",
    ),
    Field(
        "write-mode",
        Choice((APPEND, MERGE, CHANGELOG)),
        "`append` writes each record as a row, `merge` keeps the last row per key, `changelog` "
        "the rows before and after each change. Default: `append`.",
        keys.WRITE_MODE,
    ),
    Field("cdc-field", Text("a field's path"), "Field with the kind of change.", keys.CDC_FIELD),
    Field("keys", COLUMNS, "Key columns of tables without their own.", keys.ID_COLUMNS),
    Field(
        "key-source",
        Choice(("table", "record")),
        "`record`: tables without keys of their own take those of their records.",
        "iceberg.ext.key-source",
    ),
    Field(
        "ordering-columns",
        COLUMNS,
        "Fields that order changes of a key over partitions.",
        keys.ORDERING_COLUMNS,
    ),
    Field(
        "changelog-suffix",
        Text("a text"),
        "Each table gets a change log with this suffix.",
        keys.CHANGELOG_SUFFIX,
    ),
    Field("partition-by", PARTITIONS, "Partition fields of new tables.", keys.PARTITION_BY),
    Field("branch", BRANCH, "Branch to commit to.", keys.COMMIT_BRANCH),
    Field("tags", TAGS, "Tags on a schedule, as `daily:keep 14d`.", keys.TAGS),
    Field(
        "expectations",
        _expectations(Field("tables", REGEX, "Tables that it is for. Default: all.")),
        "What rows of all its tables are expected to be, by name.",
    ),
    Field("maintenance", MAINTENANCE, "`true`, or settings of maintenance, for all its tables."),
    *(Field(each.name, each.kind, each.doc, f"iceberg.ext.{each.name}") for each in _COMMIT_STEP),
    Field(
        "create-tables",
        Flag(),
        "Whether missing tables are created. Default: `true`.",
        keys.AUTO_CREATE,
    ),
    Field("table-properties", PROPERTIES, "Properties of new tables."),
    Field(
        "schema-changes",
        Choice((EVOLVE, TRY, IGNORE, HOLD, FAIL)),
        "What happens if records ask for another schema. `evolve`: tables follow in everything. "
        "`try`: columns are added, widened and made optional; other values are converted one by "
        "one. `ignore`: tables stay. `hold`: rows wait for a user. `fail`: the task fails. "
        "Default: `ignore`.",
    ),
    Field("dead-letters", DEAD_LETTERS, "Where bad records are kept. Default: the task fails."),
    Field("commit-interval", DURATION, "Time between commits. Default: `5m`."),
    Field("properties", PROPERTIES, "Further keys of the connector, which no field has."),
)
_TABLES = Either(
    Choice((AUTO,)),
    ListOf(TABLE_NAME, single=False),
    MapOf(TABLE, TABLE_NAME, least=1),
)
_OF_TARGETS = {
    name: f"it belongs to a table: tables.<table>.{name}" for name in ("sort-by", "when", "renamed")
}
TARGET: Final = Fields(
    (
        Field("connector", NAME, "Name of the connector. Default: `<pipeline>-<target>`."),
        Field("topics", ListOf(TOPIC), "Topics, or one topic.", "topics"),
        Field(
            "topics-pattern",
            REGEX,
            "Instead: a regular expression for whole names.",
            "topics.regex",
        ),
        Field(
            "tables",
            _TABLES,
            "`auto`: a table for each topic. A list, or a mapping with settings: these tables; "
            "with `route`, the settings of tables that rows are routed to.",
        ),
        Field(
            "route",
            ROUTE,
            "How rows find their tables. `auto`: as `tables: auto`. A list of rules by topic, the "
            "first match decides. Or a `field`.",
        ),
        Field(
            "namespace",
            NAMESPACE,
            "With `auto`: namespace of the tables, named by the last part of the topic. Default: "
            "the topic is the table's full name.",
        ),
        *SHARED,
    ),
    "a target",
    elsewhere={
        **_OF_TARGETS,
        "catalog": "one catalog is for all targets: put it at the file's top level",
    },
)
CATALOG: Final = Fields(
    (
        Field("name", NAME, "Name of the catalog. Default: `iceberg`.", keys.CATALOG_NAME),
        Field("type", Text("a type"), "Type: `rest`, `jdbc`, `hive`, `glue`, `hadoop`, `nessie`."),
    ),
    "properties of a catalog",
    others=SETTING,
)
FILE: Final = Fields(
    (
        Field("pipeline", NAME, "Name of the pipeline; its connectors bear it.", required=True),
        Field(
            "worker",
            WORKER,
            "A worker of the cluster. `--url` wins. Default: `http://127.0.0.1:8083`.",
        ),
        Field(
            "catalog",
            CATALOG,
            "The catalog of all targets; further keys as after `iceberg.catalog.`. Default: "
            "the worker's `connect_py.defaults.iceberg.catalog.*`.",
        ),
        Field("hadoop", PROPERTIES, "Settings of Hadoop, as after `iceberg.hadoop.`."),
        Field("spark", PROPERTIES, "Settings of Spark, as after `iceberg.spark.`."),
        Field(
            "defaults",
            Fields(SHARED, "fields of targets"),
            "Fields of all targets that do not say otherwise.",
        ),
        Field("targets", MapOf(TARGET, NAME, least=1), "Connectors by name.", required=True),
    ),
    "a pipeline",
    elsewhere={"connectors": "did you mean targets?", "name": "did you mean pipeline?"},
)


def json_schema() -> dict[str, Any]:
    """The JSON schema of a file, for editors."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Pipeline of connect-py",
        **FILE.schema(),
    }


def json_schema_text() -> str:
    """The same as a text."""
    return json.dumps(json_schema(), indent=2)
