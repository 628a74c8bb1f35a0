"""What Confluent's converters note beside a field: `[(confluent.field_meta) = {params: ...}]`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

_EXTENSION: Final = "confluent.field_meta"


def params(field: FieldDescriptor) -> Mapping[str, str]:
    """The parameters of a field; empty when its file does not import confluent/meta.proto."""
    pool = field.file.pool  # type: ignore[attr-defined] # missing in its stubs
    try:
        extension = pool.FindExtensionByName(_EXTENSION)
        options = pool.FindMessageTypeByName("google.protobuf.FieldOptions")
    except KeyError:
        return {}
    # the pool's own class knows the extension; options come in the class of the default pool, where
    # it is unknown
    read: Any = GetMessageClass(options).FromString(field.GetOptions().SerializeToString())
    return dict(read.Extensions[extension].params)
