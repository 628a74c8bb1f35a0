package connectpy;

import java.io.IOException;
import java.util.Map;

import org.apache.iceberg.Snapshot;
import org.apache.iceberg.SnapshotAncestryValidator;
import org.apache.iceberg.SnapshotRef;
import org.apache.iceberg.Table;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.JsonNode;
import org.apache.iceberg.util.JsonUtil;
import org.apache.iceberg.util.SnapshotUtil;

/**
 * The compare half of the compare-and-swap: is the table still the version that the coordinator read?
 *
 * Iceberg calls `validate` each time it prepares the snapshot, also when it repeats a transaction on a newer head. The
 * version is the table's uuid, the newest ancestor with our ledger, and the snapshot that our property names.
 *
 * All classes of this folder are compiled by the Janino compiler inside Spark: no lambdas, casts where javac would infer.
 */
public class LedgerCheck implements SnapshotAncestryValidator {
    private final Table table;
    private final String key;
    private final String uuid;
    private final Long ledger;
    private final Long property;
    private String refusal;

    /** `table` shows the state that the commit is prepared on: for a transaction its own view. */
    public LedgerCheck(Table table, JsonNode request) {
        JsonNode expected = request.get("expected");
        this.table = table;
        this.key = request.get("key").asText();
        this.uuid = expected.get("uuid").asText();
        this.ledger = id(expected.get("ledger"));
        this.property = id(expected.get("property"));
    }

    public boolean validate(Iterable ancestors) {
        refusal = null;
        if (!uuid.equals(String.valueOf(table.uuid()))) {
            refusal = "table uuid is " + table.uuid() + ", expected " + uuid;
            return false;
        }
        Long named = propertySnapshot(table.properties(), key, uuid);
        if (!same(named, property)) {
            refusal = "the property names snapshot " + named + ", expected " + property;
            return false;
        }
        Long found = ledgerSnapshot(ancestors, key, uuid);
        if (!same(found, ledger)) {
            refusal = "the ledger is snapshot " + found + ", expected " + ledger;
            return false;
        }
        return true;
    }

    public String errorMessage() {
        return refusal;
    }

    /** Why the last check failed; null: it did not. */
    public String refusal() {
        return refusal;
    }

    /** Whether this ref is a branch that is not there, or not yet; main is always there. */
    public static boolean isMissing(Table table, String ref) {
        return !SnapshotRef.MAIN_BRANCH.equals(ref) && !table.refs().containsKey(ref);
    }

    /** The snapshot that a commit to this ref follows; a missing branch begins at main. Null: none. */
    public static Snapshot head(Table table, String ref) {
        SnapshotRef found = (SnapshotRef) table.refs().get(ref);
        return found == null ? table.currentSnapshot() : table.snapshot(found.snapshotId());
    }

    /** The ancestors of a snapshot, itself first, as far as they are still there. */
    public static Iterable ancestors(final Table table, Snapshot head) {
        if (head == null) {
            return java.util.Collections.EMPTY_LIST;
        }
        return SnapshotUtil.ancestorsOf(head.snapshotId(), new java.util.function.Function() {
            public Object apply(Object id) {
                return table.snapshot(((Long) id).longValue());
            }
        });
    }

    /** The ancestor of a ref's head that this commit made; null: it is not there. */
    public static Snapshot landed(Table table, String ref, String commit) {
        for (Object each : ancestors(table, head(table, ref))) {
            Snapshot snapshot = (Snapshot) each;
            if (commit.equals(snapshot.summary().get("kafka.connect.commit-id"))) {
                return snapshot;
            }
        }
        return null;
    }

    /** Newest ancestor whose ledger belongs to the table with this uuid. */
    public static Long ledgerSnapshot(Iterable ancestors, String key, String uuid) {
        for (Object each : ancestors) {
            Snapshot snapshot = (Snapshot) each;
            String text = (String) snapshot.summary().get(key);
            if (text != null && uuid.equals(member(text, "table"))) {
                return Long.valueOf(snapshot.snapshotId());
            }
        }
        return null;
    }

    /** Snapshot that the property names, unless it was copied from another table. */
    public static Long propertySnapshot(Map properties, String key, String uuid) {
        String text = (String) properties.get(key);
        if (text == null || !uuid.equals(member(text, "table"))) {
            return null;
        }
        return Long.valueOf(member(text, "snapshot"));
    }

    private static String member(String json, String name) {
        try {
            JsonNode node = JsonUtil.mapper().readTree(json).get(name);
            return node == null || node.isNull() ? null : node.asText();
        } catch (IOException e) {
            return null;
        }
    }

    private static Long id(JsonNode node) {
        return node.isNull() ? null : Long.valueOf(node.asLong());
    }

    private static boolean same(Long a, Long b) {
        return a == null ? b == null : a.equals(b);
    }
}
