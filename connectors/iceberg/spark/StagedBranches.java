package connectpy;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

import org.apache.iceberg.AppendFiles;
import org.apache.iceberg.BaseTable;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.ManifestFile;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.SnapshotRef;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.TableOperations;
import org.apache.iceberg.encryption.EncryptionManager;
import org.apache.iceberg.exceptions.CommitFailedException;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.io.LocationProvider;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.JsonNode;

/**
 * Staged files as branches of their own table, for a Spark that is elsewhere: it reads them like any branch, with the
 * table's own schema, names and file access.
 *
 * Each such branch is one snapshot without a parent, which holds nothing but staged files. It lives while a MERGE runs; then
 * snapshot and manifests go, and the staged files belong to nobody again.
 */
public class StagedBranches {
    private static final String MARK = "connect-py.staged"; // in the summary of such a snapshot
    private static final int ATTEMPTS = 5;

    private final Table table;
    private final TableMetadata base;
    private final TableMetadata.Builder next;
    private final StagedFiles files;
    private final List names = new ArrayList(); // of all branches
    private final List made = new ArrayList(); // Snapshot, those that were written here
    private TableMetadata alone; // as if main had nothing; it grows with what is staged, because row ids are counted
    private PartitionSpec none; // a reader takes identity partition columns from the partition, and deletes have none

    public StagedBranches(Table table) {
        this.table = table;
        this.base = ((BaseTable) table).operations().current();
        this.files = new StagedFiles(table);
        this.next = withoutPartitions(base);
        this.alone = withoutPartitions(base).removeRef("main").build();
        for (Object each : alone.specs()) {
            none = ((PartitionSpec) each).isUnpartitioned() ? (PartitionSpec) each : none;
        }
    }

    /** With a partition spec of no columns beside the others; new rows go on with the one that they had. */
    private static TableMetadata.Builder withoutPartitions(TableMetadata base) {
        return TableMetadata.buildFrom(base).addPartitionSpec(PartitionSpec.unpartitioned());
    }

    /** Have a branch at this snapshot, or at an empty one if there is none. */
    public void branch(String name, Snapshot head) {
        if (head != null) {
            names.add(name);
            next.setBranchSnapshot(head.snapshotId(), name);
        } else {
            stage(name, new ArrayList());
        }
    }

    /** Have a branch of these files (JsonNode) alone. */
    public void stage(String name, List staged) {
        Snapshot snapshot = snapshot(staged);
        names.add(name);
        made.add(snapshot);
        next.setBranchSnapshot(snapshot, name);
        alone = TableMetadata.buildFrom(alone).setBranchSnapshot(snapshot, name).build();
    }

    /** Make them, in one change of the metadata. */
    public void commit() {
        ((BaseTable) table).operations().commit(base, next.build());
    }

    /** After a `commit` that failed, or one that the catalog refused and made all the same: as if it had not been tried. */
    public void undo() {
        table.refresh();
        drop(table, names);
        abandon();
    }

    /** Without any `commit`: nobody refers to what was written. */
    public void abandon() {
        forget(table, made);
    }

    /** A snapshot of a table that had none before, except that numbers go on. */
    private Snapshot snapshot(List staged) {
        AppendFiles append = new BaseTable(new Alone(((BaseTable) table).operations(), alone), table.name()).newFastAppend();
        for (Object each : staged) {
            JsonNode file = (JsonNode) each;
            append.appendFile((DataFile) files.builder(file, none).withRecordCount(files.rows(file)).build());
        }
        if (!staged.isEmpty()) {
            append.set(MARK, "true");
        }
        return (Snapshot) append.apply();
    }

    /** Without these branches, and without the snapshots of those that hold staged files; `removed` takes these. */
    public static TableMetadata.Builder without(TableMetadata.Builder builder, Table table, List names, List removed) {
        List ids = new ArrayList();
        for (Object name : names) {
            SnapshotRef ref = (SnapshotRef) table.refs().get(name);
            if (ref == null) {
                continue;
            }
            Snapshot snapshot = table.snapshot(ref.snapshotId());
            builder.removeRef((String) name);
            if (snapshot.summary().containsKey(MARK)) {
                ids.add(Long.valueOf(snapshot.snapshotId()));
                removed.add(snapshot);
            }
        }
        return ids.isEmpty() ? builder : builder.removeSnapshots((java.util.Collection) ids);
    }

    /**
     * Ids of the newest snapshots of these branches whose manifests are gone: Iceberg deletes them when a catalog refuses a
     * commit, which it may have made. Nobody who looks at all snapshots of the table could read one.
     *
     * What other refs hold is never among them: they would leave with it, and `main` is one of them.
     */
    private static List broken(Table table, List names) {
        Set held = heldByOthers(table, names);
        List ids = new ArrayList();
        for (Object name : names) {
            if (!table.refs().containsKey(name)) {
                continue;
            }
            for (Object each : LedgerCheck.ancestors(table, LedgerCheck.head(table, (String) name))) {
                Snapshot snapshot = (Snapshot) each;
                String manifests = snapshot.manifestListLocation(); // null: an old snapshot that names its manifests itself
                if (held.contains(Long.valueOf(snapshot.snapshotId())) || snapshot.summary().containsKey(MARK)
                        || manifests == null || table.io().newInputFile(manifests).exists()) {
                    break;
                }
                ids.add(Long.valueOf(snapshot.snapshotId()));
            }
        }
        return ids;
    }

    /** Ids of all snapshots that refs other than these lead to. */
    private static Set heldByOthers(Table table, List names) {
        Set ids = new HashSet();
        for (Object each : table.refs().keySet()) {
            if (names.contains(each)) {
                continue;
            }
            for (Object ancestor : LedgerCheck.ancestors(table, LedgerCheck.head(table, (String) each))) {
                if (!ids.add(Long.valueOf(((Snapshot) ancestor).snapshotId()))) {
                    break; // from here on they are known
                }
            }
        }
        return ids;
    }

    /** Drop these branches, if they are there. */
    public static void drop(Table table, List names) {
        for (int attempt = 1; !names.isEmpty(); attempt++) {
            TableOperations operations = ((BaseTable) table).operations();
            TableMetadata base = operations.refresh();
            List removed = new ArrayList();
            TableMetadata.Builder builder = TableMetadata.buildFrom(base);
            List broken = broken(table, names);
            if (!broken.isEmpty()) {
                builder.removeSnapshots((java.util.Collection) broken);
            }
            TableMetadata next = without(builder, table, names, removed).build();
            if (next.changes().isEmpty()) {
                return;
            }
            try {
                operations.commit(base, next);
                forget(table, removed);
                return;
            } catch (CommitFailedException e) {
                if (attempt == ATTEMPTS) {
                    throw e;
                }
            }
        }
    }

    /** Delete what snapshots that are gone were written in; staged files are not touched. */
    public static void forget(Table table, List snapshots) {
        for (Object each : snapshots) {
            Snapshot snapshot = (Snapshot) each;
            List paths = new ArrayList();
            try {
                for (Object manifest : snapshot.allManifests(table.io())) {
                    paths.add(((ManifestFile) manifest).path());
                }
                paths.add(snapshot.manifestListLocation());
                for (Object path : paths) {
                    table.io().deleteFile((String) path);
                }
            } catch (RuntimeException e) {
                continue; // some kilobytes that nobody refers to
            }
        }
    }

    /** The table as if nothing had been written yet: what is appended to it has no parent. */
    private static class Alone implements TableOperations {
        private final TableOperations real;
        private final TableMetadata shown;

        Alone(TableOperations real, TableMetadata shown) {
            this.real = real;
            this.shown = shown;
        }

        public TableMetadata current() {
            return shown;
        }

        public TableMetadata refresh() {
            return shown;
        }

        public void commit(TableMetadata from, TableMetadata to) {
            throw new UnsupportedOperationException("snapshots are made here, and committed elsewhere");
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
    }
}
