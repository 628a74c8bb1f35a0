package connectpy;

import java.io.IOException;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;

import org.apache.iceberg.AppendFiles;
import org.apache.iceberg.BaseTable;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.LocationProviders;
import org.apache.iceberg.ManageSnapshots;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.RowDelta;
import org.apache.iceberg.Schema;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.SnapshotRef;
import org.apache.iceberg.SnapshotUpdate;
import org.apache.iceberg.StaticTableOperations;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.TableOperations;
import org.apache.iceberg.TableScan;
import org.apache.iceberg.Transaction;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.exceptions.CommitFailedException;
import org.apache.iceberg.exceptions.ValidationException;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.hadoop.HadoopTables;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.JsonNode;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.iceberg.spark.FileRewriteCoordinator;
import org.apache.iceberg.spark.ScanTaskSetManager;
import org.apache.iceberg.spark.SparkTableCache;
import org.apache.iceberg.spark.source.SparkRewriteTable;
import org.apache.iceberg.spark.source.SparkTable;
import org.apache.iceberg.types.Types;
import org.apache.iceberg.util.JsonUtil;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.MetadataColumn;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.types.StructType;

/** One commit to one table: staged files, row deletes, the ledger in summary and property, all in one transaction. */
public class TableCommit {
    private static final String LINEAGE = // of rows that the table has not seen; v3 asks for it when files are rewritten
        "CAST(NULL AS BIGINT) AS _row_id, CAST(NULL AS BIGINT) AS _last_updated_sequence_number";
    private static final int KEPT = 4; // prepared commits that wait for their swap; one coordinator has one

    private final SparkSession session;
    private final Catalog catalog;
    private final String stage; // name of the staging catalog
    private final Map prepared = new LinkedHashMap(); // id -> Prepared

    public TableCommit(SparkSession session, Catalog catalog, String stage) {
        this.session = session;
        this.catalog = catalog;
        this.stage = stage;
    }

    public static TableCommit make(Object[] arguments) {
        return new TableCommit((SparkSession) arguments[0], (Catalog) arguments[1], (String) arguments[2]);
    }

    /** Staged rows become data files; nothing is read. Answers with the id for `swap`. */
    public String prepareAppend(String requestJson) throws IOException {
        JsonNode request = JsonUtil.mapper().readTree(requestJson);
        return keep(append(table(request), request));
    }

    private Prepared append(Table table, JsonNode request) {
        Transaction transaction = table.newTransaction();
        LedgerCheck check = new LedgerCheck(transaction.table(), request);
        ObjectNode answer = JsonUtil.mapper().createObjectNode();
        AppendFiles append = transaction.newAppend();
        StagedFiles staged = new StagedFiles(table);
        long rows = 0;
        List files = StagedFiles.ofKind(request.get("files"), "rows");
        for (Object file : files) {
            DataFile data = staged.dataFile((JsonNode) file);
            append.appendFile(data);
            rows += data.recordCount();
        }
        answer.put("added_files", files.size());
        answer.put("added_rows", rows);
        return new Prepared(transaction, append, request, check, answer);
    }

    /** Rows with staged keys are marked as deleted where a join finds them; staged rows become data files. */
    public String prepareDelta(String requestJson) throws IOException {
        JsonNode request = JsonUtil.mapper().readTree(requestJson);
        return keep(delta(table(request), request));
    }

    /** Compare and swap what was prepared under this id. */
    public String swap(String id) {
        return ((Prepared) prepared.remove(id)).swap();
    }

    private String keep(Prepared made) {
        String id = UUID.randomUUID().toString();
        prepared.put(id, made);
        if (prepared.size() > KEPT) {
            prepared.remove(prepared.keySet().iterator().next()); // nobody came back for it
        }
        return JsonUtil.mapper().createObjectNode().put("prepared", id).toString();
    }

    private Prepared delta(Table table, JsonNode request) throws IOException {
        Transaction transaction = table.newTransaction();
        LedgerCheck check = new LedgerCheck(transaction.table(), request);
        ObjectNode answer = JsonUtil.mapper().createObjectNode();
        Snapshot head = LedgerCheck.head(table, request.get("ref").asText());
        StagedFiles staged = new StagedFiles(table);
        List dataFiles = new ArrayList();
        for (Object file : StagedFiles.ofKind(request.get("files"), "rows")) {
            dataFiles.add(staged.dataFile((JsonNode) file));
        }
        RowDelta delta = transaction.newRowDelta();
        Join join = new Join(table, head, staged, request);
        RowDeletes deletes = null;
        List completed = null;
        try {
            completed = join.completePatches(answer);
            deletes = join.deletes();
        } finally {
            join.close();
        }
        if (deletes != null && deletes.count() > 0) {
            deletes.write(TableAccess.formatVersion(table));
            for (Object file : deletes.written()) {
                delta.addDeletes((DeleteFile) file);
            }
            for (Object file : deletes.replaced()) {
                delta.removeDeletes((DeleteFile) file);
            }
            delta.validateDataFilesExist(deletes.dataFiles());
            delta.validateDeletedFiles();
        }
        long rows = 0;
        dataFiles.addAll(completed);
        for (Object file : dataFiles) {
            delta.addRows((DataFile) file);
            rows += ((DataFile) file).recordCount();
        }
        if (head != null) {
            delta.validateFromSnapshot(head.snapshotId());
        }
        if (request.get("refuse_foreign_rows").asBoolean()) {
            delta.conflictDetectionFilter(Expressions.alwaysTrue());
            delta.validateNoConflictingDataFiles();
        }
        answer.put("added_files", dataFiles.size());
        answer.put("added_rows", rows);
        answer.put("replaced_rows", deletes == null ? 0 : deletes.count());
        Prepared made = new Prepared(transaction, delta, request, check, answer);
        for (Object file : completed) {
            made.written.add(((DataFile) file).location());
        }
        if (deletes != null) {
            for (Object file : deletes.written()) {
                made.written.add(((DeleteFile) file).location());
            }
        }
        return made;
    }

    /** A branch at the head whose version is as expected, and the staged files under names that SQL can use. */
    public String prepareMerge(String requestJson) throws IOException {
        JsonNode request = JsonUtil.mapper().readTree(requestJson);
        Table table = table(request);
        ObjectNode answer = JsonUtil.mapper().createObjectNode();
        Snapshot head = LedgerCheck.head(table, request.get("ref").asText());
        LedgerCheck check = new LedgerCheck(table, request);
        if (!check.validate(LedgerCheck.ancestors(table, head))) {
            return answer.put("status", "conflict").put("reason", check.refusal()).toString();
        }
        String branch = request.get("work_branch").asText();
        boolean exists = table.refs().containsKey(branch);
        ManageSnapshots manage = table.manageSnapshots();
        try {
            if (exists) {
                manage.removeBranch(branch); // of a merge that came to nothing
            }
            if (head == null) {
                manage.createBranch(branch);
            } else {
                manage.createBranch(branch, head.snapshotId());
            }
            manage.commit();
        } catch (CommitFailedException e) {
            return answer.put("status", "failed, retry").put("reason", e.getMessage()).toString();
        }
        answer.put("status", "committed");
        answer.put("base", head == null ? null : String.valueOf(head.snapshotId()));
        ArrayNode columns = answer.putArray("columns");
        for (Object field : table.schema().columns()) {
            columns.add(((Types.NestedField) field).name());
        }
        ArrayNode sets = answer.putArray("sets");
        Map byMeaning = new LinkedHashMap(); // kind and unavailable columns -> list of files
        for (Iterator i = request.get("files").elements(); i.hasNext();) {
            JsonNode file = (JsonNode) i.next();
            String meaning = file.get("kind").asText() + file.get("unavailable").toString();
            if (!byMeaning.containsKey(meaning)) {
                byMeaning.put(meaning, new ArrayList());
            }
            ((List) byMeaning.get(meaning)).add(file);
        }
        StagedFiles staged = new StagedFiles(table);
        for (Object each : byMeaning.values()) {
            String set = "merge-" + UUID.randomUUID();
            staged.stage(set, (List) each);
            JsonNode first = (JsonNode) ((List) each).get(0);
            ObjectNode part = sets.addObject();
            part.put("set", stage + "." + quoted(set));
            part.put("kind", first.get("kind").asText());
            part.set("unavailable", first.get("unavailable"));
        }
        return answer.toString();
    }

    public String endMerge(String requestJson) throws IOException {
        JsonNode request = JsonUtil.mapper().readTree(requestJson);
        StagedFiles staged = new StagedFiles(table(request));
        for (Iterator i = request.get("sets").elements(); i.hasNext();) {
            String name = ((JsonNode) i.next()).asText();
            staged.forget(name.substring(stage.length() + 2, name.length() - 1));
        }
        return null;
    }

    /** Move the ref to the branch's snapshot, set the property and drop the branch: one change of the metadata. */
    public String publish(String requestJson) throws IOException {
        JsonNode request = JsonUtil.mapper().readTree(requestJson);
        ObjectNode answer = JsonUtil.mapper().createObjectNode();
        Table table = table(request);
        TableOperations operations = ((BaseTable) table).operations();
        TableMetadata base = operations.current();
        String ref = request.get("ref").asText();
        String branch = request.get("work_branch").asText();
        Snapshot head = LedgerCheck.head(table, ref);
        LedgerCheck check = new LedgerCheck(table, request);
        if (!check.validate(LedgerCheck.ancestors(table, head))) {
            return answer.put("status", "conflict").put("reason", check.refusal()).toString();
        }
        String found = head == null ? null : String.valueOf(head.snapshotId());
        if (!String.valueOf(found).equals(request.get("base").asText())) {
            return answer.put("status", "failed, retry").put("reason", ref + " has moved to " + found).toString();
        }
        long snapshot = ((SnapshotRef) table.refs().get(branch)).snapshotId();
        Map properties = new HashMap();
        properties.put(request.get("key").asText(), property(request, String.valueOf(snapshot)));
        TableMetadata next = TableMetadata.buildFrom(base)
            .setBranchSnapshot(snapshot, ref).removeRef(branch).setProperties(properties).build();
        try {
            operations.commit(base, next);
        } catch (CommitFailedException e) {
            return answer.put("status", "failed, retry").put("reason", e.getMessage()).toString();
        }
        answer.put("status", "committed").put("snapshot", String.valueOf(snapshot)).put("reason", "");
        Map summary = table.snapshot(snapshot).summary();
        answer.put("added_files", number(summary, "added-data-files"));
        answer.put("added_rows", number(summary, "added-records"));
        return answer.toString();
    }

    /**
     * Commit by append and by delta to a scratch table outside of any catalog, so that the first real commit finds
     * loaded classes and compiled queries. Only where tasks run in this JVM: elsewhere they would not see its files.
     */
    public void warmUp(int rows, int rounds) throws Exception {
        if (!session.sparkContext().isLocal()) {
            return;
        }
        String location = Files.createTempDirectory("connect-py-warm-up").toUri() + "table";
        Schema schema = new Schema(
            Types.NestedField.required(1, "id", Types.LongType.get()),
            Types.NestedField.optional(2, "text", Types.StringType.get()));
        Map properties = new HashMap();
        properties.put("format-version", "3");
        HadoopTables tables = new HadoopTables(session.sparkContext().hadoopConfiguration());
        Table table = tables.create(schema, PartitionSpec.unpartitioned(), properties, location);
        try {
            ObjectNode request = scratchRequest(table, rows);
            for (int round = 0; round <= rounds; round++) {
                Table now = tables.load(location);
                ObjectNode answer = (ObjectNode) JsonUtil.mapper().readTree(
                    (round == 0 ? append(now, request) : delta(now, request)).swap());
                if (!answer.get("status").asText().equals("committed")) {
                    throw new IllegalStateException("the warm-up did not commit: " + answer);
                }
                String snapshot = answer.get("snapshot").asText();
                ((ObjectNode) request.get("expected")).put("ledger", snapshot).put("property", snapshot);
            }
        } finally {
            tables.dropTable(location, true);
        }
    }

    /** Upserts of all `rows` keys of the scratch table, staged in one file. */
    private ObjectNode scratchRequest(Table table, int rows) throws Exception {
        String set = "warm-up-" + UUID.randomUUID();
        SparkTableCache.get().add(set, table);
        session.sql("SELECT id, CAST(id AS STRING) AS text, " + LINEAGE + " FROM range(0, " + rows + ", 1, 1)")
            .writeTo(stage + "." + quoted(set)).append();
        DataFile file = (DataFile) FileRewriteCoordinator.get().fetchNewFiles(table, set).iterator().next();
        FileRewriteCoordinator.get().clearRewrite(table, set);
        SparkTableCache.get().remove(set);
        String uuid = table.uuid().toString();
        ObjectNode request = JsonUtil.mapper().createObjectNode();
        request.put("ref", "main").put("key", "warm-up").put("placeholder", "SNAPSHOT");
        request.put("template", "{\"table\":\"" + uuid + "\",\"snapshot\":SNAPSHOT}");
        request.put("refuse_foreign_rows", false).put("file_prefix", "warm-up-");
        request.putObject("summary").put("warm-up", "{\"table\":\"" + uuid + "\"}");
        request.putObject("expected").put("uuid", uuid).putNull("ledger").putNull("property");
        request.putArray("key_columns").add("id");
        ObjectNode staged = request.putArray("files").addObject();
        staged.put("kind", "rows").put("path", file.location()).put("rows", rows).put("spec_id", 0);
        staged.put("size", file.fileSizeInBytes());
        staged.putArray("partition");
        staged.putArray("unavailable");
        return request;
    }

    private static long number(Map summary, String key) {
        String value = (String) summary.get(key);
        return value == null ? 0 : Long.parseLong(value);
    }

    /** A transaction that lacks only its end: summary, check, property, and out. */
    private static class Prepared {
        private final Transaction transaction;
        private final SnapshotUpdate update;
        private final JsonNode request;
        private final LedgerCheck check;
        private final ObjectNode answer;
        private final Set written = new HashSet(); // paths of what was written to prepare it

        Prepared(
            Transaction transaction, SnapshotUpdate update, JsonNode request, LedgerCheck check, ObjectNode answer) {
            this.transaction = transaction;
            this.update = update;
            this.request = request;
            this.check = check;
            this.answer = answer;
        }

        String swap() {
            String ref = request.get("ref").asText();
            for (Iterator i = request.get("summary").fields(); i.hasNext();) {
                Map.Entry entry = (Map.Entry) i.next();
                update.set((String) entry.getKey(), ((JsonNode) entry.getValue()).asText());
            }
            if (!ref.equals("main")) {
                update.toBranch(ref);
            }
            update.validateWith(check);
            try {
                update.commit();
                String snapshot = String.valueOf(((SnapshotRef) transaction.table().refs().get(ref)).snapshotId());
                transaction.updateProperties().set(request.get("key").asText(), property(request, snapshot)).commit();
                transaction.commitTransaction();
                answer.put("status", "committed").put("snapshot", snapshot).put("reason", "");
            } catch (ValidationException e) {
                answer.put("status", check.refusal() != null ? "conflict" : "failed, retry");
                answer.put("reason", e.getMessage());
                removeWritten();
            } catch (CommitFailedException e) {
                answer.put("status", "failed, retry").put("reason", e.getMessage());
                removeWritten();
            }
            return answer.toString();
        }

        /** It surely did not land, so nothing refers to its own files. Staged files are never touched. */
        private void removeWritten() {
            for (Object path : written) {
                try {
                    transaction.table().io().deleteFile((String) path);
                } catch (RuntimeException e) {
                    continue; // an orphan with our name; a later epoch removes it
                }
            }
        }
    }

    private static String property(JsonNode request, String snapshot) {
        return request.get("template").asText().replace(request.get("placeholder").asText(), snapshot);
    }

    private Table table(JsonNode request) {
        return catalog.loadTable(TableAccess.identifier(request.get("table").asText()));
    }

    private static String quoted(String name) {
        return "`" + name.replace("`", "``") + "`";
    }

    /** The staged keys against the rows of the table: everything of a delta that Spark does. */
    private class Join {
        private final Table table;
        private final StagedFiles staged;
        private final JsonNode request;
        private final List scanned = new ArrayList();
        private final List sets = new ArrayList();
        private final String id = UUID.randomUUID().toString();
        private String targetSet;

        Join(Table table, Snapshot head, StagedFiles staged, JsonNode request) throws IOException {
            this.table = table;
            this.staged = staged;
            this.request = request;
            List files = new ArrayList();
            for (Iterator i = request.get("files").elements(); i.hasNext();) {
                files.add(i.next());
            }
            if (head != null && !files.isEmpty()) {
                JsonNode key = (JsonNode) request.get("key_columns").get(0);
                TableScan scan = (TableScan) table.newScan().useSnapshot(head.snapshotId());
                Types.NestedField then = scan.schema().findField(key.asText());
                if (then != null && then.fieldId() == table.schema().findField(key.asText()).fieldId()) {
                    scan = (TableScan) scan.filter(staged.keyRanges(files, key.asText()));
                }
                // which files matter is enough: filters within a file cost more than they spare
                CloseableIterable tasks = (CloseableIterable) ((TableScan) scan.ignoreResiduals()).planFiles();
                for (Object task : tasks) {
                    scanned.add(task);
                }
                tasks.close();
            }
        }

        /** The positions of all rows with a staged key; null: there cannot be any. */
        RowDeletes deletes() {
            List files = new ArrayList();
            for (Iterator i = request.get("files").elements(); i.hasNext();) {
                files.add(i.next());
            }
            if (scanned.isEmpty() || files.isEmpty()) {
                return null;
            }
            String keys = stage("keys", files);
            RowDeletes deletes = new RowDeletes(table, scanned, request.get("file_prefix").asText());
            Dataset found = (Dataset) session.sql("SELECT t._file, t._pos FROM " + target() + " t JOIN " + keys
                + " s ON " + keysMatch());
            deletes.collect(found.queryExecution().executedPlan());
            return deletes;
        }

        /** Patched rows with the values that only the table has, written as data files. */
        List completePatches(ObjectNode answer) {
            List patches = StagedFiles.ofKind(request.get("files"), "patches");
            List completed = new ArrayList();
            if (patches.isEmpty()) {
                return completed;
            }
            Map byColumns = new LinkedHashMap(); // text of the unavailable columns -> list of files
            for (Object file : patches) {
                String columns = ((JsonNode) file).get("unavailable").toString();
                if (!byColumns.containsKey(columns)) {
                    byColumns.put(columns, new ArrayList());
                }
                ((List) byColumns.get(columns)).add(file);
            }
            String out = "completed-" + id;
            StringBuilder query = new StringBuilder();
            StringBuilder missing = new StringBuilder();
            int number = 0;
            for (Object each : byColumns.values()) {
                String source = stage("patches-" + number++, (List) each);
                query.append(query.length() == 0 ? "" : " UNION ALL ").append(completion(source, (List) each));
                missing.append(missing.length() == 0 ? "" : " UNION ALL ").append(unmatched(source));
            }
            sets.add(out);
            SparkTableCache.get().add(out, writingBelow(request.get("file_prefix").asText()));
            try {
                session.sql(query.toString()).writeTo(stage + "." + quoted(out))
                    .option("fanout-enabled", "true").append();
            } catch (org.apache.spark.sql.catalyst.analysis.NoSuchTableException e) {
                throw new IllegalStateException("the staging catalog lost " + out, e);
            }
            completed.addAll(FileRewriteCoordinator.get().fetchNewFiles(table, out));
            FileRewriteCoordinator.get().clearRewrite(table, out);
            long count = scanned.isEmpty() ? rows(patches) : session.sql(missing.toString()).count();
            answer.put("unmatched_patches", count);
            return completed;
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
                columns.append(columns.length() == 0 ? "" : ", ").append(fromTable ? "t." : "s.").append(quoted(name));
            }
            if (TableAccess.formatVersion(table) >= 3) {
                columns.append(", ").append(LINEAGE);
            }
            return "SELECT " + columns + " FROM " + source + " s"
                + (scanned.isEmpty() ? "" : " LEFT JOIN " + target() + " t ON " + keysMatch());
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
                    .createOrReplaceTempView(quoted(targetSet));
            }
            return quoted(targetSet);
        }

        private String stage(String name, List files) {
            String set = name + "-" + id;
            sets.add(set);
            staged.stage(set, files);
            return stage + "." + quoted(set);
        }

        private String keysMatch() {
            StringBuilder condition = new StringBuilder();
            for (Iterator i = request.get("key_columns").elements(); i.hasNext();) {
                String column = quoted(((JsonNode) i.next()).asText());
                condition.append(condition.length() == 0 ? "" : " AND ");
                condition.append("t.").append(column).append(" = s.").append(column);
            }
            return condition.toString();
        }

        private long rows(List files) {
            long rows = 0;
            for (Object file : files) {
                rows += ((JsonNode) file).get("rows").asLong();
            }
            return rows;
        }

        void close() {
            for (Object set : sets) {
                staged.forget((String) set);
            }
            if (targetSet != null) {
                session.catalog().dropTempView(quoted(targetSet));
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
