package connectpy;

import org.apache.iceberg.BaseTable;
import org.apache.iceberg.SnapshotRef;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.TableOperations;
import org.apache.iceberg.Transaction;
import org.apache.iceberg.Transactions;
import org.apache.iceberg.encryption.EncryptionManager;
import org.apache.iceberg.exceptions.CleanableFailure;
import org.apache.iceberg.exceptions.CommitStateUnknownException;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.io.LocationProvider;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.JsonNode;

/**
 * A table's operations whose commit fails only if the table does not have it.
 *
 * A catalog may refuse a commit that it made, because it was asked twice: by a gateway, by an HTTP client, or by a pool of
 * database connections that lost one. Iceberg believes the refusal, prepares the snapshot anew, and in the end deletes the
 * manifests of the one that is in the table. So here a refusal holds only when the table, read again, says so too.
 */
public class SureOperations implements TableOperations {
    private final BaseTable table;
    private final TableOperations real;
    private final String ref;
    private final String key;
    private boolean open = false;

    /** `ref`: to which a snapshot is committed. `key`: the property that names it, if it is set in the same commit. */
    public SureOperations(Table table, String ref, String key) {
        this.table = (BaseTable) table;
        this.real = this.table.operations();
        this.ref = ref;
        this.key = key;
    }

    /** Those of a request's commit. */
    public static SureOperations of(Table table, JsonNode request) {
        return new SureOperations(table, request.get("ref").asText(), request.get("key").asText());
    }

    /** A transaction whose end is sure. */
    public Transaction transaction() {
        return Transactions.newTransaction(table.name(), this, table.reporter());
    }

    /** The table as it is, for changes of one step; their end is sure, too. */
    public Table table() {
        return new BaseTable(this, table.name(), table.reporter());
    }

    /** Whether a commit was made, or may have been. */
    public boolean open() {
        return open;
    }

    /** Throws `CommitStateUnknownException` besides what the catalog throws: when the table cannot be read again. */
    public void commit(TableMetadata base, TableMetadata next) {
        open = true;
        try {
            real.commit(base, next);
        } catch (RuntimeException refusal) {
            if (!(refusal instanceof CleanableFailure)) {
                throw refusal; // Iceberg deletes nothing after it
            }
            try {
                real.refresh();
            } catch (RuntimeException e) {
                e.addSuppressed(refusal);
                throw new CommitStateUnknownException(e);
            }
            if (!isMade(base, next, real.current())) {
                open = false;
                throw refusal;
            }
        }
    }

    /** Snapshots may expire at once; then the property still has the text that no other commit sets. */
    private boolean isMade(TableMetadata base, TableMetadata next, TableMetadata now) {
        SnapshotRef made = next.ref(ref);
        if (made == null) {
            return false;
        }
        String text = (String) next.properties().get(key);
        boolean named = text != null && !text.equals(base.properties().get(key));
        return now.snapshot(made.snapshotId()) != null || (named && text.equals(now.properties().get(key)));
    }

    public TableMetadata current() {
        return real.current();
    }

    public TableMetadata refresh() {
        return real.refresh();
    }

    public FileIO io() {
        return real.io();
    }

    public EncryptionManager encryption() {
        return real.encryption();
    }

    public String metadataFileLocation(String name) {
        return real.metadataFileLocation(name);
    }

    public LocationProvider locationProvider() {
        return real.locationProvider();
    }

    public TableOperations temp(TableMetadata uncommitted) {
        return real.temp(uncommitted);
    }

    public long newSnapshotId() {
        return real.newSnapshotId();
    }

    public boolean requireStrictCleanup() {
        return real.requireStrictCleanup();
    }
}
