"""`WriteSettings`: settings for staged files, parsed from the `write.*` table properties."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from connectors.iceberg.conversion.columns import leaves

CODEC = "write.parquet.compression-codec"
LEVEL = "write.parquet.compression-level"
FILE_BYTES = "write.target-file-size-bytes"
ROW_GROUP_BYTES = "write.parquet.row-group-size-bytes"
PAGE_BYTES = "write.parquet.page-size-bytes"
PAGE_ROWS = "write.parquet.page-row-limit"
DICTIONARY_BYTES = "write.parquet.dict-size-bytes"
BLOOM_BYTES = "write.parquet.bloom-filter-max-bytes"
BLOOM_COLUMN = "write.parquet.bloom-filter-enabled.column."
BLOOM_FPP = "write.parquet.bloom-filter-fpp.column."
BLOOM_NDV = "write.parquet.bloom-filter-ndv.column."

# size in memory in Arrow format; the writer buffers several copies of an incomplete group
DEFAULT_ROW_GROUP_BYTES = 128 << 20
ROW_GROUP_ROWS = 1 << 20
_BLOOM_MAX_BYTES = 1 << 20  # Iceberg's default
_BLOOM_FPP = 0.01  # Iceberg's default
_CODECS = {
    "uncompressed": "none",
    "zstd": "zstd",
    "snappy": "snappy",
    "gzip": "gzip",
    "lz4": "lz4",
    "brotli": "brotli",
}
_WITH_LEVEL = ("zstd", "gzip", "brotli")
_SIZES = (FILE_BYTES, ROW_GROUP_BYTES, PAGE_BYTES, PAGE_ROWS, DICTIONARY_BYTES, BLOOM_BYTES)
_PARQUET_ONLY = "staged files are Parquet"
_AS_ROUTED = "staged files are in the table's data location, which write.data.path sets"
_IN_ORDER = "rows are staged in offset order; rewrite_data_files sorts them"
# For each property, the values that match the sink's behavior and the reason for that behavior.
_IGNORED: Mapping[str, tuple[tuple[str, ...], str]] = {
    "write.format.default": (("parquet",), _PARQUET_ONLY),
    "write.upsert.enabled": (
        ("false",),
        "the connector configuration decides whether rows are upserts",
    ),
    "write.object-storage.enabled": (("false",), _AS_ROUTED),
    "write.location-provider.impl": ((), _AS_ROUTED),
    "write.distribution-mode": (("none",), _IN_ORDER),
    "write.parquet.shred-variants": (("false",), "variants are not shredded"),
}
_IGNORED_PREFIXES = {
    "write.parquet.stats-enabled.": (("true",), "statistics are written for every column")
}


@dataclass(frozen=True, slots=True)
class _BloomFilter:
    fpp: float
    ndv: int | None  # None to use the number of rows


@dataclass(frozen=True, slots=True)
class WriteSettings:
    """Write properties of a table that the sink supports."""

    options: Mapping[str, Any]  # options for Arrow's Parquet writer that apply to every file
    file_bytes: int | None  # None if not set
    row_group_bytes: int
    bloom_bytes: int
    bloom_filters: Mapping[str, _BloomFilter]  # by Iceberg column name

    @staticmethod
    def of(props: Mapping[str, str]) -> WriteSettings:
        """Parse the properties of a table. Unsupported properties are ignored."""
        filters = {
            key.removeprefix(BLOOM_COLUMN): _BloomFilter(
                _share(props.get(BLOOM_FPP + key.removeprefix(BLOOM_COLUMN))) or _BLOOM_FPP,
                _size(props.get(BLOOM_NDV + key.removeprefix(BLOOM_COLUMN))),
            )
            for key, value in props.items()
            if key.startswith(BLOOM_COLUMN) and value.strip().lower() == "true"
        }
        codec, level = _CODECS.get(props.get(CODEC, "zstd").lower(), "zstd"), props.get(LEVEL, "")
        options = {
            "compression": codec,
            "store_schema": False,
            "compression_level": (int(level) if level.isdecimal() else 1)
            if codec in _WITH_LEVEL
            else None,
            "data_page_size": _size(props.get(PAGE_BYTES)),
            "max_rows_per_page": _size(props.get(PAGE_ROWS)),
            "dictionary_pagesize_limit": _size(props.get(DICTIONARY_BYTES)),
        }
        return WriteSettings(
            {name: value for name, value in options.items() if value is not None},
            _size(props.get(FILE_BYTES)),
            _size(props.get(ROW_GROUP_BYTES)) or DEFAULT_ROW_GROUP_BYTES,
            _size(props.get(BLOOM_BYTES)) or _BLOOM_MAX_BYTES,
            filters,
        )

    def parquet_options(self, schema: pa.Schema, rows: int) -> dict[str, Any]:
        """Return the options for Arrow's Parquet writer for a file with this number of rows."""
        if not self.bloom_filters:
            return dict(self.options)
        columns = zip(schema.names, schema.empty_table().columns, strict=True)
        parts = [part for name, column in columns for part in leaves(name, column.combine_chunks())]
        paths = {name: path for name, path, values in parts if not pa.types.is_boolean(values.type)}
        filters = {}
        for name, bloom in self.bloom_filters.items():
            if name in paths:
                values = min(
                    bloom.ndv or rows,
                    rows,
                    ROW_GROUP_ROWS,
                    _most_values(self.bloom_bytes, bloom.fpp),
                )
                filters[paths[name]] = {"ndv": max(1, values), "fpp": bloom.fpp}
        return {**self.options, "bloom_filter_options": filters} if filters else dict(self.options)


def ignored_properties(props: Mapping[str, str]) -> Sequence[str]:
    """Return a message for each table property that has no effect on staged files."""
    return [f"{key}={props[key]} has no effect: {why}" for key, why in sorted(_ignored(props))]


def _ignored(props: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for key, value in props.items():
        text = value.strip().lower()
        rule = _IGNORED.get(key) or next(
            (r for p, r in _IGNORED_PREFIXES.items() if key.startswith(p)), None
        )
        if rule is not None and text not in rule[0]:
            yield key, rule[1]
        elif key == CODEC and text not in _CODECS:
            yield key, f"staged files use zstd; supported codecs are {', '.join(_CODECS)}"
        elif (key in _SIZES or key.startswith(BLOOM_NDV)) and _size(value) is None:
            yield key, "it must be a number greater than 0"
        elif key.startswith(BLOOM_FPP) and _share(value) is None:
            yield key, "it must be a number between 0 and 1"


def _size(text: str | None) -> int | None:
    """Return an integer greater than 0, or None if the value is invalid."""
    return int(text) if text is not None and text.strip().isdecimal() and int(text) > 0 else None


def _share(text: str | None) -> float | None:
    """Return a number between 0 and 1, or None if the value is invalid."""
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if 0 < number < 1 else None


def _most_values(size: int, fpp: float) -> int:
    """Return the number of values that fit into a split block Bloom filter of `size` bytes.

    `fpp` is the false-positive probability.
    """
    return int(-size * math.log1p(-(fpp ** (1 / 8))))
