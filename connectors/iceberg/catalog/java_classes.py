"""`JavaClasses`: looks up the Java classes of a JVM and converts values to and from Java."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from connectors.iceberg.catalog.own_classes import java_array
from connectors.iceberg.config.layout_terms import PartitionTerm
from connectors.iceberg.protocol.table_metadata import TableMetadata

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Maximum number of metadata files that a session caches. By default, at most this many tables are
# committed concurrently. A file with 1,000 snapshots requires several MB.
_CACHED_METADATA: Final = 4


class JavaClass:
    """A Java class whose static members are cached, because py4j looks up each one in the JVM."""

    def __init__(self, java_class: Any) -> None:
        self._java_class = java_class

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._java_class, name)
        self.__dict__[name] = member
        return member

    def __call__(self, *arguments: Any) -> Any:
        return self._java_class(*arguments)


class JavaClasses:
    """Looks up the Java classes of one JVM by name, and converts values to and from Java."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._classes: dict[str, JavaClass] = {}
        self._class_objects: dict[str, Any] = {}
        self._singletons: dict[str, Any] = {}
        # keyed by location of the metadata file
        self._parsed_metadata: OrderedDict[str, TableMetadata] = OrderedDict()
        self.mapper: Any = self.iceberg("util.JsonUtil").mapper()
        self.unpartitioned: Any = self.iceberg("PartitionSpec").unpartitioned()
        self.every_row: Any = self.iceberg("expressions.Expressions").alwaysTrue()

    def __call__(self, name: str) -> JavaClass:
        """Return a class by its full name.

        Classes are cached, because py4j resolves each part of a name with a round trip.
        """
        if name not in self._classes:
            self._classes[name] = JavaClass(attrgetter(name)(self.spark._jvm))
        return self._classes[name]

    def iceberg(self, name: str) -> JavaClass:
        """Return an Iceberg class by its name without `org.apache.iceberg`."""
        return self(f"org.apache.iceberg.{name}")

    def singleton(self, name: str) -> Any:
        """Return the cached result of the static method `get()` of an Iceberg class.

        The method is looked up by its signature. py4j would use the first method with this name,
        which may be an instance method because the order of methods differs between Java releases.
        """
        if name not in self._singletons:
            get = self.class_object(f"org.apache.iceberg.{name}").getMethod("get", self.types())
            self._singletons[name] = get.invoke(None, self.array("java.lang.Object", []))
        return self._singletons[name]

    # --- values

    def array(self, name: str, elements: Sequence[Any]) -> Any:
        """Return a Java array of the named class with these elements."""
        gateway: Any = self.spark.sparkContext._gateway
        return java_array(gateway, attrgetter(name)(gateway.jvm), elements)

    def types(self, *names: str) -> Any:
        """Return a Java array of class objects, for reflection."""
        return self.array("java.lang.Class", [self.class_object(name) for name in names])

    def objects(self, objects: Iterable[Any]) -> Any:
        """Return a Java list of these Java objects."""
        java_list = self("java.util.ArrayList")()
        for each in objects:
            java_list.add(each)
        return java_list

    def set(self, values: Iterable[str]) -> Any:
        """Return a Java set of strings, created with one call."""
        return self._from_json([*values], "java.util.HashSet")

    def map(self, values: Mapping[str, str]) -> Any:
        """Return a Java map of strings, created with one call."""
        return self._from_json(dict(values), "java.util.HashMap")

    def _from_json(self, document: Any, name: str) -> Any:
        return self.mapper.readValue(json.dumps(document), self.class_object(name))

    def json(self, value: Any) -> Any:
        """Convert a Java map or list of plain values to Python values."""
        return json.loads(self.mapper.writeValueAsString(value))

    def each(self, iterable: Any) -> Iterator[Any]:
        """Iterate over a Java `Iterable`."""
        return iter(
            self.iceberg("relocated.com.google.common.collect.Lists").newArrayList(iterable)
        )

    def class_object(self, name: str) -> Any:
        """Return the `java.lang.Class` of a class."""
        if name not in self._class_objects:
            self._class_objects[name] = self("java.lang.Class").forName(name)
        return self._class_objects[name]

    def is_instance(self, java_object: Any, name: str) -> bool:
        """Return True if an object is an instance of a class."""
        return bool(self.class_object(name).isInstance(java_object))

    # --- Iceberg objects

    def metadata(self, metadata: Any) -> TableMetadata:
        """Return the metadata of a table. Metadata files never change, so they are cached."""
        location = metadata.metadataFileLocation()
        parsed = self._parsed_metadata.get(location) if location is not None else None
        if parsed is None:
            parsed = TableMetadata(json.loads(self.iceberg("TableMetadataParser").toJson(metadata)))
            if location is not None:
                self._parsed_metadata[location] = parsed
                if len(self._parsed_metadata) > _CACHED_METADATA:
                    self._parsed_metadata.popitem(last=False)
        return parsed

    def schema(self, fields: Sequence[Mapping[str, Any]]) -> Any:
        """Return a Java schema for fields in Iceberg's schema JSON."""
        return self.iceberg("SchemaParser").fromJson(
            json.dumps({"type": "struct", "schema-id": 0, "fields": fields})
        )

    def content_file(self, content: Mapping[str, Any], spec: Any) -> Any:
        """Return the Java content file for its JSON representation and its partition spec."""
        return self.iceberg("ContentFileParser").fromJson(
            self.mapper.readTree(json.dumps(content)), spec
        )

    def transform(self, term: PartitionTerm) -> Any:
        """Return a partition or sort field as a Java term."""
        expressions = self.iceberg("expressions.Expressions")
        name = "ref" if term.transform == "identity" else term.transform
        arguments = () if term.argument is None else (term.argument,)
        return getattr(expressions, name)(term.column, *arguments)

    def has_subquery(self, sql: str) -> bool:
        """Return True if an SQL condition contains a subquery. It is parsed, but not analyzed."""
        expression = self.spark._jsparkSession.sessionState().sqlParser().parseExpression(sql)
        subquery = self("org.apache.spark.sql.catalyst.expressions.SubqueryExpression")
        return bool(subquery.hasSubquery(expression))

    def condition(self, relation: str, sql: str) -> Any:
        """Return the Iceberg expression for an SQL condition on the columns of a relation."""
        converter = self("org.apache.spark.sql.execution.datasources.SparkExpressionConverter")
        session = self.spark._jsparkSession
        resolved = converter.collectResolvedSparkExpression(session, relation, sql)
        return converter.convertToIcebergExpression(resolved)

    def parquet_file(self, file: Any) -> Any:
        """Convert an Iceberg input file to an input file for Parquet's reader.

        Reflection is required because Iceberg's conversion class is not public.
        """
        method = self.class_object("org.apache.iceberg.parquet.ParquetIO").getDeclaredMethod(
            "file", self.types("org.apache.iceberg.io.InputFile")
        )
        method.setAccessible(True)
        return method.invoke(None, self.array("java.lang.Object", [file]))
