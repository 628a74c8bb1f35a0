package connectpy;

import java.io.File;
import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.URI;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Hadoop's file system of this machine, with files that outlive a machine that dies once they are closed or renamed, as
 * those of `LocalFiles` do. Hadoop's own forces nothing, and what Spark and Iceberg write goes through it.
 *
 * There are no checksums beside the files: one that was torn would make Hadoop refuse a file that is whole.
 */
public class LastingFileSystem extends LocalFileSystem {
    private static final String KEY = "fs.file.impl";

    public LastingFileSystem() {
        super(new Raw());
        setWriteChecksum(false);
    }

    /**
     * `arguments`: a Hadoop configuration. Hadoop makes one file system for all, by the first configuration that asks, so
     * this is that of the JVM from now on. Configurations cannot name it: copies of them would not find the class.
     *
     * Who named another class has that. With Kerberos it is left as it is: whoever asks first has Hadoop log in, and that is
     * not for us to do.
     */
    public static FileSystem make(Object[] arguments) throws IOException {
        Configuration asking = new Configuration((Configuration) arguments[0]);
        boolean simple = asking.get("hadoop.security.authentication", "simple").equals("simple");
        if (!asking.get(KEY, "").isEmpty() || !simple) {
            return null;
        }
        asking.setClassLoader(LastingFileSystem.class.getClassLoader());
        asking.set(KEY, LastingFileSystem.class.getName());
        return FileSystem.get(URI.create("file:///"), asking);
    }

    /** Without the checksums, which another layer adds. */
    private static class Raw extends RawLocalFileSystem {
        protected OutputStream createOutputStreamWithMode(Path path, boolean append, FsPermission permission)
            throws IOException {
            return new LastingOutput(super.createOutputStreamWithMode(path, append, permission), pathToFile(path));
        }

        protected boolean mkOneDirWithMode(Path path, File folder, FsPermission permission) throws IOException {
            boolean made = super.mkOneDirWithMode(path, folder, permission);
            if (made) {
                LocalFiles.namesToDisk(folder.getParentFile());
            }
            return made;
        }

        public boolean rename(Path from, Path to) throws IOException {
            boolean renamed = super.rename(from, to);
            if (renamed) {
                LocalFiles.namesToDisk(pathToFile(to).getParentFile());
            }
            return renamed;
        }
    }

    private static class LastingOutput extends FilterOutputStream {
        private final File file;
        private boolean closed;

        LastingOutput(OutputStream stream, File file) {
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
                LocalFiles.toDisk(file);
            }
        }
    }
}
