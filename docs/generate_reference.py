"""Generate the pages in `docs/reference` from the definitions in the code (`make docs`).

With `--check`, nothing is written, and the exit status is 1 if a page is out of date.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from connect_py.api.config import ConfigDef, ConfigKey, Parsed, Password, Type, to_text
from connect_py.api.errors import ConfigError
from connect_py.api.plugin import Plugin, PluginKind
from connect_py.config.connector_config import (
    FrameworkDefaults,
    common_config_def,
    sink_config_def,
    source_config_def,
)
from connect_py.config.worker_definitions import distributed_config_def, standalone_config_def
from connect_py.plugins.plugin_registry import PluginRegistry
from connectors.iceberg_tools.pipeline.file_fields import (
    CATALOG,
    DEAD_LETTERS,
    EXPECTATION,
    FILE,
    ROUTE_FIELD,
    ROUTE_RULE,
    SETTING_PREFIX,
    SHARED,
    TABLE,
    TARGET,
    TRANSFORM,
)

REFERENCE = Path(__file__).parent / "reference"
NOTE = "<!-- Made by `make docs` from the definitions in the code. Change those, not this page. -->"
DEPENDS_ON_THE_MACHINE = {"iceberg.control.commit.threads": "two per processor core, at most 4"}
SHOWN_BOUNDS = ("String must be one of", "Value must be at least", "Value must be no more than")
# Headings for the keys of a class. A key is listed under the first heading with a part of its name.
GROUPS = {
    "IcebergSinkConnector": {
        "Tables and routes": (
            "iceberg.tables dynamic-enabled route-field topic-to-table ext.unrouted missing-table"
        ),
        "Merge": (
            "write-mode cdc-field upsert-mode id-columns null-key ordering-columns "
            "unavailable-value key-source foreign-writers delete-mode"
        ),
        "Debezium's events": "envelope -events changelog-suffix",
        "New tables and schema changes": (
            "auto-create partition-by schema-force schema-case evolve-schema .evolution."
        ),
        "Types": "lenient-conversion logical-types json-type out-of-range",
        "Commits": (
            "control.topic control.commit commit-branch commit-engine commit-attempt "
            "recreated-topic waiting-ms"
        ),
        "Memory and files": "staged staging target-file-size",
        "Catalog, storage and Spark": "iceberg.catalog iceberg.catalog. hadoop iceberg.kafka. "
        "spark-driver",
        "Dead letters": "errors.",
        "Others": "",
    },
}
FREE_PART = {
    "IcebergSinkConnector": (
        ("`iceberg.table.<table>.id-columns`", "key columns of one table"),
        (
            "`iceberg.table.<table>.partition-by`",
            "partition fields of one table, if the sink creates it",
        ),
        (
            "`iceberg.table.<table>.sort-by`",
            "[sort order](../how-to/create-tables.md#sort-a-table) of one table, also if it is "
            "there",
        ),
        (
            "`iceberg.ext.expect.<name>`, `iceberg.ext.expect.<name>.action`, "
            "`iceberg.ext.expect.<name>.tables`",
            "an [expectation](../how-to/expect-rows.md): SQL, what happens otherwise, and a "
            "pattern of tables",
        ),
        (
            "`iceberg.ext.cycle-aggregate.<table>`, and below it `.keys`, `.add`, `.from`",
            "an [aggregate](../how-to/transform-commits.md#keep-an-aggregate-in-step): its query, "
            "the columns that name a row, those that are added up, and the table that it follows",
        ),
        (
            "`iceberg.table.<table>.expect.<name>`, `iceberg.table.<table>.expect.<name>.action`",
            "of one table",
        ),
        (
            "`iceberg.table.<table>.maintenance.<setting>`",
            "a setting of [maintenance](../how-to/maintain-tables.md) of one table",
        ),
        (
            "`iceberg.table.<table>.tags`",
            "[tags on a schedule](../how-to/table-refs.md#set-tags-on-a-schedule) of one table",
        ),
        ("`iceberg.table.<table>.commit-branch`", "branch of one table to commit to"),
        (
            "`iceberg.table.<table>.route-regex`",
            "values of the route field whose rows are written to the table",
        ),
        ("`iceberg.table.<table>.renamed`", "pairs `new:old` of renamed columns"),
        ("`iceberg.tables.auto-create-props.*`", "a property of tables that the sink creates"),
        (
            "`iceberg.tables.write-props.*`",
            "overrides a `write.` property of a table",
        ),
        (
            "`iceberg.catalog.*`",
            "a property of the catalog or its storage, as in Iceberg's Java library",
        ),
        ("`iceberg.hadoop.*`", "a setting of Hadoop"),
        ("`iceberg.kafka.*`", "a setting of the sink's Kafka clients, in addition to the worker's"),
        ("`iceberg.spark.*`", "a setting of Spark, without its prefix `spark.`"),
    ),
}
OUT_OF_BOUNDS: tuple[Parsed, ...] = ("\0", -(10**30), 10**30)

TITLES = {
    PluginKind.SINK: "Sinks",
    PluginKind.SOURCE: "Sources",
    PluginKind.CONVERTER: "Converters",
    PluginKind.HEADER_CONVERTER: "Header converters",
    PluginKind.TRANSFORMATION: "Transformations",
    PluginKind.PREDICATE: "Predicates",
}


def pages() -> dict[str, str]:
    """Return the content of all pages by file name."""
    registry = PluginRegistry.discover()
    return {
        "worker.md": _page(
            "Worker properties",
            "Keys of `worker.properties`. Settings of the clients of tasks begin with `producer.`, "
            "`consumer.`, and `admin.`; settings of converters begin with `key.converter.` and "
            "`value.converter.`; and settings of internal topics begin with `config.storage.`, "
            "`status.storage.`, `offset.storage.`, and `control.storage.`.",
            _worker_tables(),
        ),
        "connector.md": _page(
            "Connector configuration: keys of the worker",
            "Keys of all connectors, in addition to the keys of each connector class. Settings of "
            "a connector's Kafka clients begin with `producer.override.`, `consumer.override.`, "
            "and `admin.override.`.",
            _connector_tables(),
        ),
        "iceberg-sink.md": _page(
            "Iceberg sink",
            "[How the Iceberg sink works](../iceberg-sink.md) explains them, and lists the pages "
            "with examples.",
            _plugin_tables(registry, [PluginKind.SINK], "connectors.iceberg"),
        ),
        "file-stream.md": _page(
            "FileStream connectors",
            "Each line of a file is a record. These connectors are for experiments.",
            _plugin_tables(
                registry, [PluginKind.SINK, PluginKind.SOURCE], "connectors.file_stream"
            ),
        ),
        "converters.md": _page(
            "Converters",
            "Set `key.converter`, `value.converter`, and `header.converter` to a class; its keys "
            "begin with that name and a dot. All except AvroConverter also convert headers.",
            _plugin_tables(
                registry,
                [PluginKind.CONVERTER, PluginKind.HEADER_CONVERTER],
                "connect_py.converters",
            ),
        ),
        "transformations.md": _page(
            "Transformations and predicates",
            "Named by `transforms.<alias>.type` and `predicates.<alias>.type`; their keys follow "
            "after `transforms.<alias>.` and `predicates.<alias>.`. Every transformation also "
            "takes `predicate`, the alias of a predicate that decides which records it sees, and "
            "`negate`.",
            _plugin_tables(
                registry, [PluginKind.TRANSFORMATION, PluginKind.PREDICATE], "transforms"
            ),
        ),
        "pipeline-file.md": _page(
            "Pipeline file",
            "The fields of the YAML file that `connect-py pipeline` reads. "
            "[Pipelines](../how-to/pipelines.md) shows "
            "their use. `connect-py pipeline schema` prints them as JSON schema.",
            _pipeline_tables(),
        ),
    }


def _page(title: str, introduction: str, body: Iterable[str]) -> str:
    return "\n".join([f"# {title}", "", NOTE, "", introduction, "", *body]).rstrip() + "\n"


def _worker_tables() -> Iterator[str]:
    distributed, standalone = distributed_config_def(), standalone_config_def()
    for title, definition, other_mode in (
        ("Both modes", standalone, distributed),
        ("Distributed only", distributed, standalone),
        ("Standalone only", standalone, distributed),
    ):
        shared = title == "Both modes"
        keys = (key for key in definition if (key.name in other_mode.keys) == shared)
        yield from (f"## {title}", "", *_table(ConfigDef(keys)), "")


def _connector_tables() -> Iterator[str]:
    common = common_config_def(FrameworkDefaults())
    for title, definition in (
        ("All connectors", common),
        ("Sinks", sink_config_def(FrameworkDefaults())),
        ("Sources", source_config_def(FrameworkDefaults())),
    ):
        keys = (key for key in definition if definition is common or key.name not in common.keys)
        yield from (f"## {title}", "", *_table(ConfigDef(keys)), "")


def _plugin_tables(
    registry: PluginRegistry, kinds: list[PluginKind], package: str
) -> Iterator[str]:
    listed: set[str] = set()  # a class of several kinds is listed only under the first kind
    for kind in kinds:
        classes: dict[str, list[Plugin]] = {}
        for plugin in registry.available(kind):
            if plugin.python.startswith(f"{package}.") and plugin.python not in listed:
                classes.setdefault(plugin.python, []).append(plugin)
        listed |= classes.keys()
        if not classes:
            continue
        if len(kinds) > 1:
            yield from (f"## {TITLES[kind]}", "")
        for plugins in sorted(classes.values(), key=lambda same: _simple(same[0])):
            loaded = registry.load(plugins[0])
            yield from (f"### {_simple(plugins[0])}", "")
            yield from (f"`{name}`  " for name in sorted({plugin.name for plugin in plugins}))
            yield ""
            definition: ConfigDef = loaded.config_def
            yield from _grouped(_simple(plugins[0]), definition)
            yield ""


def _pipeline_tables() -> Iterator[str]:
    shared = {field.name for field in SHARED}
    for title, introduction, fields in (
        ("The file", "", FILE.fields),
        (
            "A target",
            "And all fields of `defaults`.",
            [each for each in TARGET if each.name not in shared],
        ),
        (
            "Defaults and targets",
            "The value of a target takes precedence; mappings are merged by key.",
            SHARED,
        ),
        ("A table", "In `tables.<table>` of a target.", TABLE.fields),
        ("A rule of a route", "An item of `route`, if it is a list.", ROUTE_RULE.fields),
        ("A route by a field", "`route`, if it is a mapping.", ROUTE_FIELD.fields),
        (
            "A transformation",
            "An item of `transforms`; additional keys are its settings.",
            TRANSFORM.fields,
        ),
        ("An expectation", "A string is its `sql`.", EXPECTATION),
        ("Dead letters", "", DEAD_LETTERS.fields),
        ("A catalog", "Additional keys as after `iceberg.catalog.`.", CATALOG.fields),
    ):
        yield from (f"## {title}", "", *([introduction, ""] if introduction else []))
        yield from ("| field | value | connector's key | |", "|---|---|---|---|")
        for field in fields:
            name = f"**`{field.name}`**" if field.required else f"`{field.name}`"
            key = field.key.replace(SETTING_PREFIX, "iceberg.table.<table>.")
            cells = (
                name,
                _escaped(field.kind.words),
                f"`{key}`" if key else "",
                _escaped(field.doc),
            )
            yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
        yield ""
    yield (
        "Fields in bold are required. Settings of `maintenance`: [maintain "
        "tables](../how-to/maintain-tables.md)."
    )


def _grouped(name: str, definition: ConfigDef) -> Iterator[str]:
    """Yield the tables of a class's keys, with headings if `GROUPS` defines them."""
    if name not in GROUPS:
        yield from (_table(definition) if definition.keys else ["It has no additional keys."])
        return
    remaining = list(definition)
    for title, words in GROUPS[name].items():
        matching = [
            key
            for key in remaining
            if not words or any(_is_meant(word, key.name) for word in words.split())
        ]
        remaining = [key for key in remaining if key not in matching]
        if matching:
            yield from (f"#### {title}", "", *_table(ConfigDef(matching)), "")
    yield from ("#### Keys with variable parts", "", "| key | |", "|---|---|")
    yield from (f"| {key} | {text} |" for key, text in FREE_PART[name])


def _is_meant(word: str, key: str) -> bool:
    return key.endswith(word) if word in ("iceberg.tables", "iceberg.catalog") else word in key


def _simple(plugin: Plugin) -> str:
    return plugin.name.rpartition(".")[2]


def _table(definition: ConfigDef) -> list[str]:
    lines = ["| key | type | default | importance | |", "|---|---|---|---|---|"]
    for key in definition:
        if not key.internal:
            cells = (
                f"`{key.name}`",
                key.type.value.lower(),
                _default(key),
                key.importance.value.lower(),
                _doc(key),
            )
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return lines


def _default(key: ConfigKey) -> str:
    if key.name in DEPENDS_ON_THE_MACHINE:
        return DEPENDS_ON_THE_MACHINE[key.name]
    if not key.has_default:
        return "**required**"
    default = key.default.value if isinstance(key.default, Password) else key.default
    text = to_text(default, Type.STRING)
    if text is None:
        return "none"
    return f"`{text}`" if text else "empty"


def _doc(key: ConfigKey) -> str:
    return " ".join([_escaped(key.doc.strip().rstrip(".") + "."), *_bounds(key)])


def _escaped(text: str) -> str:
    """Escape `<` except in code."""
    parts = text.split("`")
    return "`".join(
        part if code % 2 else part.replace("<", "&lt;") for code, part in enumerate(parts)
    )


def _bounds(key: ConfigKey) -> Iterator[str]:
    """Yield the bounds of a key if the error messages of its validator contain them."""
    if key.validator is None or key.type is Type.LIST:
        return
    messages: dict[str, None] = {}
    for value in OUT_OF_BOUNDS:
        if isinstance(value, str) is not (key.type in (Type.STRING, Type.CLASS)):
            continue
        try:
            key.validator(key.name, value)
        except ConfigError as error:
            why = str(error).partition(f"{key.name}: ")[2]
            if why.startswith(SHOWN_BOUNDS):
                messages[why] = None
    for why in messages:
        choices = why.partition(": ")[2]
        if choices:
            yield "One of " + ", ".join(f"`{choice}`" for choice in choices.split(", ")) + "."
        else:
            yield why.replace("Value must be a", "A").replace("Value must be n", "N") + "."


def main(arguments: list[str]) -> int:
    expected = pages()
    existing = {path.name: path.read_text() for path in REFERENCE.glob("*.md")}
    # pages without the note are not generated
    existing = {name: text for name, text in existing.items() if NOTE in text}
    stale = sorted(
        name
        for name in expected.keys() | existing.keys()
        if expected.get(name) != existing.get(name)
    )
    if arguments == ["--check"]:
        for name in stale:
            print(f"docs/reference/{name} is out of date; run `make docs`", file=sys.stderr)
        return 1 if stale else 0
    REFERENCE.mkdir(exist_ok=True)
    for name in stale:
        if name in expected:
            (REFERENCE / name).write_text(expected[name])
        else:
            (REFERENCE / name).unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
