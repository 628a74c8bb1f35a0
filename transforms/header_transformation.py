"""`HeaderTransformation`: base class for transformations that change only headers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from connect_py.api.batch import Batch
from connect_py.api.record import NO_HEADERS, Headers, R
from connect_py.api.transformation import Transformation


class HeaderTransformation(Transformation[R]):
    """Changes a record's headers. The new headers depend only on the existing headers.

    A subclass implements `new_headers`; `apply` and `apply_batch` are derived from it.
    """

    @abstractmethod
    def new_headers(self, headers: Headers) -> Headers:
        """Return the new headers for a record with these headers."""

    def apply(self, record: R) -> R | None:
        return record.replace(headers=self.new_headers(record.headers))

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        if batch.headers is not None:
            return [batch.replace(headers=list(map(self.new_headers, batch.headers)))]
        headers = self.new_headers(NO_HEADERS)
        return [batch.replace(headers=[headers] * len(batch))] if headers else [batch]
