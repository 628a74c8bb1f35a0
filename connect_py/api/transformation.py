"""Transformations, which change or drop one record at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Generic

from connect_py.api.batch import Batch
from connect_py.api.config import ConfigDef
from connect_py.api.errors import NotColumnar
from connect_py.api.record import R


class Transformation(ABC, Generic[R]):
    """A step of a connector's chain. Each use in a task has its own instance, on the task's thread.

    An error of `apply` is a failure of this record and subject to `errors.tolerance`. Records and
    batches are shared with other stages: create new ones, and never modify them. All records of a
    batch may pass one transformation before any of them passes the next one.
    """

    config_def: ClassVar[ConfigDef] = ConfigDef()

    @abstractmethod
    def configure(self, configs: Mapping[str, str]) -> None:
        """Receive the transformation's properties without their prefix. Called once, first.

        Raises:
            ConfigError: A property is invalid. All properties must be validated here, not for the
                first record.
        """

    @abstractmethod
    def apply(self, record: R) -> R | None:
        """Return the resulting record, or None to drop the record (its offset still counts).

        This is the reference for `apply_batch`: the results must be equal for each row.
        """

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        """Return the resulting batches: none if all rows are dropped, several if rows diverge.

        The batch and all resulting batches have at least one row. Rows retain their origin
        (`Batch.where` filters it) and their order. Offsets of rows in different batches may
        interleave; the worker does not sort them.

        Raises:
            NotColumnar: The rows of this batch are passed to `apply`.
            BadRows: These rows fail like in `apply`; the worker calls again without them, unless
                the results of the other rows are attached.
        """
        raise NotColumnar(type(self).__name__)

    def close(self) -> None:
        """Release all resources. Called once, last."""
