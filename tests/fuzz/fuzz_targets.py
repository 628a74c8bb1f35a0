"""All that is fuzzed."""

from __future__ import annotations

from typing import Final

from fuzz_avro import Avro
from fuzz_json import JsonWithSchema, SchemalessJson
from fuzz_json_schema import JsonSchema
from fuzz_protobuf import Protobuf
from fuzz_target import FuzzTarget

TARGETS: Final[tuple[type[FuzzTarget], ...]] = (
    SchemalessJson,
    JsonWithSchema,
    Avro,
    JsonSchema,
    Protobuf,
)
