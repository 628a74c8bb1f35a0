package connectpy;

import java.util.Map;
import java.util.function.Function;

import org.apache.iceberg.jdbc.JdbcCatalog;

/** A JDBC catalog of tables on this machine: as Iceberg makes it, but for the files. */
public class LocalCatalog implements Function {
    /** `arguments`: the catalog's name and its settings. */
    public static JdbcCatalog make(Object[] arguments) {
        JdbcCatalog catalog = new JdbcCatalog(new LocalCatalog(), null, true);
        catalog.initialize((String) arguments[0], (Map) arguments[1]);
        return catalog;
    }

    /** Its file IO, from its settings. */
    public Object apply(Object settings) {
        return new LocalFiles((Map) settings);
    }
}
