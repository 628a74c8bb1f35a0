package connectpy;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;

import org.apache.iceberg.AppendFiles;
import org.apache.iceberg.BaseTable;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.SnapshotRef;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.TableOperations;
import org.apache.iceberg.Transaction;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.exceptions.CommitFailedException;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.JsonNode;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.iceberg.util.JsonUtil;

/**
 * One commit to one table: staged files, row deletes, the ledger in summary and property, all in one transaction. Works on
 * Iceberg's own interfaces: nothing here needs Spark.
 */
public class TableCommit {
    private static final int KEPT = 4; // commits under way; one coordinator has one

    private final Catalog catalog;
    private final Map deltas = new LinkedHashMap(); // id -> Delta
    private final Map prepared = new LinkedHashMap(); // id -> Prepared

    public TableCommit(Catalog catalog) {
        this.catalog = catalog;
    }

    /** `arguments`: the catalog. */
    public static TableCommit make(Object[] arguments) {
        return new TableCommit((Catalog) arguments[0]);
    }

    /** Staged rows become data files; nothing is read. Answers with the id for `swap`. */
    public String prepareAppend(String requestJson) throws IOException {
        JsonNode request = JsonUtil.mapper().readTree(requestJson);
        Table table = table(request);
        SureOperations operations = SureOperations.of(table, request);
        Transaction transaction = operations.transaction();
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
        answer.put("added_files", files.size()).put("added_rows", rows);
        String id = keep(prepared, new Prepared(
            table, operations, transaction, append, request, check, answer, new ArrayList()));
        return JsonUtil.mapper().createObjectNode().put("prepared", id).toString();
    }

    /** Begin a delta. Answers with its id and with the files of the table where rows with staged keys may be. */
    public String planDelta(String requestJson) throws IOException {
        JsonNode request = JsonUtil.mapper().readTree(requestJson);
        Delta delta = new Delta(table(request), request);
        return delta.describe().put("delta", keep(deltas, delta)).toString();
    }

    /** One under way, for whoever looks for its rows. */
    public Delta delta(String id) {
        return (Delta) deltas.get(id);
    }

    /**
     * Rows with staged keys are marked as deleted, staged rows become data files. Answers with the id for `swap`.
     *
     * `found`: the rows with staged keys, as `RowDeletes.addAll` takes them; empty: somebody else gave them to the delta, or
     * there are none.
     */
    public String prepareDelta(String id, byte[] found) throws IOException {
        Delta delta = (Delta) deltas.remove(id);
        boolean done = false;
        try {
            delta.deletes().addAll(found);
            String made = keep(prepared, delta.prepare());
            done = true;
            return JsonUtil.mapper().createObjectNode().put("prepared", made).toString();
        } finally {
            if (!done) {
                delta.discard();
            }
        }
    }

    /** Compare and swap what was prepared under this id. */
    public String swap(String id) {
        return ((Prepared) prepared.remove(id)).swap();
    }

    private static String keep(Map kept, Object made) {
        String id = UUID.randomUUID().toString();
        kept.put(id, made);
        if (kept.size() > KEPT) {
            kept.remove(kept.keySet().iterator().next()); // nobody came back for it
        }
        return id;
    }

    /**
     * Move the ref to the work branch's snapshot, set the property and drop the branches: one change of the metadata.
     *
     * The branch's snapshot must be that of this commit: who lost sight of a MERGE does not know what it did.
     */
    public String publish(String requestJson) throws IOException {
        JsonNode request = JsonUtil.mapper().readTree(requestJson);
        ObjectNode answer = JsonUtil.mapper().createObjectNode();
        Table table = table(request);
        TableOperations operations = ((BaseTable) table).operations();
        TableMetadata base = operations.current();
        String ref = request.get("ref").asText();
        List branches = new ArrayList();
        for (Iterator i = request.get("branches").elements(); i.hasNext();) {
            branches.add(((JsonNode) i.next()).asText()); // the first is the work branch
        }
        Snapshot head = LedgerCheck.head(table, ref);
        LedgerCheck check = new LedgerCheck(table, request);
        if (!check.validate(LedgerCheck.ancestors(table, head))) {
            return answer.put("status", "conflict").put("reason", check.refusal()).toString();
        }
        String found = head == null ? null : String.valueOf(head.snapshotId());
        if (!String.valueOf(found).equals(request.get("base").asText())) {
            return answer.put("status", "failed, retry").put("reason", ref + " has moved to " + found).toString();
        }
        SnapshotRef work = (SnapshotRef) table.refs().get(branches.get(0));
        Map summary = work == null ? new HashMap() : table.snapshot(work.snapshotId()).summary();
        String commit = request.get("summary").get("kafka.connect.commit-id").asText();
        if (!commit.equals(summary.get("kafka.connect.commit-id"))) {
            return answer.put("status", "failed, retry").put("reason", "the MERGE left no snapshot of this commit").toString();
        }
        List removed = new ArrayList();
        TableMetadata.Builder next = TableMetadata.buildFrom(base).setBranchSnapshot(work.snapshotId(), ref)
            .setProperties(Prepared.properties(request, String.valueOf(work.snapshotId())));
        try {
            operations.commit(base, StagedBranches.without(next, table, branches, removed).build());
            answer.put("status", "committed").put("snapshot", String.valueOf(work.snapshotId())).put("reason", "");
        } catch (CommitFailedException e) {
            if (!Prepared.putLanded(answer, table, request)) {
                return answer.put("status", "failed, retry").put("reason", e.getMessage()).toString();
            }
            if (!answer.get("snapshot").asText().equals(String.valueOf(work.snapshotId()))) {
                removed.clear(); // another attempt landed, and these branches are there
                dropQuietly(table, branches);
            }
        }
        StagedBranches.forget(table, removed);
        answer.put("added_files", number(summary, "added-data-files"));
        answer.put("added_rows", number(summary, "added-records"));
        return answer.toString();
    }

    /** What is landed stays landed; branches that remain are dropped by the next epoch. */
    private static void dropQuietly(Table table, List branches) {
        try {
            StagedBranches.drop(table, branches);
        } catch (RuntimeException e) {
            return;
        }
    }

    private static long number(Map summary, String key) {
        String value = (String) summary.get(key);
        return value == null ? 0 : Long.parseLong(value);
    }

    private Table table(JsonNode request) {
        return catalog.loadTable(TableAccess.identifier(request.get("table").asText()));
    }
}
