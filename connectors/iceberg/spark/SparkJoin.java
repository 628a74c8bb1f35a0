package connectpy;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;

import org.apache.iceberg.BaseTable;
import org.apache.iceberg.LocationProviders;
import org.apache.iceberg.StaticTableOperations;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.JsonNode;
import org.apache.iceberg.spark.FileRewriteCoordinator;
import org.apache.iceberg.spark.ScanTaskSetManager;
import org.apache.iceberg.spark.SparkTableCache;
import org.apache.iceberg.spark.source.SparkRewriteTable;
import org.apache.iceberg.spark.source.SparkTable;
import org.apache.iceberg.types.Types;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.MetadataColumn;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/** The staged keys of a delta against the rows of the table, where Spark has to read them. */
public class SparkJoin {
    private static final String LINEAGE = // of rows that the table has not seen; v3 asks for it when files are rewritten
        "CAST(NULL AS BIGINT) AS _row_id, CAST(NULL AS BIGINT) AS _last_updated_sequence_number";

    private final SparkSession session;
    private final TableCommit commit;
    private final String stage; // name of the staging catalog

    public SparkJoin(SparkSession session, TableCommit commit, String stage) {
        this.session = session;
        this.commit = commit;
        this.stage = stage;
    }

    /** `arguments`: session, catalog, `TableCommit`, name of the staging catalog. */
    public static SparkJoin make(Object[] arguments) {
        return new SparkJoin((SparkSession) arguments[0], (TableCommit) arguments[2], (String) arguments[3]);
    }

    /** Complete the patches of a planned delta, and give it the rows with staged keys. */
    public String join(String id) {
        Work work = new Work(commit.delta(id));
        try {
            work.completePatches();
            work.findRows();
        } finally {
            work.close();
        }
        return null;
    }

    /** One delta's. */
    private class Work {
        private final Delta delta;
        private final Table table;
        private final List scanned;
        private final SparkSets named;
        private final List sets = new ArrayList();
        private final String id = UUID.randomUUID().toString();
        private String targetSet;

        Work(Delta delta) {
            this.delta = delta;
            this.table = delta.table();
            this.scanned = delta.scanned();
            this.named = new SparkSets(table);
        }

        private void findRows() {
            if (scanned.isEmpty() || delta.staged().isEmpty()) {
                return;
            }
            String keys = stage("keys", delta.staged());
            Dataset found = (Dataset) session.sql("SELECT t._file, t._pos FROM " + target() + " t JOIN " + keys
                + " s ON " + keysMatch());
            scala.Tuple2 counted = (scala.Tuple2) found.queryExecution().executedPlan().executeCollectIterator();
            scala.collection.Iterator rows = (scala.collection.Iterator) counted._2();
            UTF8String path = null;
            String text = null;
            while (rows.hasNext()) {
                InternalRow row = (InternalRow) rows.next();
                UTF8String next = row.getUTF8String(0);
                if (!next.equals(path)) {
                    path = next.clone(); // the row's memory is used again
                    text = path.toString();
                }
                delta.deletes().add(text, row.getLong(1));
            }
        }

        /** Patched rows with the values that only the table has, written as data files. */
        private void completePatches() {
            List patches = StagedFiles.ofKind(delta.request().get("files"), "patches");
            if (patches.isEmpty()) {
                return;
            }
            Map byColumns = new LinkedHashMap(); // text of the unavailable columns -> list of files
            for (Object file : patches) {
                if (isOptional((JsonNode) file) && scanned.isEmpty()) {
                    continue; // there is nothing to mark
                }
                String columns = ((JsonNode) file).get("unavailable").toString() + isOptional((JsonNode) file);
                if (!byColumns.containsKey(columns)) {
                    byColumns.put(columns, new ArrayList());
                }
                ((List) byColumns.get(columns)).add(file);
            }
            if (byColumns.isEmpty()) {
                return;
            }
            String out = "completed-" + id;
            StringBuilder query = new StringBuilder();
            StringBuilder missing = new StringBuilder();
            int number = 0;
            for (Object each : byColumns.values()) {
                String source = stage("patches-" + number++, (List) each);
                query.append(query.length() == 0 ? "" : " UNION ALL ").append(completion(source, (List) each));
                if (!isOptional((JsonNode) ((List) each).get(0))) {
                    missing.append(missing.length() == 0 ? "" : " UNION ALL ").append(unmatched(source));
                }
            }
            sets.add(out);
            SparkTableCache.get().add(out, writingBelow(delta.request().get("file_prefix").asText()));
            try {
                session.sql(query.toString()).writeTo(stage + "." + SparkSets.quoted(out))
                    .option("fanout-enabled", "true").append();
            } catch (org.apache.spark.sql.catalyst.analysis.NoSuchTableException e) {
                throw new IllegalStateException("the staging catalog lost " + out, e);
            }
            List completed = new ArrayList(FileRewriteCoordinator.get().fetchNewFiles(table, out));
            FileRewriteCoordinator.get().clearRewrite(table, out);
            long unmatched = missing.length() == 0 ? 0 : session.sql(missing.toString()).count();
            delta.complete(completed, scanned.isEmpty() ? rows(patches) : unmatched);
        }

        /** Whether rows that the table does not have are left out. */
        private boolean isOptional(JsonNode file) {
            return file.get("optional").asBoolean();
        }

        /**
         * The table, as writers see it who give files names of their own: they go to a folder that has our name, so that
         * clean-up finds those of a commit that died.
         */
        private Table writingBelow(String folder) {
            TableMetadata now = ((BaseTable) table).operations().current();
            Map properties = new HashMap(now.properties());
            properties.put("write.data.path", TableAccess.dataLocation(table) + "/" + folder);
            return new BaseTable(new StaticTableOperations(now.replaceProperties(properties), table.io(),
                LocationProviders.locationsFor(table.location(), properties)), table.name());
        }

        private String completion(String source, List files) {
            List unavailable = new ArrayList();
            for (Iterator i = ((JsonNode) files.get(0)).get("unavailable").elements(); i.hasNext();) {
                unavailable.add(((JsonNode) i.next()).asText());
            }
            StringBuilder columns = new StringBuilder();
            for (Object field : table.schema().columns()) {
                String name = ((Types.NestedField) field).name();
                boolean fromTable = unavailable.contains(name) && !scanned.isEmpty();
                columns.append(columns.length() == 0 ? "" : ", ").append(fromTable ? "t." : "s.").append(SparkSets.quoted(name));
            }
            if (TableAccess.formatVersion(table) >= 3) {
                columns.append(", ").append(LINEAGE);
            }
            return "SELECT " + columns + " FROM " + source + " s"
                + (scanned.isEmpty() ? "" : (isOptional((JsonNode) files.get(0)) ? " JOIN " : " LEFT JOIN ") + target() + " t ON " + keysMatch());
        }

        private String unmatched(String source) {
            return scanned.isEmpty() ? "" : "SELECT 1 FROM " + source + " s LEFT ANTI JOIN " + target() + " t ON "
                + keysMatch();
        }

        private String target() {
            if (targetSet == null) {
                targetSet = "target-" + id;
                sets.add(targetSet);
                ScanTaskSetManager.get().stageTasks(table, targetSet, scanned);
                Dataset$.MODULE$.ofRows(session, DataSourceV2Relation.create(
                    new Target(table, targetSet), scala.Option.empty(), scala.Option.empty()))
                    .selectExpr(new String[] {"*", "_file", "_pos"}) // a view shows what is named
                    .createOrReplaceTempView(SparkSets.quoted(targetSet));
            }
            return SparkSets.quoted(targetSet);
        }

        private String stage(String name, List files) {
            String set = name + "-" + id;
            sets.add(set);
            named.stage(set, files);
            return stage + "." + SparkSets.quoted(set);
        }

        private String keysMatch() {
            StringBuilder condition = new StringBuilder();
            for (Iterator i = delta.request().get("key_columns").elements(); i.hasNext();) {
                String column = SparkSets.quoted(((JsonNode) i.next()).asText());
                condition.append(condition.length() == 0 ? "" : " AND ");
                condition.append("t.").append(column).append(" = s.").append(column);
            }
            return condition.toString();
        }

        private long rows(List files) {
            long rows = 0;
            for (Object file : files) {
                rows += isOptional((JsonNode) file) ? 0 : ((JsonNode) file).get("rows").asLong();
            }
            return rows;
        }

        private void close() {
            for (Object set : sets) {
                named.forget((String) set);
            }
            if (targetSet != null) {
                session.catalog().dropTempView(SparkSets.quoted(targetSet));
            }
        }
    }

    /** The rows of an earlier scan, with the columns `_file` and `_pos` that such a table otherwise hides. */
    private static class Target extends SparkRewriteTable {
        private final SparkTable shown;

        Target(Table table, String set) {
            super(table, set);
            this.shown = new SparkTable(table);
        }

        public StructType schema() {
            return shown.schema();
        }

        public MetadataColumn[] metadataColumns() {
            return shown.metadataColumns();
        }
    }
}
