"""The load under which members die: threads that write, and remember what was acknowledged.

Each class is one kind of client with its own thread: `Writer` (documents of its own, through pymongo), `Contender`
(documents that all share), `Retrier` (retryable writes, byte for byte as a driver would send them again), `Builder`
(collections and indexes). `start` runs it until the member dies, `settle` compares what is found after the restart with
what it remembers, and tells the faults.

Invariant: a thread only stops because the member is gone; any other error is a fault.
"""

import random
import threading
import time
import uuid

import bson
from pymongo import DeleteOne, InsertOne, ReplaceOne, ReturnDocument, UpdateOne, WriteConcern
from pymongo.errors import ConnectionFailure, DuplicateKeyError

from model import GONE, LIVE, Model, content
from raw import Raw

CONCERNS = {"applied": WriteConcern(1), "journaled": WriteConcern(1, j=True), "majority": WriteConcern("majority")}
DOCUMENTS_PER_WRITER = 60


def prepare(client):
    """The collections and indexes of the load."""
    docs = client.load.docs
    docs.create_index("u", unique=True)
    docs.create_index("tags")
    docs.create_index("s", sparse=True)
    docs.create_index([("w", 1), ("v", -1)])
    docs.create_index("sub.n", partialFilterExpression={"sub.parity": True})
    client.load.race.create_index("k", unique=True)
    client.load.shared.insert_one({"_id": "counter", "n": 0})


class Client:
    """What all have in common: a thread, and the error that ended it if that was not the member's death."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.faults = []
        self.acknowledged = 0
        self._thread = None
        self._member = None

    def start(self, member):
        """Begins to write."""
        self._member = member
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def join(self):
        """Waits until it has noticed that the member is dead."""
        self._thread.join(30)
        if self._thread.is_alive():
            self.faults.append(f"{type(self).__name__} waits for a dead member")

    def _run(self):
        try:
            with self._member.client(retryWrites=False, serverSelectionTimeoutMS=300, socketTimeoutMS=20_000) as client:
                while True:
                    self.step(client)
        except (ConnectionFailure, ConnectionError, EOFError):
            pass
        except Exception as error:  # anything else is a finding
            self.faults.append(f"{type(self).__name__}: {error!r}")

    def concern(self, collection):
        """The collection with a write concern drawn at random, and whether it is a durable one."""
        name = self.random.choice(["applied", "applied", "journaled", "journaled", "majority"])
        return collection.with_options(write_concern=CONCERNS[name]), name != "applied"


class Writer(Client):
    """Every kind of write, on documents that nobody else writes."""

    def __init__(self, number, seed):
        super().__init__(seed)
        self.number = number
        self.model = Model(number)

    def step(self, client):
        """One command."""
        collection, durable = self.concern(client.load.docs)
        kind = self.random.choices([self.single, self.insert_many, self.bulk, self.update_many, self.modify],
                                   [6, 1, 2, 1, 3])[0]
        identities = kind(collection)
        self.model.acknowledge(identities, durable)
        self.acknowledged += len(identities)

    def draw(self, count=1, state=None):
        """Ids, of documents in that state if one is named."""
        identities = [f"{self.number}-{n}" for n in range(DOCUMENTS_PER_WRITER)]
        if state:
            identities = [i for i in identities if self.model.state(i)[1] == state]
        return self.random.sample(identities, min(count, len(identities)))

    def whole(self, identity, version):
        """A document as an insert or a replacement sends it."""
        return {**content(identity, self.number, version), "hist": [version]}

    def change(self, identity, version):
        """An update that makes this version out of the one before."""
        document = content(identity, self.number, version)
        update = {
            "$inc": {"v": 1, "sub.n": 1},
            "$set": {name: document[name] for name in ("u", "tags", "pad")} | {"sub.parity": version % 2 == 0},
            "$push": {"hist": {"$each": [version], "$slice": -3}},
        }
        if "s" in document:
            update["$set"]["s"] = version
        else:
            update["$unset"] = {"s": ""}
        return update

    def single(self, collection):
        """One insert, update, replacement or deletion."""
        identity = self.draw()[0]
        if self.model.state(identity)[1] == GONE:
            version = self.model.send(identity, LIVE)
            collection.insert_one(self.whole(identity, version))
            return [identity]
        what = self.random.choices(["update", "pipeline", "replace", "delete"], [6, 2, 2, 2])[0]
        if what == "delete":
            self.model.send(identity, GONE)
            done = collection.delete_one({"_id": identity}).deleted_count
        elif what == "replace":
            version = self.model.send(identity, LIVE)
            done = collection.replace_one({"_id": identity}, self.whole(identity, version)).modified_count
        elif what == "pipeline":
            version = self.model.send(identity, LIVE)
            done = collection.update_one({"_id": identity}, [
                {"$unset": "s"},
                {"$replaceWith": {"$mergeObjects": ["$$ROOT", {"$literal": content(identity, self.number, version)}]}},
                {"$set": {"hist": {"$concatArrays": [{"$slice": ["$hist", -2]}, [version]]}}},
            ]).modified_count
        else:
            version = self.model.send(identity, LIVE)
            done = collection.update_one({"_id": identity}, self.change(identity, version)).modified_count
        if done != 1:
            self.faults.append(f"{what} of {identity} found nothing")
        return [identity]

    def modify(self, collection):
        """findAndModify, whose answer must be the document that was or is there."""
        identities = self.draw(1, LIVE)
        for identity in identities:
            before = self.model.state(identity)[0]
            if self.random.random() < 0.3:
                self.model.send(identity, GONE)
                found = collection.find_one_and_delete({"_id": identity})
                expected = before
            else:
                expected = self.model.send(identity, LIVE)
                found = collection.find_one_and_update({"_id": identity}, self.change(identity, expected),
                                                       return_document=ReturnDocument.AFTER)
            if not found or found["v"] != expected:
                self.faults.append(f"findAndModify of {identity} gave {found}, not version {expected}")
        return identities

    def insert_many(self, collection):
        """One insert of many documents."""
        identities = self.draw(15, GONE)
        if identities:
            documents = [self.whole(i, self.model.send(i, LIVE)) for i in identities]
            collection.insert_many(documents, ordered=self.random.random() < 0.5)
        return identities

    def bulk(self, collection):
        """Inserts, updates, replacements and deletions in one bulk."""
        identities, operations = self.draw(12), []
        for identity in identities:
            if self.model.state(identity)[1] == GONE:
                operations.append(InsertOne(self.whole(identity, self.model.send(identity, LIVE))))
                continue
            what = self.random.randrange(4)
            if what == 0:
                self.model.send(identity, GONE)
                operations.append(DeleteOne({"_id": identity}))
            elif what == 1:
                version = self.model.send(identity, LIVE)
                operations.append(ReplaceOne({"_id": identity}, self.whole(identity, version)))
            else:
                version = self.model.send(identity, LIVE)
                operations.append(UpdateOne({"_id": identity}, self.change(identity, version)))
        collection.bulk_write(operations, ordered=self.random.random() < 0.5)
        return identities

    def update_many(self, collection):
        """One update of many documents; each of them is whole after a crash, together they need not be."""
        identities = self.draw(20, LIVE)
        if identities:
            for identity in identities:
                self.model.send(identity, LIVE)
            changed = collection.update_many({"_id": {"$in": identities}}, [
                {"$set": {"v": {"$add": ["$v", 1]}}},
                {"$set": {
                    "u": {"$concat": ["$_id", "#", {"$toString": "$v"}]},
                    "tags": [{"$mod": ["$v", 7]}, {"$mod": [{"$add": [
                        "$v", {"$toInt": {"$arrayElemAt": [{"$split": ["$_id", "-"]}, 1]}}]}, 5]}, "x"],
                    "sub": {"n": "$v", "parity": {"$eq": [{"$mod": ["$v", 2]}, 0]}},
                    "pad": {"$reduce": {"input": {"$range": [0, {"$add": [20, {"$mod": ["$v", 200]}]}]},
                                        "initialValue": "", "in": {"$concat": ["$$value", "p"]}}},
                    "s": {"$cond": [{"$eq": [{"$mod": ["$v", 3]}, 0]}, "$v", "$$REMOVE"]},
                    "hist": {"$slice": [{"$concatArrays": ["$hist", ["$v"]]}, -3]},
                }},
            ]).modified_count
            if changed != len(identities):
                self.faults.append(f"update_many changed {changed} of {len(identities)}")
        return identities

    def settle(self, client, lost_power):
        """Compares after a crash."""
        found = {document["_id"]: document for document in client.load.docs.find({"w": self.number}).hint([("$natural", 1)])}
        return self.model.settle(found, lost_power)


class Contender(Client):
    """Documents that all contenders share: a counter, and keys of which each may exist once."""

    keys_acknowledged = {}  # of all contenders: _id -> (key, durable)
    lock = threading.Lock()

    def __init__(self, seed):
        super().__init__(seed)
        self.counted = []  # (value, durable)

    def step(self, client):
        """One increment, one race for a key."""
        shared, durable = self.concern(client.load.shared)
        counter = shared.find_one_and_update({"_id": "counter"}, {"$inc": {"n": 1}},
                                             return_document=ReturnDocument.AFTER)
        self.counted.append((counter["n"], durable))
        race, durable = self.concern(client.load.race)
        document = {"_id": bson.ObjectId(), "k": self.random.randrange(10_000)}
        try:
            race.insert_one(dict(document))
            with self.lock:
                self.keys_acknowledged[document["_id"]] = (document["k"], durable)
        except DuplicateKeyError:
            pass
        self.acknowledged += 2

    def settle(self, client, lost_power):
        """Compares after a crash."""
        faults = []
        n = client.load.shared.find_one({"_id": "counter"})["n"]
        for value, durable in self.counted:
            if value > n and (durable or not lost_power):
                faults.append(f"the counter is {n}, but {value} was acknowledged")
        self.counted.clear()
        found = {document["_id"]: document["k"] for document in client.load.race.find().hint([("$natural", 1)])}
        if len(set(found.values())) != len(found):
            faults.append("a unique key is there twice")
        with self.lock:
            for identity, (key, durable) in list(self.keys_acknowledged.items()):
                if identity not in found and (durable or not lost_power):
                    faults.append(f"the document with the unique key {key} was acknowledged, and is lost")
                if identity not in found:
                    del self.keys_acknowledged[identity]
                else:
                    self.keys_acknowledged[identity] = (key, True)
        return faults


class Retrier(Client):
    """Retryable writes: each is sent again after a crash, and must have been done once."""

    def __init__(self, number, seed):
        super().__init__(seed)
        self.number = number
        self.session = {"id": bson.Binary(uuid.UUID(int=self.random.getrandbits(128), version=4).bytes, 4)}
        self.txn_number = 0
        self.n = 0  # how often the counter has been raised by what was sent
        self.inserted = 0
        self.sent = None  # the last command
        self.reply = None  # its reply, or None while it has none

    def _run(self):
        try:
            with Raw(self._member) as raw:
                while True:
                    self.sent, self.reply = self.next_command(), None
                    self.reply = self.run(raw, self.sent)
                    self.acknowledged += 1
        except (ConnectionError, EOFError):
            pass
        except Exception as error:  # anything else is a finding
            self.faults.append(f"Retrier: {error!r}")

    def run(self, raw, command):
        reply = raw.command("load", command)
        if reply is None:
            raise EOFError
        if not reply["ok"] or "writeErrors" in reply or "writeConcernError" in reply:
            raise AssertionError(f"{command} was answered {reply}")
        return reply

    def next_command(self):
        """A write that can be sent again; all of them raise the counter or insert the next document."""
        self.txn_number += 1
        counter = {"_id": f"n{self.number}"}
        what = self.random.randrange(4)
        if what == 0:
            self.inserted += 1
            document = {"_id": f"r{self.number}-{self.inserted}", "tags": [self.inserted, "r"]}
            command = {"insert": "retried", "documents": [document]}
        elif what == 1:
            self.n += 1
            command = {"findAndModify": "retried", "query": counter, "update": {"$inc": {"n": 1}}, "new": True,
                       "upsert": True}
        else:
            raises = self.random.randrange(1, 5)
            self.n += raises
            one = {"q": counter, "u": {"$inc": {"n": 1}}, "upsert": True}
            command = {"update": "retried", "updates": [one] * raises, "ordered": True}
        return command | {"lsid": self.session, "txnNumber": bson.Int64(self.txn_number),
                          "writeConcern": {"w": 1, "j": True}}

    def settle(self, client, _):
        """Sends the last command again, twice."""
        faults = []
        if self.sent is None:
            return faults
        with Raw(self._member) as raw:
            replies = [self.run(raw, self.sent), self.run(raw, self.sent)]
        for reply in replies:
            for name in ("n", "nModified", "value", "upserted", "lastErrorObject"):
                if self.reply is not None and self.reply.get(name) != reply.get(name):
                    faults.append(f"{self.sent} was answered {self.reply}, and after the restart {reply}")
        found = client.load.retried.find_one({"_id": f"n{self.number}"})
        if (found or {"n": 0})["n"] != self.n:
            faults.append(f"{self.sent}: the counter is {found}, {self.n} raises were sent and sent again")
        inserted = client.load.retried.count_documents({"_id": {"$regex": f"^r{self.number}-"}})
        if inserted != self.inserted:
            faults.append(f"{inserted} documents, {self.inserted} inserts were sent and sent again")
        self.reply = replies[-1]
        return faults


class Builder(Client):
    """Collections and indexes that come, change and go. Each step is done or not done after a crash, never half."""

    DATABASES = ("build", "other")
    DOCUMENTS = 700

    def __init__(self, seed):
        super().__init__(seed)
        self.names = 0
        self.before = self.after = {}  # namespace -> (documents, set of index names); what is, and what is asked for
        self.bag = []

    def step(self, client):
        """One short story, drawn so that all come equally often."""
        if not self.bag:
            self.bag = [self.collection, self.index_under_load, self.copy, self.flush_and_compact]
            self.random.shuffle(self.bag)
        self.bag.pop()(client)
        self.acknowledged += 1

    def does(self, what, after):
        """Does something whose outcome is `after`."""
        self.after = after
        what()
        self.before = after

    def without(self, *names):
        return {name: value for name, value in self.before.items() if name not in names}

    def build(self, client):
        """A new collection with documents and an index; gives its name."""
        self.names += 1
        db, name = client.build, f"c{self.names}"
        full = f"build.{name}"
        self.does(lambda: db.create_collection(name), self.before | {full: (0, {"_id_"})})
        documents = [{"_id": n, "k": self.random.randrange(1000), "l": [n, n % 7]} for n in range(self.DOCUMENTS)]
        collection = db[name].with_options(write_concern=CONCERNS["journaled"])
        self.does(lambda: collection.insert_many(documents), self.before | {full: (len(documents), {"_id_"})})
        index = self.random.choice(["k", "l"])
        self.does(lambda: collection.create_index(index, name="i"),
                  self.before | {full: (len(documents), {"_id_", "i"})})
        self.refused_index(collection)
        return name

    def refused_index(self, collection):
        """A unique index of keys that several documents have: its build is given up, and nothing stays of it."""
        try:
            collection.create_index([("k", 1), ("absent", 1)], name="refused", unique=True)
        except DuplicateKeyError:
            return
        raise AssertionError("a unique index was built over two documents of one key")

    def collection(self, client):
        """A collection from its creation to its end."""
        name = self.build(client)
        db, new = client.build, name + "renamed"
        value = self.before[f"build.{name}"]
        self.does(lambda: db[name].rename(new), self.without(f"build.{name}") | {f"build.{new}": value})
        self.does(lambda: db[new].drop_index("i"), self.before | {f"build.{new}": (value[0], {"_id_"})})
        self.does(lambda: db[new].drop(), self.without(f"build.{new}"))

    def copy(self, client):
        """A collection renamed into another database, which copies it while its documents are changed."""
        name = self.build(client)
        value = self.before[f"build.{name}"]
        over = threading.Event()
        changing = threading.Thread(target=self.change_until, args=(client.build[name], over), daemon=True)
        changing.start()
        try:
            self.does(lambda: client.admin.command("renameCollection", f"build.{name}", to=f"other.{name}"),
                      self.without(f"build.{name}") | {f"other.{name}": value})
        finally:
            over.set()
            changing.join()
        self.does(lambda: client.other[name].drop(), self.without(f"other.{name}"))

    def change_until(self, collection, over):
        """Changes documents again and again; makes none."""
        number = 0
        while not over.is_set():
            number += 1
            try:
                collection.update_one({"_id": number * 37 % self.DOCUMENTS}, {"$inc": {"n": 1}})
            except ConnectionFailure:
                return

    def index_under_load(self, client):
        """An index on the collection that the writers write."""
        docs, value = client.load.docs, (None, {"extra"})
        self.does(lambda: docs.create_index([("pad", 1), ("tags", 1)], name="extra"),
                  self.before | {"load.docs": value})
        self.does(lambda: docs.drop_index("extra"), self.without("load.docs"))

    def flush_and_compact(self, client):
        """Memtables to disk, and files merged; changes nothing that a client sees."""
        client.admin.command("fsync")
        client.load.command("compact", "docs", force=True)

    def settle(self, client, _):
        """Compares, and removes what is left, for a new beginning."""
        if not self.builds_end(client):
            return [f"an index build does not end that went on after the start: {client.admin.command('currentOp')['inprog']}"]
        found = {}
        for db in self.DATABASES:
            for name in client[db].list_collection_names():
                collection = client[db][name]
                found[f"{db}.{name}"] = (collection.count_documents({}, hint="_id_"),
                                         {index["name"] for index in collection.list_indexes()})
        if any(index["name"] == "extra" for index in client.load.docs.list_indexes()):
            found["load.docs"] = (None, {"extra"})
        faults = [] if self._permitted(found) else [
            f"of collections and indexes there are {found}; before the step {self.before}, after it {self.after}"]
        for db in self.DATABASES:
            client.drop_database(db)
        if "load.docs" in found:
            client.load.docs.drop_index("extra")
        self.before = self.after = {}
        return faults

    def builds_end(self, client):
        """Waits for index builds that go on after the start; tells whether they have ended, in whatever way."""
        deadline = time.monotonic() + 30
        while any("indexBuildInfo" in index for db in self.DATABASES for name in client[db].list_collection_names()
                  for index in client[db].command("listIndexes", name, includeIndexBuildInfo=True)["cursor"]["firstBatch"]):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def _permitted(self, found):
        if found in (self.before, self.after):
            return True
        # Of an insert of many documents any number may be there.
        for name, (documents, indexes) in self.after.items():
            had = self.before.get(name, (None, None))
            if had[1] == indexes and had[0] != documents and name in found:
                return had[0] <= found[name][0] <= documents and found[name][1] == indexes and \
                    self.without(name) == {n: v for n, v in found.items() if n != name}
        return False
