"""A schema registry that is not there."""

from __future__ import annotations

import pytest

from connect_py.api.errors import UnavailableError
from connect_py.converters.registry.schema_registry import SchemaRegistry


def test_unreachable_registry_is_named_without_its_password() -> None:
    registry = SchemaRegistry({"schema.registry.url": "http://ada:secret@127.0.0.1:1/api"})
    try:
        with pytest.raises(UnavailableError) as refused:
            registry.by_id(1)
    finally:
        registry.close()
    assert str(refused.value).startswith(
        "the schema registry at http://127.0.0.1:1/api cannot be reached: "
    )
    assert "secret" not in str(refused.value)
