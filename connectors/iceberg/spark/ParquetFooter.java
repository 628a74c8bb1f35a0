package connectpy;

import java.io.IOException;
import java.util.ArrayList;

import org.apache.iceberg.Metrics;
import org.apache.iceberg.MetricsConfig;
import org.apache.iceberg.io.InputFile;
import org.apache.iceberg.io.SeekableInputStream;
import org.apache.iceberg.parquet.ParquetUtil;
import org.apache.iceberg.shaded.org.apache.parquet.ParquetReadOptions;
import org.apache.iceberg.shaded.org.apache.parquet.conf.PlainParquetConfiguration;
import org.apache.iceberg.shaded.org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.iceberg.shaded.org.apache.parquet.io.DelegatingSeekableInputStream;

/**
 * The column metrics in a Parquet file's footer, as `ParquetUtil.fileMetrics` has them; but that one lets Hadoop read its
 * own configuration anew for every file, which takes ten times as long as the footer.
 */
public class ParquetFooter implements org.apache.iceberg.shaded.org.apache.parquet.io.InputFile {
    private final InputFile file;

    private ParquetFooter(InputFile file) {
        this.file = file;
    }

    public static Metrics metrics(InputFile file, MetricsConfig config) throws IOException {
        ParquetReadOptions options = ParquetReadOptions.builder(new PlainParquetConfiguration()).build();
        ParquetFileReader reader = ParquetFileReader.open(new ParquetFooter(file), options);
        try {
            return ParquetUtil.footerMetrics(reader.getFooter(), new ArrayList().stream(), config);
        } finally {
            reader.close();
        }
    }

    public long getLength() {
        return file.getLength();
    }

    public org.apache.iceberg.shaded.org.apache.parquet.io.SeekableInputStream newStream() {
        final SeekableInputStream stream = file.newStream();
        return new DelegatingSeekableInputStream(stream) {
            public long getPos() throws IOException {
                return stream.getPos();
            }

            public void seek(long position) throws IOException {
                stream.seek(position);
            }
        };
    }
}
