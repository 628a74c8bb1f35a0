"""Predicates: conditions under which a transformation applies."""

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
    """A yes-or-no question about a record. One instance per use, on the task's thread alone."""

    config_def: ClassVar[ConfigDef] = ConfigDef()

    @abstractmethod
    def configure(self, configs: Mapping[str, str]) -> None:
        """Take the predicate's own properties, prefix cut off. ConfigError when one is not
        acceptable."""

    @abstractmethod
    def test(self, record: R) -> bool:
        """Say whether the transformation applies. The record is as earlier transformations left
        it."""

    def test_batch(self, batch: Batch) -> pa.BooleanArray | bool:
        """The same for columns: a mask without nulls, or one answer for all rows.

        Raises:
            NotColumnar: This batch goes through `test` and its transformation as rows.
        """
        raise NotColumnar(type(self).__name__)

    def close(self) -> None:
        """Let go of what is held. Called once, last."""
