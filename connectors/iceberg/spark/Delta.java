package connectpy;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;

import org.apache.iceberg.DataFile;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileContent;
import org.apache.iceberg.FileFormat;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.OverwriteFiles;
import org.apache.iceberg.RowDelta;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.SnapshotUpdate;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableScan;
import org.apache.iceberg.Transaction;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.JsonNode;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.iceberg.types.Types;
import org.apache.iceberg.util.ContentFileUtil;
import org.apache.iceberg.util.JsonUtil;

/**
 * A delta on its way: the table as it is, the files where rows with staged keys may be, and those rows once somebody has
 * found them, which is either the coordinator (it reads key columns with Arrow) or Spark.
 */
public class Delta {
    private final Table table;
    private final SureOperations operations;
    private final Transaction transaction;
    private final JsonNode request;
    private final LedgerCheck check;
    private final Snapshot head;
    private final List staged = new ArrayList(); // JsonNode: every staged file
    private final List added = new ArrayList(); // DataFile: joins the table
    private final List completed = new ArrayList(); // DataFile: those of `added` that were written for this delta
    private final List scanned = new ArrayList(); // FileScanTask
    private final RowDeletes deletes;
    private boolean truncates = false; // whatever is in the table goes
    private long unmatchedPatches = 0;

    public Delta(Table table, JsonNode request) throws IOException {
        this.table = table;
        this.request = request;
        this.operations = SureOperations.of(table, request);
        this.transaction = operations.transaction();
        this.check = new LedgerCheck(transaction.table(), request);
        this.head = LedgerCheck.head(table, request.get("ref").asText());
        StagedFiles files = new StagedFiles(table);
        for (Iterator i = request.get("files").elements(); i.hasNext();) {
            JsonNode file = (JsonNode) i.next();
            String kind = file.get("kind").asText();
            if (kind.equals("truncates")) {
                truncates = true;
                continue;
            }
            staged.add(file);
            if (kind.equals("rows")) {
                added.add(files.dataFile(file));
            }
        }
        if (head != null && !staged.isEmpty() && !truncates) {
            scan(files);
        }
        this.deletes = new RowDeletes(table, scanned, request.get("file_prefix").asText());
    }

    private void scan(StagedFiles files) throws IOException {
        String key = ((JsonNode) request.get("key_columns").get(0)).asText();
        TableScan scan = (TableScan) table.newScan().useSnapshot(head.snapshotId());
        Types.NestedField then = scan.schema().findField(key);
        if (then != null && then.fieldId() == table.schema().findField(key).fieldId()) {
            scan = (TableScan) scan.filter(files.keyRanges(staged, key));
        }
        // which files matter is enough: filters within a file cost more than they spare
        CloseableIterable tasks = (CloseableIterable) ((TableScan) scan.ignoreResiduals()).planFiles();
        for (Object task : tasks) {
            if (lives((FileScanTask) task)) {
                scanned.add(task);
            }
        }
        tasks.close();
    }

    /** Whether a file has rows that are not deleted, as far as metadata say: hot keys leave many that have none. */
    private static boolean lives(FileScanTask task) {
        long left = task.file().recordCount();
        for (Object each : task.deletes()) {
            DeleteFile file = (DeleteFile) each;
            if (file.content() == FileContent.POSITION_DELETES && ContentFileUtil.isDV(file)) {
                left -= file.recordCount();
            }
        }
        return left > 0;
    }

    /**
     * Where rows with staged keys may be. `plain`: Parquet files without equality deletes, whose key columns anybody can
     * read.
     */
    public ObjectNode describe() {
        ObjectNode answer = JsonUtil.mapper().createObjectNode();
        boolean plain = true;
        ArrayNode files = answer.putArray("files");
        for (Object each : scanned) {
            FileScanTask task = (FileScanTask) each;
            plain = plain && task.file().format() == FileFormat.PARQUET;
            for (Object delete : task.deletes()) {
                plain = plain && ((DeleteFile) delete).content() == FileContent.POSITION_DELETES;
            }
            files.addObject().put("path", task.file().location()).put("rows", task.file().recordCount());
        }
        answer.put("plain", plain);
        ArrayNode ids = answer.putArray("key_ids");
        for (Iterator i = request.get("key_columns").elements(); i.hasNext();) {
            ids.add(table.schema().findField(((JsonNode) i.next()).asText()).fieldId());
        }
        return answer;
    }

    /** All deletes and all added rows as one `RowDelta`, or what replaces every row, ready for its swap. */
    public Prepared prepare() throws IOException {
        return truncates ? prepareTruncate() : prepareDelta();
    }

    private Prepared prepareTruncate() {
        OverwriteFiles overwrite = (OverwriteFiles) transaction.newOverwrite();
        overwrite.overwriteByRowFilter(Expressions.alwaysTrue()); // that of the head that it lands on: compaction may go on
        long rows = 0;
        for (Object file : added) {
            overwrite.addFile((DataFile) file);
            rows += ((DataFile) file).recordCount();
        }
        String gone = head == null ? null : (String) head.summary().get("total-records");
        ObjectNode answer = JsonUtil.mapper().createObjectNode();
        answer.put("added_files", added.size()).put("added_rows", rows);
        answer.put("replaced_rows", gone == null ? 0 : Long.parseLong(gone)).put("unmatched_patches", unmatchedPatches);
        return prepared(overwrite, answer);
    }

    private Prepared prepareDelta() throws IOException {
        RowDelta delta = transaction.newRowDelta();
        deletes.write(TableAccess.formatVersion(table));
        if (deletes.count() > 0) {
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
        for (Object file : added) {
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
        ObjectNode answer = JsonUtil.mapper().createObjectNode();
        answer.put("added_files", added.size()).put("added_rows", rows);
        answer.put("replaced_rows", deletes.count()).put("unmatched_patches", unmatchedPatches);
        return prepared(delta, answer);
    }

    private Prepared prepared(SnapshotUpdate update, ObjectNode answer) {
        return new Prepared(table, operations, transaction, update, request, check, answer, written());
    }

    /** Paths of what was written for this delta, and nobody needs unless its commit lands. */
    private List written() {
        List paths = new ArrayList();
        for (Object file : completed) {
            paths.add(((DataFile) file).location());
        }
        for (Object file : deletes.written()) {
            paths.add(((DeleteFile) file).location());
        }
        return paths;
    }

    /** It comes to nothing. */
    public void discard() {
        Prepared.remove(table, written());
    }

    public Table table() {
        return table;
    }

    public JsonNode request() {
        return request;
    }

    public List staged() {
        return staged;
    }

    public List scanned() {
        return scanned;
    }

    public RowDeletes deletes() {
        return deletes;
    }

    /** Patched rows, completed in files written for this delta; `unmatched` of them are new to the table. */
    public void complete(List files, long unmatched) {
        completed.addAll(files);
        added.addAll(files);
        unmatchedPatches = unmatched;
    }
}
