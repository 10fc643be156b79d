import static com.mongodb.client.model.Accumulators.sum;
import static com.mongodb.client.model.Aggregates.group;
import static com.mongodb.client.model.Aggregates.match;
import static com.mongodb.client.model.Aggregates.sort;
import static com.mongodb.client.model.Filters.eq;
import static com.mongodb.client.model.Filters.gt;
import static com.mongodb.client.model.Filters.in;
import static com.mongodb.client.model.Updates.combine;
import static com.mongodb.client.model.Updates.inc;
import static com.mongodb.client.model.Updates.push;
import static com.mongodb.client.model.Updates.set;

import com.mongodb.ClientSessionOptions;
import com.mongodb.MongoBulkWriteException;
import com.mongodb.MongoCommandException;
import com.mongodb.MongoWriteException;
import com.mongodb.ReadConcern;
import com.mongodb.WriteConcern;
import com.mongodb.client.ClientSession;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoCursor;
import com.mongodb.client.MongoDatabase;
import com.mongodb.client.model.BulkWriteOptions;
import com.mongodb.client.model.CreateCollectionOptions;
import com.mongodb.client.model.DeleteManyModel;
import com.mongodb.client.model.FindOneAndUpdateOptions;
import com.mongodb.client.model.IndexOptions;
import com.mongodb.client.model.Indexes;
import com.mongodb.client.model.InsertOneModel;
import com.mongodb.client.model.ReturnDocument;
import com.mongodb.client.model.Sorts;
import com.mongodb.client.model.UpdateOneModel;
import com.mongodb.client.model.UpdateOptions;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import org.bson.Document;
import org.bson.types.Decimal128;

/** The Java driver's story. */
public class Story {
    static void same(Object expected, Object got) {
        if (!Objects.equals(expected, got)) throw new AssertionError("expected " + expected + ", got " + got);
    }

    public static void main(String[] arguments) {
        try (MongoClient client = MongoClients.create(System.getenv("BATON_URI") + "&compressors=zlib")) {
            MongoDatabase database = client.getDatabase("java_story");
            database.drop();
            MongoCollection<Document> carts = database.getCollection("carts");
            documents(carts);
            bulkWrites(carts);
            indexes(carts);
            pipelines(carts);
            sessions(client, carts);
            administration(database);
            database.drop();
        }
        System.out.println("the Java driver: all as told");
    }

    static void documents(MongoCollection<Document> carts) {
        List<Document> many = new ArrayList<>();
        for (int n = 0; n < 500; n++) {
            many.add(new Document("_id", n).append("user", "u" + n % 5).append("total", (long) n)
                .append("price", Decimal128.parse("1.10")).append("log", List.of()));
        }
        same(500, carts.insertMany(many).getInsertedIds().size());
        same(Decimal128.parse("1.10"), carts.find(eq(7)).first().get("price"));
        same(100L, carts.updateMany(eq("user", "u1"), combine(inc("total", 1), push("log", "x"))).getModifiedCount());
        same(1L, carts.replaceOne(eq(0), new Document("user", "u0").append("total", 0L)).getModifiedCount());
        same(true, carts.updateOne(eq("new"), set("total", 1L), new UpdateOptions().upsert(true)).getUpsertedId() != null);
        same(9L, carts.findOneAndUpdate(eq("new"), set("total", 9L),
            new FindOneAndUpdateOptions().returnDocument(ReturnDocument.AFTER)).get("total"));
        same(1L, carts.deleteOne(eq("new")).getDeletedCount());
        same(100L, carts.countDocuments(eq("user", "u2")));
        same(5, carts.distinct("user", String.class).into(new ArrayList<>()).size());
        int seen = 0;
        try (MongoCursor<Document> cursor = carts.find().batchSize(50).sort(Sorts.ascending("_id")).cursor()) {
            while (cursor.hasNext()) same(seen++, cursor.next().get("_id"));
        }
        same(500, seen);
    }

    static void bulkWrites(MongoCollection<Document> carts) {
        var result = carts.bulkWrite(List.of(
            new InsertOneModel<>(new Document("_id", "a")),
            new UpdateOneModel<>(eq("b"), set("x", 1), new UpdateOptions().upsert(true)),
            new DeleteManyModel<>(eq("user", "u3"))));
        same(List.of(1, 100, 1), List.of(result.getInsertedCount(), result.getDeletedCount(), result.getUpserts().size()));
        try {
            carts.bulkWrite(List.of(new InsertOneModel<>(new Document("_id", "a")), new InsertOneModel<>(new Document("_id", "c"))),
                new BulkWriteOptions().ordered(false));
            throw new AssertionError("a duplicate was accepted");
        } catch (MongoBulkWriteException e) {
            same(11000, e.getWriteErrors().get(0).getCode());
            same(1, e.getWriteResult().getInsertedCount());
        }
    }

    static void indexes(MongoCollection<Document> carts) {
        same("user_1_total_-1", carts.createIndex(Indexes.compoundIndex(Indexes.ascending("user"), Indexes.descending("total"))));
        carts.createIndex(Indexes.ascending("mail"), new IndexOptions().unique(true).sparse(true));
        same(3, carts.listIndexes().into(new ArrayList<>()).size());
        same(true, carts.find(eq("user", "u1")).explain().toJson().contains("IXSCAN"));
        carts.insertOne(new Document("mail", "x"));
        try {
            carts.insertOne(new Document("mail", "x"));
            throw new AssertionError("a duplicate was accepted");
        } catch (MongoWriteException e) {
            same(11000, e.getError().getCode());
        }
        carts.dropIndex("mail_1");
    }

    static void pipelines(MongoCollection<Document> carts) {
        List<Document> sums = carts.aggregate(List.of(match(in("user", "u1", "u2")), group("$user", sum("n", 1)),
            sort(Sorts.ascending("_id")))).into(new ArrayList<>());
        same(List.of(new Document("_id", "u1").append("n", 100), new Document("_id", "u2").append("n", 100)), sums);
        same(true, carts.find(gt("total", 490L)).hintString("_id_").comment("why").first() != null);
    }

    static void sessions(MongoClient client, MongoCollection<Document> carts) {
        try (ClientSession session = client.startSession(ClientSessionOptions.builder().causallyConsistent(true).build())) {
            carts.withWriteConcern(WriteConcern.MAJORITY).insertOne(session, new Document("_id", "causal"));
            same(true, carts.withReadConcern(ReadConcern.MAJORITY).find(session, eq("causal")).first() != null);
            same(true, session.getOperationTime() != null);
        }
        carts.withWriteConcern(WriteConcern.JOURNALED).updateOne(eq("causal"), set("j", true));
        carts.withWriteConcern(WriteConcern.UNACKNOWLEDGED).updateOne(eq("causal"), set("silent", true));
    }

    static void administration(MongoDatabase database) {
        database.createCollection("log", new CreateCollectionOptions().capped(true).sizeInBytes(100_000).maxDocuments(3));
        for (int n = 0; n < 5; n++) database.getCollection("log").insertOne(new Document("_id", n));
        same(3L, database.getCollection("log").countDocuments());
        same(true, database.listCollectionNames().into(new ArrayList<>()).contains("log"));
        same("java_story", database.runCommand(new Document("dbStats", 1)).get("db"));
        try {
            database.runCommand(new Document("nosuchcommand", 1));
            throw new AssertionError("an unknown command was accepted");
        } catch (MongoCommandException e) {
            same(59, e.getErrorCode());
            same("CommandNotFound", e.getErrorCodeName());
        }
    }
}
