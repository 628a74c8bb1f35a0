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
    """A step of a connector's transformation chain.

    Each use in a task has its own instance, which is called on the task's thread. An error raised
    by `apply` fails the record and is subject to `errors.tolerance`. Records and batches are shared
    with other stages. Never modify them; create new objects instead. The worker may pass all
    records of a batch to one transformation before it passes any of them to the next.
    """

    config_def: ClassVar[ConfigDef] = ConfigDef()

    @abstractmethod
    def configure(self, configs: Mapping[str, str]) -> None:
        """Configure the transformation. Called once, before all other methods.

        `configs` contains the transformation's properties, without their prefix.

        Raises:
            ConfigError: A property is invalid. All properties must be validated here, not when the
                first record arrives.
        """

    @abstractmethod
    def apply(self, record: R) -> R | None:
        """Return the resulting record, or None to drop the record. Its offset is still committed.

        `apply_batch` must return an equal result for each row.
        """

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        """Return the resulting batches.

        There are none if all rows are dropped, and several if the rows no longer share a topic and
        schemas. The batch and all resulting batches have at least one row. Rows retain their origin
        (`Batch.where` filters it) and their order. Offsets of rows in different batches may
        interleave; the worker does not sort them.

        Raises:
            NotColumnar: The transformation cannot process this batch as columns. The rows are
                passed to `apply` one at a time.
            BadRows: These rows fail as in `apply`. The worker repeats the call without them unless
                the results of the other rows are attached.
        """
        raise NotColumnar(type(self).__name__)

    def close(self) -> None:
        """Release all resources. Called once, after all other methods."""
