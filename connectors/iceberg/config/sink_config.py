"""`IcebergSinkConfig`: the configuration of the Iceberg sink, parsed once.

`validate` answers the validate endpoint, `IcebergSinkConfig.parse` makes the one frozen object that
everything after `start` reads.
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
from connectors.iceberg.config.spellings import respelled

# Java's texts stand alone
_WHOLE_MESSAGES = frozenset({CATALOG_PREFIX, TABLES, ROUTE_FIELD, DYNAMIC})


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergSinkConfig(SinkOptions):
    """The configuration, parsed once. Secrets do not show in its `repr`."""

    @staticmethod
    def parse(props: Mapping[str, str]) -> IcebergSinkConfig:
        """Parse a connector's or task's properties.

        Raises:
            ConfigError: A value or a combination is not acceptable.
        """
        members, problems = OptionParser(props).parse()
        if members is None:
            key, why = problems[0]
            raise ConfigError("" if key in _WHOLE_MESSAGES else key, why)
        return IcebergSinkConfig(**members)


def validate(props: Mapping[str, str | None]) -> dict[str, ConfigValue]:
    """What the validate endpoint shows: every key, with the problems of values and of combinations.

    Keys that are not defined (per table, below a prefix) are shown if they have a problem, without
    their value.
    """
    given = {key: value for key, value in props.items() if value is not None}
    known, _ = respelled(given)
    values = CONFIG_DEF.validate({**props, **known})
    if any(value.errors for value in values.values()):
        return values
    _, problems = OptionParser(given).parse()
    for key, why in problems:
        shown = CATALOG_NAME if key == CATALOG_PREFIX else key
        values.setdefault(shown, ConfigValue(shown)).errors.append(why)
    return values
