package connectpy;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import org.apache.iceberg.DeleteFiles;
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

/** What a SQL MERGE on a branch needs before it; `TableCommit.publish` makes its result visible. Nothing needs Spark. */
public class BranchMerge {
    private final Catalog catalog;

    public BranchMerge(Catalog catalog) {
        this.catalog = catalog;
    }

    /** `arguments`: the catalog. */
    public static BranchMerge make(Object[] arguments) {
        return new BranchMerge((Catalog) arguments[0]);
    }

    /**
     * A work branch at the head whose version is as expected, and a branch for each meaning that staged files have, named
     * after the work branch with `s` and a number.
     */
    public String prepare(String requestJson) throws IOException {
        JsonNode request = JsonUtil.mapper().readTree(requestJson);
        Table table = table(request);
        ObjectNode answer = JsonUtil.mapper().createObjectNode();
        Snapshot head = LedgerCheck.head(table, request.get("ref").asText());
        LedgerCheck check = new LedgerCheck(table, request);
        if (!check.validate(LedgerCheck.ancestors(table, head))) {
            return answer.put("status", "conflict").put("reason", check.refusal()).toString();
        }
        String work = request.get("work_branch").asText();
        boolean truncates = false;
        Map byMeaning = new LinkedHashMap(); // kind and unavailable columns -> list of files
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
        ArrayNode sets = answer.putArray("sets");
        StagedBranches branches = new StagedBranches(table);
        try {
            branches.branch(work, head);
            int number = 0;
            for (Object each : byMeaning.values()) {
                branches.stage(work + "s" + number++, (List) each);
            }
        } catch (RuntimeException e) {
            branches.abandon();
            throw e;
        }
        for (Object each : byMeaning.values()) {
            String branch = work + "s" + sets.size();
            JsonNode first = (JsonNode) ((List) each).get(0);
            ObjectNode part = sets.addObject();
            part.put("branch", branch);
            part.put("kind", first.get("kind").asText());
            part.set("unavailable", first.get("unavailable"));
            part.set("optional", first.get("optional"));
        }
        try {
            branches.commit();
        } catch (CommitFailedException e) {
            branches.undo();
            return answer.put("status", "failed, retry").put("reason", e.getMessage()).toString();
        }
        if (truncates) {
            table.refresh();
            SureOperations operations = new SureOperations(table, work, request.get("key").asText());
            truncate(operations.table(), work, request, byMeaning.isEmpty());
        }
        answer.put("status", "committed");
        answer.put("base", head == null ? null : String.valueOf(head.snapshotId()));
        ArrayNode columns = answer.putArray("columns");
        for (Object field : table.schema().columns()) {
            columns.add(((Types.NestedField) field).name());
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

    /** Drop the branches of a merge that came to nothing. */
    public String discard(String requestJson) throws IOException {
        JsonNode request = JsonUtil.mapper().readTree(requestJson);
        List names = new ArrayList();
        for (Iterator i = request.get("branches").elements(); i.hasNext();) {
            names.add(((JsonNode) i.next()).asText());
        }
        StagedBranches.drop(table(request), names);
        return null;
    }

    private Table table(JsonNode request) {
        return catalog.loadTable(TableAccess.identifier(request.get("table").asText()));
    }
}
