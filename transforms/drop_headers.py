"""`DropHeaders`: removes headers by name."""

from __future__ import annotations

from collections.abc import Mapping

from connect_py.api.config import ConfigDef, Importance, Type
from connect_py.api.record import Headers, R
from transforms.header_transformation import HeaderTransformation
from transforms.validators import non_empty_list


class DropHeaders(HeaderTransformation[R]):
    """Removes all headers with the configured names."""

    config_def = ConfigDef().define(
        "headers",
        Type.LIST,
        validator=non_empty_list,
        importance=Importance.HIGH,
        doc="Names of the headers to remove.",
    )

    def configure(self, configs: Mapping[str, str]) -> None:
        self._names = frozenset(self.config_def.parse(configs)["headers"])

    def new_headers(self, headers: Headers) -> Headers:
        if not any(h.key in self._names for h in headers):
            return headers
        return Headers(h for h in headers if h.key not in self._names)
