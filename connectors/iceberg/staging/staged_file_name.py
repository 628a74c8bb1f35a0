"""Names of staged files, which identify the writer so that orphan files can be detected.

This module imports neither pyarrow nor PyIceberg.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass

from connectors.iceberg.protocol.positions import Epoch

PREFIX = "connect-py-"
_NAME = re.compile(
    re.escape(PREFIX) + r"(?P<connector>[^.]*)\.(?P<number>\d+)-(?P<nonce>[^.]*)\.(?P<table>[^.]+)"
    r"\.(?P<cycle>\d+)-(?P<task>[^.]*)-(?P<partition>\d+)-[0-9a-f]{12}\.parquet"
)
_OWNER = re.compile(
    re.escape(PREFIX)
    + r"(?P<connector>[^.]*)\.(?P<number>\d{1,18})-(?P<nonce>[^.]*)\.(?P<table>[^.]+)\..+"
)
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_ESCAPE = re.compile(r"~([0-9a-f]{6})")


@dataclass(frozen=True, slots=True)
class StagedFileName:
    """Parts of a staged file's name.

    The name is `connect-py-<connector>.<epoch number>-<epoch nonce>.<table>.<cycle>-<task>-<Kafka
    partition>-<random>.parquet`. Dots and unsafe characters are encoded as `~` and six hexadecimal
    digits. Therefore, a prefix identifies the files of a connector or of one of its epochs in one
    table, even if tables share a folder or a renamed table retains its folder.
    """

    connector: str
    epoch: Epoch
    table: str  # last digits of the table's UUID; see `table_digits`
    cycle: int
    task: str
    partition: int  # Kafka partition

    def encode(self) -> str:
        """Return a new unique file name."""
        prefix = self.epoch_prefix(self.connector, self.epoch, self.table)
        return f"{prefix}{self.cycle}-{_quote(self.task)}-{self.partition}-{uuid.uuid4().hex[:12]}.parquet"  # noqa: E501 - one literal

    @staticmethod
    def prefix(connector: str) -> str:
        """Return the prefix of a connector's file names."""
        return f"{PREFIX}{_quote(connector)}."

    @staticmethod
    def epoch_prefix(connector: str, epoch: Epoch, table: str) -> str:
        """Return the prefix of one epoch's files in the table with these `table_digits`."""
        return f"{StagedFileName.prefix(connector)}{epoch.number}-{_quote(epoch.nonce)}.{table}."

    @staticmethod
    def decode(name: str) -> StagedFileName | None:
        """Parse a file name without folders, or return None if it is not a staged file."""
        match = _NAME.fullmatch(name)
        if match is None:
            return None
        epoch = Epoch(int(match["number"]), _unquote(match["nonce"]))
        return StagedFileName(
            _unquote(match["connector"]),
            epoch,
            match["table"],
            int(match["cycle"]),
            _unquote(match["task"]),
            int(match["partition"]),
        )


@dataclass(frozen=True, slots=True)
class StagedFileOwner:
    """Connector and epoch that wrote a file, and the table for which the file was written."""

    connector: str
    epoch: Epoch
    table: str  # last digits of the table's UUID; see `table_digits`


def owner_of(path: str) -> StagedFileOwner | None:
    """Return the owner of a file, or None if no part of its path identifies one.

    Staged files have an owner, and so do the files that commits write, such as delete files and
    files with completed rows.
    """
    for part in reversed(path.split("/")):
        if (match := _OWNER.fullmatch(part)) is not None:
            epoch = Epoch(int(match["number"]), _unquote(match["nonce"]))
            return StagedFileOwner(_unquote(match["connector"]), epoch, match["table"])
    return None


def table_digits(table_uuid: str) -> str:
    """Return the last twelve digits of a table's UUID, which identify the table."""
    return table_uuid[-12:]


def _quote(text: str) -> str:
    return _UNSAFE.sub(lambda m: f"~{ord(m[0]):06x}", text)


def _unquote(text: str) -> str:
    return _ESCAPE.sub(lambda m: chr(int(m[1], 16)), text)
