"""Predicates, which determine whether a transformation applies to a record."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Generic

from connect_py.api.batch import Batch
from connect_py.api.config import ConfigDef
from connect_py.api.errors import NotColumnar
from connect_py.api.record import R

if TYPE_CHECKING:
    import pyarrow as pa


class Predicate(ABC, Generic[R]):
    """A condition on records. Each use has its own instance, called on the task's thread."""

    config_def: ClassVar[ConfigDef] = ConfigDef()

    @abstractmethod
    def configure(self, configs: Mapping[str, str]) -> None:
        """Configure the predicate. Called once, before all other methods.

        `configs` contains the predicate's properties, without their prefix.

        Raises:
            ConfigError: A property is invalid.
        """

    @abstractmethod
    def test(self, record: R) -> bool:
        """Return True if the transformation applies to this record."""

    def test_batch(self, batch: Batch) -> pa.BooleanArray | bool:
        """Return the results as a mask without nulls, or as a single result for all rows.

        Raises:
            NotColumnar: The predicate cannot process this batch as columns. The rows are passed to
                `test` and to the transformation one at a time.
        """
        raise NotColumnar(type(self).__name__)

    def close(self) -> None:
        """Release all resources. Called once, after all other methods."""
