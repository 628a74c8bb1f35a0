"""The words of the `_cdc` struct."""

from __future__ import annotations

from collections.abc import Mapping

CDC = "_cdc"
# Debezium's code -> ours; anything else is an insert
CDC_OPERATIONS: Mapping[str, str] = {"u": "U", "d": "D"}
INSERT = "I"
NO_ROW = frozenset({"t", "m"})  # truncations and messages
