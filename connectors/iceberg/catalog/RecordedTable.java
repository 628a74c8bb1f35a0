package connectpy;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import org.apache.iceberg.BaseTable;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.LocationProviders;
import org.apache.iceberg.OverwriteFiles;
import org.apache.iceberg.RowDelta;
import org.apache.iceberg.SerializableTable;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.TableOperations;
import org.apache.iceberg.encryption.EncryptionManager;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.io.LocationProvider;
import org.apache.iceberg.util.ContentFileUtil;
import org.apache.iceberg.util.DataFileSet;
import org.apache.iceberg.util.DeleteFileSet;

/**
 * A table with fixed metadata that records the files in a row delta instead of committing them.
 *
 * Spark calls this object while it plans and runs a MERGE, so Python cannot implement it. It uses the scans, FileIO,
 * and encryption of the real table. It ignores the validations that Spark requests, because the real commit sets its
 * own. Janino compiles this class, so it has no lambdas and uses casts instead of generics.
 */
public class RecordedTable extends BaseTable implements InvocationHandler {
    private final String branch;
    private final Map overrides;
    private final List addedRows = new ArrayList();
    private final List removedRows = new ArrayList();
    private final List addedDeletes = new ArrayList();
    private final List removedDeletes = new ArrayList();
    private int commits = 0;

    /**
     * @param branch the branch that is read, or null for main
     * @param overrides table properties that apply only to this statement
     */
    public RecordedTable(TableOperations operations, TableMetadata metadata, String name, String branch, Map overrides) {
        super(new PinnedOperations(operations, metadata), name);
        this.branch = branch;
        this.overrides = overrides;
    }

    public String branch() {
        return branch;
    }

    public Map properties() {
        Map properties = new HashMap(super.properties());
        properties.putAll(overrides);
        return properties;
    }

    public LocationProvider locationProvider() {
        return LocationProviders.locationsFor(location(), properties());
    }

    public RowDelta newRowDelta() {
        return (RowDelta) recorder(RowDelta.class);
    }

    public OverwriteFiles newOverwrite() {
        return (OverwriteFiles) recorder(OverwriteFiles.class);
    }

    /** Returns the recorded files in one call, because each call through py4j costs a round trip. */
    public Map report() {
        List locations = new ArrayList();
        int dataFiles = addedRows.size() + removedRows.size();
        long rows = 0;
        boolean namesEveryFile = true;
        for (Object each : addedDeletes) {
            DeleteFile file = (DeleteFile) each;
            locations.add(file.location());
            rows += file.recordCount();
            namesEveryFile &= ContentFileUtil.referencedDataFileLocation(file) != null;
        }
        for (Object each : removedDeletes) {
            rows -= ((DeleteFile) each).recordCount();
        }
        for (Object each : removedRows) {
            rows += ((DataFile) each).recordCount();
        }
        for (Object each : addedRows) {
            locations.add(((DataFile) each).location());
        }
        Map report = new HashMap();
        report.put("is_empty", Boolean.valueOf(commits == 0));
        report.put("is_overwrite", Boolean.valueOf(dataFiles > 0 && addedDeletes.isEmpty()));
        report.put("locations", locations);
        report.put("replaced_rows", Long.valueOf(rows));
        report.put("data_files", Integer.valueOf(dataFiles));
        report.put("names_every_file", Boolean.valueOf(namesEveryFile));
        return report;
    }

    /** Adds the recorded files to an update, which checks that the data files with deleted rows still exist. */
    public void addTo(RowDelta update) {
        for (Object each : addedRows) {
            update.addRows((DataFile) each);
        }
        for (Object each : removedRows) {
            update.removeRows((DataFile) each);
        }
        List dataFiles = new ArrayList();
        for (Object each : addedDeletes) {
            DeleteFile file = (DeleteFile) each;
            update.addDeletes(file);
            String location = ContentFileUtil.referencedDataFileLocation(file);
            if (location != null) {
                dataFiles.add(location);
            }
        }
        for (Object each : removedDeletes) {
            update.removeDeletes((DeleteFile) each);
        }
        if (!dataFiles.isEmpty()) {
            update.validateDataFilesExist(dataFiles);
        }
    }

    /** Adds the files that were recorded for a copy-on-write statement. */
    public void addTo(OverwriteFiles update) {
        for (Object each : addedRows) {
            update.addFile((DataFile) each);
        }
        DataFileSet rows = DataFileSet.create();
        DeleteFileSet deletes = DeleteFileSet.create();
        rows.addAll(removedRows);
        deletes.addAll(removedDeletes);
        update.deleteFiles(rows, deletes);
    }

    /** Sends executors a copy that does not use this class. The inherited method is package-private. */
    Object writeReplace() {
        return SerializableTable.copyOf(this);
    }

    private Object recorder(Class type) {
        return Proxy.newProxyInstance(type.getClassLoader(), new Class[] {type}, this);
    }

    public Object invoke(Object proxy, Method method, Object[] arguments) {
        String name = method.getName();
        if (name.equals("addRows") || name.equals("addFile")) {
            addedRows.add(arguments[0]);
        } else if (name.equals("removeRows") || name.equals("deleteFile")) {
            removedRows.add(arguments[0]);
        } else if (name.equals("addDeletes")) {
            addedDeletes.add(arguments[0]);
        } else if (name.equals("removeDeletes")) {
            removedDeletes.add(arguments[0]);
        } else if (name.equals("deleteFiles")) {
            removedRows.addAll((Collection) arguments[0]);
            removedDeletes.addAll((Collection) arguments[1]);
        } else if (name.equals("commit")) {
            commits++;
            return null;
        } else if (name.equals("hashCode")) {
            return Integer.valueOf(System.identityHashCode(proxy));
        } else if (name.equals("equals")) {
            return Boolean.valueOf(proxy == arguments[0]);
        } else if (name.equals("toString")) {
            return "RecordedUpdate(" + name() + ")";
        } else if (name.startsWith("overwriteBy") || !method.getReturnType().isInstance(proxy)) {
            throw new UnsupportedOperationException(name); // an update must not be lost silently
        }
        return proxy;
    }

    /** Table operations without refreshes and commits. */
    private static class PinnedOperations implements TableOperations {
        private final TableOperations operations;
        private final TableMetadata metadata;

        PinnedOperations(TableOperations operations, TableMetadata metadata) {
            this.operations = operations;
            this.metadata = metadata;
        }

        public TableMetadata current() {
            return metadata;
        }

        public TableMetadata refresh() {
            return metadata;
        }

        public void commit(TableMetadata base, TableMetadata next) {
            throw new UnsupportedOperationException("commit");
        }

        public FileIO io() {
            return operations.io();
        }

        public EncryptionManager encryption() {
            return operations.encryption();
        }

        public String metadataFileLocation(String fileName) {
            return operations.metadataFileLocation(fileName);
        }

        public LocationProvider locationProvider() {
            return operations.locationProvider();
        }
    }
}
