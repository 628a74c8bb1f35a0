package connectpy;

import java.io.ByteArrayInputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.zip.InflaterInputStream;

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

    /** Rows of one data file, a bit each. */
    private static class Rows {
        private final FileScanTask task;
        private final BitSet bits;
        private PositionDeleteIndex gone; // deleted by earlier commits; null: none

        Rows(FileScanTask task, BitSet bits) {
            this.task = task;
            this.bits = bits;
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

    /** Take one row; it may be deleted already, or come again. */
    public void add(String path, long position) {
        Rows rows = (Rows) found.get(path);
        if (rows == null) {
            rows = new Rows((FileScanTask) tasks.get(path), new BitSet());
            found.put(path, rows);
        }
        rows.bits.set(Math.toIntExact(position));
    }

    /**
     * Take rows by the scanned files, in their order: of each a bit per row, the lowest first, in whole bytes; all of it
     * compressed by zlib. Empty: none of any file.
     */
    public void addAll(byte[] compressed) throws IOException {
        if (compressed.length == 0) {
            return;
        }
        DataInputStream bits = new DataInputStream(new InflaterInputStream(new ByteArrayInputStream(compressed)));
        for (Object each : scanned) {
            FileScanTask task = (FileScanTask) each;
            byte[] ofFile = new byte[Math.toIntExact((task.file().recordCount() + 7) / 8)];
            bits.readFully(ofFile);
            BitSet rows = BitSet.valueOf(ofFile);
            if (!rows.isEmpty()) {
                found.put(task.file().location(), new Rows(task, rows));
            }
        }
    }

    /** Write the delete files of all living rows taken: `written` are to be added, `replaced` to be removed. */
    public void write(int formatVersion) throws IOException {
        for (Iterator i = found.values().iterator(); i.hasNext();) {
            Rows rows = (Rows) i.next();
            rows.gone = deleted(table, rows.task, rows.task.deletes());
            if (rows.gone != null) {
                rows.gone.forEach(change(rows.bits, false));
            }
            count += rows.bits.cardinality();
            if (rows.bits.isEmpty()) {
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

    private static java.util.function.LongConsumer change(final BitSet bits, final boolean to) {
        return new java.util.function.LongConsumer() {
            public void accept(long position) {
                bits.set(Math.toIntExact(position), to);
            }
        };
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
            for (int row = rows.bits.nextSetBit(0); row >= 0; row = rows.bits.nextSetBit(row + 1)) {
                writer.delete(path, row, rows.task.spec(), rows.task.file().partition());
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
            addReplaced(rows);
            GenericAppenderFactory factory =
                new GenericAppenderFactory(table, table.schema(), task.spec(), new HashMap(), null, null);
            PositionDeleteWriter writer = factory.newPosDeleteWriter(
                EncryptedFiles.plainAsEncryptedOutput(table.io().newOutputFile(location(number++, "parquet"))),
                FileFormat.PARQUET, task.file().partition());
            PositionDelete delete = PositionDelete.create();
            for (int row = rows.bits.nextSetBit(0); row >= 0; row = rows.bits.nextSetBit(row + 1)) {
                writer.write(delete.set(path, row));
            }
            writer.close();
            written.addAll(writer.result().deleteFiles());
        }
    }

    /** Add what earlier deletes of this data file alone hold: only such can be replaced. */
    private void addReplaced(Rows rows) {
        List own = new ArrayList();
        for (Object each : rows.task.deletes()) {
            if (ContentFileUtil.isFileScoped((DeleteFile) each)) {
                own.add(each);
            }
        }
        PositionDeleteIndex held = deleted(table, rows.task, own);
        if (held != null) {
            held.forEach(change(rows.bits, true));
            replaced.addAll(own);
        }
    }

    /** The positions that these deletes hold for a data file; null: there are none by position. */
    public static PositionDeleteIndex deleted(final Table table, FileScanTask task, List deletes) {
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
