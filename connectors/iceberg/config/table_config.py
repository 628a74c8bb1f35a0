"""`TableConfig`: the settings of one table, and the parsers for their values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from connect_py.api.config import with_prefix
from connect_py.api.errors import ConfigError
from connect_py.java.regex import JavaRegexError, compile_java_regex
from connectors.iceberg.config.cycle_aggregate import CycleAggregate
from connectors.iceberg.config.cycle_step import (
    CycleStep,
    cycle_step,
    parse_cycle_sql,
    parse_cycle_transform,
)
from connectors.iceberg.config.expectations import (
    EXPECT,
    Expectation,
    ExpectationRules,
    parse_expectations,
)
from connectors.iceberg.config.keys import CYCLE_SQL, TABLE_PREFIX
from connectors.iceberg.config.layout_terms import (
    PartitionTerm,
    SortTerm,
    list_items,
    parse_partition_by,
    parse_sort_by,
)
from connectors.iceberg.config.maintenance_policy import SETTINGS, MaintenancePolicy
from connectors.iceberg.config.tag_schedule import TagRule, parse_tags

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TableConfig:
    """Settings for one table, including defaults."""

    name: str
    id_columns: tuple[str, ...] = ()
    partition_by: tuple[PartitionTerm, ...] = ()
    commit_branch: str | None = None  # main if None
    route_regex: re.Pattern[str] | None = None
    # former column name by current field name
    renamed: Mapping[str, str] = field(default_factory=dict)
    tags: tuple[TagRule, ...] = ()
    maintenance: MaintenancePolicy = field(default_factory=MaintenancePolicy)
    sort_by: tuple[SortTerm, ...] = ()
    rules: ExpectationRules = field(default_factory=ExpectationRules)  # connector expectations
    expectations: tuple[Expectation, ...] = ()
    step: CycleStep | None = None
    # aggregates that are updated by commits to this table; the connector's default config contains
    # all of its aggregates
    aggregates: tuple[CycleAggregate, ...] = ()


def table_config(
    table_props: Mapping[str, str], name: str, default: TableConfig, warnings: list[str]
) -> TableConfig:
    """Return the settings for a table.

    A key with the full table name takes precedence over a key with only the last part of the name.

    Args:
        table_props: Properties by key, without the prefix `iceberg.table.`.
        name: Full name of the table.
        default: Settings that apply if the table has no key for them.
        warnings: List that receives a warning for each key with only the last part of the name.

    Raises:
        ConfigError: A setting is not valid.
    """
    short = name.rpartition(".")[2]

    def read(setting: str, parse: Callable[[str], T], default: T) -> T:
        key, text = f"{TABLE_PREFIX}{name}.{setting}", table_props.get(f"{name}.{setting}")
        if text is None and short != name:
            text = table_props.get(f"{short}.{setting}")
            if text is not None:
                warnings.append(
                    f"{TABLE_PREFIX}{short}.{setting} contains only the last part of the table "
                    f"name; use {key}"
                )
        return default if text is None else checked(key, parse, text)

    maintenance = {
        setting.member: read(
            f"maintenance.{setting.name}",
            setting.parse,
            getattr(default.maintenance, setting.member),
        )
        for setting in SETTINGS
    }
    return TableConfig(
        name,
        read("id-columns", list_items, default.id_columns),
        read("partition-by", partition_terms, default.partition_by),
        read("commit-branch", optional_text, default.commit_branch),
        read("route-regex", compile_java_pattern, None),
        read("renamed", _renamed, {}),
        read("tags", parse_tags, default.tags),
        MaintenancePolicy(**maintenance),
        read("sort-by", parse_sort_by, default.sort_by),
        default.rules,
        default.rules.of_table(name, _table_expectations(table_props, name)),
        _step(
            read("cycle-sql", parse_cycle_sql, None),
            read("cycle-transform", parse_cycle_transform, None),
            default,
        ),
        tuple(each for each in default.aggregates if each.source == name),
    )


def _step(sql: str | None, function: str | None, default: TableConfig) -> CycleStep | None:
    """Return the table's step, or the connector's step if the table has no key for a step.

    A key with an empty value disables the connector's step.
    """
    if sql is None and function is None:
        return default.step
    return checked_step(sql or "", function or "")


def checked_step(sql: str, function: str) -> CycleStep | None:
    """Return the step with the query or the function, or None if both strings are empty.

    Raises:
        ConfigError: Both strings are nonempty.
    """
    return checked(CYCLE_SQL, lambda text: cycle_step(text, function), sql)


def _table_expectations(table_props: Mapping[str, str], name: str) -> tuple[Expectation, ...]:
    """Return the expectations for a table.

    Keys with only the last part of the table name apply if no key contains the full name.
    """
    for prefix in dict.fromkeys((name, name.rpartition(".")[2])):
        if settings := with_prefix(table_props, f"{prefix}.{EXPECT}."):
            return parse_expectations(settings, f"{TABLE_PREFIX}{prefix}.{EXPECT}.")
    return ()


def _renamed(text: str) -> Mapping[str, str]:
    pairs = [item.partition(":") for item in text.split(",") if item.strip()]
    if not all(new.strip() and old.strip() for new, _, old in pairs):
        raise ValueError("expected a comma-separated list of pairs new:old")
    return {new.strip(): old.strip() for new, _, old in pairs}


def partition_terms(text: str) -> tuple[PartitionTerm, ...]:
    """Parse a `partition-by` list."""
    return parse_partition_by(list_items(text))


def checked(key: str, read: Callable[[str], T], text: str) -> T:
    """Parse the value of a key.

    Raises:
        ConfigError: The value is not valid. The error message contains the key.
    """
    try:
        return read(text)
    except ValueError as error:
        raise ConfigError(key, str(error)) from error


def optional_text(text: str | None) -> str | None:
    """Return a string without surrounding whitespace, or None if it is blank."""
    return (text or "").strip() or None


def compile_java_pattern(text: str) -> re.Pattern[str]:
    """Compile a Java regular expression.

    Raises:
        ValueError: The expression is not valid or has no equivalent in Python.
    """
    try:
        return compile_java_regex(text)
    except JavaRegexError as error:
        raise ValueError(f"Invalid regex: {error}") from error
