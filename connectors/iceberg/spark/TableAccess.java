package connectpy;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;

import org.apache.iceberg.BaseTable;
import org.apache.iceberg.ContentFile;
import org.apache.iceberg.ManageSnapshots;
import org.apache.iceberg.ManifestFile;
import org.apache.iceberg.ManifestFiles;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.PartitionSpecParser;
import org.apache.iceberg.Schema;
import org.apache.iceberg.SchemaParser;
import org.apache.iceberg.SingleValueParser;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.Table;
import org.apache.iceberg.UpdateSchema;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.catalog.Namespace;
import org.apache.iceberg.catalog.SupportsNamespaces;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.exceptions.AlreadyExistsException;
import org.apache.iceberg.exceptions.ForbiddenException;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.io.FileInfo;
import org.apache.iceberg.io.SupportsPrefixOperations;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.JsonNode;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.types.Types;
import org.apache.iceberg.util.JsonUtil;

/** The catalog's tables, for Python: JSON text in and out. */
public class TableAccess {
    private static final int LEDGERS = 20; // of our snapshots a view shows that many; older ones decide nothing

    private final Catalog catalog;

    public TableAccess(Catalog catalog) {
        this.catalog = catalog;
    }

    /** `arguments`: the catalog. */
    public static TableAccess make(Object[] arguments) {
        return new TableAccess((Catalog) arguments[0]);
    }

    public static TableIdentifier identifier(String name) {
        return TableIdentifier.of(name.split("\\."));
    }

    public String uuid(String name) {
        return JsonUtil.mapper().createObjectNode().put("uuid", table(name).uuid().toString()).toString();
    }

    public String load(String name, String ref, String key) {
        Table table = table(name);
        ObjectNode answer = JsonUtil.mapper().createObjectNode();
        answer.put("uuid", table.uuid().toString());
        answer.put("format_version", formatVersion(table));
        answer.put("location", table.location());
        answer.put("data_location", dataLocation(table));
        answer.put("schema_id", table.schema().schemaId());
        answer.put("schema", SchemaParser.toJson(table.schema()));
        answer.put("spec", PartitionSpecParser.toJson(table.spec()));
        ArrayNode identifiers = answer.putArray("identifiers");
        for (Object column : table.schema().identifierFieldNames()) {
            identifiers.add((String) column);
        }
        putAll(answer.putObject("properties"), table.properties());
        putAll(answer.putObject("io"), table.io().properties());
        answer.put("property", (String) table.properties().get(key));
        describeHistory(answer, table, LedgerCheck.head(table, ref), key);
        return answer.toString();
    }

    private static void describeHistory(ObjectNode answer, Table table, Snapshot head, String key) {
        ArrayNode ancestors = answer.putArray("ancestors");
        boolean complete = true;
        int ledgers = 0;
        for (Object each : LedgerCheck.ancestors(table, head)) {
            Snapshot snapshot = (Snapshot) each;
            String ledger = (String) snapshot.summary().get(key);
            ancestors.addArray().add(String.valueOf(snapshot.snapshotId())).add(ledger);
            if (ledger != null && ++ledgers == LEDGERS) {
                break;
            }
            complete = snapshot.parentId() == null || table.snapshot(snapshot.parentId().longValue()) != null;
        }
        answer.put("complete", complete);
        ArrayNode present = answer.putArray("present");
        for (Object each : table.snapshots()) {
            present.add(String.valueOf(((Snapshot) each).snapshotId()));
        }
        answer.put("head", head == null ? null : String.valueOf(head.snapshotId()));
        answer.put("empty", head == null || "0".equals(head.summary().get("total-data-files")));
    }

    public String findCommit(String name, String ref, String commit) {
        Table table = table(name);
        ObjectNode answer = JsonUtil.mapper().createObjectNode();
        answer.putNull("snapshot");
        for (Object each : LedgerCheck.ancestors(table, LedgerCheck.head(table, ref))) {
            Snapshot snapshot = (Snapshot) each;
            if (commit.equals(snapshot.summary().get("kafka.connect.commit-id"))) {
                answer.put("snapshot", String.valueOf(snapshot.snapshotId()));
                break;
            }
        }
        return answer.toString();
    }

    public String create(String name, String schemaJson, String specJson, String propertiesJson) throws IOException {
        TableIdentifier identifier = identifier(name);
        Schema schema = SchemaParser.fromJson(schemaJson);
        PartitionSpec spec = specJson == null
            ? PartitionSpec.unpartitioned() : PartitionSpecParser.fromJson(schema, specJson);
        Map properties = new HashMap();
        for (Iterator i = JsonUtil.mapper().readTree(propertiesJson).fields(); i.hasNext();) {
            Map.Entry entry = (Map.Entry) i.next();
            properties.put(entry.getKey(), ((JsonNode) entry.getValue()).asText());
        }
        createNamespaces(identifier.namespace());
        boolean created = true;
        try {
            catalog.createTable(identifier, schema, spec, properties);
        } catch (AlreadyExistsException e) {
            created = false;
        }
        return JsonUtil.mapper().createObjectNode().put("created", created).toString();
    }

    /** Every level; one that exists, or that only an administrator may make, is no obstacle. */
    private void createNamespaces(Namespace namespace) {
        if (!(catalog instanceof SupportsNamespaces)) {
            return;
        }
        String[] levels = namespace.levels();
        for (int length = 1; length <= levels.length; length++) {
            String[] level = new String[length];
            System.arraycopy(levels, 0, level, 0, length);
            try {
                if (!((SupportsNamespaces) catalog).namespaceExists(Namespace.of(level))) {
                    ((SupportsNamespaces) catalog).createNamespace(Namespace.of(level), new HashMap());
                }
            } catch (AlreadyExistsException e) {
                continue; // somebody else was faster
            } catch (ForbiddenException e) {
                continue; // if the table cannot be made either, that error says so
            }
        }
    }

    public String evolve(String name, String changesJson) throws IOException {
        Table table = table(name);
        UpdateSchema update = table.updateSchema();
        int changes = 0;
        for (Iterator i = JsonUtil.mapper().readTree(changesJson).elements(); i.hasNext();) {
            changes += change(update, table.schema(), (JsonNode) i.next()) ? 1 : 0;
        }
        if (changes > 0) {
            update.commit();
        }
        return JsonUtil.mapper().createObjectNode().put("changed", changes > 0).toString();
    }

    private static boolean change(UpdateSchema update, Schema schema, JsonNode change) {
        List parts = new ArrayList();
        for (Iterator i = change.get("path").elements(); i.hasNext();) {
            parts.add(((JsonNode) i.next()).asText());
        }
        String path = String.join(".", (Iterable) parts);
        String kind = change.get("kind").asText();
        Types.NestedField field = schema.findField(path);
        if (kind.equals("add")) {
            if (field != null) {
                return false;
            }
            String parent = parts.size() == 1 ? null : String.join(".", (Iterable) parts.subList(0, parts.size() - 1));
            String column = (String) parts.get(parts.size() - 1);
            Type type = type(change.get("type").asText());
            if (change.get("default").isNull()) {
                update.addColumn(parent, column, type);
            } else {
                Object value = SingleValueParser.fromJson(type, change.get("default").asText());
                update.addColumn(parent, column, type, null, Expressions.lit(value).to(type));
            }
            return true;
        }
        if (field == null) {
            throw new IllegalArgumentException("no column " + path);
        }
        if (kind.equals("widen")) {
            Type type = type(change.get("type").asText());
            if (field.type().equals(type)) {
                return false;
            }
            update.updateColumn(path, type.asPrimitiveType());
            return true;
        }
        if (field.isOptional()) {
            return false;
        }
        update.makeColumnOptional(path);
        return true;
    }

    /** A type from its JSON form, through a schema of one column. */
    private static Type type(String json) {
        Schema schema = SchemaParser.fromJson("{\"type\":\"struct\",\"schema-id\":0,\"fields\":[{\"id\":1000000,"
            + "\"name\":\"x\",\"required\":false,\"type\":" + json + "}]}");
        return ((Types.NestedField) schema.columns().get(0)).type();
    }

    /**
     * Delete files whose name, or the name of a folder above them, is prefix, a number below `below`, a dash and
     * anything, unless a snapshot references them. Gives up after `seconds`, with nothing deleted: on a large table all
     * of this may take long, and nobody waits for it.
     */
    public String removeFiles(String name, String argumentsJson) throws IOException {
        JsonNode arguments = JsonUtil.mapper().readTree(argumentsJson);
        Table table = table(name);
        int removed = 0;
        boolean complete = true;
        if (table.uuid().toString().equals(arguments.get("uuid").asText())
            && table.io() instanceof SupportsPrefixOperations) {
            long until = System.nanoTime() + arguments.get("seconds").asLong() * 1000000000L;
            Set candidates = new HashSet();
            complete = collect(table, arguments.get("prefix").asText(), arguments.get("below").asLong(), until, candidates)
                && (candidates.isEmpty() || dropReferenced(table, candidates, until));
            if (complete) {
                for (Object path : candidates) {
                    table.io().deleteFile((String) path);
                    removed++;
                }
            }
        }
        return JsonUtil.mapper().createObjectNode().put("removed", removed).put("complete", complete).toString();
    }

    private static boolean collect(Table table, String prefix, long below, long until, Set found) {
        for (Object each : ((SupportsPrefixOperations) table.io()).listPrefix(dataLocation(table))) {
            String path = ((FileInfo) each).location();
            for (String part : path.split("/")) {
                long number = number(part, prefix);
                if (number >= 0 && number < below) {
                    found.add(path);
                }
            }
            if (System.nanoTime() > until) {
                return false;
            }
        }
        return true;
    }

    /** The number between a prefix and a dash; -1: the name is not of that form. */
    private static long number(String name, String prefix) {
        int dash = name.startsWith(prefix) ? name.indexOf('-', prefix.length()) : -1;
        String digits = dash < 0 ? "" : name.substring(prefix.length(), dash);
        return digits.matches("[0-9]{1,18}") ? Long.parseLong(digits) : -1;
    }

    /** Take out whatever any snapshot of the table refers to. Paths are compared by their last part: schemes vary. */
    private static boolean dropReferenced(Table table, Set candidates, long until) {
        Map byName = new HashMap();
        for (Object path : candidates) {
            byName.put(lastPart((String) path), path);
        }
        Set seen = new HashSet();
        for (Object each : table.snapshots()) {
            for (Object one : ((Snapshot) each).allManifests(table.io())) {
                ManifestFile manifest = (ManifestFile) one;
                if (!seen.add(manifest.path())) {
                    continue;
                }
                if (System.nanoTime() > until) {
                    return false;
                }
                CloseableIterable files = manifest.content() == org.apache.iceberg.ManifestContent.DATA
                    ? (CloseableIterable) ManifestFiles.read(manifest, table.io(), table.specs())
                    : (CloseableIterable) ManifestFiles.readDeleteManifest(manifest, table.io(), table.specs());
                try {
                    for (Object file : files) {
                        candidates.remove(byName.get(lastPart(((ContentFile) file).location())));
                    }
                    files.close();
                } catch (IOException e) {
                    throw new UncheckedIOException(e);
                }
            }
        }
        return true;
    }

    private static String lastPart(String path) {
        return path.substring(path.lastIndexOf('/') + 1);
    }

    /** Drop branches named prefix, number below `below`, a dash and one more word. */
    public String dropBranches(String name, String prefix, String below) {
        Table table = table(name);
        ManageSnapshots manage = table.manageSnapshots();
        int dropped = 0;
        for (Object each : new ArrayList(table.refs().keySet())) {
            String branch = (String) each;
            long number = number(branch, prefix);
            // A longer name is another connector's, whose own begins like ours.
            boolean oneWord = branch.lastIndexOf('-') == branch.indexOf('-', prefix.length());
            if (number >= 0 && number < Long.parseLong(below) && oneWord) {
                manage.removeBranch(branch);
                dropped++;
            }
        }
        if (dropped > 0) {
            manage.commit();
        }
        return JsonUtil.mapper().createObjectNode().put("dropped", dropped).toString();
    }

    private Table table(String name) {
        return catalog.loadTable(identifier(name));
    }

    public static int formatVersion(Table table) {
        return ((BaseTable) table).operations().current().formatVersion();
    }

    /** Where Iceberg's own writers would put data files of an unpartitioned table. */
    public static String dataLocation(Table table) {
        String set = (String) table.properties().get("write.data.path");
        String location = set != null ? set : table.location() + "/data";
        return location.endsWith("/") ? location.substring(0, location.length() - 1) : location;
    }

    private static void putAll(ObjectNode node, Map values) {
        for (Object each : values.entrySet()) {
            Map.Entry entry = (Map.Entry) each;
            node.put((String) entry.getKey(), (String) entry.getValue());
        }
    }
}
