"""Schema changes that a table requires for the output of a user-defined query or function."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from connectors.iceberg.conversion.full_names import FullNames
from connectors.iceberg.table.schema_change import (
    ChangeAction,
    ChangeKind,
    EvolutionPolicy,
    SchemaChange,
)

_WIDER: Final = {("int", "long"), ("float", "double")}
_DECIMAL: Final = re.compile(r"decimal\((\d+),\s*(\d+)\)")


@dataclass(slots=True)
class OutputColumns:
    """Required schema changes, grouped by the action that the policy specifies for them."""

    apply: list[SchemaChange] = field(default_factory=list)
    ignore: list[SchemaChange] = field(default_factory=list)
    hold: list[SchemaChange] = field(default_factory=list)
    refuse: list[tuple[SchemaChange, str]] = field(default_factory=list)  # with the reasons


def judge(
    table: Sequence[Mapping[str, Any]],
    output: Sequence[Mapping[str, Any]],
    policy: EvolutionPolicy,
    *,
    begins: bool,
) -> OutputColumns:
    """Compare a table's top-level columns with those of output rows.

    Columns are fields of Iceberg's schema JSON. The comparison ignores the case of names.

    Args:
        table: The existing columns.
        output: The columns of the rows.
        policy: Action for each kind of change. Kinds without an action are not allowed.
        begins: True if the sink creates the table. The table then gets all columns regardless
            of the policy.
    """
    columns = {each["name"].lower(): each for each in table}
    names, result = FullNames(table), OutputColumns()
    for each in output:
        column = columns.get(each["name"].lower())
        if column is None:
            change = SchemaChange(ChangeKind.ADD, (each["name"],), json.dumps(each["type"]))
        elif _is_wider(column["type"], each["type"]):
            change = SchemaChange(ChangeKind.WIDEN, (column["name"],), json.dumps(each["type"]))
        else:
            continue
        action = policy.get(change.kind, ChangeAction.DEAD_LETTER)
        if begins:
            action = ChangeAction.APPLY
        match action:
            case ChangeAction.IGNORE:
                result.ignore.append(change)
            case ChangeAction.HOLD:
                result.hold.append(change)
            case ChangeAction.DEAD_LETTER:
                result.refuse.append((change, ""))
            case ChangeAction.APPLY:
                impossible = (
                    names.add(change.path, each["type"]) if change.kind is ChangeKind.ADD else None
                )
                if impossible is None:
                    result.apply.append(change)
                else:
                    result.refuse.append((change, f" because {impossible}"))
    return result


def _is_wider(column: Any, type_: Any) -> bool:
    if not isinstance(column, str) or not isinstance(type_, str):
        return False
    current, required = _DECIMAL.fullmatch(column), _DECIMAL.fullmatch(type_)
    if current is not None and required is not None:
        return current[2] == required[2] and int(required[1]) > int(current[1])
    return (column, type_) in _WIDER
