"""What the transformations share that take rows out of change events."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from connect_py.api.config import ConfigDef, ConfigValueError, Importance, Parsed, Type, one_of
from connect_py.api.errors import ConfigError, ConnectError
from connect_py.api.record import Headers, R
from connect_py.api.schema import STRING, Struct
from connect_py.api.transformation import Transformation
from transforms.debezium.delete_handling import LEGACY_MODES, MODES, DeleteHandling
from transforms.debezium.envelope import DELETE, ENVELOPE_SUFFIX, OP
from transforms.debezium.field_reference import FieldReference

log = logging.getLogger(__name__)

IDLE_VALUES = 1000  # that pass unchanged before the log says so

_MODE = "delete.tombstone.handling.mode"
_DROP_TOMBSTONES = "drop.tombstones"
_DELETE_MODE = "delete.handling.mode"
_OPERATION_HEADER = "operation.header"
_OPERATION_HEADER_NAME = "__debezium-operation"
_ADD_SOURCE_FIELDS = "add.source.fields"


def _field_references(name: str, value: Parsed) -> None:
    try:
        FieldReference.parse_all(value or [], "")
    except ValueError as error:
        raise ConfigValueError(name, value, str(error)) from error


class Unwrapping(Transformation[R]):
    """Options for deletes, tombstones and what is added to rows and headers, with what follows from
    them."""

    config_def = (
        ConfigDef()
        .define(
            _MODE,
            Type.STRING,
            default="tombstone",
            validator=one_of(*MODES, case_insensitive=True),
            importance=Importance.MEDIUM,
            doc="Effect on delete events and tombstones. drop removes both. tombstone makes "
            "deletes null values with the schema of the row. rewrite makes deletes rows marked "
            "with __deleted; rewrite-with-tombstone also keeps the tombstones. "
            "delete-to-tombstone makes deletes tombstones. Otherwise tombstones are dropped.",
        )
        .define(
            _DROP_TOMBSTONES,
            Type.BOOLEAN,
            default=True,
            importance=Importance.LOW,
            doc=f"Deprecated, used only without {_MODE}: drop tombstones.",
        )
        .define(
            _DELETE_MODE,
            Type.STRING,
            default="drop",
            validator=one_of(*LEGACY_MODES, case_insensitive=True),
            importance=Importance.LOW,
            doc=f"Deprecated, used only without {_MODE}: drop delete events, rewrite them as rows "
            f"marked with "
            "__deleted, or make their value null (none).",
        )
        .define(
            "add.fields",
            Type.LIST,
            default="",
            validator=_field_references,
            importance=Importance.LOW,
            doc="Members of the event to add to the row, each as field, struct.field, or with "
            ":new-name behind.",
        )
        .define(
            "add.fields.prefix",
            Type.STRING,
            default="__",
            importance=Importance.LOW,
            doc="Prefix of the names that add.fields makes.",
        )
        .define(
            "add.headers",
            Type.LIST,
            default="",
            validator=_field_references,
            importance=Importance.LOW,
            doc="Members of the event to add as headers, written as for add.fields.",
        )
        .define(
            "add.headers.prefix",
            Type.STRING,
            default="__",
            importance=Importance.LOW,
            doc="Prefix of the names that add.headers makes.",
        )
        .define(
            _OPERATION_HEADER,
            Type.BOOLEAN,
            default=False,
            importance=Importance.LOW,
            doc=f"Deprecated: add the operation as header {_OPERATION_HEADER_NAME}; use "
            f"add.headers=op.",
        )
        .define(
            _ADD_SOURCE_FIELDS,
            Type.LIST,
            default="",
            importance=Importance.LOW,
            doc="Deprecated: members of the source block to add to the row; use add.fields.",
        )
    )

    def configure(self, configs: Mapping[str, str]) -> None:
        try:
            props = self.config_def.parse(configs)
        except ConfigError as error:
            raise ConnectError("Unable to validate config.") from error
        self.handling = _delete_handling(configs, props)
        self.add_fields = FieldReference.parse_all(
            props["add.fields"], props["add.fields.prefix"]
        ) + tuple(
            FieldReference("source", name, f"__{name}")
            for name in props[_ADD_SOURCE_FIELDS]
            if name
        )
        self.add_headers = FieldReference.parse_all(
            props["add.headers"], props["add.headers.prefix"]
        )
        if props[_OPERATION_HEADER]:
            self.add_headers += (FieldReference(None, OP, _OPERATION_HEADER_NAME),)
        for key in (_OPERATION_HEADER, _ADD_SOURCE_FIELDS):
            if props[key]:
                log.warning("%s is deprecated, use add.headers and add.fields", key)
        self._values_before_envelope: int | None = 0  # None: nothing left to warn of
        self.configure_further(props)

    def configure_further(self, props: Mapping[str, Parsed]) -> None:
        """Take the options of the subclass."""

    def note_envelope(self) -> None:
        """An envelope came: the transformation has work to do."""
        self._values_before_envelope = None

    def note_passing(self, values: int) -> None:
        """Count values that are no envelope; warn once when there has been nothing else for
        long."""
        if self._values_before_envelope is None:
            return
        self._values_before_envelope += values
        if self._values_before_envelope >= IDLE_VALUES:
            log.warning(
                "the first %d values were no change events with a schema (named ...%s) and passed "
                "unchanged; "
                "without schemas use DebeziumTransform of org.apache.iceberg.connect.transforms",
                self._values_before_envelope,
                ENVELOPE_SUFFIX,
            )
            self._values_before_envelope = None

    def event_headers(self, headers: Headers, event: Struct) -> Headers:
        """The headers of an unwrapped event: its own, then what is added."""
        for reference in self.add_headers:
            schema = reference.schema(event.schema)
            if schema is not None:
                headers = headers.add(reference.new_name, reference.value(event), schema)
        return headers

    def tombstone_headers(self, headers: Headers) -> Headers:
        """The headers of a tombstone that passes: of all that could be added it has an operation
        only."""
        for reference in self.add_headers:
            if reference.field == OP:
                headers = headers.add(reference.new_name, DELETE, STRING)
        return headers


def _delete_handling(configs: Mapping[str, str], props: Mapping[str, Parsed]) -> DeleteHandling:
    legacy = [key for key in (_DROP_TOMBSTONES, _DELETE_MODE) if key in configs]
    if legacy:
        log.warning("%s: deprecated, use %s", ", ".join(legacy), _MODE)
    if legacy and _MODE not in configs:
        return DeleteHandling(LEGACY_MODES[props[_DELETE_MODE].lower()], props[_DROP_TOMBSTONES])
    return MODES[props[_MODE].lower()]
