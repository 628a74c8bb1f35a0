"""Makes a change of a table that rows wait for, as a user approved it; named in the words of the
metric."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from connect_py.api.errors import ConfigError
from connectors.iceberg.conversion.full_names import Field, columns_inside
from connectors.iceberg.operation_request import OperationRequest
from connectors.iceberg.table.schema_change import ChangeKind, SchemaChange
from connectors.iceberg_tools.history.table_diff import read_metadata
from connectors.iceberg_tools.operations.argument_names import takes

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


@takes("table", "change")
def change_table(request: OperationRequest) -> Any:
    """Change the table; the rows that wait go on by themselves."""
    name, words = request.text("table"), request.text("change")
    with request.lake() as lake:
        change = parse_change(words, lake.run(name, read_metadata).schema)
        return {"table": name, "change": str(change), "changed": lake.evolve(name, [change])}


def parse_change(words: str, schema: Field) -> SchemaChange:
    """Read `str(change)` again, with the help of the table's schema.

    Raises:
        ConfigError: It is no such text, or not all of the change stands in it.
    """
    for kind, form in _FORMS:
        found = form.fullmatch(words)
        if found is None:
            continue
        parts = found.groupdict()
        path = _path(parts["path"], schema, new=kind is ChangeKind.ADD)
        type_ = parts.get("type")
        change = SchemaChange(
            kind, path, None if type_ is None else json.dumps(type_), None, parts.get("name")
        )
        if type_ == "struct, list or map":
            raise ConfigError(
                "change",
                "does not say the whole type: change the table by SQL, or have the connector apply "
                "changes",
            )
        if str(change) == words:
            return change
    raise ConfigError("change", "is no change as connect_py_iceberg_held_changes names it")


def _path(text: str, schema: Field, *, new: bool) -> tuple[str, ...]:
    """The column that a name with dots means; Iceberg has no two columns with the same one."""
    known = {".".join(path): path for path, _ in columns_inside(schema)}
    if not new:
        if text not in known:
            raise ConfigError("change", f"is of column {text}, which the table does not have")
        return known[text]
    parents = [name for name in known if text.startswith(f"{name}.")]
    parent = max(parents, key=len, default=None)
    return (text,) if parent is None else (*known[parent], text[len(parent) + 1 :])
