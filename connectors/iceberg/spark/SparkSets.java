package connectpy;

import java.util.ArrayList;
import java.util.List;

import org.apache.iceberg.BaseFileScanTask;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.PartitionSpecParser;
import org.apache.iceberg.SchemaParser;
import org.apache.iceberg.Table;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.expressions.ResidualEvaluator;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.JsonNode;
import org.apache.iceberg.spark.ScanTaskSetManager;
import org.apache.iceberg.spark.SparkTableCache;

/** Staged files of one table under names that Spark's SQL can use: tables of the staging catalog. */
public class SparkSets {
    private final Table table;
    private final StagedFiles staged;

    public SparkSets(Table table) {
        this.table = table;
        this.staged = new StagedFiles(table);
    }

    /**
     * Let Spark read these files as the table `set`. `forget` it afterwards.
     *
     * They are shown as files without a partition: a reader takes identity partition columns from the partition, and
     * deletes and patches have none.
     */
    public void stage(String set, List files) {
        String schema = SchemaParser.toJson(table.schema());
        PartitionSpec none = PartitionSpec.unpartitioned();
        List tasks = new ArrayList();
        for (Object each : files) {
            JsonNode file = (JsonNode) each;
            DataFile data = staged.builder(file, none).withRecordCount(file.get("rows").asLong()).build();
            tasks.add(new BaseFileScanTask(data, new DeleteFile[0], schema, PartitionSpecParser.toJson(none),
                ResidualEvaluator.unpartitioned(Expressions.alwaysTrue())));
        }
        SparkTableCache.get().add(set, table);
        ScanTaskSetManager.get().stageTasks(table, set, tasks);
    }

    public void forget(String set) {
        ScanTaskSetManager.get().removeTasks(table, set);
        SparkTableCache.get().remove(set);
    }

    public static String quoted(String name) {
        return "`" + name.replace("`", "``") + "`";
    }
}
