"""`Filter`: drops records; its predicate says which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from connect_py.api.batch import Batch
from connect_py.api.record import R
from connect_py.api.transformation import Transformation


class Filter(Transformation[R]):
    """Drops every record that it sees: meant to be used with a predicate."""

    def configure(self, configs: Mapping[str, str]) -> None:
        pass

    def apply(self, record: R) -> R | None:
        return None

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        return []
