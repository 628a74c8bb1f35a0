package connectpy;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;

import org.apache.iceberg.DeleteFiles;
import org.apache.iceberg.ManageSnapshots;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.Table;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.exceptions.CommitFailedException;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.JsonNode;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.iceberg.types.Types;
import org.apache.iceberg.util.JsonUtil;

/** What a SQL MERGE needs before and after it; `TableCommit.publish` makes its result visible. */
public class SparkMerge {
    private final Catalog catalog;
    private final String stage; // name of the staging catalog

    public SparkMerge(Catalog catalog, String stage) {
        this.catalog = catalog;
        this.stage = stage;
    }

    /** `arguments`: session, catalog, `TableCommit`, name of the staging catalog. */
    public static SparkMerge make(Object[] arguments) {
        return new SparkMerge((Catalog) arguments[1], (String) arguments[3]);
    }

    /** A branch at the head whose version is as expected, and the staged files under names that SQL can use. */
    public String prepareMerge(String requestJson) throws IOException {
        JsonNode request = JsonUtil.mapper().readTree(requestJson);
        Table table = table(request);
        ObjectNode answer = JsonUtil.mapper().createObjectNode();
        Snapshot head = LedgerCheck.head(table, request.get("ref").asText());
        LedgerCheck check = new LedgerCheck(table, request);
        if (!check.validate(LedgerCheck.ancestors(table, head))) {
            return answer.put("status", "conflict").put("reason", check.refusal()).toString();
        }
        String branch = request.get("work_branch").asText();
        boolean exists = table.refs().containsKey(branch);
        ManageSnapshots manage = table.manageSnapshots();
        try {
            if (exists) {
                manage.removeBranch(branch); // of a merge that came to nothing
            }
            if (head == null) {
                manage.createBranch(branch);
            } else {
                manage.createBranch(branch, head.snapshotId());
            }
            manage.commit();
        } catch (CommitFailedException e) {
            return answer.put("status", "failed, retry").put("reason", e.getMessage()).toString();
        }
        answer.put("status", "committed");
        answer.put("base", head == null ? null : String.valueOf(head.snapshotId()));
        ArrayNode columns = answer.putArray("columns");
        for (Object field : table.schema().columns()) {
            columns.add(((Types.NestedField) field).name());
        }
        ArrayNode sets = answer.putArray("sets");
        Map byMeaning = new LinkedHashMap(); // kind and unavailable columns -> list of files
        boolean truncates = false;
        for (Iterator i = request.get("files").elements(); i.hasNext();) {
            JsonNode file = (JsonNode) i.next();
            if (file.get("kind").asText().equals("truncates")) {
                truncates = true;
                continue;
            }
            String meaning = file.get("kind").asText() + file.get("unavailable").toString() + file.get("optional");
            if (!byMeaning.containsKey(meaning)) {
                byMeaning.put(meaning, new ArrayList());
            }
            ((List) byMeaning.get(meaning)).add(file);
        }
        if (truncates) {
            truncate(table, branch, request, byMeaning.isEmpty());
        }
        SparkSets named = new SparkSets(table);
        for (Object each : byMeaning.values()) {
            String set = "merge-" + UUID.randomUUID();
            named.stage(set, (List) each);
            JsonNode first = (JsonNode) ((List) each).get(0);
            ObjectNode part = sets.addObject();
            part.put("set", stage + "." + SparkSets.quoted(set));
            part.put("kind", first.get("kind").asText());
            part.set("unavailable", first.get("unavailable"));
            part.set("optional", first.get("optional"));
        }
        return answer.toString();
    }

    /** Empty the branch. `whole`: nothing is merged afterwards, so this snapshot is the one that carries the summary. */
    private static void truncate(Table table, String branch, JsonNode request, boolean whole) {
        DeleteFiles delete = table.newDelete().deleteFromRowFilter(Expressions.alwaysTrue());
        for (Iterator i = request.get("summary").fields(); whole && i.hasNext();) {
            Map.Entry entry = (Map.Entry) i.next();
            delete.set((String) entry.getKey(), ((JsonNode) entry.getValue()).asText());
        }
        delete.toBranch(branch);
        delete.commit();
    }

    public String endMerge(String requestJson) throws IOException {
        JsonNode request = JsonUtil.mapper().readTree(requestJson);
        SparkSets named = new SparkSets(table(request));
        for (Iterator i = request.get("sets").elements(); i.hasNext();) {
            String name = ((JsonNode) i.next()).asText();
            named.forget(name.substring(stage.length() + 2, name.length() - 1));
        }
        return null;
    }

    private Table table(JsonNode request) {
        return catalog.loadTable(TableAccess.identifier(request.get("table").asText()));
    }
}
