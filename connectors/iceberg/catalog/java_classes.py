"""`JavaClasses`: Java classes of one JVM by name, and plain values on their way to Java and
back."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from connectors.iceberg.config.partition_by import PartitionTerm
from connectors.iceberg.protocol.table_metadata import TableMetadata

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KEPT_METADATA: Final = 16  # metadata files whose content is cached, of all tables of a session


class JavaClass:
    """A Java class whose static members are looked up once: py4j asks the JVM at each access."""

    def __init__(self, java_class: Any) -> None:
        self._java_class = java_class

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._java_class, name)
        self.__dict__[name] = member
        return member

    def __call__(self, *arguments: Any) -> Any:
        return self._java_class(*arguments)


class JavaClasses:
    """Java classes of one JVM by name, and the conversion of plain values to Java and back."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm = spark._jvm
        self.gateway: Any = spark.sparkContext._gateway
        self._classes: dict[str, JavaClass] = {}
        self._singletons: dict[str, Any] = {}
        self._parsed_metadata: OrderedDict[str, TableMetadata] = OrderedDict()  # by metadata file
        self.mapper: Any = self.iceberg("util.JsonUtil").mapper()
        self.unpartitioned: Any = self.iceberg("PartitionSpec").unpartitioned()
        self.every_row: Any = self.iceberg("expressions.Expressions").alwaysTrue()

    def __call__(self, name: str) -> JavaClass:
        """Return a class. py4j resolves a dotted name with one round trip for each part, so the
        result is cached."""
        java_class = self._classes.get(name)
        if java_class is None:
            java_class = self._classes[name] = JavaClass(attrgetter(name)(self._jvm))
        return java_class

    def iceberg(self, name: str) -> JavaClass:
        """Return a class of Iceberg."""
        return self(f"org.apache.iceberg.{name}")

    def singleton(self, name: str) -> Any:
        """Return the result of the static method `get()` of an Iceberg class, which never changes.

        Reflection finds the method by its signature. py4j takes the first method of that name,
        which may be an instance method: the order of methods differs between Java releases.
        """
        instance = self._singletons.get(name)
        if instance is None:
            no_types, no_arguments = (
                self.array("java.lang.Class", []),
                self.array("java.lang.Object", []),
            )
            method = (
                self("java.lang.Class")
                .forName(f"org.apache.iceberg.{name}")
                .getMethod("get", no_types)
            )
            instance = self._singletons[name] = method.invoke(None, no_arguments)
        return instance

    def array(self, name: str, elements: Sequence[Any]) -> Any:
        """Return a Java array of a class."""
        array = self.gateway.new_array(attrgetter(name)(self._jvm), len(elements))
        for place, element in enumerate(elements):
            array[place] = element
        return array

    def list(self, texts: Iterable[str]) -> Any:
        """A Java list of texts, through JSON: one call, however long it is."""
        return self._parsed([*texts], "java.util.ArrayList")

    def set(self, texts: Iterable[str]) -> Any:
        """A Java set of texts."""
        return self._parsed([*texts], "java.util.HashSet")

    def each(self, iterable: Any) -> Iterator[Any]:
        """What a Java `Iterable` has."""
        return iter(
            self.iceberg("relocated.com.google.common.collect.Lists").newArrayList(iterable)
        )

    def objects(self, objects: Iterable[Any]) -> Any:
        """A Java list of Java objects."""
        java_list = self("java.util.ArrayList")()
        for each in objects:
            java_list.add(each)
        return java_list

    def map(self, values: Mapping[str, str]) -> Any:
        """A Java map of texts, in one call."""
        return self._parsed(dict(values), "java.util.HashMap")

    def _parsed(self, document: Any, name: str) -> Any:
        return self.mapper.readValue(json.dumps(document), self._class_object(name))

    def _class_object(self, name: str) -> Any:
        java_class = self._singletons.get(name)
        if java_class is None:
            java_class = self._singletons[name] = self("java.lang.Class").forName(name)
        return java_class

    def json(self, value: Any) -> Any:
        """A Java map or list of plain values, as Python has them."""
        return json.loads(self.mapper.writeValueAsString(value))

    def metadata(self, metadata: Any) -> TableMetadata:
        """Return the metadata of a table. A metadata file never changes, so each one is parsed
        once."""
        location = metadata.metadataFileLocation()
        parsed = self._parsed_metadata.get(location) if location is not None else None
        if parsed is None:
            parsed = TableMetadata(json.loads(self.iceberg("TableMetadataParser").toJson(metadata)))
            if location is not None:
                self._parsed_metadata[location] = parsed
                if len(self._parsed_metadata) > _KEPT_METADATA:
                    self._parsed_metadata.popitem(last=False)
        return parsed

    def schema(self, fields: Sequence[Mapping[str, Any]]) -> Any:
        """A Java schema of these columns, as fields of Iceberg's schema JSON."""
        document = {"type": "struct", "schema-id": 0, "fields": fields}
        return self.iceberg("SchemaParser").fromJson(json.dumps(document))

    def content_file(self, content: Mapping[str, Any], spec: Any) -> Any:
        """A Java content file of this partition spec, as Iceberg's JSON has it."""
        tree = self.mapper.readTree(json.dumps(content))
        return self.iceberg("ContentFileParser").fromJson(tree, spec)

    def transform(self, term: PartitionTerm) -> Any:
        """A partition or sort field as Java's term."""
        expressions = self.iceberg("expressions.Expressions")
        if term.transform == "identity":
            return expressions.ref(term.column)
        make = getattr(expressions, term.transform)
        return make(term.column) if term.argument is None else make(term.column, term.argument)

    def has_subquery(self, spark: SparkSession, sql: str) -> bool:
        """Return True if a condition in SQL contains a query. The condition is parsed, and not
        analyzed."""
        expression = spark._jsparkSession.sessionState().sqlParser().parseExpression(sql)
        return bool(
            self("org.apache.spark.sql.catalyst.expressions.SubqueryExpression").hasSubquery(
                expression
            )
        )

    def condition(self, spark: SparkSession, relation: str, sql: str) -> Any:
        """An Iceberg expression of a condition in SQL on a table's columns."""
        converter = self("org.apache.spark.sql.execution.datasources.SparkExpressionConverter")
        resolved = converter.collectResolvedSparkExpression(spark._jsparkSession, relation, sql)
        return converter.convertToIcebergExpression(resolved)

    def parquet_file(self, file: Any) -> Any:
        """A Java input file as Parquet's reader takes it: the class that does it is Iceberg's
        own."""
        by_name = self("java.lang.Class").forName
        types = self.array("java.lang.Class", [by_name("org.apache.iceberg.io.InputFile")])
        method = by_name("org.apache.iceberg.parquet.ParquetIO").getDeclaredMethod("file", types)
        method.setAccessible(True)
        return method.invoke(None, self.array("java.lang.Object", [file]))

    def is_instance(self, object_: Any, name: str) -> bool:
        return bool(self._class_object(name).isInstance(object_))
