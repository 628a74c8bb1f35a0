package connectpy;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;

import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileContent;
import org.apache.iceberg.FileFormat;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.Table;
import org.apache.iceberg.data.BaseDeleteLoader;
import org.apache.iceberg.data.GenericAppenderFactory;
import org.apache.iceberg.deletes.BaseDVFileWriter;
import org.apache.iceberg.deletes.PositionDelete;
import org.apache.iceberg.deletes.PositionDeleteIndex;
import org.apache.iceberg.deletes.PositionDeleteWriter;
import org.apache.iceberg.encryption.EncryptedFiles;
import org.apache.iceberg.io.InputFile;
import org.apache.iceberg.io.OutputFile;
import org.apache.iceberg.util.ContentFileUtil;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * The rows of a table that one commit removes: gathered by file and position, then written as deletion vectors (v3) or
 * as one file of position deletes per data file (v2). Earlier ones of the same data file are merged in and replaced, so
 * that a data file never has more than one of ours.
 */
public class RowDeletes {
    private final Table table;
    private final String prefix; // of the names of the files written
    private final Map positions = new HashMap(); // UTF8String path -> Positions
    private final Map tasks = new HashMap(); // String path -> FileScanTask
    private final List written = new ArrayList();
    private final List replaced = new ArrayList();
    private final List dataFiles = new ArrayList();
    private long count = 0;
    private boolean twice = false;

    /** Positions in one data file, as they come, then sorted and each once. */
    private static class Positions {
        private long[] values = new long[64];
        private int size = 0;

        void add(long position) {
            if (size == values.length) {
                values = Arrays.copyOf(values, size * 2);
            }
            values[size++] = position;
        }

        /** Returns whether a position was there twice. */
        boolean sort() {
            Arrays.sort(values, 0, size);
            int kept = 0;
            for (int i = 0; i < size; i++) {
                if (i == 0 || values[i] != values[i - 1]) {
                    values[kept++] = values[i];
                }
            }
            boolean repeated = kept < size;
            size = kept;
            return repeated;
        }
    }

    /** `tasks`: the scan of the table that the positions come from. */
    public RowDeletes(Table table, List scanned, String prefix) {
        this.table = table;
        this.prefix = prefix;
        for (Object each : scanned) {
            tasks.put(((FileScanTask) each).file().location(), each);
        }
    }

    /** Take the rows (file, position) of a plan. */
    public void collect(SparkPlan plan) {
        scala.Tuple2 counted = (scala.Tuple2) plan.executeCollectIterator();
        scala.collection.Iterator rows = (scala.collection.Iterator) counted._2();
        UTF8String path = null;
        Positions inFile = null;
        while (rows.hasNext()) {
            InternalRow row = (InternalRow) rows.next();
            UTF8String next = row.getUTF8String(0);
            if (!next.equals(path)) {
                path = next.clone(); // the row's memory is used again
                inFile = (Positions) positions.get(path);
                if (inFile == null) {
                    inFile = new Positions();
                    positions.put(path, inFile);
                }
            }
            inFile.add(row.getLong(1));
        }
        for (Object each : positions.values()) {
            twice = ((Positions) each).sort() || twice;
            count += ((Positions) each).size;
        }
    }

    /** Whether a row of the table was found for two staged keys. */
    public boolean foundTwice() {
        return twice;
    }

    public long count() {
        return count;
    }

    /** Write the delete files: `written` are to be added, `replaced` to be removed. */
    public void write(int formatVersion) throws IOException {
        for (Object path : positions.keySet()) {
            dataFiles.add(path.toString());
        }
        if (formatVersion >= 3) {
            writeVectors();
        } else {
            writePositions();
        }
    }

    private void writeVectors() throws IOException {
        final String location = location(0, "puffin");
        BaseDVFileWriter writer = new BaseDVFileWriter(
            new java.util.function.Supplier() {
                public Object get() {
                    return table.io().newOutputFile(location);
                }
            },
            new java.util.function.Function() {
                public Object apply(Object path) {
                    return previous((FileScanTask) tasks.get(path));
                }
            });
        for (Object each : positions.entrySet()) {
            String path = ((Map.Entry) each).getKey().toString();
            Positions inFile = (Positions) ((Map.Entry) each).getValue();
            FileScanTask task = (FileScanTask) tasks.get(path);
            for (int i = 0; i < inFile.size; i++) {
                writer.delete(path, inFile.values[i], task.spec(), task.file().partition());
            }
        }
        writer.close();
        written.addAll(writer.result().deleteFiles());
        replaced.addAll(writer.result().rewrittenDeleteFiles());
    }

    private void writePositions() throws IOException {
        int number = 0;
        for (Object each : positions.entrySet()) {
            String path = ((Map.Entry) each).getKey().toString();
            Positions inFile = (Positions) ((Map.Entry) each).getValue();
            FileScanTask task = (FileScanTask) tasks.get(path);
            addPrevious(inFile, task);
            GenericAppenderFactory factory =
                new GenericAppenderFactory(table, table.schema(), task.spec(), new HashMap(), null, null);
            PositionDeleteWriter writer = factory.newPosDeleteWriter(
                EncryptedFiles.plainAsEncryptedOutput(table.io().newOutputFile(location(number++, "parquet"))),
                FileFormat.PARQUET, task.file().partition());
            PositionDelete delete = PositionDelete.create();
            for (int i = 0; i < inFile.size; i++) {
                writer.write(delete.set(path, inFile.values[i]));
            }
            writer.close();
            written.addAll(writer.result().deleteFiles());
        }
    }

    /** Only deletes that speak of this data file alone can be replaced. */
    private void addPrevious(final Positions inFile, FileScanTask task) {
        List own = new ArrayList();
        for (Object each : task.deletes()) {
            DeleteFile file = (DeleteFile) each;
            if (file.content() == FileContent.POSITION_DELETES && ContentFileUtil.isFileScoped(file)) {
                own.add(file);
            }
        }
        if (!own.isEmpty()) {
            loader().loadPositionDeletes(own, task.file().location()).forEach(new java.util.function.LongConsumer() {
                public void accept(long position) {
                    inFile.add(position);
                }
            });
            inFile.sort();
            replaced.addAll(own);
        }
    }

    private PositionDeleteIndex previous(FileScanTask task) {
        List deletes = new ArrayList();
        for (Object each : task.deletes()) {
            if (((DeleteFile) each).content() == FileContent.POSITION_DELETES) {
                deletes.add(each);
            }
        }
        return deletes.isEmpty() ? null : loader().loadPositionDeletes(deletes, task.file().location());
    }

    private BaseDeleteLoader loader() {
        return new BaseDeleteLoader(new java.util.function.Function() {
            public Object apply(Object file) {
                return table.io().newInputFile(((DeleteFile) file).location());
            }
        });
    }

    private String location(int number, String extension) {
        return table.locationProvider().newDataLocation(prefix + "-" + UUID.randomUUID() + "-deletes-" + number + "." + extension);
    }

    public List written() {
        return written;
    }

    public List replaced() {
        return replaced;
    }

    /** Paths of the data files that lose rows. */
    public List dataFiles() {
        return dataFiles;
    }
}
