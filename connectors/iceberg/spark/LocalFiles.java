package connectpy;

import java.io.File;
import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.file.DirectoryStream;
import java.nio.file.NoSuchFileException;
import java.nio.file.OpenOption;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.Files;
import org.apache.iceberg.exceptions.NotFoundException;
import org.apache.iceberg.exceptions.RuntimeIOException;
import org.apache.iceberg.hadoop.HadoopFileIO;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.io.FileInfo;
import org.apache.iceberg.io.InputFile;
import org.apache.iceberg.io.OutputFile;
import org.apache.iceberg.io.PositionOutputStream;
import org.apache.iceberg.io.SeekableInputStream;
import org.apache.iceberg.io.SupportsPrefixOperations;

/**
 * Files of this machine, by Java alone: Hadoop's file system for them takes a fifth of a second to come up. What is at
 * other places, Hadoop reads and writes. Locations are told as they were given.
 *
 * A file that was closed outlives a machine that dies: a catalog that does so, too, will refer to it.
 */
public class LocalFiles implements FileIO, SupportsPrefixOperations {
    private final Map properties;
    private HadoopFileIO elsewhere;

    public LocalFiles(Map properties) {
        this.properties = properties;
    }

    public Map properties() {
        return properties;
    }

    public InputFile newInputFile(String location) {
        File file = local(location);
        return file == null ? hadoop().newInputFile(location) : new LocalInput(location, file);
    }

    public OutputFile newOutputFile(String location) {
        File file = local(location);
        return file == null ? hadoop().newOutputFile(location) : new LocalOutput(location, file);
    }

    public void deleteFile(String location) {
        File file = local(location);
        if (file == null) {
            hadoop().deleteFile(location);
            return;
        }
        try {
            java.nio.file.Files.deleteIfExists(file.toPath());
            // of a writer that keeps checksums, as Hadoop does
            java.nio.file.Files.deleteIfExists(new File(file.getParentFile(), "." + file.getName() + ".crc").toPath());
        } catch (IOException e) {
            throw new RuntimeIOException(e, "cannot delete %s", new Object[] {location});
        }
    }

    /** Every file below a folder; nothing if there is no such folder. Checksums of other writers are no files. */
    public Iterable listPrefix(String prefix) {
        File folder = local(prefix);
        if (folder == null) {
            return hadoop().listPrefix(prefix);
        }
        List found = new ArrayList();
        try {
            list(folder.toPath(), prefix.endsWith("/") ? prefix : prefix + "/", found);
        } catch (IOException e) {
            throw new RuntimeIOException(e, "cannot list %s", new Object[] {prefix});
        }
        return found;
    }

    public void deletePrefix(String prefix) {
        hadoop().deletePrefix(prefix);
    }

    public void close() {
        if (elsewhere != null) {
            elsewhere.close();
        }
    }

    private static void list(Path folder, String prefix, List found) throws IOException {
        DirectoryStream entries;
        try {
            entries = java.nio.file.Files.newDirectoryStream(folder);
        } catch (NoSuchFileException e) {
            return; // nobody wrote there, or it was just removed
        }
        try {
            for (Object each : entries) {
                Path path = (Path) each;
                File file = path.toFile();
                String name = file.getName();
                if (file.isDirectory()) {
                    list(path, prefix + name + "/", found);
                } else if (!(name.startsWith(".") && name.endsWith(".crc"))) {
                    found.add(new FileInfo(prefix + name, file.length(), file.lastModified()));
                }
            }
        } finally {
            entries.close();
        }
    }

    /** The file of a location on this machine; null: it is somewhere else. */
    private static File local(String location) {
        if (location.startsWith("/")) {
            return new File(location);
        }
        if (!location.startsWith("file:")) {
            return null;
        }
        String path = location.substring("file:".length());
        if (path.startsWith("//")) {
            path = path.substring(2);
        }
        return path.startsWith("/") ? new File(path) : null;
    }

    private synchronized HadoopFileIO hadoop() {
        if (elsewhere == null) {
            elsewhere = new HadoopFileIO(new Configuration());
            elsewhere.initialize(properties);
        }
        return elsewhere;
    }

    /** A file that cannot be opened just now (a full disk, too many open files) is not one that is missing. */
    private static RuntimeException unavailable(NotFoundException error) {
        return new RuntimeIOException(new IOException(error.getMessage(), error));
    }

    private static class LocalInput implements InputFile {
        private final String location;
        private final File file;

        LocalInput(String location, File file) {
            this.location = location;
            this.file = file;
        }

        public long getLength() {
            return Files.localInput(file).getLength();
        }

        public SeekableInputStream newStream() {
            try {
                return Files.localInput(file).newStream();
            } catch (NotFoundException error) {
                if (file.exists()) {
                    throw unavailable(error);
                }
                throw error;
            }
        }

        public String location() {
            return location;
        }

        public boolean exists() {
            return file.exists();
        }
    }

    private static class LocalOutput implements OutputFile {
        private final String location;
        private final File file;

        LocalOutput(String location, File file) {
            this.location = location;
            this.file = file;
        }

        public PositionOutputStream create() {
            return open(false);
        }

        public PositionOutputStream createOrOverwrite() {
            return open(true);
        }

        private PositionOutputStream open(boolean overwrites) {
            OutputFile output = Files.localOutput(file);
            try {
                makeFolder(file.getParentFile());
                return new LastingStream(overwrites ? output.createOrOverwrite() : output.create(), file);
            } catch (IOException error) {
                throw new RuntimeIOException(error);
            } catch (NotFoundException error) {
                throw unavailable(error);
            }
        }

        public String location() {
            return location;
        }

        public InputFile toInputFile() {
            return new LocalInput(location, file);
        }
    }

    private static void makeFolder(File folder) throws IOException {
        if (folder != null && !folder.isDirectory()) {
            makeFolder(folder.getParentFile());
            folder.mkdir(); // or somebody else just did; what cannot be made is found out by who opens a file in it
            namesToDisk(folder.getParentFile());
        }
    }

    /** Have the disk hold a file and its name. */
    public static void toDisk(File file) throws IOException {
        force(file, StandardOpenOption.WRITE);
        namesToDisk(file.getParentFile());
    }

    /** Have the disk hold the names in a folder (null: none), if its file system knows such a thing. */
    public static void namesToDisk(File folder) {
        try {
            if (folder != null) {
                force(folder, StandardOpenOption.READ);
            }
        } catch (IOException error) {
            return; // some of networks do not, and there are folders that one may write to and not read
        }
    }

    private static void force(File file, OpenOption option) throws IOException {
        FileChannel channel = FileChannel.open(file.toPath(), new OpenOption[] {option});
        try {
            channel.force(true);
        } finally {
            channel.close();
        }
    }

    /** Once closed, the file and its name are on the disk. */
    private static class LastingStream extends PositionOutputStream {
        private final PositionOutputStream stream;
        private final File file;
        private boolean closed;

        LastingStream(PositionOutputStream stream, File file) {
            this.stream = stream;
            this.file = file;
        }

        public long getPos() throws IOException {
            return stream.getPos();
        }

        public long storedLength() throws IOException {
            return stream.storedLength();
        }

        public void write(int value) throws IOException {
            stream.write(value);
        }

        public void write(byte[] bytes, int start, int length) throws IOException {
            stream.write(bytes, start, length);
        }

        public void flush() throws IOException {
            stream.flush();
        }

        public void close() throws IOException {
            stream.close();
            if (!closed) {
                closed = true;
                toDisk(file);
            }
        }
    }
}
