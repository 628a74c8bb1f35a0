"""`IcebergSinkConfig`: the configuration for the Iceberg sink.

`validate` implements the validate endpoint of the REST API. `IcebergSinkConfig.parse` creates the
immutable object that the tasks and the coordinator use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from connect_py.api.config import ConfigValue
from connect_py.api.errors import ConfigError
from connectors.iceberg.config.keys import (
    CATALOG_NAME,
    CATALOG_PREFIX,
    DYNAMIC,
    ROUTE_FIELD,
    TABLES,
)
from connectors.iceberg.config.option_parser import OptionParser
from connectors.iceberg.config.sink_options import CONFIG_DEF, SinkOptions
from connectors.iceberg.config.spellings import with_current_spellings

# The errors for these keys are the Java sink's messages, which do not start with the key.
_WHOLE_MESSAGES = frozenset({CATALOG_PREFIX, TABLES, ROUTE_FIELD, DYNAMIC})


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergSinkConfig(SinkOptions):
    """Parsed configuration of the sink. Its `repr` contains no secrets."""

    @staticmethod
    def parse(props: Mapping[str, str]) -> IcebergSinkConfig:
        """Parse the properties of a connector or task.

        Raises:
            ConfigError: A value, or a combination of values, is not valid.
        """
        attributes, problems = OptionParser(props).parse()
        if attributes is None:
            key, reason = problems[0]
            raise ConfigError("" if key in _WHOLE_MESSAGES else key, reason)
        return IcebergSinkConfig(**attributes)


def validate(props: Mapping[str, str | None]) -> dict[str, ConfigValue]:
    """Return all keys with the errors in their values and in combinations of values.

    Keys that are not declared, such as keys for a table, are included without a value if they
    have an error.
    """
    complete = {key: value for key, value in props.items() if value is not None}
    current, _ = with_current_spellings(complete)
    values = CONFIG_DEF.validate({**props, **current})
    if any(value.errors for value in values.values()):
        return values
    _, problems = OptionParser(complete).parse()
    for key, reason in problems:
        name = CATALOG_NAME if key == CATALOG_PREFIX else key
        values.setdefault(name, ConfigValue(name)).errors.append(reason)
    return values
