package connectpy;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;

import org.apache.iceberg.DataFile;
import org.apache.iceberg.ManifestFile;
import org.apache.iceberg.ManifestFiles;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.Table;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.iceberg.util.JsonUtil;

/** Everything that a table remembers, for an audit: JSON text out. Reads every manifest that is left. */
public class TableHistory {
    private static final int NAMED = 100; // files that are named when something is wrong with them

    private final Catalog catalog;

    public TableHistory(Catalog catalog) {
        this.catalog = catalog;
    }

    /** `arguments`: the catalog. */
    public static TableHistory make(Object[] arguments) {
        return new TableHistory((Catalog) arguments[0]);
    }

    /** The ancestors of a ref's head, newest first, and what the manifests say about data files. */
    public String read(String name, String ref, String ledgerPrefix, String filePrefix) {
        Table table = catalog.loadTable(TableAccess.identifier(name));
        Snapshot head = LedgerCheck.head(table, ref);
        ObjectNode answer = JsonUtil.mapper().createObjectNode();
        answer.put("uuid", table.uuid().toString());
        answer.put("ref_exists", table.refs().containsKey(ref));
        ObjectNode properties = answer.putObject("properties");
        for (Object each : table.properties().entrySet()) {
            Map.Entry entry = (Map.Entry) each;
            if (((String) entry.getKey()).startsWith(ledgerPrefix)) {
                properties.put((String) entry.getKey(), (String) entry.getValue());
            }
        }
        ArrayNode present = answer.putArray("present");
        for (Object each : table.snapshots()) {
            Snapshot snapshot = (Snapshot) each;
            ObjectNode node = present.addObject().put("id", String.valueOf(snapshot.snapshotId()));
            putKeys(node.putArray("groups"), snapshot, ledgerPrefix);
        }
        ArrayNode ancestors = answer.putArray("ancestors");
        Map added = new HashMap(); // path -> the snapshot that brought it
        ArrayNode twice = answer.putArray("added_twice");
        boolean complete = true;
        List chain = new ArrayList();
        for (Object each : LedgerCheck.ancestors(table, head)) {
            Snapshot snapshot = (Snapshot) each;
            chain.add(snapshot);
            complete = snapshot.parentId() == null || table.snapshot(snapshot.parentId().longValue()) != null;
        }
        answer.put("complete", complete);
        for (Object each : chain) {
            describe(ancestors.addObject(), table, (Snapshot) each, filePrefix, added, twice);
        }
        describeLive(answer, table, head);
        return answer.toString();
    }

    private static void putKeys(ArrayNode groups, Snapshot snapshot, String ledgerPrefix) {
        for (Object each : snapshot.summary().keySet()) {
            if (((String) each).startsWith(ledgerPrefix)) {
                groups.add(((String) each).substring(ledgerPrefix.length()));
            }
        }
    }

    private static void describe(
        ObjectNode node, Table table, Snapshot snapshot, String filePrefix, Map added, ArrayNode twice
    ) {
        node.put("id", String.valueOf(snapshot.snapshotId()));
        node.put("timestamp", snapshot.timestampMillis());
        node.put("operation", snapshot.operation());
        ObjectNode summary = node.putObject("summary");
        for (Object each : snapshot.summary().entrySet()) {
            Map.Entry entry = (Map.Entry) each;
            summary.put((String) entry.getKey(), (String) entry.getValue());
        }
        Set stagers = new TreeSet();
        String id = String.valueOf(snapshot.snapshotId());
        for (Object each : snapshot.addedDataFiles(table.io())) {
            String path = ((DataFile) each).location();
            String earlier = (String) added.put(path, id);
            if (earlier != null && twice.size() < NAMED) {
                twice.addObject().put("path", path).put("snapshot", id).put("again", earlier);
            }
            String file = path.substring(path.lastIndexOf('/') + 1);
            String[] parts = file.split("\\.");
            if (file.startsWith(filePrefix) && parts.length > 2) {
                stagers.add(parts[1]);
            }
        }
        ArrayNode epochs = node.putArray("stagers");
        for (Object each : stagers) {
            epochs.add((String) each);
        }
    }

    private static void describeLive(ObjectNode answer, Table table, Snapshot head) {
        ArrayNode twice = answer.putArray("live_twice");
        Set seen = new HashSet();
        List manifests = head == null ? new ArrayList() : head.dataManifests(table.io());
        for (Object each : manifests) {
            CloseableIterable files = ManifestFiles.read((ManifestFile) each, table.io(), table.specs());
            try {
                for (Object file : files) {
                    String path = ((DataFile) file).location();
                    if (!seen.add(path) && twice.size() < NAMED) {
                        twice.add(path);
                    }
                }
                files.close();
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }
        answer.put("live", seen.size());
    }
}
