package connectpy;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

import org.apache.iceberg.arrow.ArrowAllocation;
import org.apache.iceberg.shaded.org.apache.arrow.memory.BufferAllocator;
import org.apache.iceberg.spark.functions.SparkFunctions;
import org.apache.iceberg.spark.source.SparkTable;
import org.apache.spark.sql.catalyst.analysis.NoSuchFunctionException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.connector.catalog.FunctionCatalog;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.functions.UnboundFunction;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A Spark catalog with the recorded tables of this JVM. Spark creates an instance of the class for each session to look
 * up tables by name, so Python cannot implement it.
 */
public class RecordedCatalog implements TableCatalog, FunctionCatalog {
    private static final Map TABLES = new ConcurrentHashMap();
    private String name;

    public static void add(String key, RecordedTable table) {
        TABLES.put(key, table);
    }

    /** Removes a table after its MERGE has ended. */
    public static void remove(String key) {
        TABLES.remove(key);
        if (TABLES.isEmpty()) {
            closeUnusedAllocators();
        }
    }

    /**
     * Closes the allocators that Iceberg's vectorized readers leave behind, one for each task. They would accumulate in
     * a JVM that runs for days. An allocator without memory is not in use. If a task allocates from it at this moment,
     * closing it either fails or only removes it from its parent.
     */
    private static void closeUnusedAllocators() {
        Object[] allocators = ArrowAllocation.rootAllocator().getChildAllocators().toArray();
        for (int i = 0; i < allocators.length; i++) {
            BufferAllocator allocator = (BufferAllocator) allocators[i];
            if (allocator.getAllocatedMemory() == 0) {
                try {
                    allocator.close();
                } catch (IllegalStateException inUse) {
                    continue; // a task has allocated memory since the check; the next MERGE tries again
                }
            }
        }
    }

    public void initialize(String name, CaseInsensitiveStringMap options) {
        this.name = name;
    }

    public String name() {
        return name;
    }

    public Table loadTable(Identifier identifier) throws NoSuchTableException {
        RecordedTable table = (RecordedTable) TABLES.get(identifier.name());
        if (table == null) {
            throw new NoSuchTableException(identifier);
        }
        return SparkTable.create(table, table.branch());
    }

    public Identifier[] listFunctions(String[] namespace) {
        return new Identifier[0];
    }

    /** Spark orders rows by the partition and sort transforms of a table, which are functions of its catalog. */
    public UnboundFunction loadFunction(Identifier identifier) throws NoSuchFunctionException {
        UnboundFunction function = SparkFunctions.load(identifier.name());
        if (function == null) {
            throw new NoSuchFunctionException(identifier);
        }
        return function;
    }

    public Identifier[] listTables(String[] namespace) {
        return new Identifier[0];
    }

    public Table alterTable(Identifier identifier, TableChange[] changes) {
        throw new UnsupportedOperationException("alterTable");
    }

    public boolean dropTable(Identifier identifier) {
        throw new UnsupportedOperationException("dropTable");
    }

    public void renameTable(Identifier from, Identifier to) {
        throw new UnsupportedOperationException("renameTable");
    }
}
