"""How transformations derive struct schemas: what they keep of the container, and raw or default values of members."""

from __future__ import annotations

from collections.abc import Iterable

from connect_py.api.schema import Schema, Struct, Type, Value


def rebuilt(container: Schema, fields: Iterable[tuple[str, Schema]]) -> Schema:
    """A struct schema of these fields with name, version, doc and parameters of `container`.

    The container's optional flag and default are not carried over.

    Raises:
        SchemaBuilderError: Two fields share a name.
    """
    return Schema(
        Type.STRUCT, name=container.name, version=container.version, doc=container.doc,
        parameters=container.parameters, fields=fields,
    )  # fmt: skip


def members(schema: Schema) -> list[tuple[str, Schema]]:
    """The (name, schema) pairs of a struct schema, as the constructor takes them."""
    return [(field.name, field.schema) for field in schema.fields]


def values_of(row: Struct, *, replace_null_with_default: bool) -> list[Value]:
    """The values of a row in order; nulls become the default of their field when asked to."""
    if not replace_null_with_default:
        return list(row.values)
    return [field.schema.default if value is None else value for field, value in row]
