"""`iceberg.ext.cycle-sql` and `iceberg.ext.cycle-transform`: a step of the user's own over the rows
of a commit.

The same settings stand below `iceberg.table.<table>.` for one table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from connectors.iceberg.config.expectations import FORBIDDEN_SQL
from connectors.iceberg.config.keys import CYCLE_SQL, CYCLE_TRANSFORM, OWN_PREFIX, TABLE_PREFIX

STAGED: Final = "staged"  # the view of the rows
_QUERY: Final = re.compile(r"\s*(select|with)\b", re.IGNORECASE)
_READS_STAGED: Final = re.compile(rf"(?i)\b{STAGED}\b")
_FUNCTION: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_SETTINGS: Final = tuple(
    key.removeprefix(f"{OWN_PREFIX}ext.") for key in (CYCLE_SQL, CYCLE_TRANSFORM)
)


@dataclass(frozen=True, slots=True)
class CycleStep:
    """One of them is set."""

    sql: str = ""  # a query over `STAGED`
    function: str = ""  # module:function, of a DataFrame and the facts of the commit

    @property
    def key(self) -> str:
        """The setting, for messages."""
        return CYCLE_SQL if self.sql else CYCLE_TRANSFORM


def parse_cycle_sql(text: str) -> str:
    """A query. ValueError: it is none, or may not be run."""
    return parse_query(
        text, _READS_STAGED, f"does not read {STAGED}, which are the rows of the commit"
    )


def parse_query(text: str, reads: re.Pattern[str], why: str) -> str:
    """A query that reads rows of the commit, or an empty text. `why`: the message where it does not
    read them.

    Raises:
        ValueError: It is no query, does not read them, or may not be run.
    """
    if text.strip() and _QUERY.match(text) is None:
        raise ValueError(f"expected a query, such as SELECT * FROM {STAGED} WHERE amount > 0")
    if text.strip() and reads.search(text) is None:
        raise ValueError(why)
    if (found := FORBIDDEN_SQL.search(text)) is not None:
        raise ValueError(f"must not contain {found[0]}")
    return text.strip()


def parse_cycle_transform(text: str) -> str:
    """The name of a function. ValueError: it is none."""
    if text.strip() and _FUNCTION.fullmatch(text.strip()) is None:
        raise ValueError(f"{text} is not module:function")
    return text.strip()


def cycle_step(sql: str, function: str) -> CycleStep | None:
    """The step of a table; None: there is none. ValueError: there are two."""
    if sql and function:
        raise ValueError(f"cannot be combined with {CYCLE_TRANSFORM}")
    return CycleStep(sql, function) if sql or function else None


def cycle_step_keys(props: Mapping[str, str]) -> Iterator[str]:
    """The keys of a connector that hold SQL of its own, or name code."""
    for key, value in props.items():
        of_table = key.startswith(TABLE_PREFIX) and key.endswith(
            tuple(f".{each}" for each in _SETTINGS)
        )
        if value.strip() and (of_table or key in (CYCLE_SQL, CYCLE_TRANSFORM)):
            yield key
