"""Aliases of Avro's fields, for sinks that follow a renaming."""

from __future__ import annotations

import json

from connect_py.api.schema import ALIASES
from connect_py.converters.avro.avro_schema import Options, avro_type

RECORD = json.dumps(
    {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "id", "type": "int"},
            {
                "name": "b_new",
                "aliases": ["b", "older"],
                "type": ["null", "string"],
                "default": None,
            },
            {
                "name": "inner",
                "aliases": ["i"],
                "type": {
                    "type": "record",
                    "name": "I",
                    "fields": [{"name": "x", "aliases": ["y"], "type": "long"}],
                },
            },
        ],
    }
)


def test_aliases_are_kept_beside_the_field_if_asked() -> None:
    schema = avro_type(RECORD, {}, None, Options(aliases=True)).schema
    assert schema["id"].parameters == {}
    assert schema["b_new"].parameters == {ALIASES: "b,older"}
    assert schema["b_new"].optional
    assert schema["inner"].parameters == {ALIASES: "i"}
    assert schema["inner"]["x"].parameters == {ALIASES: "y"}


def test_schema_without_the_aliases_option_equals_that_of_java() -> None:
    schema = avro_type(RECORD, {}, None, Options()).schema
    assert not any(field.schema.parameters for field in schema.fields)
