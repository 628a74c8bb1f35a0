"""Transformations: one record in, one or none out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Generic

from connect_py.api.batch import Batch
from connect_py.api.config import ConfigDef
from connect_py.api.errors import NotColumnar
from connect_py.api.record import R


class Transformation(ABC, Generic[R]):
    """A step of a connector's chain. One instance per use in a task, on the task's thread alone.

    Any error that `apply` raises is a failure of that one record, subject to `errors.tolerance`.
    Records and batches are shared with other stages: derive new ones, never write into them. All
    records of a batch may go through one transformation before any goes through the next.
    """

    config_def: ClassVar[ConfigDef] = ConfigDef()

    @abstractmethod
    def configure(self, configs: Mapping[str, str]) -> None:
        """Take the transformation's own properties, prefix cut off. Called once, before anything
        else.

        Raises: ConfigError: A property is not acceptable; nothing is left for the first record to
            find out.
        """

    @abstractmethod
    def apply(self, record: R) -> R | None:
        """Return the record to go on with, or None to drop it (its offset still counts).

        This is the reference that `apply_batch` must equal, row for row.
        """

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        """The same for columns: none when all rows are dropped, several when rows part ways.

        The batch has at least one row, and so has each batch returned. Rows keep their origin
        (`Batch.where` filters it along) and their order. Offsets of rows in different batches may
        interleave; the worker does not sort.

        Raises: NotColumnar: This batch goes through `apply` as rows. BadRows: These rows fail as
            `apply` would fail; the worker calls again without them, unless what becomes of
                the others is attached.
        """
        raise NotColumnar(type(self).__name__)

    def close(self) -> None:
        """Let go of what is held. Called once, last."""
