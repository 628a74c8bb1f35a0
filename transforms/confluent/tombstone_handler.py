"""Confluent's `TombstoneHandler`: drops tombstones or rejects them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from connect_py.api.batch import Batch
from connect_py.api.config import ConfigDef, Importance, Type, one_of
from connect_py.api.errors import DataError
from connect_py.api.record import R
from connect_py.api.transformation import Transformation
from connect_py.plurals import pluralize

log = logging.getLogger(__name__)


class TombstoneHandler(Transformation[R]):
    """Drops records with a null value, or raises an error for them.

    `apply` and `apply_batch` are both implemented directly, because `FieldTransformation` cannot
    drop records.
    """

    config_def = ConfigDef().define(
        "behavior",
        Type.STRING,
        default="warn",
        importance=Importance.MEDIUM,
        validator=one_of("warn", "ignore", "fail", case_insensitive=True),
        doc="Handling of tombstones: warn drops and logs them, ignore drops them, and fail raises "
        "an error.",
    )

    def configure(self, configs: Mapping[str, str]) -> None:
        self._behavior: str = self.config_def.parse(configs)["behavior"].lower()

    def apply(self, record: R) -> R | None:
        if record.value is not None:
            return record
        if self._behavior == "fail":
            raise DataError(
                "Tombstone record encountered, failing due to configured 'fail' behavior."
            )
        if self._behavior == "warn":
            log.warning(
                "topic %s, partition %s: dropping 1 tombstone", record.topic, record.partition
            )
        return None

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        import pyarrow.compute as pc

        from transforms.columns import without

        null = batch.value.is_null()
        if null is None:
            return [batch]
        if self._behavior == "fail":
            raise without(batch, self.apply, null, self.apply_batch)
        if self._behavior == "warn":
            tombstones = pluralize(null.true_count, "tombstone")
            log.warning("topic %s: dropping %s", batch.topic, tombstones)
        return [] if null.true_count == len(batch) else [batch.where(pc.invert(null))]
