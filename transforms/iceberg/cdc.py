"""Constants of the `_cdc` struct."""

from __future__ import annotations

from collections.abc import Mapping

CDC = "_cdc"
# Debezium's operation -> operation in `_cdc`; all others are inserts
CDC_OPERATIONS: Mapping[str, str] = {"u": "U", "d": "D"}
INSERT = "I"
NO_ROW = frozenset({"t", "m"})  # operations without a row: truncations and messages
