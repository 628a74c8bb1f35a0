"""`FieldTransformation`: base class for transformations that declare their field changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from connect_py.api.batch import Batch
from connect_py.api.errors import DataError
from connect_py.api.record import Header, Headers, R
from connect_py.api.schema import Schema, Struct, Type, Value
from connect_py.java.errors import NullPointerError
from transforms.by_schema import BySchema
from transforms.field_changes import (
    Conversion,
    FieldChanges,
    InsertedStruct,
    NewNames,
    Nulls,
    Plan,
)
from transforms.rebuild import rebuilt
from transforms.requirements import require_map, require_struct
from transforms.side import Side, SideTransformation


class FieldTransformation(SideTransformation[R]):
    """Applies the field changes that a subclass declares to a key or value.

    A subclass parses its options in `configure` and declares the changes:

        class AddRegion(FieldTransformation[R]):
            config_def = ConfigDef().define("region", Type.STRING, doc="The region.")
            purpose = "adding the region"

            def configure(self, configs: Mapping[str, str]) -> None:
                region = self.config_def.parse(configs)["region"]
                self.declare(FieldChanges(inserted=[InsertedField.constant("region", region)]))

        AddRegionKey, AddRegionValue = for_both(AddRegion)

    `apply` and `apply_batch` are derived from the declaration, for structs and for schemaless maps.
    See `FieldChanges` for the supported changes. To change values, implement a `Conversion`, which
    converts schemas, values, and optionally columns. The schema of the result has the name,
    version, doc, and parameters of the original schema, unless `result_schema` is overridden.
    `nulls` is the effect on a null key or value. A record fails if a required field is null.

    Implement `apply` and `apply_batch` directly, without this class, if the result has fewer rows
    than the input, or if a new value depends on several fields of the record.
    """

    purpose: str  # named in the error if the value is neither a struct nor a map
    map_purpose: str = ""  # replaces `purpose` in errors for schemaless values, if set
    nulls: ClassVar[Nulls] = Nulls.PASS
    target: ClassVar[Side | None] = None  # side of the result, if not the transformed side
    _transform_batch: Callable[[FieldTransformation[R], Batch], Sequence[Batch]] | None = None

    def declare(self, changes: FieldChanges, *, replace_null_with_default: bool = True) -> None:
        """Declare the changes. Call this method once, in `configure`.

        If `replace_null_with_default` is true, nulls are replaced with the default of the field
        before any other change. Otherwise, they remain null.
        """
        self.changes = changes
        self.replace_null_with_default = replace_null_with_default
        self.result = BySchema(self._result)
        self.plan = BySchema(self.make_plan)
        self.names = NewNames(changes.new_name) if changes.new_name is not None else None
        self._whole = changes.whole
        self._conversions = list(changes.conversions.items())
        self._inserted = [
            (each.name, each.map if isinstance(each, InsertedStruct) else each.value)
            for each in changes.inserted
        ]

    def result_schema(self, schema: Schema, fields: Sequence[tuple[str, Schema]]) -> Schema:
        """Return the schema of the result, a struct with these fields."""
        return rebuilt(schema, fields)

    def require_row(self, schema: Schema, value: Value) -> Struct:
        """Return `value`, which has this schema, if it is a struct; raise DataError otherwise."""
        return require_struct(value, self.purpose, schema)

    def check(self, plan: Plan, values: Sequence[Value]) -> None:
        """Raise DataError if an existing or copied value is invalid in the result."""
        plan.rules.check_required(values)

    def make_plan(self, schema: Schema) -> Plan:
        """Return the plan that transforms structs of this schema.

        Raises:
            ConnectError: Structs of this schema cannot be transformed.
        """
        changes = self.changes
        sources = [(f.index, f.name) for f in schema.fields]  # (source index, new name)
        if changes.new_name is not None:
            renamed = [(index, changes.new_name(name)) for index, name in sources]
            sources = [(index, name) for index, name in renamed if name is not None]
        sources += [(self.source(schema, copy.source), copy.name) for copy in changes.copied]
        headers = [(name, self.source(schema, source)) for name, source in changes.headers]
        fields: list[tuple[str, Schema]] = []
        conversions: list[tuple[int, Schema, Conversion]] = []
        for position, (index, name) in enumerate(sources):
            source = schema.fields[index]
            conversion = changes.conversions.get(source.name)
            if conversion is None:
                fields.append((name, source.schema))
            else:
                conversions.append((position, source.schema, conversion))
                fields.append((name, conversion.schema(source.schema)))
        fields += [(each.name, each.schema) for each in changes.inserted]
        return Plan(
            schema,
            self.result_schema(schema, fields) if changes.changes_fields else schema,
            [index for index, _ in sources],
            conversions,
            [each.value for each in changes.inserted],
            headers,
        )

    def source(self, schema: Schema, name: str) -> int:
        """Return the index of an existing field that is copied to a new field or a header."""
        source = schema.field(name)
        if source is None:
            raise NullPointerError(f"field {name} does not exist")
        return source.index

    def _result(self, schema: Schema) -> Schema:
        whole = self.changes.whole
        if whole is not None:
            return whole.schema(schema)
        if schema.type is not Type.STRUCT:
            raise DataError("Cannot list fields on non-struct type")
        return self.plan(schema).schema

    def apply(self, record: R) -> R | None:
        schema, value = self.side.of(record)
        if value is None and self.nulls is not Nulls.FAIL:
            if schema is None or self.nulls is Nulls.PASS:
                return record
            value = None if self._whole is None else self._whole.value(schema, None)
            return self._put(record, self.result(schema), value)
        if self._whole is not None:
            result = None if schema is None else self.result(schema)
            return self._put(record, result, self._whole.value(schema, value))
        if schema is None:
            return self._apply_to_map(record, value)
        row = value if isinstance(value, Struct) else self.require_row(schema, value)
        plan = self.plan(row.schema)
        if plan.headers:
            record = record.replace(headers=self._headers(record, plan, row))
            if not self.changes.changes_fields:
                return record
        values = self.new_values(plan, row)
        for insert in plan.inserted:
            values.append(insert(record))
        return self._put(record, plan.schema, Struct(plan.schema, values))

    def new_values(self, plan: Plan, row: Struct) -> list[Value]:
        """Return the values of the result, except those of inserted fields.

        Raises:
            DataError: A value cannot be converted, or a required field is null.
        """
        values = self._source_values(plan, row)
        if plan.select is not None:
            values = list(plan.select(values))
        for index in plan.appended:
            values.append(values[index])
        for position, source_schema, conversion in plan.conversions:
            values[position] = conversion.value(source_schema, values[position])
        self.check(plan, values)
        return values

    def _source_values(self, plan: Plan, row: Struct) -> list[Value]:
        if self.replace_null_with_default:
            return plan.source_rules.values(row)
        return row.values.copy()

    def _headers(self, record: R, plan: Plan, row: Struct) -> Headers:
        fields, values = row.schema.fields, self._source_values(plan, row)
        added = [Header(name, values[i], fields[i].schema) for name, i in plan.headers]
        return Headers([*record.headers, *added])

    def _apply_to_map(self, record: R, value: Value) -> R:
        row = require_map(value, self.map_purpose or self.purpose)
        names = self.names
        if names is None:
            result = row.copy()
        else:
            result = {new: v for name, v in row.items() if (new := names[name]) is not None}
        for name, conversion in self._conversions:
            result[name] = conversion.value(None, row.get(name))
        for copy in self.changes.copied:
            result[copy.name] = row.get(copy.source)
        for name, get in self._inserted:
            inserted = get(record)
            if inserted is not None:
                result[name] = inserted
        if self.changes.headers:
            added = [Header(name, row.get(source)) for name, source in self.changes.headers]
            record = record.replace(headers=Headers([*record.headers, *added]))
        return self._put(record, None, result)

    def _put(self, record: R, schema: Schema | None, value: Value) -> R:
        return (self.side if self.target is None else self.target).put(record, schema, value)

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        if self._transform_batch is None:
            # imported on first use, because the module imports pyarrow
            from transforms.field_columns import transformed

            self._transform_batch = transformed
        return self._transform_batch(self, batch)
