"""Names of staged files: they say who wrote them and when, so that orphans are found. Standard
library only."""

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
    """`connect-py-<connector>.<epoch number>-<epoch nonce>.<table>.<cycle>-<task>-<kafka
    partition>-<random>.parquet`.

    Whatever is not safe in a path, and the dot, is written `~` and six hexadecimal digits. So the
    names of one connector's files, and of one of its epochs in one table, have a prefix that no
    other's have: tables may share a folder, and one that was renamed keeps its own when another is
    made under its name.
    """

    connector: str
    epoch: Epoch
    table: str  # `table_digits` of it
    cycle: int
    task: str
    partition: int  # Kafka's

    def encode(self) -> str:
        """A new name; each call gives another one."""
        prefix = self.epoch_prefix(self.connector, self.epoch, self.table)
        return f"{prefix}{self.cycle}-{_quote(self.task)}-{self.partition}-{uuid.uuid4().hex[:12]}.parquet"  # noqa: E501 - one literal

    @staticmethod
    def prefix(connector: str) -> str:
        """What the names of a connector's files begin with."""
        return f"{PREFIX}{_quote(connector)}."

    @staticmethod
    def epoch_prefix(connector: str, epoch: Epoch, table: str) -> str:
        """What the names of the files of one epoch in one table begin with; `table`: its digits."""
        return f"{StagedFileName.prefix(connector)}{epoch.number}-{_quote(epoch.nonce)}.{table}."

    @staticmethod
    def decode(name: str) -> StagedFileName | None:
        """Read a file's name (the last part of its path); None if it is no staged file."""
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
    """Who wrote a file for which table."""

    connector: str
    epoch: Epoch
    table: str  # `table_digits` of it


def owner_of(path: str) -> StagedFileOwner | None:
    """Who wrote a file of a connector, by its name or that of its folder; None: neither says so.

    Besides staged files, this knows delete files, completed rows, and others that wait for a
    commit.
    """
    for part in reversed(path.split("/")):
        if (match := _OWNER.fullmatch(part)) is not None:
            epoch = Epoch(int(match["number"]), _unquote(match["nonce"]))
            return StagedFileOwner(_unquote(match["connector"]), epoch, match["table"])
    return None


def table_digits(table_uuid: str) -> str:
    """The last twelve digits of a table's uuid, which tell it from others."""
    return table_uuid[-12:]


def _quote(text: str) -> str:
    return _UNSAFE.sub(lambda m: f"~{ord(m[0]):06x}", text)


def _unquote(text: str) -> str:
    return _ESCAPE.sub(lambda m: chr(int(m[1], 16)), text)
