"""What does not go together in a target, and between targets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Set
from typing import Final

from connect_py.api.errors import ConfigError
from connectors.iceberg.config import keys
from connectors.iceberg.config.expectations import EXPECT, parse_expectations
from connectors.iceberg.config.java_pattern import compile_java_pattern
from connectors.iceberg.config.option_parser import OptionParser
from connectors.iceberg.config.partition_by import split_outside_brackets
from connectors.iceberg.config.sink_options import CONFIG_DEF
from connectors.iceberg.config.spellings import NEVER_VALID, unknown_keys
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
    OF_REGISTRY,
)
from connectors.iceberg_tools.pipeline.kinds import PROVIDER, Found
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
_PLACE: Final = re.compile(r"\{(\w+)\}")


class TargetChecks:
    """Looks at one target whose fields are right by themselves."""

    def __init__(self, target: Target, mistakes: Mistakes, wrong: Set[str]) -> None:
        """Prepare. `wrong`: fields that are given and have mistakes of their own."""
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
        """A mistake at a field, which is there."""
        found = self._target.fields[name]
        self._mistakes.add(found.place, found.path, problem, hint)

    def _lacks(self, problem: str, hint: str) -> None:
        self._mistakes.add(self._target.place, self._target.path, problem, hint)

    def _has(self, name: str) -> bool:
        return name in self._target.fields

    def _given(self, name: str) -> bool:
        return self._has(name) or name in self._wrong

    def _topics(self) -> None:
        if self._has("topics") and self._has("topics-pattern"):
            self._refuse("topics-pattern", "cannot be combined with `topics`", "remove one of them")
        elif not self._given("topics") and not self._given("topics-pattern"):
            self._lacks("lacks its topics", "give `topics` or `topics-pattern`")

    def _formats(self) -> None:
        target = self._target
        given = {target.plain("format"), target.plain("key-format", target.plain("format"))}
        registered = given & set(OF_REGISTRY)
        if registered and not self._given("registry"):
            self._refuse(
                "format" if target.plain("format") in registered else "key-format",
                f"{min(map(str, registered))} needs a schema registry",
                "give `registry`",
            )
        if self._has("registry") and not registered and "format" not in self._wrong:
            self._refuse(
                "registry", "has no effect without a format of a schema registry", "remove it"
            )
        if self._has("converter") and given == {None} and "format" not in self._wrong:
            self._refuse("converter", "has no effect without `format`", "give `format`")
        if self._has("key-format") and not self._given("format"):
            self._refuse("key-format", "has no effect without `format`", "give `format`")
        if target.unwrap == DEBEZIUM and target.plain("format") == JSON:
            hint = "use `unwrap: envelope`, or `format: json-schemas`"
            self._refuse("unwrap", "debezium needs a format with schemas", hint)

    def _changes(self) -> None:
        target, mode = self._target, self._target.write_mode
        known = "write-mode" not in self._wrong
        if target.unwrap == ENVELOPE and mode == APPEND and known:
            self._refuse("unwrap", "envelope needs `write-mode: merge` or `write-mode: changelog`")
        if target.unwrap == ENVELOPE and self._has("cdc-field"):
            self._refuse(
                "cdc-field",
                "cannot be combined with `unwrap: envelope`, which says what each change is",
            )
        if mode == CHANGELOG and target.unwrap != ENVELOPE and "unwrap" not in self._wrong:
            self._refuse(
                "write-mode",
                "changelog needs the rows before each change",
                "use `unwrap: envelope`",
            )
        needs_merge = ("cdc-field", "key-source", "ordering-columns", "changelog-suffix")
        for name in needs_merge:
            if self._has(name) and mode != MERGE and known:
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
                "changelog-suffix", "needs the rows before each change", "use `unwrap: envelope`"
            )
        if target.schema_changes == FAIL and self._has("dead-letters"):
            problem = "fail cannot be combined with `dead-letters`, which keeps such rows"
            self._refuse("schema-changes", problem, "remove one of them")
        if self._has("dead-letters"):
            given = target.entries("dead-letters")
            if not {"table", "topic"} & given.keys() and "dead-letters" not in self._wrong:
                self._refuse("dead-letters", "names no place", "give `table` or `topic`")

    def _routes(self) -> None:
        target = self._target
        automatic = target.plain("tables") == AUTO
        if automatic and self._has("route"):
            self._refuse("route", "cannot be combined with `tables: auto`", "remove one of them")
            return
        if not self._given("tables") and not self._given("route"):
            self._lacks("lacks its tables", "write `tables: auto`, name tables, or give a `route`")
        if self._has("namespace") and not target.tables_by_topic:
            self._refuse(
                "namespace", "has no effect without `tables: auto` or `route: auto`", "remove it"
            )
        route = target.found("route")
        by_field = route is not None and isinstance(route.value, dict)
        if (
            by_field
            and not self._given("tables")
            and not target.entries("route").get("names-table")
        ):
            self._refuse(
                "route",
                "a field chooses among tables, and there are none",
                "give `tables`, or `names-table`",
            )
        for name, settings in target.table_settings.items():
            when = settings.value.get("when")
            if when is not None and not by_field:
                path = f"{target.path}.tables.{name}.when"
                self._mistakes.add(
                    when.place,
                    path,
                    "has no effect without a field to look at",
                    "give `route.field`",
                )
        self._check_rules(route)

    def _check_rules(self, route: Found | None) -> None:
        rules = route.value if route is not None and isinstance(route.value, tuple) else ()
        parsed: list[TopicRule] = []
        for rule in rules:
            parsed += self._parsed_rule(rule)
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
                    topic.place, topic.path, f"no rule of `route` takes the topic {topic.value}"
                )
            elif any("." not in name for name in tables):
                problem = f"the table of topic {topic.value} would have no namespace"
                hint = (
                    "give `namespace`"
                    if self._target.tables_by_topic
                    else "name tables as namespace.table"
                )
                self._mistakes.add(topic.place, topic.path, problem, hint)

    def _parsed_rule(self, rule: Found) -> tuple[TopicRule, ...]:
        """The rule, once; none: it has mistakes."""
        text, pattern = route_rule(rule), rule.value.get("topics")
        if text is None:
            return ()
        if len(split_outside_brackets(pattern.value)) != 1:
            hint = "write \\, for a comma, or two rules"
            self._mistakes.add(pattern.place, pattern.path, "has a comma outside of brackets", hint)
            return ()
        refused = [
            table
            for table in rule.value["tables"].value
            if not self._names_groups(pattern.value, table)
        ]
        return () if refused else topic_rules(text)

    def _names_groups(self, pattern: str, table: Found) -> bool:
        """Whether a template names groups of the pattern only, and makes a table's name."""
        try:
            topic_rules(f"{pattern}:{table.value}")
        except ConfigError as error:
            known = ("topic", *compile_java_pattern(pattern).groupindex)
            hint = "`{topic}`, `{1}` and named groups are known"
            for name in _PLACE.findall(table.value):
                if name not in known and not name.isdecimal():
                    hint = did_you_mean(name, known) or hint
            self._mistakes.add(table.place, table.path, error.why, hint)
            return False
        return True

    def _plugins(self) -> None:
        target, seen = self._target, set()
        if target.unwrap == DEBEZIUM:
            seen.add(UNWRAP_ALIAS)
        predicates = target.entries("predicates")
        for (alias, settings), item in zip(
            transform_aliases(target), target.items("transforms"), strict=True
        ):
            place = settings.get("name", item)
            if alias in seen:
                self._mistakes.add(
                    place.place, place.path, f"another transformation is named {alias}"
                )
            seen.add(alias)
            named, negate = settings.get("predicate"), settings.get("negate")
            if (
                named is not None
                and named.value not in predicates
                and "predicates" not in self._wrong
            ):
                hint = did_you_mean(named.value, predicates) or "declare it below `predicates`"
                self._mistakes.add(
                    named.place, named.path, f"there is no predicate {named.value}", hint
                )
            if negate is not None and named is None:
                self._mistakes.add(
                    negate.place,
                    negate.path,
                    "has no effect without `predicate`",
                    "give `predicate`",
                )

    def _table_settings(self) -> None:
        target = self._target
        _check_table(target.fields, keys.EXPECT_PREFIX, self._mistakes)
        for name, settings in target.table_settings.items():
            _check_table(settings.value, f"{keys.TABLE_PREFIX}{name}.{EXPECT}.", self._mistakes)


def _check_table(fields: Mapping[str, Found], prefix: str, mistakes: Mistakes) -> None:
    """Expectations, and steps of a commit: of one table, or of all of a target."""
    expectations = fields.get("expectations")
    for name, each in (expectations.value if expectations is not None else {}).items():
        given = each.plain() if isinstance(each.value, dict) else {"sql": each.value}
        if "sql" not in given:
            continue
        settings = {name: given["sql"]} | (
            {f"{name}.action": given["action"]} if "action" in given else {}
        )
        try:
            parse_expectations(settings, prefix)
        except ConfigError as error:
            mistakes.add(each.place, each.path, error.why)
    if "cycle-sql" in fields and "cycle-transform" in fields:
        found = fields["cycle-transform"]
        mistakes.add(
            found.place, found.path, "cannot be combined with `cycle-sql`", "remove one of them"
        )


def check_catalog(catalog: Found | None, mistakes: Mistakes) -> None:
    """What does not go together in a catalog."""
    given = catalog.value if catalog is not None else {}
    if "type" in given and "catalog-impl" in given:
        found = given["catalog-impl"]
        mistakes.add(
            found.place, found.path, "cannot be combined with `type`", "remove one of them"
        )


def check_between(targets: Iterable[Target], mistakes: Mistakes) -> None:
    """Two connectors of one name, and two that write one table."""
    connectors: dict[str, str] = {}
    tables: dict[str, str] = {}
    for target in targets:
        first = connectors.setdefault(target.connector, target.name)
        if first != target.name:
            found = target.found("connector")
            place, path = (
                (found.place, found.path) if found is not None else (target.place, target.path)
            )
            mistakes.add(place, path, f"the connector {target.connector} is that of target {first}")
        for name in target.fixed_tables:
            first = tables.setdefault(name, target.name)
            if first != target.name:
                found = target.table_settings[name]
                mistakes.add(
                    found.place,
                    found.path,
                    f"target {first} writes this table, too",
                    "name it in one target",
                )


def check_properties(compiled: CompiledConnector, mistakes: Mistakes) -> None:
    """Keys of `properties` that a field has, and keys that nothing reads."""
    target = compiled.target
    given = target.entries("properties")
    for key, found in given.items():
        setter = _RESERVED.get(key) or next(
            (name for prefix, name in _PREFIXES.items() if key.startswith(prefix)), ""
        )
        source = compiled.sources.get(key)
        if not setter and source is not None and source is not found:
            setter = f"`{source.path.removeprefix(f'{target.path}.').removeprefix('defaults.')}`"
        if setter:
            mistakes.add(found.place, found.path, f"is set by {setter}", "remove it here")
    own = {key: each.value for key, each in given.items() if key in compiled.sources}
    for warning in unknown_keys(own, CONFIG_DEF.keys, ()):
        key, _, problem = warning.partition(" ")
        problem, _, hint = problem.partition("; ")
        mistakes.add(given[key].place, given[key].path, problem, hint)
    for key in given.keys() & NEVER_VALID.keys():
        mistakes.add(given[key].place, given[key].path, NEVER_VALID[key])


def check_options(compiled: CompiledConnector, mistakes: Mistakes) -> None:
    """What the sink says of the configuration, at the fields that it comes from. Others are left to
    the worker."""
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
            mistakes.add(source.place, source.path, why)
