"""Operations of the Iceberg sink over REST, as far as they need no catalog: names, arguments,
approved changes."""

from __future__ import annotations

from typing import Any

import pytest

from connect_py.api.errors import ConfigError, NotFoundError
from connect_py.testing.services import FakeSharedServices
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.operation_request import OperationRequest, operate
from connectors.iceberg.table.schema_change import ChangeKind, SchemaChange
from connectors.iceberg_tools.operations.schema_approval import parse_change

SCHEMA = {
    "type": "struct",
    "fields": [
        {"id": 1, "name": "id", "type": "int", "required": True},
        {"id": 2, "name": "price.net", "type": "int", "required": False},
        {
            "id": 3,
            "name": "who",
            "required": False,
            "type": {
                "type": "struct",
                "fields": [{"id": 4, "name": "name", "type": "string", "required": True}],
            },
        },
    ],
}
PROPS = {"name": "s", "topics": "t", "iceberg.tables": "db.t", "iceberg.catalog.type": "rest"}


def request(**arguments: Any) -> OperationRequest:
    return OperationRequest(IcebergSinkConfig.parse(PROPS), PROPS, FakeSharedServices(), arguments)


@pytest.mark.parametrize(
    "change",
    [
        SchemaChange(ChangeKind.ADD, ("note",), '"string"'),
        SchemaChange(ChangeKind.ADD, ("who", "age"), '"decimal(9, 2)"'),
        SchemaChange(ChangeKind.ADD, ("new.one",), '"long"'),
        SchemaChange(ChangeKind.WIDEN, ("price.net",), '"long"'),
        SchemaChange(ChangeKind.OPTIONAL, ("who", "name")),
        SchemaChange(ChangeKind.RENAME, ("id",), name="key"),
        SchemaChange(ChangeKind.VERSION, ("id",), '"string"', name="id_v2"),
    ],
)
def test_change_is_read_from_the_words_of_the_metric(change: SchemaChange) -> None:
    assert parse_change(str(change), SCHEMA) == change


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("drop column id", "does not have the form"),
        ("widen column nothing to long", "which the table does not have"),
        ("add column x of type struct, list or map", "does not contain the complete type"),
        ("", "does not have the form"),
    ],
)
def test_other_words_than_those_of_a_change_are_refused(words: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        parse_change(words, SCHEMA)


@pytest.mark.parametrize(
    ("operation", "arguments", "why"),
    [
        ("table", {}, "table: must be a non-empty string"),
        ("table", {"table": "db.t", "limit": "0"}, "limit: must be a number from 1 to 1000"),
        (
            "table",
            {"table": "db.t", "color": "red"},
            "color: unknown argument; table accepts table, limit",
        ),
        ("reject", {"table": "db.t", "rows": "eat"}, "rows: must be one of"),
        ("replay", {"records": []}, "errors.deadletterqueue.iceberg.replay.topic: must be set"),
        ("try", {}, "only a worker has"),
        ("dead-letters", {}, "errors.deadletterqueue.iceberg.table: is not set"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(
    operation: str, arguments: dict[str, Any], why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        operate(request(**arguments), operation)


def test_unknown_operation_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        NotFoundError, match="no operation dance; available: at, audit, change-ref, change-table"
    ):
        operate(request(), "dance")
