"""`HasHeaderKey`: matches records that have a specific header."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from connect_py.api.batch import Batch
from connect_py.api.config import ConfigDef, Importance, Type, non_empty
from connect_py.api.predicate import Predicate
from connect_py.api.record import R

if TYPE_CHECKING:
    import pyarrow as pa


class HasHeaderKey(Predicate[R]):
    """Matches records that have at least one header with the configured name."""

    config_def = ConfigDef().define(
        "name",
        Type.STRING,
        validator=non_empty,
        importance=Importance.MEDIUM,
        doc="Name of the header.",
    )

    def configure(self, configs: Mapping[str, str]) -> None:
        self._name: str = self.config_def.parse(configs)["name"]

    def test(self, record: R) -> bool:
        return any(header.key == self._name for header in record.headers)

    def test_batch(self, batch: Batch) -> pa.BooleanArray | bool:
        if batch.headers is None:
            return False
        import pyarrow as pa

        return pa.array(
            [any(h.key == self._name for h in headers) for headers in batch.headers], pa.bool_()
        )
