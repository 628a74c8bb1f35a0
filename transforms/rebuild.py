"""How transformations derive struct schemas: what they keep of the container, and raw or default values of members."""

from __future__ import annotations

from collections.abc import Iterable

from connect_py.api.schema import Schema, Struct, Type, Value, validate_value


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


def check_required(schema: Schema, values: Iterable[Value]) -> None:
    """Check what copying values into a new row checks: DataError names the first required field that is null."""
    for field, value in zip(schema.fields, values, strict=True):
        if value is None and not field.schema.optional:
            validate_value(field.schema, None, field.name)
