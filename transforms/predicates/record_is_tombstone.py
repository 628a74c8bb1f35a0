"""`RecordIsTombstone`: matches records whose value is null."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from connect_py.api.batch import Batch
from connect_py.api.predicate import Predicate
from connect_py.api.record import R

if TYPE_CHECKING:
    import pyarrow as pa


class RecordIsTombstone(Predicate[R]):
    """Matches records with a null value, with or without a schema."""

    def configure(self, configs: Mapping[str, str]) -> None:
        pass

    def test(self, record: R) -> bool:
        return record.value is None

    def test_batch(self, batch: Batch) -> pa.BooleanArray | bool:
        null = batch.value.is_null()
        return null is not None and (null if null.true_count < len(null) else True)
