"""`RegexRouter`: renames topics with a regular expression."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import lru_cache

from connect_py.api.batch import Batch
from connect_py.api.config import ConfigDef, Importance, Type
from connect_py.api.errors import BadRows, ConnectError
from connect_py.api.record import R
from connect_py.api.transformation import Transformation
from connect_py.java.patterns import JavaPattern, Replacement
from transforms.validators import java_regex


class RegexRouter(Transformation[R]):
    """Renames topics whose entire name matches the expression. Partitions are unchanged.

    As in Java, only the first match in such a name is replaced. `apply` and `apply_batch` are both
    implemented directly: they only apply the same function to the topic name.
    """

    config_def = (
        ConfigDef()
        .define(
            "regex",
            Type.STRING,
            validator=java_regex,
            importance=Importance.HIGH,
            doc="Regular expression, in Java's syntax, that the whole topic must match.",
        )
        .define(
            "replacement",
            Type.STRING,
            importance=Importance.HIGH,
            doc="Replacement for the match. $1 and ${name} insert groups. A backslash makes the "
            "next character literal.",
        )
    )

    def configure(self, configs: Mapping[str, str]) -> None:
        props = self.config_def.parse(configs)
        self._pattern = JavaPattern(props["regex"])
        self._replacement = Replacement(props["replacement"])
        self._topic = lru_cache(maxsize=1024)(self._routed)

    def _routed(self, topic: str) -> str:
        return (
            self._pattern.replace_first(topic, self._replacement)
            if self._pattern.matches(topic)
            else topic
        )

    def apply(self, record: R) -> R | None:
        return record.replace(topic=self._topic(record.topic))

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        try:
            topic = self._topic(batch.topic)
        except ConnectError as error:
            raise BadRows(dict.fromkeys(range(len(batch)), error)) from error
        return [batch if topic == batch.topic else dataclasses.replace(batch, topic=topic)]
