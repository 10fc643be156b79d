import static com.mongodb.client.model.Filters.eq;
import static com.mongodb.client.model.Filters.gte;

import com.mongodb.MongoException;
import com.mongodb.client.FindIterable;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoCursor;
import com.mongodb.client.MongoDatabase;
import com.mongodb.client.model.Projections;
import com.mongodb.client.model.Sorts;
import com.mongodb.client.model.UpdateOptions;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.Vector;
import org.bson.Document;
import org.bson.types.Binary;
import site.ycsb.ByteArrayByteIterator;
import site.ycsb.ByteIterator;
import site.ycsb.DB;
import site.ycsb.DBException;
import site.ycsb.Status;

/**
 * YCSB's interface to a database, over the official Java driver: a record is a document whose _id is the key and whose
 * fields are binaries.
 *
 * <p>Properties: mongodb.url (which may carry the write concern), mongodb.database (ycsb).
 *
 * <p>Invariants: all of YCSB's threads share one client, as an application's would; a write that changed nothing and a
 * read that found nothing are errors, since YCSB asks only for keys that it inserted. What it deliberately does not do:
 * batch inserts, which would measure something else.
 */
public class BatonBinding extends DB {
    private static MongoClient client;
    private static int users;

    private MongoDatabase database;

    @Override
    public void init() throws DBException {
        synchronized (BatonBinding.class) {
            if (users++ == 0) {
                try {
                    client = MongoClients.create(getProperties().getProperty("mongodb.url"));
                } catch (IllegalArgumentException e) {
                    throw new DBException("mongodb.url: " + e.getMessage(), e);
                }
            }
            database = client.getDatabase(getProperties().getProperty("mongodb.database", "ycsb"));
        }
    }

    @Override
    public void cleanup() {
        synchronized (BatonBinding.class) {
            if (--users == 0) {
                client.close();
                client = null;
            }
        }
    }

    @Override
    public Status read(String table, String key, Set<String> fields, Map<String, ByteIterator> result) {
        return attempt("read", () -> {
            FindIterable<Document> found = documents(table).find(eq(key));
            Document document = chosen(found, fields).first();
            if (document == null) return Status.NOT_FOUND;
            fill(result, document);
            return Status.OK;
        });
    }

    @Override
    public Status scan(String table, String start, int count, Set<String> fields,
                       Vector<HashMap<String, ByteIterator>> result) {
        return attempt("scan", () -> {
            FindIterable<Document> found = documents(table).find(gte("_id", start)).sort(Sorts.ascending("_id"))
                .limit(count);
            try (MongoCursor<Document> cursor = chosen(found, fields).cursor()) {
                while (cursor.hasNext()) {
                    HashMap<String, ByteIterator> record = new HashMap<>();
                    fill(record, cursor.next());
                    result.add(record);
                }
            }
            return result.isEmpty() ? Status.NOT_FOUND : Status.OK;
        });
    }

    @Override
    public Status update(String table, String key, Map<String, ByteIterator> values) {
        return attempt("update", () -> {
            Document fields = new Document();
            values.forEach((name, value) -> fields.append(name, new Binary(value.toArray())));
            var outcome = documents(table).updateOne(eq(key), new Document("$set", fields), new UpdateOptions());
            return !outcome.wasAcknowledged() || outcome.getMatchedCount() == 1 ? Status.OK : Status.NOT_FOUND;
        });
    }

    @Override
    public Status insert(String table, String key, Map<String, ByteIterator> values) {
        return attempt("insert", () -> {
            Document document = new Document("_id", key);
            values.forEach((name, value) -> document.append(name, new Binary(value.toArray())));
            documents(table).insertOne(document);
            return Status.OK;
        });
    }

    @Override
    public Status delete(String table, String key) {
        return attempt("delete", () -> {
            var outcome = documents(table).deleteOne(eq(key));
            return !outcome.wasAcknowledged() || outcome.getDeletedCount() == 1 ? Status.OK : Status.NOT_FOUND;
        });
    }

    private MongoCollection<Document> documents(String table) {
        return database.getCollection(table);
    }

    private static FindIterable<Document> chosen(FindIterable<Document> found, Set<String> fields) {
        return fields == null ? found : found.projection(Projections.include(new ArrayList<>(fields)));
    }

    private static void fill(Map<String, ByteIterator> record, Document document) {
        document.forEach((name, value) -> {
            if (value instanceof Binary bytes) record.put(name, new ByteArrayByteIterator(bytes.getData()));
        });
    }

    private interface Operation {
        Status run();
    }

    /** YCSB counts failures by status; the reason is shown, or it would be lost. */
    private static Status attempt(String name, Operation operation) {
        try {
            return operation.run();
        } catch (MongoException e) {
            System.err.println(name + ": " + e);
            return Status.ERROR;
        }
    }
}
