package connectpy;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Base64;
import java.util.BitSet;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.zip.DeflaterOutputStream;

import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileContent;
import org.apache.iceberg.FileFormat;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.SingleValueParser;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableScan;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.deletes.PositionDeleteIndex;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.JsonNode;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.iceberg.types.Types;
import org.apache.iceberg.util.JsonUtil;

/** The rows of a table at one snapshot, for who reads its files without Spark: which files, and what is deleted in them. */
public class TableRows {
    private static final int KEPT = 8; // plans; one is used at a time

    private final Catalog catalog;
    private final Map plans = new LinkedHashMap(); // id -> Plan

    /** What one plan found. */
    private static class Plan {
        private final Table table;
        private final Map tasks = new HashMap(); // String path -> FileScanTask

        Plan(Table table) {
            this.table = table;
        }
    }

    public TableRows(Catalog catalog) {
        this.catalog = catalog;
    }

    /** `arguments`: the catalog. */
    public static TableRows make(Object[] arguments) {
        return new TableRows((Catalog) arguments[0]);
    }

    /**
     * The files of a snapshot (null: the ref's) where rows with column between low and high (JSON texts; null: all) may be.
     * `plain`: Parquet files without equality deletes.
     */
    public String plan(String requestJson) throws IOException {
        JsonNode request = JsonUtil.mapper().readTree(requestJson);
        Table table = catalog.loadTable(TableAccess.identifier(request.get("table").asText()));
        Plan plan = new Plan(table);
        ObjectNode answer = JsonUtil.mapper().createObjectNode();
        ArrayNode files = answer.putArray("files");
        Snapshot head = LedgerCheck.head(table, request.get("ref").asText());
        boolean plain = true;
        if (head != null) {
            long snapshot = request.get("snapshot").isNull() ? head.snapshotId() : request.get("snapshot").asLong();
            TableScan scan = (TableScan) table.newScan().useSnapshot(snapshot);
            scan = narrowed(scan, table, request);
            CloseableIterable tasks = (CloseableIterable) ((TableScan) scan.ignoreResiduals()).planFiles();
            for (Object each : tasks) {
                FileScanTask task = (FileScanTask) each;
                plain = plain && task.file().format() == FileFormat.PARQUET;
                for (Object delete : task.deletes()) {
                    plain = plain && ((DeleteFile) delete).content() == FileContent.POSITION_DELETES;
                }
                plan.tasks.put(task.file().location(), task);
                files.addObject().put("path", task.file().location()).put("rows", task.file().recordCount())
                    .put("deletes", !task.deletes().isEmpty());
            }
            tasks.close();
        }
        String id = UUID.randomUUID().toString();
        plans.put(id, plan);
        if (plans.size() > KEPT) {
            plans.remove(plans.keySet().iterator().next());
        }
        return answer.put("plain", plain).put("plan", id).toString();
    }

    private static TableScan narrowed(TableScan scan, Table table, JsonNode request) {
        if (request.get("low").isNull()) {
            return scan;
        }
        String column = request.get("column").asText();
        Types.NestedField now = table.schema().findField(column);
        Types.NestedField then = scan.schema().findField(column);
        if (then == null || then.fieldId() != now.fieldId() || !then.type().equals(now.type())) {
            return scan;
        }
        Object low = SingleValueParser.fromJson(now.type(), request.get("low").asText());
        Object high = SingleValueParser.fromJson(now.type(), request.get("high").asText());
        return (TableScan) scan.filter(Expressions.and(
            Expressions.greaterThanOrEqual(column, low), Expressions.lessThanOrEqual(column, high)));
    }

    /** The deleted rows of a planned file: a bit per row, the lowest first, compressed by zlib, in Base64. */
    public String deleted(String id, String path) throws IOException {
        Plan plan = (Plan) plans.get(id);
        FileScanTask task = (FileScanTask) plan.tasks.get(path);
        final BitSet bits = new BitSet();
        PositionDeleteIndex gone = RowDeletes.deleted(plan.table, task, task.deletes());
        if (gone != null) {
            gone.forEach(new java.util.function.LongConsumer() {
                public void accept(long position) {
                    bits.set(Math.toIntExact(position));
                }
            });
        }
        ByteArrayOutputStream compressed = new ByteArrayOutputStream();
        DeflaterOutputStream out = new DeflaterOutputStream(compressed);
        out.write(bits.toByteArray());
        out.close();
        String text = Base64.getEncoder().encodeToString(compressed.toByteArray());
        return JsonUtil.mapper().createObjectNode().put("rows", text).toString();
    }

    /**
     * Of those ancestors of the ref that removed rows, or whose summary has `key`, the newest first, `limit` at most: the
     * snapshot before, and what the summary says under `key`. The snapshot before is null where it is gone or never was, or
     * has no row that this one has not.
     */
    public String beforeRemovals(String name, String ref, String key, String limit) {
        Table table = catalog.loadTable(TableAccess.identifier(name));
        List found = new ArrayList();
        for (Object each : LedgerCheck.ancestors(table, LedgerCheck.head(table, ref))) {
            Snapshot snapshot = (Snapshot) each;
            if (found.size() >= Integer.parseInt(limit)) {
                break;
            }
            if (snapshot.summary().containsKey(key) || before(table, snapshot) != null) {
                found.add(snapshot);
            }
        }
        ObjectNode answer = JsonUtil.mapper().createObjectNode();
        ArrayNode snapshots = answer.putArray("snapshots");
        for (Object each : found) {
            Snapshot snapshot = (Snapshot) each;
            snapshots.addArray().add(before(table, snapshot)).add((String) snapshot.summary().get(key));
        }
        return answer.toString();
    }

    /** The snapshot before one that removed rows, if it is still there. */
    private static String before(Table table, Snapshot snapshot) {
        boolean removes = snapshot.summary().containsKey("added-delete-files")
            || snapshot.summary().containsKey("deleted-records");
        Long parent = snapshot.parentId();
        boolean there = parent != null && table.snapshot(parent.longValue()) != null;
        return removes && !"replace".equals(snapshot.operation()) && there ? parent.toString() : null;
    }
}
