"""`iceberg.ext.expect.<name>`: what rows of a table are expected to be, and what happens when they
are not.

The same settings stand below `iceberg.ext.expect.` for the tables of a connector and below
`iceberg.table.<table>.expect.` for one table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from connect_py.api.errors import ConfigError
from connectors.iceberg.config.keys import EXPECT_PREFIX, TABLE_PREFIX

EXPECT: Final = "expect"  # below a table's prefix
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_QUERY: Final = re.compile(r"\s*(select|with)\b", re.IGNORECASE)
# What reaches code of the JVM by a name in a text, and files by their path.
_CALLS_JAVA: Final = r"\b(reflect|java_method|try_reflect)\b"
JAVA_FUNCTIONS: Final = re.compile(f"(?i){_CALLS_JAVA}")
FORBIDDEN_SQL: Final = re.compile(rf"(?i){_CALLS_JAVA}|`[^`]*[/:][^`]*`")


class ExpectationAction(Enum):
    """What happens to rows that are not as expected, or to the commit that has them."""

    DROP = "drop"  # the rows are left out
    DEAD_LETTER = "dead-letter"  # they are left out, and kept in the table of rejected rows
    HOLD = "hold"  # the commit and those after it are kept from readers until a user decides
    FAIL = "fail"  # nothing is committed, and the task fails
    ALERT = "alert"  # the commit is made; a log line and a metric say so

    @property
    def leaves_out(self) -> bool:
        """Whether rows do not reach the table."""
        return self in (ExpectationAction.DROP, ExpectationAction.DEAD_LETTER)


@dataclass(frozen=True, slots=True)
class Expectation:
    """One expectation of one table."""

    name: str
    sql: str  # a condition on a row, or a query with one row and one column; true: as expected
    action: ExpectationAction = ExpectationAction.HOLD

    @property
    def is_query(self) -> bool:
        """Whether it speaks of the whole commit, and not of each row."""
        return _QUERY.match(self.sql) is not None


@dataclass(frozen=True, slots=True)
class ExpectationRules:
    """The expectations of a connector, before it is known which table they are for."""

    expectations: tuple[Expectation, ...] = ()
    # by expectation; without one: every table
    tables: Mapping[str, re.Pattern[str]] = field(default_factory=dict)

    def of_table(self, table: str, own: tuple[Expectation, ...]) -> tuple[Expectation, ...]:
        """Those of a table; its own win over the connector's of the same name."""
        patterns = self.tables
        chosen = {
            e.name: e
            for e in self.expectations
            if e.name not in patterns or patterns[e.name].fullmatch(table)
        }
        return tuple({**chosen, **{each.name: each for each in own}}.values())


def expectation_rules(settings: Mapping[str, str]) -> ExpectationRules:
    """Parse the connector's settings; `settings`: those below `iceberg.ext.expect.`.

    Raises:
        ConfigError: One of them makes no sense.
    """
    patterns = {}
    for key, text in settings.items():
        name, _, setting = key.partition(".")
        if setting == "tables":
            try:
                patterns[name] = re.compile(text)
            except re.error as error:
                raise ConfigError(
                    EXPECT_PREFIX + key, f"is no regular expression: {error}"
                ) from error
    others = {key: text for key, text in settings.items() if not key.endswith(".tables")}
    found = parse_expectations(others, EXPECT_PREFIX)
    for name in patterns.keys() - {each.name for each in found}:
        raise ConfigError(f"{EXPECT_PREFIX}{name}.tables", f"there is no {EXPECT_PREFIX}{name}")
    return ExpectationRules(found, patterns)


def parse_expectations(settings: Mapping[str, str], prefix: str) -> tuple[Expectation, ...]:
    """Parse `<name>` and `<name>.action`.

    Args:
        settings: By what follows the prefix.
        prefix: For messages.

    Raises:
        ConfigError: One of them makes no sense.
    """
    actions, found = {}, []
    for key, text in settings.items():
        name, _, setting = key.partition(".")
        if setting == "action":
            choices = [each.value for each in ExpectationAction]
            if text.strip() not in choices:
                raise ConfigError(prefix + key, f"{text} is none of {', '.join(choices)}")
            actions[name] = ExpectationAction(text.strip())
        elif setting:
            raise ConfigError(
                prefix + key, f"is not known; {prefix}{name} is followed by .action or .tables only"
            )
    for name, sql in settings.items():
        if "." in name:
            continue
        each = Expectation(name, sql.strip(), actions.pop(name, ExpectationAction.HOLD))
        if why := _why_refused(each):
            raise ConfigError(prefix + name, why)
        found.append(each)
    for name in actions:
        raise ConfigError(f"{prefix}{name}.action", f"there is no {prefix}{name}")
    return tuple(found)


def _why_refused(expectation: Expectation) -> str | None:
    if _NAME.fullmatch(expectation.name) is None:
        return "the name may have letters, digits, - and _"
    if not expectation.sql:
        return (
            "is empty; expected a condition such as `amount >= 0`, or `SELECT count(*) < 9 FROM "
            "deleted`"
        )
    if (found := FORBIDDEN_SQL.search(expectation.sql)) is not None:
        return f"must not contain {found[0]}"
    if expectation.is_query and expectation.action.leaves_out:
        return (
            f"is a query, which names no rows: {expectation.action.value} needs a condition on "
            f"a row"
        )
    return None


def expectation_keys(props: Mapping[str, str]) -> Iterator[str]:
    """The keys of a connector that hold SQL of its own."""
    for key in props:
        if key.startswith(EXPECT_PREFIX):
            name = key.removeprefix(EXPECT_PREFIX)
        elif key.startswith(TABLE_PREFIX):
            name = key.removeprefix(TABLE_PREFIX).partition(f".{EXPECT}.")[2]
        else:
            continue
        if name and "." not in name:
            yield key
