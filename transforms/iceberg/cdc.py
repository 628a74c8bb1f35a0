"""Constants for the `_cdc` struct."""

from __future__ import annotations

from collections.abc import Mapping

CDC = "_cdc"
# Debezium operation -> operation in `_cdc`; every other operation is an insert
CDC_OPERATIONS: Mapping[str, str] = {"u": "U", "d": "D"}
INSERT = "I"
NO_ROW = frozenset({"t", "m"})  # operations without a row: truncations and messages
