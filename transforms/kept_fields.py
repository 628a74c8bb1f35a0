"""Which fields `ReplaceField` keeps, in rows and in columns."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from connect_py.api.errors import DataError
from connect_py.api.schema import Schema
from transforms.by_schema import BySchema
from transforms.rebuild import Rules, rebuilt

_MOST_NAMES = 10_000


class Replaced(NamedTuple):
    """What becomes of structs of one schema."""

    schema: Schema
    sources: tuple[int, ...]  # for each field afterwards the index of the one its value comes from
    # of the fields afterwards; None: one is renamed onto one that stays, of another schema
    rules: Rules | None
    in_place: bool  # every field stays where it is


class KeptFields:
    """The fields that are included and not excluded, under their new names."""

    def __init__(
        self, exclude: Collection[str], include: Collection[str], new_names: Mapping[str, str]
    ) -> None:
        self._exclude = frozenset(exclude)
        self._include = frozenset(include)
        self._new_names = new_names
        self._old_names = {new: old for old, new in new_names.items()}
        self.names = _Names(self)
        self.result = BySchema(self._result)

    def keeps(self, name: str) -> bool:
        """Whether a field of this (original) name stays."""
        return name not in self._exclude and (not self._include or name in self._include)

    def new_name(self, name: str) -> str:
        """What a field is called afterwards."""
        return self._new_names.get(name, name)

    def _result(self, schema: Schema) -> Replaced:
        """What becomes of structs of a schema.

        Raises: SchemaBuilderError: Two fields get the same name. DataError: A value is to come from
            a field that is not there: what is renamed to the name of a field
                that stays must exist.
        """
        result = rebuilt(
            schema, [(self.new_name(f.name), f.schema) for f in schema.fields if self.keeps(f.name)]
        )
        sources = []
        for field in result.fields:
            name = self._old_names.get(field.name, field.name)
            source = schema.field(name)
            if source is None:
                raise DataError(f"{name} is not a valid field name")
            sources.append(source.index)
        same = all(
            schema.fields[i].schema is f.schema for i, f in zip(sources, result.fields, strict=True)
        )
        in_place = same and sources == list(range(len(schema.fields)))
        return Replaced(result, tuple(sources), Rules(result) if same else None, in_place=in_place)


class _Names(dict[Any, str | None]):
    """The name of each member of a map afterwards, None: it is removed; worked out once, up to a
    bound."""

    def __init__(self, kept: KeptFields) -> None:
        self._kept = kept

    def __missing__(self, name: Any) -> str | None:
        if len(self) > _MOST_NAMES:
            self.clear()
        found = self[name] = self._kept.new_name(name) if self._kept.keeps(name) else None
        return found
