package connectpy;

import java.io.File;
import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.OpenOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFilePermissions;

import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Hadoop's local file system, whose files survive a power failure once they are closed or renamed. It does not write
 * checksum files. Spark's Janino compiler compiles this class, so it has no lambdas, and casts where javac infers types.
 */
public class DurableFileSystem extends LocalFileSystem {
    public DurableFileSystem() {
        super(new Raw());
        setWriteChecksum(false);
    }

    private static void force(File file, OpenOption option) throws IOException {
        FileChannel channel = FileChannel.open(file.toPath(), new OpenOption[] {option});
        try {
            channel.force(true);
        } finally {
            channel.close();
        }
    }

    private static void forceNames(File folder) {
        try {
            force(folder, StandardOpenOption.READ);
        } catch (IOException refused) {
            return; // some network file systems refuse this, and some folders are not readable
        }
    }

    private static class Raw extends RawLocalFileSystem {
        protected OutputStream createOutputStreamWithMode(Path path, boolean append, FsPermission permission)
            throws IOException {
            return new DurableOutput(super.createOutputStreamWithMode(path, append, permission), pathToFile(path));
        }

        protected boolean mkOneDirWithMode(Path path, File folder, FsPermission permission) throws IOException {
            boolean made = super.mkOneDirWithMode(path, folder, permission);
            if (made) {
                forceNames(folder.getParentFile());
            }
            return made;
        }

        /** Sets the permission in this process. Hadoop would start a chmod process for each file. */
        public void setPermission(Path path, FsPermission permission) throws IOException {
            if (permission.getStickyBit()) {
                super.setPermission(path, permission);
            } else {
                String text = permission.toString();
                Files.setPosixFilePermissions(pathToFile(path).toPath(), PosixFilePermissions.fromString(text));
            }
        }

        public boolean rename(Path from, Path to) throws IOException {
            boolean renamed = super.rename(from, to);
            if (renamed) {
                forceNames(pathToFile(to).getParentFile());
            }
            return renamed;
        }
    }

    private static class DurableOutput extends FilterOutputStream {
        private final File file;
        private boolean closed;

        DurableOutput(OutputStream stream, File file) {
            super(stream);
            this.file = file;
        }

        public void write(byte[] bytes, int start, int length) throws IOException {
            out.write(bytes, start, length);
        }

        public void close() throws IOException {
            if (!closed) {
                closed = true;
                out.close();
                force(file, StandardOpenOption.WRITE);
                forceNames(file.getParentFile());
            }
        }
    }
}
