"""Apply a schema change for which rows are waiting, after a user has approved the change.

The change is described as in the metric `connect_py_iceberg_held_changes`.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from connect_py.api.errors import ConfigError
from connectors.iceberg.conversion.full_names import Field, columns_inside
from connectors.iceberg.operation_request import OperationRequest
from connectors.iceberg.table.schema_change import ChangeKind, SchemaChange
from connectors.iceberg_tools.history.table_diff import read_metadata
from connectors.iceberg_tools.operations.argument_names import accepts

_FORMS: Final = (
    (
        ChangeKind.VERSION,
        re.compile(r"add column (?P<name>.+) of type (?P<type>\S.*) beside (?P<path>.+), which .*"),
    ),
    (ChangeKind.ADD, re.compile(r"add column (?P<path>.+) of type (?P<type>\S.*)")),
    (ChangeKind.WIDEN, re.compile(r"widen column (?P<path>.+) to (?P<type>\S.*)")),
    (ChangeKind.OPTIONAL, re.compile(r"make column (?P<path>.+) optional")),
    (ChangeKind.RENAME, re.compile(r"rename column (?P<path>.+) to (?P<name>.+)")),
)


@accepts("table", "change")
def change_table(request: OperationRequest) -> Any:
    """Change the table. The waiting rows are processed afterward."""
    name, words = request.text("table"), request.text("change")
    with request.lake() as lake:
        change = parse_change(words, lake.run(name, read_metadata).schema)
        return {"table": name, "change": str(change), "changed": lake.evolve(name, [change])}


def parse_change(words: str, schema: Field) -> SchemaChange:
    """Parse the result of `str(change)`. Column names are resolved with the table's schema.

    Raises:
        ConfigError: The string has a different form or does not describe the complete change.
    """
    for kind, form in _FORMS:
        match = form.fullmatch(words)
        if match is None:
            continue
        parts = match.groupdict()
        path = _path(parts["path"], schema, new=kind is ChangeKind.ADD)
        type_ = parts.get("type")
        change = SchemaChange(
            kind, path, None if type_ is None else json.dumps(type_), None, parts.get("name")
        )
        if type_ == "struct, list or map":
            raise ConfigError(
                "change",
                "does not contain the complete type; change the table with SQL, or let the "
                "connector apply changes",
            )
        if str(change) == words:
            return change
    raise ConfigError("change", "does not have the form that connect_py_iceberg_held_changes uses")


def _path(name: str, schema: Field, *, new: bool) -> tuple[str, ...]:
    """Return the path of a dotted column name. Such names are unique in Iceberg."""
    paths = {".".join(path): path for path, _ in columns_inside(schema)}
    if not new:
        if name not in paths:
            raise ConfigError("change", f"refers to column {name}, which the table does not have")
        return paths[name]
    parents = [parent_name for parent_name in paths if name.startswith(f"{parent_name}.")]
    parent = max(parents, key=len, default=None)
    return (name,) if parent is None else (*paths[parent], name[len(parent) + 1 :])
