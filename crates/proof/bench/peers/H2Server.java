// A mongo-java-server that keeps its data in one H2 file: the peer "mongo-java-server".
// Usage: java -cp 'CLASSPATH' H2Server.java PORT FILE; it runs until it is killed.
import de.bwaldvogel.mongo.MongoServer;
import de.bwaldvogel.mongo.backend.h2.H2Backend;

public class H2Server {
    public static void main(String[] args) throws Exception {
        MongoServer server = new MongoServer(new H2Backend(args[1]));
        server.bind("127.0.0.1", Integer.parseInt(args[0]));
        Runtime.getRuntime().addShutdownHook(new Thread(server::shutdownNow));
        Thread.currentThread().join();
    }
}
