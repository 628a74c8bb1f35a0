"""`TableConfig`: what is configured for one table."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from connect_py.api.config import with_prefix
from connect_py.api.errors import ConfigError
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
from connectors.iceberg.config.java_pattern import compile_java_pattern
from connectors.iceberg.config.keys import CYCLE_SQL, TABLE_PREFIX
from connectors.iceberg.config.maintenance_policy import SETTINGS, MaintenancePolicy
from connectors.iceberg.config.partition_by import PartitionTerm, list_items, parse_partition_by
from connectors.iceberg.config.sort_by import SortTerm, parse_sort_by
from connectors.iceberg.config.tag_schedule import TagRule, parse_tags

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TableConfig:
    """What is configured for one table, defaults filled in."""

    name: str
    id_columns: tuple[str, ...] = ()
    partition_by: tuple[PartitionTerm, ...] = ()
    commit_branch: str | None = None  # None: main
    route_regex: re.Pattern[str] | None = None
    # field of the records -> the name it had
    renamed: Mapping[str, str] = field(default_factory=dict)
    tags: tuple[TagRule, ...] = ()
    maintenance: MaintenancePolicy = field(default_factory=MaintenancePolicy)
    sort_by: tuple[SortTerm, ...] = ()
    rules: ExpectationRules = field(default_factory=ExpectationRules)  # of the connector
    expectations: tuple[Expectation, ...] = ()
    step: CycleStep | None = None
    aggregates: tuple[
        CycleAggregate, ...
    ] = ()  # of the connector; of a table: those that follow it


def table_config(
    table_props: Mapping[str, str], name: str, default: TableConfig, warnings: list[str]
) -> TableConfig:
    """The settings of a table, by its full name or else the last part of it; what is missing is as
    in `default`."""
    short = name.rpartition(".")[2]

    def read(setting: str, parse: Callable[[str], T], default: T) -> T:
        key, found = f"{TABLE_PREFIX}{name}.{setting}", table_props.get(f"{name}.{setting}")
        if found is None and short != name:
            found = table_props.get(f"{short}.{setting}")
            if found is not None:
                warnings.append(
                    f"{TABLE_PREFIX}{short}.{setting} names the table by its last part only, use "
                    f"{key}"
                )
        return default if found is None else checked(key, parse, found)

    maintenance = {
        each.member: read(
            f"maintenance.{each.name}", each.parse, getattr(default.maintenance, each.member)
        )
        for each in SETTINGS
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
        default.rules.of_table(name, _own_expectations(table_props, name)),
        _step(
            read("cycle-sql", parse_cycle_sql, None),
            read("cycle-transform", parse_cycle_transform, None),
            default,
        ),
        tuple(each for each in default.aggregates if each.source == name),
    )


def _step(sql: str | None, function: str | None, default: TableConfig) -> CycleStep | None:
    """The table's own; the connector's where it says nothing, and none where it says the empty
    text."""
    if sql is None and function is None:
        return default.step
    return checked_step(sql or "", function or "")


def checked_step(sql: str, function: str) -> CycleStep | None:
    """The step of these settings. ConfigError: there are two."""
    return checked(CYCLE_SQL, lambda text: cycle_step(text, function), sql)


def _own_expectations(table_props: Mapping[str, str], name: str) -> tuple[Expectation, ...]:
    """Those that are set for this table, by its full name or else the last part of it."""
    for named in dict.fromkeys((name, name.rpartition(".")[2])):
        if settings := with_prefix(table_props, f"{named}.{EXPECT}."):
            return parse_expectations(settings, f"{TABLE_PREFIX}{named}.{EXPECT}.")
    return ()


def _renamed(text: str) -> Mapping[str, str]:
    """`new:old` pairs, comma separated. ValueError: not of that form."""
    pairs = [item.partition(":") for item in text.split(",") if item.strip()]
    if not all(new.strip() and old.strip() for new, _, old in pairs):
        raise ValueError("expected new:old, comma separated")
    return {new.strip(): old.strip() for new, _, old in pairs}


def partition_terms(text: str) -> tuple[PartitionTerm, ...]:
    """The terms of a partition spec."""
    return parse_partition_by(list_items(text))


def checked(key: str, read: Callable[[str], T], text: str) -> T:
    """What a text of a key is read as."""
    try:
        return read(text)
    except ValueError as error:
        raise ConfigError(key, str(error)) from error


def optional_text(text: str | None) -> str | None:
    """Without blanks around it; None: nothing is left."""
    return (text or "").strip() or None
