package connectpy;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.LongBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Iterator;
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
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.JsonNode;
import org.apache.iceberg.util.ContentFileUtil;

/**
 * The rows of a table that one commit removes: gathered by file and position, then written as deletion vectors (v3) or
 * as one file of position deletes per data file (v2). Earlier ones of the same data file are merged in and replaced, so
 * that a data file never has more than one of ours.
 */
public class RowDeletes {
    private final Table table;
    private final List scanned; // FileScanTask
    private final Map tasks = new HashMap(); // String path -> FileScanTask
    private final String prefix; // of the names of the files written
    private final Map found = new HashMap(); // String path -> Rows, of data files that may lose some
    private final List written = new ArrayList();
    private final List replaced = new ArrayList();
    private long count = 0;

    /** Positions in one data file, as they come, then sorted and each once. */
    private static class Rows {
        private final FileScanTask task;
        private final PositionDeleteIndex gone; // deleted by earlier commits; null: none
        private long[] positions = new long[64];
        private int size = 0;

        Rows(FileScanTask task, PositionDeleteIndex gone) {
            this.task = task;
            this.gone = gone;
        }

        void add(long position) {
            if (size == positions.length) {
                positions = Arrays.copyOf(positions, size * 2);
            }
            positions[size++] = position;
        }

        /** Each position once, the lowest first, without those that are gone. */
        void settle() {
            Arrays.sort(positions, 0, size);
            int kept = 0;
            for (int i = 0; i < size; i++) {
                boolean again = kept > 0 && positions[i] == positions[kept - 1];
                if (!again && (gone == null || !gone.isDeleted(positions[i]))) {
                    positions[kept++] = positions[i];
                }
            }
            size = kept;
        }
    }

    /** `scanned`: the scan of the table that the positions come from. */
    public RowDeletes(Table table, List scanned, String prefix) {
        this.table = table;
        this.scanned = scanned;
        this.prefix = prefix;
        for (Object each : scanned) {
            tasks.put(((FileScanTask) each).file().location(), each);
        }
    }

    /** Take one row, wherever it comes in the order of its file; it may be deleted already, or come again. */
    public void add(String path, long position) {
        Rows rows = (Rows) found.get(path);
        if (rows == null) {
            FileScanTask task = (FileScanTask) tasks.get(path);
            rows = new Rows(task, deleted(task, task.deletes()));
            found.put(path, rows);
        }
        rows.add(position);
    }

    /** Take rows by the scanned files, in their order: how many of each, and all positions, eight bytes each. */
    public void addAll(JsonNode counts, byte[] positions) {
        LongBuffer all = ByteBuffer.wrap(positions).order(ByteOrder.LITTLE_ENDIAN).asLongBuffer();
        for (int i = 0; i < counts.size(); i++) {
            String path = ((FileScanTask) scanned.get(i)).file().location();
            for (int left = ((JsonNode) counts.get(i)).asInt(); left > 0; left--) {
                add(path, all.get());
            }
        }
    }

    /** Write the delete files of all rows taken: `written` are to be added, `replaced` to be removed. */
    public void write(int formatVersion) throws IOException {
        for (Iterator i = found.values().iterator(); i.hasNext();) {
            Rows rows = (Rows) i.next();
            rows.settle();
            count += rows.size;
            if (rows.size == 0) {
                i.remove();
            }
        }
        if (found.isEmpty()) {
            return;
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
                    return ((Rows) found.get(path)).gone;
                }
            });
        for (Object each : found.entrySet()) {
            String path = (String) ((Map.Entry) each).getKey();
            Rows rows = (Rows) ((Map.Entry) each).getValue();
            for (int i = 0; i < rows.size; i++) {
                writer.delete(path, rows.positions[i], rows.task.spec(), rows.task.file().partition());
            }
        }
        writer.close();
        written.addAll(writer.result().deleteFiles());
        replaced.addAll(writer.result().rewrittenDeleteFiles());
    }

    private void writePositions() throws IOException {
        int number = 0;
        for (Object each : found.entrySet()) {
            String path = (String) ((Map.Entry) each).getKey();
            Rows rows = (Rows) ((Map.Entry) each).getValue();
            FileScanTask task = rows.task;
            final Rows all = new Rows(task, null);
            for (int i = 0; i < rows.size; i++) {
                all.add(rows.positions[i]);
            }
            addReplaced(all);
            GenericAppenderFactory factory =
                new GenericAppenderFactory(table, table.schema(), task.spec(), new HashMap(), null, null);
            PositionDeleteWriter writer = factory.newPosDeleteWriter(
                EncryptedFiles.plainAsEncryptedOutput(table.io().newOutputFile(location(number++, "parquet"))),
                FileFormat.PARQUET, task.file().partition());
            PositionDelete delete = PositionDelete.create();
            for (int i = 0; i < all.size; i++) {
                writer.write(delete.set(path, all.positions[i]));
            }
            writer.close();
            written.addAll(writer.result().deleteFiles());
        }
    }

    /** What earlier deletes of this data file alone hold: only such can be replaced. */
    private void addReplaced(final Rows all) {
        List own = new ArrayList();
        for (Object each : all.task.deletes()) {
            if (ContentFileUtil.isFileScoped((DeleteFile) each)) {
                own.add(each);
            }
        }
        PositionDeleteIndex held = deleted(all.task, own);
        if (held != null) {
            held.forEach(new java.util.function.LongConsumer() {
                public void accept(long position) {
                    all.add(position);
                }
            });
            all.settle();
            replaced.addAll(own);
        }
    }

    /** The positions that these deletes hold for a data file; null: there are none by position. */
    private PositionDeleteIndex deleted(FileScanTask task, List deletes) {
        List byPosition = new ArrayList();
        for (Object each : deletes) {
            if (((DeleteFile) each).content() == FileContent.POSITION_DELETES) {
                byPosition.add(each);
            }
        }
        if (byPosition.isEmpty()) {
            return null;
        }
        BaseDeleteLoader loader = new BaseDeleteLoader(new java.util.function.Function() {
            public Object apply(Object file) {
                return table.io().newInputFile(((DeleteFile) file).location());
            }
        });
        return loader.loadPositionDeletes(byPosition, task.file().location());
    }

    private String location(int number, String extension) {
        String name = prefix + "-" + UUID.randomUUID() + "-deletes-" + number + "." + extension;
        return table.locationProvider().newDataLocation(name);
    }

    /** Rows that were deleted; known once they are written. */
    public long count() {
        return count;
    }

    public List written() {
        return written;
    }

    public List replaced() {
        return replaced;
    }

    /** Paths of the data files that lose rows. */
    public List dataFiles() {
        return new ArrayList(found.keySet());
    }
}
