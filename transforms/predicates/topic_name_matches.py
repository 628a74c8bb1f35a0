"""`TopicNameMatches`: true for records of topics that match a regular expression."""

from __future__ import annotations

from collections.abc import Mapping

from connect_py.api.batch import Batch
from connect_py.api.config import ConfigDef, ConfigValueError, Importance, Parsed, Type, all_of, non_empty
from connect_py.api.java_regex import JavaRegexError
from connect_py.api.predicate import Predicate
from connect_py.api.record import R
from transforms.java_regex import JavaPattern


def _java_regex(name: str, value: Parsed) -> None:
    if value is None:
        raise ConfigValueError(name, None, "Invalid regex: null")
    try:
        JavaPattern(value)
    except JavaRegexError as error:
        raise ConfigValueError(name, value, f"Invalid regex: {error}") from error


class TopicNameMatches(Predicate[R]):
    """Whether the whole topic, as earlier transformations left it, matches."""

    config_def = ConfigDef().define(
        "pattern", Type.STRING, validator=all_of(non_empty, _java_regex), importance=Importance.MEDIUM,
        doc="Regular expression, in Java's syntax, that the whole topic must match.",
    )  # fmt: skip

    def configure(self, configs: Mapping[str, str]) -> None:
        self._pattern = JavaPattern(self.config_def.parse(configs)["pattern"])

    def test(self, record: R) -> bool:
        return record.topic is not None and self._pattern.matches(record.topic)

    def test_batch(self, batch: Batch) -> bool:
        return self._pattern.matches(batch.topic)
