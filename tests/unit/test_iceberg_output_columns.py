"""Missing columns of a table for the rows of a user's step, by policy."""

from __future__ import annotations

import pytest

from connectors.iceberg.conversion.output_columns import judge
from connectors.iceberg.table.schema_change import ChangeAction, ChangeKind

TABLE = [
    {"id": 1, "name": "id", "required": True, "type": "int"},
    {"id": 2, "name": "amount", "required": False, "type": "decimal(9, 2)"},
    {"id": 3, "name": "ratio", "required": False, "type": "float"},
]


def column(name: str, type_: object) -> dict[str, object]:
    return {"id": 1, "name": name, "required": False, "type": type_}


@pytest.mark.parametrize("action", ChangeAction)
def test_new_columns_do_as_the_policy_says(action: ChangeAction) -> None:
    found = judge(
        TABLE,
        [column("ID", "int"), column("price", "double")],
        {ChangeKind.ADD: action},
        begins=False,
    )
    by_action = {
        ChangeAction.APPLY: found.apply,
        ChangeAction.IGNORE: found.ignore,
        ChangeAction.HOLD: found.hold,
        ChangeAction.DEAD_LETTER: [change for change, _ in found.refuse],
    }
    names = {each: [change.path for change in changes] for each, changes in by_action.items()}
    assert names == {each: [("price",)] if each is action else [] for each in ChangeAction}


def test_table_that_begins_gets_every_column() -> None:
    found = judge(
        TABLE, [column("price", "double")], {ChangeKind.ADD: ChangeAction.IGNORE}, begins=True
    )
    assert [(change.path, change.type) for change in found.apply] == [(("price",), '"double"')]


@pytest.mark.parametrize(
    ("name", "type_", "widens"),
    [
        ("id", "long", True),
        ("id", "string", False),
        ("amount", "decimal(12, 2)", True),
        ("amount", "decimal(12, 3)", False),
        ("amount", "decimal(8, 2)", False),
        ("ratio", "double", True),
        ("ratio", {"type": "struct", "fields": []}, False),
    ],
)
def test_wider_types_widen_the_column_of_a_table(name: str, type_: object, widens: bool) -> None:
    found = judge(
        TABLE, [column(name, type_)], {ChangeKind.WIDEN: ChangeAction.APPLY}, begins=False
    )
    assert [(change.kind, change.path) for change in found.apply] == [
        (ChangeKind.WIDEN, (name,))
    ] * widens
    assert not found.refuse


def test_column_that_iceberg_refuses_is_named() -> None:
    struct = {"type": "struct", "fields": [column("b", "int")]}
    output = [column("a.b", "int"), column("a", struct)]
    found = judge(TABLE, output, {ChangeKind.ADD: ChangeAction.APPLY}, begins=False)
    assert [(change.path, why) for change, why in found.refuse] == [
        (("a",), " because there would be two columns named a.b")
    ]
