"""`DropHeaders`: removes headers by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from connect_py.api.batch import Batch
from connect_py.api.config import ConfigDef, Importance, Type
from connect_py.api.record import Headers, R
from connect_py.api.transformation import Transformation
from transforms.validators import non_empty_list


class DropHeaders(Transformation[R]):
    """Removes every header that has one of these names."""

    config_def = ConfigDef().define(
        "headers",
        Type.LIST,
        validator=non_empty_list,
        importance=Importance.HIGH,
        doc="The names of the headers to remove.",
    )

    def configure(self, configs: Mapping[str, str]) -> None:
        self._names = frozenset(self.config_def.parse(configs)["headers"])

    def apply(self, record: R) -> R | None:
        return record.replace(headers=self._kept(record.headers))

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        if batch.headers is None:
            return [batch]
        return [batch.replace(headers=[self._kept(headers) for headers in batch.headers])]

    def _kept(self, headers: Headers) -> Headers:
        if not any(h.key in self._names for h in headers):
            return headers
        return Headers(h for h in headers if h.key not in self._names)
