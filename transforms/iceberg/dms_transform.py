"""Iceberg's `DmsTransform`: change events of AWS Database Migration Service as rows with `_cdc`."""

from __future__ import annotations

from collections.abc import Mapping

from connect_py.api.errors import DataError
from connect_py.api.record import R
from connect_py.api.transformation import Transformation
from transforms.iceberg.cdc import CDC, INSERT

_OPERATIONS = {"update": "U", "delete": "D"}  # anything else is an insert


class DmsTransform(Transformation[R]):
    """Lifts `data` to the top. Values that are not such events are dropped; null values pass."""

    def configure(self, configs: Mapping[str, str]) -> None:
        """Nothing to configure."""

    def apply(self, record: R) -> R | None:
        if record.value is None:
            return record
        if record.value_schema is not None:
            raise DataError("Schema not supported for DMS records")
        if not isinstance(record.value, dict):
            raise DataError("DMS records must be maps")
        data, metadata = record.value.get("data"), record.value.get("metadata")
        if not isinstance(data, dict) or not isinstance(metadata, dict):
            return None
        cdc = {
            "op": _OPERATIONS.get(str(metadata.get("operation")), INSERT),
            "ts": metadata.get("timestamp"),
            "source": f"{metadata.get('schema-name')}.{metadata.get('table-name')}",
        }
        return record.replace(value={**data, CDC: cdc})
