"""Fields of a pipeline file, each declared once with its values, description, and config key."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

from connectors.iceberg.config import keys
from connectors.iceberg.config.cycle_step import parse_cycle_sql, parse_cycle_transform
from connectors.iceberg.config.expectations import ExpectationAction
from connectors.iceberg.config.layout_terms import list_items, parse_partition_by, parse_sort_by
from connectors.iceberg.config.maintenance_policy import SETTINGS
from connectors.iceberg.config.table_config import compile_java_pattern
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
    String,
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
REGISTRY_FORMATS: Final = (AVRO, JSON_SCHEMA, PROTOBUF)  # formats whose schemas are in a registry
APPEND, MERGE, CHANGELOG = "append", "merge", "changelog"
NONE, ENVELOPE, DEBEZIUM = "none", "envelope", "debezium"  # values of `unwrap`
# values of `schema-changes`
EVOLVE, TRY, IGNORE, HOLD, FAIL = "evolve", "try", "ignore", "hold", "fail"
SETTING_PREFIX: Final = "{table}."  # represents `iceberg.table.<table>.` in a config key
_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"


def _address(value: str) -> None:
    if re.fullmatch(r"https?://[^\s/]+.*", value) is None:
        raise ValueError(f"invalid address {value}: expected http:// or https://")


def _table_name(value: str) -> None:
    if not is_table_name(value) or "." not in value or set("{},+") & set(value):
        raise ValueError(f"invalid table name {value or '(empty)'}: expected namespace.table")


def _column(value: str) -> None:
    if "," in value or not value.strip():
        raise ValueError(f"invalid column name {value or '(empty)'}")


def _partition(value: str) -> None:
    if len(list_items(value)) != 1:
        raise ValueError(f"invalid partition field {value or '(empty)'}: expected one field")
    parse_partition_by(list_items(value))


def _java_regex(pattern: str) -> None:
    compile_java_pattern(pattern)


def string_of(
    check: Callable[[str], object], words: str, hint: str = "", *, resolved: bool = True
) -> String:
    return String(words=words, check=check, hint=hint, resolved=resolved)


SETTING: Final = String("a string, a number, true, or false", any_scalar=True)
NAME: Final = String("a name of letters, digits, `.`, `_`, and `-`", pattern=_NAME, resolved=False)
BRANCH: Final = String("the name of a branch", pattern=_NAME)
ADDRESS: Final = string_of(_address, "an address", "write it as http://host:8081")
WORKER: Final = string_of(_address, "an address", "write it as http://host:8083", resolved=False)
NAMESPACE: Final = String("a namespace", pattern=r"[^\s{}:,+.]+(\.[^\s{}:,+.]+)*", resolved=False)
TABLE_NAME: Final = string_of(
    _table_name,
    "a table's full name",
    "write namespace and table, as in shop.orders",
    resolved=False,
)
ROUTED: Final = string_of(_java_regex, "a Java regular expression", resolved=False)
REGEX: Final = string_of(_java_regex, "a Java regular expression")
TOPIC: Final = String(
    "a topic's name",
    pattern=r"[A-Za-z0-9._-]{1,249}",
    hint="use `topics-pattern` for a regular expression",
)
COLUMNS: Final = ListOf(string_of(_column, "a column", "write several columns as a list: [a, b]"))
DURATION: Final = string_of(
    parse_duration, "a duration", "write it as 30s, 5m, or 1h", resolved=False
)
PARTITIONS: Final = ListOf(
    string_of(
        _partition, "a partition field", "for example days(placed), bucket(id, 16), or region"
    )
)
SORTS: Final = ListOf(
    string_of(parse_sort_by, "a sort field", "for example placed desc nulls last")
)
TAGS: Final = ListOf(string_of(parse_tags, "a schedule of tags"))
SQL: Final = string_of(parse_cycle_sql, "a query over `staged`")
FUNCTION: Final = string_of(parse_cycle_transform, "a function, as module:function")
PROPERTIES: Final = MapOf(SETTING)

MAINTENANCE: Final = Either(
    single=Flag(),
    mapping=Fields(
        tuple(
            Field(
                each.name,
                String(f"a value of `{each.name}`", each.parse, any_scalar=True),
                each.doc,
            )
            for each in SETTINGS
        ),
        "maintenance settings",
    ),
)
EXPECTATION: Final = (
    Field(
        "sql",
        String("a condition or a query"),
        "Condition on a row, or a query that returns one value.",
        required=True,
    ),
    Field(
        "action",
        Choice(tuple(each.value for each in ExpectationAction)),
        "Action on failure. Default: `hold`.",
    ),
)
_EXPECTATION_NAME = String("a name of letters, digits, `_`, and `-`", pattern="[A-Za-z0-9_-]{1,64}")


def _expectations(*more: Field) -> MapOf:
    of_one = Either(
        single=String("a condition"), mapping=Fields((*EXPECTATION, *more), "`sql` and `action`")
    )
    return MapOf(of_one, _EXPECTATION_NAME)


# fields of a table; in a target, they apply to all tables of the target
_COMMIT_STEP = (
    Field(
        "cycle-sql",
        SQL,
        "Query over `staged`. Its result is committed instead of the staged rows.",
        f"{SETTING_PREFIX}cycle-sql",
    ),
    Field(
        "cycle-transform",
        FUNCTION,
        "PySpark function with the same purpose as `cycle-sql`.",
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
            "Regular expression for the values of the route field that select this table.",
            f"{SETTING_PREFIX}route-regex",
        ),
        Field(
            "renamed",
            MapOf(String("a column")),
            "Previous names of columns, as `new: old`.",
            f"{SETTING_PREFIX}renamed",
        ),
        Field("tags", TAGS, "Scheduled tags, such as `daily:keep 14d`.", f"{SETTING_PREFIX}tags"),
        Field(
            "expectations",
            _expectations(),
            "Data quality checks for the table, by name.",
        ),
        Field("maintenance", MAINTENANCE, "`true` or maintenance settings."),
        *_COMMIT_STEP,
    ),
    "settings of a table",
    may_be_empty=True,
    elsewhere={"write-mode": "set it in the target", "format": "set it in the target"},
)

ROUTE_RULE: Final = Fields(
    (
        Field("topics", ROUTED, "Regular expression for whole topic names.", required=True),
        Field(
            "tables",
            ListOf(String("a table's name")),
            "Table names. `{topic}`, `{1}`, and named groups are replaced.",
            required=True,
        ),
    ),
    "`topics` and `tables`",
)
ROUTE_FIELD: Final = Fields(
    (
        Field(
            "field",
            String("a field's path"),
            "Field whose value routes a row.",
            keys.ROUTE_FIELD,
            required=True,
        ),
        Field(
            "names-table",
            Flag(),
            "Use the value as the table name. By default, `when` selects the rows of each table.",
            keys.DYNAMIC,
        ),
    ),
    "`field`",
)
ROUTE: Final = Either(Choice((AUTO,)), ListOf(ROUTE_RULE, single=False), ROUTE_FIELD)

_PLUGIN = (Field("type", String("a class name"), "Class name.", required=True),)
TRANSFORM: Final = Fields(
    (
        *_PLUGIN,
        Field("name", NAME, "Alias. Default: `t1`, `t2`, and so on."),
        Field("predicate", NAME, "Predicate that selects the records to transform."),
        Field("negate", Flag(), "Transform the records that the predicate does not select."),
    ),
    "`type` and its settings",
    undeclared=SETTING,
)
DEAD_LETTERS: Final = Fields(
    (
        Field("table", TABLE_NAME, "Table for bad records.", keys.DEAD_LETTER_TABLE),
        Field("topic", TOPIC, "Topic for bad records.", "errors.deadletterqueue.topic.name"),
        Field(
            "replay-topic", TOPIC, "Topic from which bad records are replayed.", keys.REPLAY_TOPIC
        ),
    ),
    "`table` or `topic`",
)
# fields of a target; in `defaults`, they apply to all targets
SHARED: Final = (
    Field("tasks", Number(), "Maximum number of tasks. Default: 1.", "tasks.max"),
    Field(
        "format",
        Choice(FORMATS),
        "Format of values and keys. Default: the worker's converters.",
    ),
    Field("key-format", Choice((*FORMATS, STRING)), "Format of keys, if different."),
    Field("registry", ADDRESS, "Address of the schema registry."),
    Field("converter", PROPERTIES, "Additional settings of both converters."),
    Field(
        "unwrap",
        Choice((NONE, ENVELOPE, DEBEZIUM)),
        "Handling of Debezium events. `envelope`: the sink reads the events unchanged. "
        "`debezium`: `ExtractNewRecordState` unwraps the events. Default: `none`.",
    ),
    Field(
        "transforms",
        ListOf(TRANSFORM, single=False),
        "Transformations, in this order, after `unwrap`.",
    ),
    Field(
        "predicates",
        MapOf(Fields(_PLUGIN, "`type` and its settings", undeclared=SETTING), NAME),
        "Predicates of the transformations, by name.",
    ),
    Field(
        "write-mode",
        Choice((APPEND, MERGE, CHANGELOG)),
        "`append` writes each record as a row. `merge` upserts the last row of each key. "
        "`changelog` writes the rows before and after each change. Default: `append`.",
        keys.WRITE_MODE,
    ),
    Field(
        "cdc-field", String("a field's path"), "Field with the type of the change.", keys.CDC_FIELD
    ),
    Field("keys", COLUMNS, "Key columns of tables without `keys`.", keys.ID_COLUMNS),
    Field(
        "key-source",
        Choice(("table", "record")),
        "`record`: tables without `keys` use the keys of their records.",
        "iceberg.ext.key-source",
    ),
    Field(
        "ordering-columns",
        COLUMNS,
        "Columns that order changes of a key across partitions.",
        keys.ORDERING_COLUMNS,
    ),
    Field(
        "changelog-suffix",
        String("a string"),
        "Write a change log for each table, with this suffix after the name of the table.",
        keys.CHANGELOG_SUFFIX,
    ),
    Field("partition-by", PARTITIONS, "Partition fields of new tables.", keys.PARTITION_BY),
    Field("branch", BRANCH, "Branch to commit to.", keys.COMMIT_BRANCH),
    Field("tags", TAGS, "Scheduled tags, such as `daily:keep 14d`.", keys.TAGS),
    Field(
        "expectations",
        _expectations(
            Field("tables", REGEX, "Tables that the check applies to. Default: all tables.")
        ),
        "Data quality checks for all tables, by name.",
    ),
    Field("maintenance", MAINTENANCE, "`true` or maintenance settings, for all tables."),
    *(Field(each.name, each.kind, each.doc, f"iceberg.ext.{each.name}") for each in _COMMIT_STEP),
    Field(
        "create-tables",
        Flag(),
        "Create missing tables. Default: `true`.",
        keys.AUTO_CREATE,
    ),
    Field("table-properties", PROPERTIES, "Properties of new tables."),
    Field(
        "schema-changes",
        Choice((EVOLVE, TRY, IGNORE, HOLD, FAIL)),
        "Action when records require a different schema. `evolve`: tables are changed. `try`: "
        "columns are added, widened, and made optional, and other values are converted "
        "individually. `ignore`: tables are not changed. `hold`: rows wait for a user to approve "
        "the change. `fail`: the task fails. Default: `ignore`.",
    ),
    Field("dead-letters", DEAD_LETTERS, "Destination of bad records. Default: the task fails."),
    Field("commit-interval", DURATION, "Time between commits. Default: `5m`."),
    Field(
        "properties",
        PROPERTIES,
        "Additional connector config keys that have no field.",
    ),
)
_TABLES = Either(
    Choice((AUTO,)),
    ListOf(TABLE_NAME, single=False),
    MapOf(TABLE, TABLE_NAME, least=1),
)
_TABLE_ONLY = {
    name: f"set it in a table: tables.<table>.{name}" for name in ("sort-by", "when", "renamed")
}
TARGET: Final = Fields(
    (
        Field("connector", NAME, "Name of the connector. Default: `<pipeline>-<target>`."),
        Field("topics", ListOf(TOPIC), "One topic, or a list of topics.", "topics"),
        Field(
            "topics-pattern",
            REGEX,
            "Alternative to `topics`: a regular expression for whole topic names.",
            "topics.regex",
        ),
        Field(
            "tables",
            _TABLES,
            "`auto` for one table per topic, a list of tables, or a mapping from tables to their "
            "settings. With `route`, the tables that rows are routed to.",
        ),
        Field(
            "route",
            ROUTE,
            "Routing of rows to tables: `auto` (the same as `tables: auto`), a list of rules by "
            "topic (the first match applies), or a `field`.",
        ),
        Field(
            "namespace",
            NAMESPACE,
            "With `auto`, the namespace of the tables. Each table is named after the last part of "
            "its topic. Default: the topic is the full name of the table.",
        ),
        *SHARED,
    ),
    "a target",
    elsewhere={
        **_TABLE_ONLY,
        "catalog": "all targets share one catalog; move it to the top level of the file",
    },
)
CATALOG: Final = Fields(
    (
        Field("name", NAME, "Name of the catalog. Default: `iceberg`.", keys.CATALOG_NAME),
        Field(
            "type", String("a type"), "Type: `rest`, `jdbc`, `hive`, `glue`, `hadoop`, or `nessie`."
        ),
    ),
    "properties of a catalog",
    undeclared=SETTING,
)
FILE: Final = Fields(
    (
        Field(
            "pipeline",
            NAME,
            "Name of the pipeline. The pipeline marks its connectors with this name.",
            required=True,
        ),
        Field(
            "worker",
            WORKER,
            "A worker of the cluster. `--url` takes precedence. Default: `http://127.0.0.1:8083`.",
        ),
        Field(
            "catalog",
            CATALOG,
            "Catalog of all targets. Additional keys omit the prefix `iceberg.catalog.`. Default: "
            "the worker's `connect_py.defaults.iceberg.catalog.*`.",
        ),
        Field("hadoop", PROPERTIES, "Hadoop settings, without the prefix `iceberg.hadoop.`."),
        Field("spark", PROPERTIES, "Spark settings, without the prefix `iceberg.spark.`."),
        Field(
            "defaults",
            Fields(SHARED, "fields of targets"),
            "Defaults for the fields of all targets.",
        ),
        Field("targets", MapOf(TARGET, NAME, least=1), "Connectors by name.", required=True),
    ),
    "a pipeline",
    elsewhere={"connectors": "did you mean targets?", "name": "did you mean pipeline?"},
)


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of a pipeline file, for editors."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Pipeline of connect-py",
        **FILE.schema(),
    }


def json_schema_string() -> str:
    """Return the JSON schema as a string."""
    return json.dumps(json_schema(), indent=2)
