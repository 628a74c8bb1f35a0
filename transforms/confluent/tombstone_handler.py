"""Confluent's `TombstoneHandler`: drops tombstones, or fails on them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from connect_py.api.batch import Batch
from connect_py.api.config import ConfigDef, Importance, Type, one_of
from connect_py.api.errors import DataError
from connect_py.api.record import R
from connect_py.api.transformation import Transformation

log = logging.getLogger(__name__)


class TombstoneHandler(Transformation[R]):
    """A tombstone is a record with a null value."""

    config_def = ConfigDef().define(
        "behavior",
        Type.STRING,
        default="warn",
        importance=Importance.MEDIUM,
        validator=one_of("warn", "ignore", "fail", case_insensitive=True),
        doc="warn: drop and log; ignore: drop; fail: an error.",
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
                "a tombstone of topic %s, partition %s is dropped", record.topic, record.partition
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
            log.warning("%d tombstones of topic %s are dropped", null.true_count, batch.topic)
        return [] if null.true_count == len(batch) else [batch.where(pc.invert(null))]
