"""`Filter`: drops the records that match its predicate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from connect_py.api.batch import Batch
from connect_py.api.record import R
from connect_py.api.transformation import Transformation


class Filter(Transformation[R]):
    """Drops every record that it receives. Use it with a predicate.

    `apply` and `apply_batch` are both implemented directly, because `FieldTransformation` cannot
    drop records.
    """

    def configure(self, configs: Mapping[str, str]) -> None:
        pass

    def apply(self, record: R) -> R | None:
        return None

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        return []
