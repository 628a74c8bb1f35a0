"""The words of the `_cdc` struct."""

from __future__ import annotations

from collections.abc import Mapping

CDC = "_cdc"
CDC_OPERATIONS: Mapping[str, str] = {"u": "U", "d": "D"}  # Debezium's code -> ours; anything else is an insert
INSERT = "I"
NO_ROW = frozenset({"t", "m"})  # truncations and messages
