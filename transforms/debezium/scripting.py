"""Debezium's `Filter` and `ContentBasedRouter`, with Python-like expressions instead of scripts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

from connect_py.api.config import ConfigDef, ConfigValueError, Importance, Parsed, Type, one_of
from connect_py.api.errors import DataError
from connect_py.api.record import R
from connect_py.api.transformation import Transformation
from connect_py.java.patterns import JavaPattern
from transforms.expression import Expression, ExpressionError
from transforms.validators import java_regex

LANGUAGE = "connect_py.expression"


def _language(name: str, value: Parsed) -> None:
    if value != LANGUAGE:
        raise ConfigValueError(
            name,
            value,
            f"unsupported script language; write the condition for {LANGUAGE}, "
            "for example: value.op == 'u' and value.after.id > 2",
        )


def _expression(name: str, value: Parsed) -> None:
    try:
        Expression(value or "")
    except ExpressionError as error:
        raise ConfigValueError(name, value, str(error)) from error


def _optional_regex(name: str, value: Parsed) -> None:
    if value:
        java_regex(name, value)


def _config_def(expression: str, doc: str) -> ConfigDef:
    return (
        ConfigDef()
        .define(
            "language",
            Type.STRING,
            validator=_language,
            importance=Importance.HIGH,
            doc=f"Language of the expression: {LANGUAGE}.",
        )
        .define(expression, Type.STRING, validator=_expression, importance=Importance.HIGH, doc=doc)
        .define(
            "topic.regex",
            Type.STRING,
            default=None,
            validator=_optional_regex,
            importance=Importance.LOW,
            doc="Regular expression, in Java's syntax, that the topic must match. Records from "
            "other topics are passed through unchanged.",
        )
        .define(
            "null.handling.mode",
            Type.STRING,
            default="keep",
            importance=Importance.MEDIUM,
            validator=one_of("keep", "drop", "evaluate", case_insensitive=True),
            doc="Handling of tombstones: keep passes them through, drop drops them, and evaluate "
            "evaluates the expression.",
        )
    )


class _Scripting(Transformation[R]):
    expression_key: str

    def configure(self, configs: Mapping[str, str]) -> None:
        props = self.config_def.parse(configs)
        self._expression = Expression(props[self.expression_key])
        self._pattern = JavaPattern(props["topic.regex"]) if props["topic.regex"] else None
        self._nulls: str = props["null.handling.mode"].lower()

    def apply(self, record: R) -> R | None:
        if self._pattern is not None and not self._pattern.matches(record.topic):
            return record
        if record.value is None and self._nulls != "evaluate":
            return record if self._nulls == "keep" else None
        return self.result(record, self._expression(record))

    @abstractmethod
    def result(self, record: R, value: object) -> R | None:
        """Return the resulting record, given the value of the expression for `record`."""


class Filter(_Scripting[R]):
    """Drops the records for which the condition is false."""

    expression_key = "condition"
    config_def = _config_def(
        expression_key, "Condition; records for which it is false are dropped."
    )

    def result(self, record: R, value: object) -> R | None:
        if not isinstance(value, bool):
            raise DataError(f"the condition is neither true nor false: {value!r}")
        return record if value else None


class ContentBasedRouter(_Scripting[R]):
    """Routes records to the topic that the expression returns. None leaves the topic unchanged."""

    expression_key = "topic.expression"
    config_def = _config_def(
        expression_key, "Expression for the new topic. None leaves the topic unchanged."
    )

    def result(self, record: R, value: object) -> R | None:
        if value is None:
            return record
        if not isinstance(value, str):
            raise DataError(f"the result of the expression is not a topic: {value!r}")
        return record.replace(topic=value)
