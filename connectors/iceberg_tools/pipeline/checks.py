"""Checks combinations of fields in a target, and detects conflicts between targets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Set
from typing import Final

from connect_py.api.errors import ConfigError
from connectors.iceberg.config import keys
from connectors.iceberg.config.expectations import EXPECT, parse_expectations
from connectors.iceberg.config.layout_terms import split_outside_brackets
from connectors.iceberg.config.option_parser import OptionParser
from connectors.iceberg.config.sink_options import CONFIG_DEF
from connectors.iceberg.config.spellings import NEVER_VALID, unknown_keys
from connectors.iceberg.config.table_config import compile_java_pattern
from connectors.iceberg.config.topic_rules import TopicRule, topic_rules
from connectors.iceberg_tools.pipeline.compiler import (
    OWNER_KEY,
    UNWRAP_ALIAS,
    CompiledConnector,
    automatic_rule,
    route_rule,
    transform_aliases,
)
from connectors.iceberg_tools.pipeline.file_fields import (
    APPEND,
    AUTO,
    CHANGELOG,
    DEBEZIUM,
    ENVELOPE,
    FAIL,
    JSON,
    MERGE,
    REGISTRY_FORMATS,
)
from connectors.iceberg_tools.pipeline.kinds import PROVIDER, FieldValue
from connectors.iceberg_tools.pipeline.mistake import Mistakes, did_you_mean
from connectors.iceberg_tools.pipeline.target import Target

_RESERVED: Final[Mapping[str, str]] = {
    "name": "`connector`",
    "connector.class": "the pipeline",
    OWNER_KEY: "the pipeline",
    "transforms": "`transforms`",
    "predicates": "`predicates`",
    "errors.tolerance": "`dead-letters`",
    keys.TOPIC_TO_TABLE: "`route`",
    keys.TABLES: "`tables`",
    keys.AUTO_CREATE: "`create-tables`",
    keys.WRITE_MODE: "`write-mode`",
}
_PREFIXES: Final[Mapping[str, str]] = {
    keys.CATALOG_PREFIX: "`catalog` at the file's top level",
    keys.HADOOP_PREFIX: "`hadoop` at the file's top level",
    keys.SPARK_PREFIX: "`spark` at the file's top level",
    "transforms.": "`transforms`",
    "predicates.": "`predicates`",
}
_PLACEHOLDER: Final = re.compile(r"\{(\w+)\}")


class TargetChecks:
    """Checks the combination of fields in one target. Each field is already known to be valid."""

    def __init__(self, target: Target, mistakes: Mistakes, wrong: Set[str]) -> None:
        """Create the checks for one target.

        Args:
            target: The target to check.
            mistakes: Collects the mistakes that are found.
            wrong: Fields that are present in the file but invalid.
        """
        self._target = target
        self._mistakes = mistakes
        self._wrong = wrong

    def check(self) -> None:
        self._topics()
        self._formats()
        self._changes()
        self._routes()
        self._plugins()
        self._table_settings()

    def _refuse(self, name: str, problem: str, hint: str = "") -> None:
        """Add a mistake at an existing field."""
        field = self._target.fields[name]
        self._mistakes.add(field.position, field.path, problem, hint)

    def _add_missing(self, problem: str, hint: str) -> None:
        self._mistakes.add(self._target.position, self._target.path, problem, hint)

    def _has(self, name: str) -> bool:
        return name in self._target.fields

    def _is_present(self, name: str) -> bool:
        return self._has(name) or name in self._wrong

    def _topics(self) -> None:
        if self._has("topics") and self._has("topics-pattern"):
            self._refuse("topics-pattern", "cannot be combined with `topics`", "remove one of them")
        elif not self._is_present("topics") and not self._is_present("topics-pattern"):
            self._add_missing("has no topics", "add `topics` or `topics-pattern`")

    def _formats(self) -> None:
        target = self._target
        formats = {target.plain("format"), target.plain("key-format", target.plain("format"))}
        registered = formats & set(REGISTRY_FORMATS)
        if registered and not self._is_present("registry"):
            self._refuse(
                "format" if target.plain("format") in registered else "key-format",
                f"{min(map(str, registered))} needs a schema registry",
                "add `registry`",
            )
        if self._has("registry") and not registered and "format" not in self._wrong:
            self._refuse(
                "registry",
                "has no effect without a format of the schema registry",
                "remove it",
            )
        if self._has("converter") and formats == {None} and "format" not in self._wrong:
            self._refuse("converter", "has no effect without `format`", "add `format`")
        if self._has("key-format") and not self._is_present("format"):
            self._refuse("key-format", "has no effect without `format`", "add `format`")
        if target.unwrap == DEBEZIUM and target.plain("format") == JSON:
            hint = "use `unwrap: envelope`, or `format: json-schemas`"
            self._refuse("unwrap", "debezium needs a format with schemas", hint)

    def _changes(self) -> None:
        target, mode = self._target, self._target.write_mode
        mode_is_valid = "write-mode" not in self._wrong
        if target.unwrap == ENVELOPE and mode == APPEND and mode_is_valid:
            self._refuse("unwrap", "envelope needs `write-mode: merge` or `write-mode: changelog`")
        if target.unwrap == ENVELOPE and self._has("cdc-field"):
            self._refuse(
                "cdc-field",
                "cannot be combined with `unwrap: envelope`, which determines the kind of each "
                "change",
            )
        if mode == CHANGELOG and target.unwrap != ENVELOPE and "unwrap" not in self._wrong:
            self._refuse(
                "write-mode",
                "changelog needs the row before each change",
                "use `unwrap: envelope`",
            )
        needs_merge = ("cdc-field", "key-source", "ordering-columns", "changelog-suffix")
        for name in needs_merge:
            if self._has(name) and mode != MERGE and mode_is_valid:
                self._refuse(
                    name, f"has no effect with `write-mode: {mode}`", "use `write-mode: merge`"
                )
        if (
            self._has("changelog-suffix")
            and mode == MERGE
            and target.unwrap != ENVELOPE
            and "unwrap" not in self._wrong
        ):
            self._refuse(
                "changelog-suffix", "needs the row before each change", "use `unwrap: envelope`"
            )
        if target.schema_changes == FAIL and self._has("dead-letters"):
            problem = "fail cannot be combined with `dead-letters`, which stores such rows"
            self._refuse("schema-changes", problem, "remove one of them")
        if self._has("dead-letters"):
            destinations = target.entries("dead-letters")
            if not {"table", "topic"} & destinations.keys() and "dead-letters" not in self._wrong:
                self._refuse("dead-letters", "has no destination", "add `table` or `topic`")

    def _routes(self) -> None:
        target = self._target
        automatic = target.plain("tables") == AUTO
        if automatic and self._has("route"):
            self._refuse("route", "cannot be combined with `tables: auto`", "remove one of them")
            return
        if not self._is_present("tables") and not self._is_present("route"):
            self._add_missing(
                "has no tables", "write `tables: auto`, list the tables, or add a `route`"
            )
        if self._has("namespace") and not target.tables_by_topic:
            self._refuse(
                "namespace", "has no effect without `tables: auto` or `route: auto`", "remove it"
            )
        route = target.field("route")
        by_field = route is not None and isinstance(route.value, dict)
        if (
            by_field
            and not self._is_present("tables")
            and not target.entries("route").get("names-table")
        ):
            self._refuse(
                "route",
                "routes by a field, but there are no tables",
                "add `tables`, or `names-table`",
            )
        for name, settings in target.table_settings.items():
            condition = settings.value.get("when")
            if condition is not None and not by_field:
                path = f"{target.path}.tables.{name}.when"
                self._mistakes.add(
                    condition.position,
                    path,
                    "has no effect without a route field",
                    "add `route.field`",
                )
        self._check_rules(route)

    def _check_rules(self, route: FieldValue | None) -> None:
        rules = route.value if route is not None and isinstance(route.value, tuple) else ()
        parsed: list[TopicRule] = []
        for rule in rules:
            parsed += self._parse_rule(rule)
        if self._target.tables_by_topic:
            parsed = list(topic_rules(automatic_rule(self._target.plain("namespace", ""))))
        if len(parsed) < len(rules) or not parsed:
            return
        for topic in self._target.items("topics"):
            if PROVIDER.search(topic.value) is not None:
                continue
            tables = next(
                (
                    names
                    for names in (each.tables(topic.value) for each in parsed)
                    if names is not None
                ),
                None,
            )
            if tables is None:
                self._mistakes.add(
                    topic.position, topic.path, f"no rule of `route` matches topic {topic.value}"
                )
            elif any("." not in name for name in tables):
                problem = f"the table of topic {topic.value} would have no namespace"
                hint = (
                    "add `namespace`"
                    if self._target.tables_by_topic
                    else "name tables as namespace.table"
                )
                self._mistakes.add(topic.position, topic.path, problem, hint)

    def _parse_rule(self, rule: FieldValue) -> tuple[TopicRule, ...]:
        """Return a parsed rule, or an empty tuple if it is invalid."""
        text, pattern = route_rule(rule), rule.value.get("topics")
        if text is None:
            return ()
        if len(split_outside_brackets(pattern.value)) != 1:
            hint = "write \\, for a comma, or two rules"
            self._mistakes.add(
                pattern.position, pattern.path, "has a comma outside of brackets", hint
            )
            return ()
        refused = [
            table
            for table in rule.value["tables"].value
            if not self._is_valid_template(pattern.value, table)
        ]
        return () if refused else topic_rules(text)

    def _is_valid_template(self, pattern: str, table: FieldValue) -> bool:
        """Return True if a template refers to the pattern's groups and yields a table name."""
        try:
            topic_rules(f"{pattern}:{table.value}")
        except ConfigError as error:
            names = ("topic", *compile_java_pattern(pattern).groupindex)
            hint = "supported: `{topic}`, `{1}`, and named groups"
            for name in _PLACEHOLDER.findall(table.value):
                if name not in names and not name.isdecimal():
                    hint = did_you_mean(name, names) or hint
            self._mistakes.add(table.position, table.path, error.why, hint)
            return False
        return True

    def _plugins(self) -> None:
        target, aliases = self._target, set()
        if target.unwrap == DEBEZIUM:
            aliases.add(UNWRAP_ALIAS)
        predicates = target.entries("predicates")
        for (alias, settings), item in zip(
            transform_aliases(target), target.items("transforms"), strict=True
        ):
            name = settings.get("name", item)
            if alias in aliases:
                self._mistakes.add(
                    name.position, name.path, f"another transformation is named {alias}"
                )
            aliases.add(alias)
            predicate, negate = settings.get("predicate"), settings.get("negate")
            if (
                predicate is not None
                and predicate.value not in predicates
                and "predicates" not in self._wrong
            ):
                hint = did_you_mean(predicate.value, predicates) or "declare it in `predicates`"
                self._mistakes.add(
                    predicate.position,
                    predicate.path,
                    f"there is no predicate {predicate.value}",
                    hint,
                )
            if negate is not None and predicate is None:
                self._mistakes.add(
                    negate.position,
                    negate.path,
                    "has no effect without `predicate`",
                    "add `predicate`",
                )

    def _table_settings(self) -> None:
        target = self._target
        _check_table(target.fields, keys.EXPECT_PREFIX, self._mistakes)
        for name, settings in target.table_settings.items():
            _check_table(settings.value, f"{keys.TABLE_PREFIX}{name}.{EXPECT}.", self._mistakes)


def _check_table(fields: Mapping[str, FieldValue], prefix: str, mistakes: Mistakes) -> None:
    """Check the expectations and commit steps of one table, or of all tables in a target."""
    expectations = fields.get("expectations")
    for name, each in (expectations.value if expectations is not None else {}).items():
        expectation = each.plain() if isinstance(each.value, dict) else {"sql": each.value}
        if "sql" not in expectation:
            continue
        settings = {name: expectation["sql"]} | (
            {f"{name}.action": expectation["action"]} if "action" in expectation else {}
        )
        try:
            parse_expectations(settings, prefix)
        except ConfigError as error:
            mistakes.add(each.position, each.path, error.why)
    if "cycle-sql" in fields and "cycle-transform" in fields:
        field = fields["cycle-transform"]
        mistakes.add(
            field.position, field.path, "cannot be combined with `cycle-sql`", "remove one of them"
        )


def check_catalog(catalog: FieldValue | None, mistakes: Mistakes) -> None:
    """Report fields of a catalog that cannot be combined."""
    fields = catalog.value if catalog is not None else {}
    if "type" in fields and "catalog-impl" in fields:
        field = fields["catalog-impl"]
        mistakes.add(
            field.position, field.path, "cannot be combined with `type`", "remove one of them"
        )


def check_between(targets: Iterable[Target], mistakes: Mistakes) -> None:
    """Report connectors and tables that occur in more than one target."""
    connectors: dict[str, str] = {}
    tables: dict[str, str] = {}
    for target in targets:
        first = connectors.setdefault(target.connector, target.name)
        if first != target.name:
            field = target.field("connector")
            position, path = (
                (field.position, field.path)
                if field is not None
                else (target.position, target.path)
            )
            mistakes.add(
                position, path, f"connector {target.connector} is already defined by target {first}"
            )
        for name in target.fixed_tables:
            first = tables.setdefault(name, target.name)
            if first != target.name:
                field = target.table_settings[name]
                mistakes.add(
                    field.position,
                    field.path,
                    f"target {first} also writes to this table",
                    "list it in one target only",
                )


def check_properties(compiled: CompiledConnector, mistakes: Mistakes) -> None:
    """Report keys in `properties` that are unknown or that a field already sets."""
    target = compiled.target
    properties = target.entries("properties")
    for key, value in properties.items():
        setter = _RESERVED.get(key) or next(
            (name for prefix, name in _PREFIXES.items() if key.startswith(prefix)), ""
        )
        source = compiled.sources.get(key)
        if not setter and source is not None and source is not value:
            setter = f"`{source.path.removeprefix(f'{target.path}.').removeprefix('defaults.')}`"
        if setter:
            mistakes.add(value.position, value.path, f"is set by {setter}", "remove it here")
    connector_config = {
        key: each.value for key, each in properties.items() if key in compiled.sources
    }
    for warning in unknown_keys(connector_config, CONFIG_DEF.keys, ()):
        key, _, problem = warning.partition(" ")
        problem, _, hint = problem.partition("; ")
        mistakes.add(properties[key].position, properties[key].path, problem, hint)
    for key in properties.keys() & NEVER_VALID.keys():
        mistakes.add(properties[key].position, properties[key].path, NEVER_VALID[key])


def check_options(compiled: CompiledConnector, mistakes: Mistakes) -> None:
    """Validate the configuration with the sink's own checks.

    Problems are reported at the fields that cause them. The worker reports all other problems.
    """
    config = {
        key: value for key, value in compiled.config.items() if PROVIDER.search(value) is None
    }
    if not any(key.startswith(keys.CATALOG_PREFIX) for key in config):
        config[f"{keys.CATALOG_PREFIX}type"] = "the worker's"
    try:
        _, problems = OptionParser({**config, "name": compiled.name}).parse()
    except ConfigError as error:
        problems = [(error.key, error.why)]
    for key, why in problems:
        source = compiled.sources.get(key)
        if source is None and key == keys.CATALOG_PREFIX:
            source = compiled.sources.get(f"{keys.CATALOG_PREFIX}type")
        if source is not None:
            mistakes.add(source.position, source.path, why)
