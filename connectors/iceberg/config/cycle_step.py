"""`CycleStep`: a user-defined query or function that transforms the rows of a commit.

The connector keys are `iceberg.ext.cycle-sql` and `iceberg.ext.cycle-transform`. The table keys are
`iceberg.table.<table>.cycle-sql` and `iceberg.table.<table>.cycle-transform`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from connectors.iceberg.config.expectations import FORBIDDEN_SQL, QUERY
from connectors.iceberg.config.keys import CYCLE_SQL, CYCLE_TRANSFORM, OWN_PREFIX, TABLE_PREFIX

STAGED: Final = "staged"  # name of the view that contains the rows of the commit
_READS_STAGED: Final = re.compile(rf"(?i)\b{STAGED}\b")
_FUNCTION: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_SETTINGS: Final = tuple(
    key.removeprefix(f"{OWN_PREFIX}ext.") for key in (CYCLE_SQL, CYCLE_TRANSFORM)
)


@dataclass(frozen=True, slots=True)
class CycleStep:
    """Transforms the rows of a commit with either a SQL query or a Python function."""

    sql: str = ""  # query that reads the `STAGED` view
    # `module:function`, which is called with a DataFrame and a description of the commit
    function: str = ""

    @property
    def key(self) -> str:
        """Config key of the step, for error messages."""
        return CYCLE_SQL if self.sql else CYCLE_TRANSFORM


def parse_cycle_sql(text: str) -> str:
    """Validate a `cycle-sql` query and return it without surrounding whitespace.

    An empty string is valid.

    Raises:
        ValueError: The string is not a query, does not read `STAGED`, or contains forbidden SQL.
    """
    return parse_query(text, _READS_STAGED, f"must read {STAGED}, the rows of the commit")


def parse_query(query: str, reads: re.Pattern[str], reason: str) -> str:
    """Validate a query and return it without surrounding whitespace.

    An empty string is valid.

    Args:
        query: SQL query to validate.
        reads: Pattern that matches a reference to the rows of the commit. The query must contain a
            match.
        reason: Error message for a query without a match.

    Raises:
        ValueError: The string is not a query, does not read the rows of the commit, or contains
            forbidden SQL.
    """
    if query.strip() and QUERY.match(query) is None:
        raise ValueError(f"expected a query, such as SELECT * FROM {STAGED} WHERE amount > 0")
    if query.strip() and reads.search(query) is None:
        raise ValueError(reason)
    if (match := FORBIDDEN_SQL.search(query)) is not None:
        raise ValueError(f"must not contain {match[0]}")
    return query.strip()


def parse_cycle_transform(function: str) -> str:
    """Validate a function name and return it without surrounding whitespace.

    An empty string is valid.

    Raises:
        ValueError: The string does not have the form `module:function`.
    """
    if function.strip() and _FUNCTION.fullmatch(function.strip()) is None:
        raise ValueError(f"invalid function {function!r}: expected module:function")
    return function.strip()


def cycle_step(sql: str, function: str) -> CycleStep | None:
    """Return the step, or None if both strings are empty.

    Raises:
        ValueError: Both strings are nonempty.
    """
    if sql and function:
        raise ValueError(f"cannot be combined with {CYCLE_TRANSFORM}")
    return CycleStep(sql, function) if sql or function else None


def cycle_step_keys(props: Mapping[str, str]) -> Iterator[str]:
    """Iterate over the keys whose values are queries or function names."""
    suffixes = tuple(f".{setting}" for setting in _SETTINGS)
    for key, value in props.items():
        is_table_setting = key.startswith(TABLE_PREFIX) and key.endswith(suffixes)
        if value.strip() and (is_table_setting or key in (CYCLE_SQL, CYCLE_TRANSFORM)):
            yield key
