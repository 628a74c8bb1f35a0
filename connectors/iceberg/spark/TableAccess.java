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
import org.apache.iceberg.ManifestFile;
import org.apache.iceberg.ManifestFiles;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.PartitionSpecParser;
import org.apache.iceberg.Schema;
import org.apache.iceberg.SchemaParser;
import org.apache.iceberg.SingleValueParser;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.Table;
import org.apache.iceberg.Transaction;
import org.apache.iceberg.UpdateSchema;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.catalog.Namespace;
import org.apache.iceberg.catalog.SupportsNamespaces;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.catalog.ViewCatalog;
import org.apache.iceberg.exceptions.AlreadyExistsException;
import org.apache.iceberg.exceptions.CommitFailedException;
import org.apache.iceberg.exceptions.ForbiddenException;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.io.FileInfo;
import org.apache.iceberg.io.StorageCredential;
import org.apache.iceberg.io.SupportsPrefixOperations;
import org.apache.iceberg.io.SupportsStorageCredentials;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.JsonNode;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.types.Types;
import org.apache.iceberg.util.JsonUtil;
import org.apache.iceberg.view.ViewBuilder;

/** The catalog's tables, for Python: JSON text in and out. */
public class TableAccess {
    private static final String HISTORY = "connect-py.columns";
    private static final int EVOLVE_ATTEMPTS = 5;
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

    /** Where the table's current metadata is, for readers without a catalog. */
    public String metadata(String name) {
        Table table = table(name);
        ObjectNode answer = JsonUtil.mapper().createObjectNode();
        answer.put("location", ((BaseTable) table).operations().current().metadataFileLocation());
        putAll(answer.putObject("io"), storage(table));
        return answer.toString();
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
        putAll(answer.putObject("io"), storage(table));
        answer.put("property", (String) table.properties().get(key));
        describeHistory(answer, table, ref, key);
        return answer.toString();
    }

    private static void describeHistory(ObjectNode answer, Table table, String ref, String key) {
        Snapshot head = LedgerCheck.head(table, ref);
        ArrayNode ancestors = answer.putArray("ancestors");
        boolean complete = true;
        int ledgers = 0;
        Snapshot oldest = null;
        for (Object each : LedgerCheck.ancestors(table, head)) {
            Snapshot snapshot = (Snapshot) each;
            oldest = snapshot;
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
            Snapshot snapshot = (Snapshot) each; // format 1 has no numbers: there all of them count
            if (oldest == null || snapshot.sequenceNumber() >= oldest.sequenceNumber()) {
                present.add(String.valueOf(snapshot.snapshotId()));
            }
        }
        answer.put("head", head == null ? null : String.valueOf(head.snapshotId()));
        boolean empty = head == null || "0".equals(head.summary().get("total-data-files"));
        answer.put("empty", empty);
        answer.put("branch_missing", LedgerCheck.isMissing(table, ref));
        answer.put("replaced", ledgers == 0 && !empty && isReplaced(table, head, key));
    }

    /** Whether our property names a snapshot that the head has nothing in common with. */
    private static boolean isReplaced(Table table, Snapshot head, String key) {
        Long named = LedgerCheck.propertySnapshot(table.properties(), key, String.valueOf(table.uuid()));
        if (named == null) {
            return false;
        }
        Set ids = new HashSet();
        for (Object each : LedgerCheck.ancestors(table, head)) {
            ids.add(Long.valueOf(((Snapshot) each).snapshotId()));
        }
        for (Object each : LedgerCheck.ancestors(table, table.snapshot(named.longValue()))) {
            if (ids.contains(Long.valueOf(((Snapshot) each).snapshotId()))) {
                return false;
            }
        }
        return true;
    }

    public String findCommit(String name, String ref, String commit) {
        Table table = table(name);
        ObjectNode answer = JsonUtil.mapper().createObjectNode();
        Snapshot landed = LedgerCheck.landed(table, ref, commit);
        answer.put("snapshot", landed == null ? null : String.valueOf(landed.snapshotId()));
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

    /** All changes in one transaction; somebody else's commit in between makes us look again what is left to do. */
    public String evolve(String name, String changesJson) throws IOException {
        JsonNode changes = JsonUtil.mapper().readTree(changesJson);
        for (int attempt = 1;; attempt++) {
            try {
                return JsonUtil.mapper().createObjectNode().put("changed", evolveOnce(table(name), changes)).toString();
            } catch (CommitFailedException e) {
                if (attempt == EVOLVE_ATTEMPTS) {
                    throw e;
                }
            }
        }
    }

    private static boolean evolveOnce(Table table, JsonNode changes) throws IOException {
        Transaction transaction = table.newTransaction();
        UpdateSchema update = transaction.updateSchema();
        List done = new ArrayList();
        for (Iterator i = changes.elements(); i.hasNext();) {
            JsonNode change = (JsonNode) i.next();
            if (change(update, table.schema(), change, formatVersion(table))) {
                done.add(change);
            }
        }
        if (done.isEmpty()) {
            return false;
        }
        update.commit();
        String history = history(table, transaction.table().schema(), done);
        if (history != null) {
            transaction.updateProperties().set(HISTORY, history).commit();
        }
        transaction.commitTransaction();
        return true;
    }

    private static boolean change(UpdateSchema update, Schema schema, JsonNode change, int version) {
        List path = path(change);
        String kind = change.get("kind").asText();
        Types.NestedField field = schema.findField(dotted(path));
        if (kind.equals("add")) {
            if (field != null) {
                return false;
            }
            String column = (String) path.get(path.size() - 1);
            Type type = type(change.get("type").asText());
            if (change.get("default").isNull() || version < 3) {
                update.addColumn(parent(path), column, type);
            } else {
                Object value = SingleValueParser.fromJson(type, change.get("default").asText());
                update.addColumn(parent(path), column, type, null, Expressions.lit(value).to(type));
            }
            return true;
        }
        if (kind.equals("rename") && schema.findField(dotted(renamed(path, change))) != null) {
            return false;
        }
        if (field == null) {
            throw new IllegalArgumentException("no column " + dotted(path));
        }
        if (kind.equals("rename")) {
            update.renameColumn(dotted(path), change.get("name").asText());
            return true;
        }
        if (kind.equals("add version")) {
            if (schema.findField(dotted(renamed(path, change))) != null) {
                return false;
            }
            String doc = "Values of " + path.get(path.size() - 1) + " since their type changed";
            update.addColumn(parent(path), change.get("name").asText(), type(change.get("type").asText()), doc);
            if (!schema.identifierFieldIds().contains(Integer.valueOf(field.fieldId()))) {
                update.makeColumnOptional(dotted(path)); // each row has its value in one version
            }
            return true;
        }
        if (kind.equals("widen")) {
            Type type = type(change.get("type").asText());
            if (field.type().equals(type)) {
                return false;
            }
            update.updateColumn(dotted(path), type.asPrimitiveType());
            return true;
        }
        if (field.isOptional()) {
            return false;
        }
        update.makeColumnOptional(dotted(path));
        return true;
    }

    /** What the table's property says about former names and versions of columns after these changes; null: nothing. */
    private static String history(Table table, Schema after, List changes) throws IOException {
        String before = (String) table.properties().get(HISTORY);
        ObjectNode history = before == null
            ? JsonUtil.mapper().createObjectNode() : (ObjectNode) JsonUtil.mapper().readTree(before);
        boolean told = false;
        for (Object each : changes) {
            JsonNode change = (JsonNode) each;
            String kind = change.get("kind").asText();
            if (!kind.equals("rename") && !kind.equals("add version")) {
                continue;
            }
            List path = path(change);
            String id = String.valueOf(table.schema().findField(dotted(path)).fieldId());
            if (kind.equals("rename")) {
                array(history, "names", id).add((String) path.get(path.size() - 1));
            } else {
                int version = versionId(table.schema(), after, path, change.get("name").asText());
                array(history, "versions", id).add(version);
            }
            told = true;
        }
        return told ? history.toString() : null;
    }

    /** The id of a column added beside the one of this path, whose struct may have been renamed meanwhile. */
    private static int versionId(Schema before, Schema after, List path, String name) {
        if (path.size() == 1) {
            return after.findField(name).fieldId();
        }
        int parent = before.findField(parent(path)).fieldId();
        return after.findField(after.findColumnName(parent) + "." + name).fieldId();
    }

    private static ArrayNode array(ObjectNode history, String key, String id) {
        ObjectNode inner = history.has(key) ? (ObjectNode) history.get(key) : history.putObject(key);
        return inner.has(id) ? (ArrayNode) inner.get(id) : inner.putArray(id);
    }

    private static List path(JsonNode change) {
        List parts = new ArrayList();
        for (Iterator i = change.get("path").elements(); i.hasNext();) {
            parts.add(((JsonNode) i.next()).asText());
        }
        return parts;
    }

    private static List renamed(List path, JsonNode change) {
        List parts = new ArrayList(path.subList(0, path.size() - 1));
        parts.add(change.get("name").asText());
        return parts;
    }

    private static String parent(List path) {
        return path.size() == 1 ? null : dotted(path.subList(0, path.size() - 1));
    }

    private static String dotted(List path) {
        return String.join(".", (Iterable) path);
    }

    /** Create a view, or give it a new text, if the catalog has views. */
    public String replaceView(String name, String schemaJson, String sql) {
        boolean made = catalog instanceof ViewCatalog;
        if (made) {
            TableIdentifier identifier = identifier(name);
            ViewBuilder view = ((ViewCatalog) catalog).buildView(identifier);
            view.withSchema(SchemaParser.fromJson(schemaJson));
            view.withDefaultNamespace(identifier.namespace());
            view.withQuery("spark", sql);
            view.createOrReplace();
        }
        return JsonUtil.mapper().createObjectNode().put("made", made).toString();
    }

    /** A type from its JSON form, through a schema of one column. */
    private static Type type(String json) {
        Schema schema = SchemaParser.fromJson("{\"type\":\"struct\",\"schema-id\":0,\"fields\":[{\"id\":1000000,"
            + "\"name\":\"x\",\"required\":false,\"type\":" + json + "}]}");
        return ((Types.NestedField) schema.columns().get(0)).type();
    }

    /**
     * Delete files whose name, or the name of a folder above them, is prefix, a number below `below`, a dash, a word, a dot,
     * this table's digits (`StagedFileName`), a dot and anything, unless a snapshot references them: other tables may have
     * their files in the same place. Gives up after `seconds`, with nothing deleted: on a large table all of this may take
     * long, and nobody waits for it. Deletes nothing where the table's owner says so.
     */
    public String removeFiles(String name, String argumentsJson) throws IOException {
        JsonNode arguments = JsonUtil.mapper().readTree(argumentsJson);
        Table table = table(name);
        int removed = 0;
        boolean complete = true;
        if (table.uuid().toString().equals(arguments.get("uuid").asText())
            && !"false".equalsIgnoreCase((String) table.properties().get("gc.enabled"))
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
        String uuid = table.uuid().toString();
        String own = "[^.]+\\." + uuid.substring(uuid.length() - 12) + "\\..+";
        for (Object each : ((SupportsPrefixOperations) table.io()).listPrefix(dataLocation(table) + "/")) {
            String path = ((FileInfo) each).location();
            for (String part : path.split("/")) {
                long number = number(part, prefix);
                if (number >= 0 && number < below && part.substring(prefix.length()).matches(own)) {
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
            dropLeft(((Snapshot) each).summary(), byName, candidates);
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

    /** Take out the files that a summary names: rows that were left behind by changes of keys (`PatchCompletion`). */
    private static void dropLeft(Map summary, Map byName, Set candidates) {
        for (Object each : summary.entrySet()) {
            Map.Entry entry = (Map.Entry) each;
            if (((String) entry.getKey()).startsWith("connect-py.left.")) {
                candidates.remove(byName.get(lastPart((String) entry.getValue())));
            }
        }
    }

    private static String lastPart(String path) {
        return path.substring(path.lastIndexOf('/') + 1);
    }

    /** Drop branches named prefix, number below `below`, a dash and one more word. */
    public String dropBranches(String name, String prefix, String below) {
        Table table = table(name);
        List dropped = new ArrayList();
        for (Object each : new ArrayList(table.refs().keySet())) {
            String branch = (String) each;
            long number = number(branch, prefix);
            // A longer name is another connector's, whose own begins like ours.
            boolean oneWord = branch.lastIndexOf('-') == branch.indexOf('-', prefix.length());
            if (number >= 0 && number < Long.parseLong(below) && oneWord) {
                dropped.add(branch);
            }
        }
        StagedBranches.drop(table, dropped);
        return JsonUtil.mapper().createObjectNode().put("dropped", dropped.size()).toString();
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

    /** The file IO's settings, and the credentials that the catalog lent for this table. */
    private static Map storage(Table table) {
        Map found = new HashMap(table.io().properties());
        if (table.io() instanceof SupportsStorageCredentials) {
            String longest = "";
            for (Object each : ((SupportsStorageCredentials) table.io()).credentials()) {
                StorageCredential credential = (StorageCredential) each;
                String prefix = credential.prefix();
                if (dataLocation(table).startsWith(prefix) && prefix.length() >= longest.length()) {
                    found.putAll(credential.config());
                    longest = prefix;
                }
            }
        }
        return found;
    }

    private static void putAll(ObjectNode node, Map values) {
        for (Object each : values.entrySet()) {
            Map.Entry entry = (Map.Entry) each;
            node.put((String) entry.getKey(), (String) entry.getValue());
        }
    }
}
