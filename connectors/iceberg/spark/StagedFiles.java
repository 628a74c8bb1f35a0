package connectpy;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;

import org.apache.iceberg.DataFile;
import org.apache.iceberg.DataFiles;
import org.apache.iceberg.FileFormat;
import org.apache.iceberg.Metrics;
import org.apache.iceberg.MetricsConfig;
import org.apache.iceberg.PartitionData;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.Table;
import org.apache.iceberg.exceptions.RuntimeIOException;
import org.apache.iceberg.expressions.Expression;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.io.InputFile;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.JsonNode;
import org.apache.iceberg.types.Conversions;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.types.Types;
import org.apache.iceberg.SingleValueParser;

/** Parquet files that tasks wrote, as data files of the table. */
public class StagedFiles {
    // others are not keys worth ordering, or order in more than one way
    private static final List RANGED =
        Arrays.asList(new Type.TypeID[] {Type.TypeID.INTEGER, Type.TypeID.LONG, Type.TypeID.STRING});

    private final Table table;
    private final MetricsConfig metricsConfig;
    private final Map read = new HashMap(); // String path -> Metrics

    public StagedFiles(Table table) {
        this.table = table;
        this.metricsConfig = MetricsConfig.forTable(table);
    }

    /** Those of the given kind. */
    public static List ofKind(JsonNode files, String kind) {
        List found = new ArrayList();
        for (Iterator i = files.elements(); i.hasNext();) {
            JsonNode file = (JsonNode) i.next();
            if (kind.equals(file.get("kind").asText())) {
                found.add(file);
            }
        }
        return found;
    }

    /** A file that can join the table as it is; its footer tells the column metrics. */
    public DataFile dataFile(JsonNode file) {
        PartitionSpec spec = spec(file);
        rows(file);
        return builder(file, spec).withMetrics(metrics(file)).build();
    }

    /** How many rows a file has, by its footer; an error when others were reported. */
    public long rows(JsonNode file) {
        long rows = metrics(file).recordCount().longValue();
        if (rows != file.get("rows").asLong()) {
            throw new IllegalArgumentException(file.get("path").asText() + " holds " + rows
                + " rows, reported were " + file.get("rows").asLong());
        }
        return rows;
    }

    /**
     * What rows of the table must fulfil to have a staged key, judged by one column: each file's lowest and highest value
     * of it. Always true when a footer does not tell them. Prunes the scan when changes are clustered, as recent ones are.
     */
    public Expression keyRanges(List files, String column) {
        Types.NestedField field = table.schema().findField(column);
        Expression any = Expressions.alwaysFalse();
        for (Object each : files) {
            JsonNode file = (JsonNode) each;
            Metrics metrics = metrics(file);
            ByteBuffer low = metrics.lowerBounds() == null
                ? null : (ByteBuffer) metrics.lowerBounds().get(Integer.valueOf(field.fieldId()));
            ByteBuffer high = metrics.upperBounds() == null
                ? null : (ByteBuffer) metrics.upperBounds().get(Integer.valueOf(field.fieldId()));
            if (low == null || high == null || !RANGED.contains(field.type().typeId())) {
                return Expressions.alwaysTrue();
            }
            Object lowest = Conversions.fromByteBuffer(field.type(), low);
            Object highest = Conversions.fromByteBuffer(field.type(), high);
            any = Expressions.or(any, Expressions.and(
                Expressions.greaterThanOrEqual(column, lowest), Expressions.lessThanOrEqual(column, highest)));
        }
        return any;
    }

    private Metrics metrics(JsonNode file) {
        String path = file.get("path").asText();
        Metrics metrics = (Metrics) read.get(path);
        if (metrics == null) {
            InputFile input = table.io().newInputFile(path, file.get("size").asLong());
            try {
                metrics = ParquetFooter.metrics(input, metricsConfig);
            } catch (IOException e) {
                throw new RuntimeIOException(e, "cannot read the footer of %s", new Object[] {path});
            }
            read.put(path, metrics);
        }
        return metrics;
    }

    private PartitionSpec spec(JsonNode file) {
        PartitionSpec spec = (PartitionSpec) table.specs().get(Integer.valueOf(file.get("spec_id").asInt()));
        if (spec == null) {
            throw new IllegalArgumentException("table has no partition spec " + file.get("spec_id").asInt());
        }
        return spec;
    }

    public DataFiles.Builder builder(JsonNode file, PartitionSpec spec) {
        DataFiles.Builder builder = DataFiles.builder(spec)
            .withPath(file.get("path").asText())
            .withFormat(FileFormat.PARQUET)
            .withFileSizeInBytes(file.get("size").asLong());
        if (spec.isPartitioned()) {
            builder.withPartition(partition(spec, file.get("partition")));
        }
        return builder;
    }

    private static PartitionData partition(PartitionSpec spec, JsonNode values) {
        PartitionData data = new PartitionData(spec.partitionType());
        List fields = spec.partitionType().fields();
        for (int i = 0; i < fields.size() && i < values.size(); i++) {
            JsonNode value = (JsonNode) values.get(i);
            if (!value.isNull()) {
                Type type = ((Types.NestedField) fields.get(i)).type();
                data.set(i, SingleValueParser.fromJson(type, value.asText()));
            }
        }
        return data;
    }
}
