package connectpy;

import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;

import org.apache.iceberg.Snapshot;
import org.apache.iceberg.SnapshotRef;
import org.apache.iceberg.SnapshotUpdate;
import org.apache.iceberg.Table;
import org.apache.iceberg.Transaction;
import org.apache.iceberg.UpdateProperties;
import org.apache.iceberg.exceptions.CommitFailedException;
import org.apache.iceberg.exceptions.ValidationException;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.JsonNode;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.node.ObjectNode;

/** A transaction that lacks only its end: summary, check, property, and out. */
public class Prepared {
    private final Table table;
    private final SureOperations operations;
    private final Transaction transaction;
    private final SnapshotUpdate update;
    private final JsonNode request;
    private final LedgerCheck check;
    private final ObjectNode answer;
    private final List written;

    /**
     * `table` is that of the transaction. `answer` gets status, snapshot and reason; what else the caller put there stays.
     * `written`: paths of what was written to prepare it, which nobody needs unless it lands.
     */
    public Prepared(Table table, SureOperations operations, Transaction transaction, SnapshotUpdate update, JsonNode request,
        LedgerCheck check, ObjectNode answer, List written) {
        this.table = table;
        this.operations = operations;
        this.transaction = transaction;
        this.update = update;
        this.request = request;
        this.check = check;
        this.answer = answer;
        this.written = written;
    }

    public String swap() {
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
            UpdateProperties properties = transaction.updateProperties();
            for (Object each : properties(request, snapshot).entrySet()) {
                Map.Entry entry = (Map.Entry) each;
                properties.set((String) entry.getKey(), (String) entry.getValue());
            }
            properties.commit();
            transaction.commitTransaction();
            answer.put("status", "committed").put("snapshot", snapshot).put("reason", "");
        } catch (ValidationException e) {
            refused(check.refusal() != null ? "conflict" : "failed, retry", e.getMessage());
        } catch (CommitFailedException e) {
            refused("failed, retry", e.getMessage());
        } catch (RuntimeException e) {
            if (!operations.open()) {
                remove(table, written);
            }
            throw e;
        }
        return answer.toString();
    }

    /**
     * A catalog may say that a swap failed which it made, and the next try then meets our own ledger: what was written goes
     * only if the commit is not there. Whether it is there must be known, so an error on the way is the caller's.
     */
    private void refused(String status, String reason) {
        if (!putLanded(answer, table, request)) {
            answer.put("status", status).put("reason", reason);
            remove(table, written);
        }
    }

    /** Whether the table has the commit in spite of a refusal; if so, the answer says so. */
    public static boolean putLanded(ObjectNode answer, Table table, JsonNode request) {
        table.refresh();
        String commit = request.get("summary").get("kafka.connect.commit-id").asText();
        Snapshot landed = LedgerCheck.landed(table, request.get("ref").asText(), commit);
        if (landed != null) {
            answer.put("status", "committed").put("snapshot", String.valueOf(landed.snapshotId()));
            answer.put("reason", "it landed, and the catalog refused it");
        }
        return landed != null;
    }

    /** What the commit sets: the ledger as the table's property repeats it, and whatever else is asked for. */
    public static Map properties(JsonNode request, String snapshot) {
        Map properties = new HashMap();
        for (Iterator i = request.get("properties").fields(); i.hasNext();) {
            Map.Entry entry = (Map.Entry) i.next();
            properties.put(entry.getKey(), ((JsonNode) entry.getValue()).asText());
        }
        String ledger = request.get("template").asText().replace(request.get("placeholder").asText(), snapshot);
        properties.put(request.get("key").asText(), ledger);
        return properties;
    }

    /** Files written for what surely did not land, so that nothing refers to them. Staged files are never among them. */
    public static void remove(Table table, java.util.Collection paths) {
        for (Object path : paths) {
            try {
                table.io().deleteFile((String) path);
            } catch (RuntimeException e) {
                continue; // an orphan with our name; a later epoch removes it
            }
        }
    }
}
