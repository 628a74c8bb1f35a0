"""Data quality checks: expectations about rows, and the handling of rows that violate them.

The keys are `iceberg.ext.expect.<name>` for the tables of a connector and
`iceberg.table.<table>.expect.<name>` for one table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from connect_py.api.errors import ConfigError
from connectors.iceberg.config.keys import EXPECT_PREFIX, TABLE_PREFIX

EXPECT: Final = "expect"  # first part of a table key after the table name
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
QUERY: Final = re.compile(r"\s*(select|with)\b", re.IGNORECASE)
_CALLS_JAVA: Final = r"\b(reflect|java_method|try_reflect)\b"
# SQL functions that call arbitrary Java methods
JAVA_FUNCTIONS: Final = re.compile(f"(?i){_CALLS_JAVA}")
# the same functions, and paths in backquotes, which can read arbitrary files
FORBIDDEN_SQL: Final = re.compile(rf"(?i){_CALLS_JAVA}|`[^`]*[/:][^`]*`")


class ExpectationAction(Enum):
    """Action for the rows that violate an expectation, or for their commit."""

    DROP = "drop"  # skip the rows
    DEAD_LETTER = "dead-letter"  # write the rows to a table of rejected rows instead
    HOLD = "hold"  # hide this commit and all later commits from readers until a user approves them
    FAIL = "fail"  # commit nothing, and fail the task
    ALERT = "alert"  # commit the rows; a log line and a metric report the violation

    @property
    def rejects_rows(self) -> bool:
        """True if the rows are not written to the table."""
        return self in (ExpectationAction.DROP, ExpectationAction.DEAD_LETTER)


@dataclass(frozen=True, slots=True)
class Expectation:
    """One expectation about the rows of one table."""

    name: str
    # condition on a row, or query that returns one value; true if the expectation is satisfied
    sql: str
    action: ExpectationAction = ExpectationAction.HOLD

    @property
    def is_query(self) -> bool:
        """True if the expectation applies to the whole commit instead of each row."""
        return QUERY.match(self.sql) is not None


@dataclass(frozen=True, slots=True)
class ExpectationRules:
    """A connector's expectations, and the tables to which they apply."""

    expectations: tuple[Expectation, ...] = ()
    # table name pattern by expectation name; an expectation without a pattern applies to all tables
    tables: Mapping[str, re.Pattern[str]] = field(default_factory=dict)

    def of_table(
        self, table: str, table_expectations: tuple[Expectation, ...]
    ) -> tuple[Expectation, ...]:
        """Return the expectations for a table.

        `table_expectations` take precedence over connector expectations with the same name.
        """
        patterns = self.tables
        expectations = {
            expectation.name: expectation
            for expectation in self.expectations
            if expectation.name not in patterns or patterns[expectation.name].fullmatch(table)
        }
        expectations |= {expectation.name: expectation for expectation in table_expectations}
        return tuple(expectations.values())


def expectation_rules(settings: Mapping[str, str]) -> ExpectationRules:
    """Parse a connector's expectations.

    Args:
        settings: Values by key, without the prefix `iceberg.ext.expect.`.

    Raises:
        ConfigError: A setting is not valid.
    """
    patterns = {}
    for key, text in settings.items():
        name, _, setting = key.partition(".")
        if setting == "tables":
            try:
                patterns[name] = re.compile(text)
            except re.error as error:
                raise ConfigError(
                    EXPECT_PREFIX + key, f"invalid regular expression: {error}"
                ) from error
    remaining_settings = {k: text for k, text in settings.items() if not k.endswith(".tables")}
    expectations = parse_expectations(remaining_settings, EXPECT_PREFIX)
    for name in patterns.keys() - {expectation.name for expectation in expectations}:
        raise ConfigError(f"{EXPECT_PREFIX}{name}.tables", f"{EXPECT_PREFIX}{name} is not set")
    return ExpectationRules(expectations, patterns)


def parse_expectations(settings: Mapping[str, str], prefix: str) -> tuple[Expectation, ...]:
    """Parse the settings `<name>` and `<name>.action`.

    Args:
        settings: Values by key, without the prefix.
        prefix: Prefix of the keys, for error messages.

    Raises:
        ConfigError: A setting is not valid.
    """
    actions, expectations = {}, []
    for key, text in settings.items():
        name, _, setting = key.partition(".")
        if setting == "action":
            choices = [each.value for each in ExpectationAction]
            if text.strip() not in choices:
                raise ConfigError(
                    prefix + key,
                    f"invalid action {text.strip()!r}: expected one of {', '.join(choices)}",
                )
            actions[name] = ExpectationAction(text.strip())
        elif setting:
            raise ConfigError(
                prefix + key, f"unknown key: only .action and .tables may follow {prefix}{name}"
            )
    for name, sql in settings.items():
        if "." in name:
            continue
        expectation = Expectation(name, sql.strip(), actions.pop(name, ExpectationAction.HOLD))
        if reason := _refusal(expectation):
            raise ConfigError(prefix + name, reason)
        expectations.append(expectation)
    for name in actions:
        raise ConfigError(f"{prefix}{name}.action", f"{prefix}{name} is not set")
    return tuple(expectations)


def _refusal(expectation: Expectation) -> str | None:
    """Return the reason why an expectation is not valid, or None if it is valid."""
    if _NAME.fullmatch(expectation.name) is None:
        return "the name may contain only letters, digits, - and _"
    if not expectation.sql:
        return (
            "is empty; expected a condition such as `amount >= 0`, or `SELECT count(*) < 9 FROM "
            "deleted`"
        )
    if (match := FORBIDDEN_SQL.search(expectation.sql)) is not None:
        return f"must not contain {match[0]}"
    if expectation.is_query and expectation.action.rejects_rows:
        return f"is a query, but the action {expectation.action.value} requires a condition on rows"
    return None


def expectation_keys(props: Mapping[str, str]) -> Iterator[str]:
    """Iterate over the keys whose values are SQL expectations."""
    for key in props:
        if key.startswith(EXPECT_PREFIX):
            name = key.removeprefix(EXPECT_PREFIX)
        elif key.startswith(TABLE_PREFIX):
            name = key.removeprefix(TABLE_PREFIX).partition(f".{EXPECT}.")[2]
        else:
            continue
        if name and "." not in name:
            yield key
