"""In-memory state of an offset topic, built from its records without I/O.

It contains the offset of each source partition and the raw keys under which the partition occurs.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, TypeAlias

from connect_py.api.errors import DataError
from connect_py.storage import compact_json

log = logging.getLogger(__name__)

Primitive: TypeAlias = str | int | float | bool | None
SourcePartition: TypeAlias = Mapping[str, Primitive] | None
SourceOffset: TypeAlias = Mapping[str, Primitive]
Canonical: TypeAlias = tuple[str, tuple[tuple[str, str, object], ...] | None]


def canonical(connector: str, partition: SourcePartition) -> Canonical:
    """Return a key that does not depend on the field order or on how numbers are written."""
    if partition is None:
        return connector, None
    return connector, tuple(
        sorted((key, _kind(value), _plain(value)) for key, value in partition.items())
    )


def _kind(value: Primitive) -> str:
    if isinstance(value, bool):
        return "boolean"
    return "number" if isinstance(value, int | float) else type(value).__name__


def _plain(value: Primitive) -> object:
    """Return a sort key for values of the same kind. Null becomes an empty string."""
    return "" if value is None else value


def check_primitives(values: Mapping[str, Any] | None) -> None:
    """Check that offsets contain only primitive values.

    Raises:
        DataError: A value is not primitive. The message is Connect's and names the first such
            field.
    """
    for key, value in (values or {}).items():
        if not isinstance(value, str | int | float | bool | None):
            kind = (
                "MAP"
                if isinstance(value, Mapping)
                else "ARRAY"
                if isinstance(value, list | tuple)
                else "BYTES"
            )
            raise DataError(
                f"Offsets may only contain primitive types as values, but field {key} contains "
                f"{kind}"
            )


def new_key(connector: str, partition: SourcePartition) -> bytes:
    """Return the key of a source partition that has no offset yet.

    The fields are in the iteration order of a Java `HashMap`, because Java looks up an offset by
    the exact bytes that it would write as the key.
    """
    members = partition and {name: partition[name] for name in _java_order(list(partition))}
    return compact_json.encode([connector, members])


def _java_order(names: list[str]) -> list[str]:
    """Return names in the iteration order of a `HashMap`."""
    buckets = 16
    while len(names) > buckets * 3 // 4:
        buckets *= 2
    return sorted(names, key=lambda name: _spread_hash(name) & (buckets - 1))


def _spread_hash(text: str) -> int:
    code = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        code = (31 * code + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    return code ^ (code >> 16)


class OffsetTable:
    """Builds the state of an offset topic by applying its records. Not thread-safe."""

    def __init__(self) -> None:
        self._partitions: dict[Canonical, SourcePartition] = {}
        self._offsets_by_raw_key: dict[bytes, SourceOffset] = {}
        self._raw_keys: dict[
            Canonical, dict[bytes, None]
        ] = {}  # raw keys, ordered by their last write, including keys that were deleted later
        self._stamps: dict[bytes, tuple[int, int]] = {}  # raw key -> partition, timestamp

    def apply(self, partition: int, timestamp: int, key: bytes | None, value: bytes | None) -> None:
        """Apply one record. Malformed records are logged and skipped."""
        parsed = _parse_key(key)
        if parsed is None:
            log.warning(
                "offset topic: skipping key that is not a list of a connector and a partition"
            )
            return
        raw = key or b""
        other = self._stamps.get(raw)
        if other is not None and other[0] != partition:
            log.warning(
                "offset topic: a key of connector %s occurs in two partitions; the latest wins",
                parsed[0],
            )
            if timestamp < other[1]:
                return
        identity = canonical(*parsed)
        self._stamps[raw] = (partition, timestamp)
        if value is None:
            self._offsets_by_raw_key.pop(raw, None)
            return
        try:
            offset = compact_json.decode(value)
        except ValueError:
            offset = None
        if offset is not None and not isinstance(offset, dict):
            offset = None
        if offset is None:
            log.warning("offset topic: skipping malformed offset of connector %s", parsed[0])
            return
        raw_keys = self._raw_keys.setdefault(identity, {})
        raw_keys.pop(raw, None)
        raw_keys[raw] = None
        self._offsets_by_raw_key[raw] = offset
        self._partitions[identity] = parsed[1]

    def get(self, connector: str, partition: SourcePartition) -> SourceOffset | None:
        """Return a source partition's latest offset, stored under any of its raw keys, or None."""
        return self._current_offset(canonical(connector, partition))

    def _current_offset(self, identity: Canonical) -> SourceOffset | None:
        for raw in reversed(self._raw_keys.get(identity, {})):
            if raw in self._offsets_by_raw_key:
                return self._offsets_by_raw_key[raw]
        return None

    def offsets(self, connector: str) -> list[tuple[SourcePartition, SourceOffset]]:
        """Return every source partition of a connector that has an offset, with its offset."""
        offsets = []
        for identity, partition in self._partitions.items():
            offset = self._current_offset(identity) if identity[0] == connector else None
            if offset is not None:
                offsets.append((partition, offset))
        return offsets

    def records(
        self, connector: str, partition: SourcePartition, offset: SourceOffset | None
    ) -> list[tuple[bytes, bytes | None]]:
        """Return the record that stores an offset under the latest raw key.

        If the offset is None, return records that delete every raw key of the partition.
        """
        raw_keys = list(self._raw_keys.get(canonical(connector, partition), ()))
        if offset is None:
            return [(raw, None) for raw in raw_keys] or [(new_key(connector, partition), None)]
        return [
            (
                raw_keys[-1] if raw_keys else new_key(connector, partition),
                compact_json.encode(offset),
            )
        ]


def _parse_key(key: bytes | None) -> tuple[str, SourcePartition] | None:
    try:
        parsed = compact_json.decode(key or b"")
    except ValueError:
        return None
    if not isinstance(parsed, list) or len(parsed) != 2 or not isinstance(parsed[0], str):
        return None
    if parsed[1] is not None and not isinstance(parsed[1], dict):
        return None
    try:
        check_primitives(parsed[1])
    except DataError:
        return None
    return parsed[0], parsed[1]
