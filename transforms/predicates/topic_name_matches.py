"""`TopicNameMatches`: matches records whose topic name matches a regular expression."""

from __future__ import annotations

from collections.abc import Mapping

from connect_py.api.batch import Batch
from connect_py.api.config import ConfigDef, Importance, Type, all_of, non_empty
from connect_py.api.predicate import Predicate
from connect_py.api.record import R
from connect_py.java.patterns import JavaPattern
from transforms.validators import java_regex


class TopicNameMatches(Predicate[R]):
    """Matches records whose entire topic name matches the pattern.

    Earlier transformations may have changed the name.
    """

    config_def = ConfigDef().define(
        "pattern",
        Type.STRING,
        validator=all_of(non_empty, java_regex),
        importance=Importance.MEDIUM,
        doc="Regular expression, in Java's syntax, that the whole topic must match.",
    )

    def configure(self, configs: Mapping[str, str]) -> None:
        self._pattern = JavaPattern(self.config_def.parse(configs)["pattern"])

    def test(self, record: R) -> bool:
        return record.topic is not None and self._pattern.matches(record.topic)

    def test_batch(self, batch: Batch) -> bool:
        return self._pattern.matches(batch.topic)
