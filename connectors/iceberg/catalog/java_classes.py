"""`JavaClasses`: Java classes of one JVM by name, and plain values on their way to Java and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from connectors.iceberg.config.partition_by import PartitionTerm
from connectors.iceberg.protocol.table_metadata import TableMetadata

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class JavaClasses:
    """Java classes of one JVM by name; py4j asks the JVM once per part of a name, so each class is kept."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm = spark._jvm
        self.gateway: Any = spark.sparkContext._gateway
        self._found: dict[str, Any] = {}

    def __call__(self, name: str) -> Any:
        found = self._found.get(name)
        if found is None:
            found = self._found[name] = attrgetter(name)(self._jvm)
        return found

    def iceberg(self, name: str) -> Any:
        return self(f"org.apache.iceberg.{name}")

    def list(self, texts: Iterable[str]) -> Any:
        """A Java list of texts, through JSON: one call, however long it is."""
        return self._parsed([*texts], "java.util.ArrayList")

    def set(self, texts: Iterable[str]) -> Any:
        """A Java set of texts."""
        return self._parsed([*texts], "java.util.HashSet")

    def each(self, iterable: Any) -> Iterator[Any]:
        """What a Java `Iterable` has."""
        return iter(self.iceberg("relocated.com.google.common.collect.Lists").newArrayList(iterable))

    def objects(self, objects: Iterable[Any]) -> Any:
        """A Java list of Java objects."""
        made = self("java.util.ArrayList")()
        for each in objects:
            made.add(each)
        return made

    def map(self, values: Mapping[str, str]) -> Any:
        """A Java map of texts, in one call."""
        return self._parsed(dict(values), "java.util.HashMap")

    def _parsed(self, document: Any, name: str) -> Any:
        return self.iceberg("util.JsonUtil").mapper().readValue(json.dumps(document), self(name)().getClass())

    def json(self, value: Any) -> Any:
        """A Java map or list of plain values, as Python has them."""
        return json.loads(self.iceberg("util.JsonUtil").mapper().writeValueAsString(value))

    def metadata(self, metadata: Any) -> TableMetadata:
        """Java's metadata of a table as we read it."""
        return TableMetadata(json.loads(self.iceberg("TableMetadataParser").toJson(metadata)))

    def schema(self, fields: Sequence[Mapping[str, Any]]) -> Any:
        """A Java schema of these columns, as fields of Iceberg's schema JSON."""
        document = {"type": "struct", "schema-id": 0, "fields": fields}
        return self.iceberg("SchemaParser").fromJson(json.dumps(document))

    def content_file(self, content: Mapping[str, Any], spec: Any) -> Any:
        """A Java content file of this partition spec, as Iceberg's JSON has it."""
        tree = self.iceberg("util.JsonUtil").mapper().readTree(json.dumps(content))
        return self.iceberg("ContentFileParser").fromJson(tree, spec)

    def transform(self, term: PartitionTerm) -> Any:
        """A partition or sort field as Java's term."""
        expressions = self.iceberg("expressions.Expressions")
        if term.transform == "identity":
            return expressions.ref(term.column)
        make = getattr(expressions, term.transform)
        return make(term.column) if term.argument is None else make(term.column, term.argument)

    def condition(self, spark: SparkSession, relation: str, sql: str) -> Any:
        """An Iceberg expression of a condition in SQL on a table's columns."""
        converter = self("org.apache.spark.sql.execution.datasources.SparkExpressionConverter")
        resolved = converter.collectResolvedSparkExpression(spark._jsparkSession, relation, sql)
        return converter.convertToIcebergExpression(resolved)

    def parquet_file(self, file: Any) -> Any:
        """A Java input file as Parquet's reader takes it: the class that does it is Iceberg's own."""
        classes = self("java.lang.Class")
        kind = self.gateway.new_array(classes, 1)
        kind[0] = classes.forName("org.apache.iceberg.io.InputFile")
        method = classes.forName("org.apache.iceberg.parquet.ParquetIO").getDeclaredMethod("file", kind)
        method.setAccessible(True)
        arguments = self.gateway.new_array(self("java.lang.Object"), 1)
        arguments[0] = file
        return method.invoke(None, arguments)

    @property
    def unpartitioned(self) -> Any:
        return self.iceberg("PartitionSpec").unpartitioned()

    @property
    def every_row(self) -> Any:
        return self.iceberg("expressions.Expressions").alwaysTrue()

    def is_instance(self, object_: Any, name: str) -> bool:
        return bool(self("java.lang.Class").forName(name).isInstance(object_))
