"""`JavaCatalog`: a catalog as Iceberg's Java classes present it, called through py4j."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from connectors.iceberg.catalog.java_classes import JavaClasses
from connectors.iceberg.catalog.java_errors import EXCEPTIONS, is_a, translating
from connectors.iceberg.catalog.java_table import JavaTable
from connectors.iceberg.catalog.sql_names import relation
from connectors.iceberg.errors import TableMissingError, TableUnsuitableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# a format 3 writer asks for them when it rewrites rows
_LINEAGE: Final = ("_row_id", "_last_updated_sequence_number")


class JavaCatalog:
    """One Iceberg catalog of a Spark session. Names are split on every dot: `a.b.t` is table `t` in
    namespace `a.b`."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        self._spark = spark
        self._name = name
        self.java = JavaClasses(spark)
        self._catalog = self.java.iceberg("spark.Spark3Util").loadIcebergCatalog(
            spark._jsparkSession, name
        )

    def load(self, name: str) -> JavaTable:
        found = self._catalog.loadTable(self._identifier(name))
        if not self.java.is_instance(found, "org.apache.iceberg.HasTableOperations"):
            raise TableUnsuitableError(name, "is a metadata table")
        return JavaTable(self._spark, self.java, found, name)

    def find(self, name: str) -> JavaTable | None:
        """The table; None if there is none."""
        try:
            with translating(name):
                return self.load(name)
        except TableMissingError:
            return None

    def create(
        self, name: str, schema: str, spec: str | None, properties: Mapping[str, str]
    ) -> bool:
        """Returns False when the table exists already."""
        java = self.java
        identifier = self._identifier(name)
        parsed = java.iceberg("SchemaParser").fromJson(schema)
        by = (
            java.unpartitioned
            if spec is None
            else java.iceberg("PartitionSpecParser").fromJson(parsed, spec)
        )
        self._create_namespaces(name.split(".")[:-1])
        try:
            self._catalog.createTable(identifier, parsed, by, java.map(properties))
        except Exception as error:
            if is_a(error, f"{EXCEPTIONS}AlreadyExistsException"):
                return False
            raise
        return True

    def _identifier(self, name: str) -> Any:
        return self.java.iceberg("catalog.TableIdentifier").parse(name)

    def _create_namespaces(self, levels: Sequence[str]) -> None:
        """Every level; one that exists, or that only an administrator may make, is no obstacle."""
        for length in range(1, len(levels) + 1):
            with suppress(Exception):  # the error of the table's creation is the one that counts
                self._spark.sql(
                    f"CREATE NAMESPACE IF NOT EXISTS "
                    f"{relation(self._name, '.'.join(levels[:length]))}"
                )
