"""Confluent's `Filter`: includes or excludes the records that match a JSONPath."""

from __future__ import annotations

from collections.abc import Mapping

from connect_py.api.config import ConfigDef, Importance, Type, one_of
from connect_py.api.errors import DataError
from connect_py.api.record import R
from transforms.json_path import JsonPath
from transforms.side import SideTransformation, for_both

_FILTER = "?("


class Filter(SideTransformation[R]):
    """Includes or excludes records whose key or value matches the JSONPath."""

    config_def = (
        ConfigDef()
        .define(
            "filter.condition",
            Type.STRING,
            importance=Importance.HIGH,
            doc="JSONPath, such as $.a or $[?(@.a == 'x')].",
        )
        .define(
            "filter.type",
            Type.STRING,
            importance=Importance.HIGH,
            validator=one_of("include", "exclude", case_insensitive=True),
            doc="include drops records that do not match; exclude drops records that match.",
        )
        .define(
            "missing.or.null.behavior",
            Type.STRING,
            default="fail",
            importance=Importance.MEDIUM,
            validator=one_of("fail", "include", "exclude", case_insensitive=True),
            doc="Behavior if the field is missing or null, for a path without filters.",
        )
    )

    def configure(self, configs: Mapping[str, str]) -> None:
        props = self.config_def.parse(configs)
        self._condition: str = props["filter.condition"]
        self._path = JsonPath("filter.condition", self._condition)
        self._includes = props["filter.type"].lower() == "include"
        self._missing: str = props["missing.or.null.behavior"].lower()

    def apply(self, record: R) -> R | None:
        matches = self._path.find(self.side.of(record).value)
        if _FILTER not in self._condition and (not matches or matches == [None]):
            if self._missing == "fail":
                raise DataError(f"the {self.side.value.lower()} has no value at {self._condition}")
            return record if self._missing == "include" else None
        return record if bool(matches) == self._includes else None


FilterKey, FilterValue = for_both(Filter)
