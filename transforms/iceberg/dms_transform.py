"""Iceberg's `DmsTransform`: replaces AWS DMS change events with rows that have `_cdc`."""

from __future__ import annotations

from collections.abc import Mapping

from connect_py.api.record import R
from connect_py.api.schema import Value
from connect_py.api.transformation import Transformation
from connect_py.java.errors import NullPointerError, UnsupportedOperationError
from transforms.iceberg.cdc import CDC, INSERT
from transforms.requirements import require_map

PURPOSE = "DMS transform"

_OPERATIONS = {"update": "U", "delete": "D"}  # any other operation is an insert


class DmsTransform(Transformation[R]):
    """Replaces each event with its `data` and adds the struct `_cdc`.

    Records whose value is not a DMS event are dropped. Records with a null value are passed
    through unchanged.
    """

    def configure(self, configs: Mapping[str, str]) -> None:
        """Do nothing: the transformation has no options."""

    def apply(self, record: R) -> R | None:
        if record.value is None:
            return record
        if record.value_schema is not None:
            raise UnsupportedOperationError("DMS events with a schema are not supported")
        event = require_map(record.value, PURPOSE)
        data, metadata = event.get("data"), event.get("metadata")
        if not isinstance(data, dict) or not isinstance(metadata, dict):
            return None
        operation = metadata.get("operation")
        if operation is None:
            raise NullPointerError("the event has no operation")
        cdc = {
            "op": _OPERATIONS.get(str(operation), INSERT),
            "ts": metadata.get("timestamp"),
            "source": f"{_name(metadata.get('schema-name'))}.{_name(metadata.get('table-name'))}",
        }
        return record.replace(value={**data, CDC: cdc})


def _name(value: Value) -> str:
    return "null" if value is None else str(value)
