"""Sixteen clients that change what exists under four names, others that write there, and members that die meanwhile.

Every command is answered, with what it did or with an error that such a command may meet (`EXPECTED`); whoever waits longer than
`REPLY_SECS` has found a deadlock. What a majority has acknowledged of collections that nobody drops (`kept`, one a writer) is there
in the end. All is drawn from the seed, but for when what happens.
"""

import random
import threading
import time

import pymongo
from pymongo import WriteConcern

NAMES = ("a", "b", "c", "d")
DATABASES = ("north", "south")
CLIENTS, WRITERS = 16, 6
# No command takes so long, a set without a primary for a while included.
REPLY_SECS = 60
# What a command may meet where others change the same names, and members die. No fault of a member's (1, 8) is among it.
EXPECTED = {
    # The name is not there, is there already, has another shape, or the document does not fit it.
    20, 26, 27, 48, 67, 72, 73, 85, 86, 121, 10003, 11000, 16766, 17152,
    # What it works on is changed or dropped meanwhile: $out, copies, index builds, cursors.
    43, 112, 117, 125, 175, 237, 276, 12586, 12587,
    # The member is not primary, or not any more; or stops; or has no majority in time.
    64, 91, 189, 10107, 11600, 11602, 13435, 13436,
}


class Storm:
    """A context manager: the clients work while it is open."""

    def __init__(self, members, seed):
        self.members, self.seed = members, seed
        self.over = threading.Event()
        self.faults, self.slowest = [], 0.0
        self.acknowledged = {writer: {} for writer in range(WRITERS)}
        self.done = {}
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self._client, args=(n,), daemon=True) for n in range(CLIENTS)]
        self.threads += [threading.Thread(target=self._writer, args=(n,), daemon=True) for n in range(WRITERS)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, kind, *_):
        self.over.set()
        deadline = time.monotonic() + REPLY_SECS
        for thread in self.threads:
            thread.join(max(0.1, deadline - time.monotonic()))
        print(f"done: {self.done}, the slowest reply after {self.slowest:.2f} s", flush=True)
        if kind is None:
            stuck = [thread.name for thread in self.threads if thread.is_alive()]
            assert not stuck, f"{stuck} have no reply in {REPLY_SECS} s (seed {self.seed})\n{self.members.logs()}"
            assert not self.faults, f"seed {self.seed}: {self.faults[:10]}"

    def _connect(self):
        return self.members.client(serverSelectionTimeoutMS=30_000, socketTimeoutMS=REPLY_SECS * 1000, retryWrites=False)

    def _do(self, what, act):
        """Carries one command out; tells whether it was acknowledged."""
        began = time.monotonic()
        try:
            act()
            with self.lock:
                self.done[what] = self.done.get(what, 0) + 1
            return True
        except (pymongo.errors.OperationFailure, pymongo.errors.WriteError) as error:
            code = error.code
            if isinstance(error, pymongo.errors.BulkWriteError):
                code = next((one["code"] for one in error.details.get("writeErrors", []) + error.details.get("writeConcernErrors", [])),
                            code)
            if code not in EXPECTED:
                self.faults.append((what, code, str(error)[:300]))
        except pymongo.errors.NetworkTimeout as error:
            self.faults.append((what, "no reply", repr(error)[:300]))
        except pymongo.errors.ConnectionFailure:
            # The member has died, or is not primary any more.
            pass
        finally:
            with self.lock:
                self.slowest = max(self.slowest, time.monotonic() - began)
        return False

    def _client(self, number):
        draw = random.Random(self.seed * 1000 + number)
        with self._connect() as client:
            while not self.over.is_set():
                what, act = ddl(draw, client)
                self._do(what, act)

    def _writer(self, number):
        draw = random.Random(self.seed * 1000 + 500 + number)
        with self._connect() as client:
            kept = client.get_database("kept", write_concern=WriteConcern("majority", wtimeout=30_000))[f"w{number}"]
            round_ = 0
            while not self.over.is_set():
                round_ += 1
                what, act = crud(draw, client)
                self._do(what, act)
                value = f"{number}-{round_}"
                if self._do("kept", lambda: kept.update_one({"_id": round_ % 50}, {"$set": {"v": value, "round": round_}}, upsert=True)):
                    self.acknowledged[number][round_ % 50] = round_

    def check(self, client):
        """What was acknowledged is there, or what came after it."""
        for number, acknowledged in self.acknowledged.items():
            found = {one["_id"]: one["round"] for one in client.kept[f"w{number}"].find()}
            for identity, round_ in acknowledged.items():
                assert found.get(identity, 0) >= round_, \
                    f"seed {self.seed}: writer {number} had {round_} of {identity} acknowledged, found {found.get(identity)}"


def index(draw):
    """A specification: of every kind that the four names can have."""
    field = draw.choice(["x", "y", "z"])
    spec = draw.choice([
        {"key": {field: 1}},
        {"key": {field: 1, "x2": -1}},
        {"key": {field: 1}, "unique": True},
        {"key": {field: 1}, "partialFilterExpression": {"x": {"$gt": 50}}},
        {"key": {field: 1}, "sparse": True},
        {"key": {"at": 1}, "expireAfterSeconds": draw.choice([0, 3600])},
        {"key": {"tags": 1}},
        {"key": {field: "hashed"}},
    ])
    return {**spec, "name": f"i{draw.randrange(6)}"}


def ddl(draw, client):
    """One change of what exists."""
    db, name, other = client[draw.choice(DATABASES)], draw.choice(NAMES), draw.choice(NAMES)
    concern = {"writeConcern": draw.choice([{"w": 1}, {"w": "majority", "wtimeout": 20_000}])}
    to = draw.choice([db.name, draw.choice(DATABASES)])
    kinds = [
        ("create", 4, lambda: db.command("create", name, **draw.choice([
            {}, {"capped": True, "size": 65536}, {"validator": {"x": {"$lt": 1000}}}]), **concern)),
        ("drop", 4, lambda: db.command("drop", name, **concern)),
        ("createIndexes", 10, lambda: db.command("createIndexes", name, indexes=[
            {**index(draw), "name": f"i{n}"} for n in draw.sample(range(6), draw.choice([1, 1, 2]))], **concern)),
        ("dropIndexes", 5, lambda: db.command("dropIndexes", name, index=draw.choice(["*", *(f"i{n}" for n in range(6))]), **concern)),
        ("renameCollection", 4, lambda: client.admin.command("renameCollection", f"{db.name}.{name}", to=f"{to}.{other}",
                                                             dropTarget=draw.random() < 0.7, **concern)),
        ("collMod", 4, lambda: db.command("collMod", name, **draw.choice([
            {"index": {"name": f"i{draw.randrange(6)}", "hidden": draw.random() < 0.5}},
            {"index": {"name": f"i{draw.randrange(6)}", "expireAfterSeconds": 3600}},
            {"validator": {"x": {"$lt": draw.choice([500, 5000])}}, "validationLevel": "moderate"}]), **concern)),
        ("$out", 4, lambda: list(db[name].aggregate([{"$match": {"x": {"$gte": draw.randrange(60)}}}, {"$out": {
            "db": to, "coll": other}}]))),
        ("dropDatabase", 1, lambda: db.command("dropDatabase", **concern)),
        ("convertToCapped", 2, lambda: db.command("convertToCapped", name, size=32768, **concern)),
    ]
    what, _, act = draw.choices(kinds, [weight for _, weight, _ in kinds])[0]
    return what, act


def crud(draw, client):
    """One read or write beside that."""
    collection = client[draw.choice(DATABASES)][draw.choice(NAMES)]
    x = draw.randrange(100)
    now = bson_date(draw)
    kinds = [
        ("insert", 6, lambda: collection.insert_many([
            {"x": draw.randrange(100), "y": draw.randrange(1 << 30), "z": [x, n], "tags": ["t", n], "at": now} for n in range(30)])),
        ("update", 3, lambda: collection.update_many({"x": {"$lt": x}}, {"$inc": {"y": 1}, "$set": {"z": x}})),
        ("upsert", 1, lambda: collection.update_one({"_id": x}, {"$set": {"x": x}}, upsert=True)),
        ("delete", 3, lambda: collection.delete_many({"x": {"$gte": x}})),
        ("find", 2, lambda: list(collection.find({"x": x}).limit(200))),
        ("count", 1, lambda: collection.count_documents({"y": {"$gt": 0}})),
    ]
    what, _, act = draw.choices(kinds, [weight for _, weight, _ in kinds])[0]
    return what, act


def bson_date(draw):
    """A time a day ago or now."""
    import datetime
    return datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(days=draw.randrange(2))


def run(members, seed, seconds, kills):
    """A storm of so many seconds, with so many kills; members are equal in the end, and nothing is lost. Returns what was done."""
    draw = random.Random(seed)
    print(f"DDL storm: seed {seed}, {seconds} s, {kills} kills", flush=True)
    with members.client() as client, Storm(members, seed) as storm:
        began = time.monotonic()
        for kill in range(kills):
            time.sleep(max(0.0, began + seconds * (kill + draw.uniform(0.4, 1.0)) / (kills + 1) - time.monotonic()))
            victim = members.primary() if draw.random() < 0.5 else draw.randrange(len(members.members))
            members.kill(victim)
            time.sleep(draw.uniform(0.1, 1.0))
            members.spawn(victim)
        time.sleep(max(0.0, began + seconds - time.monotonic()))
    with members.client() as client:
        members.await_healthy(timeout_seconds=120)
        storm.check(client)
        # All that was begun has ended: nobody builds, and everybody has the same once more.
        for index_ in range(len(members.members)):
            with members.direct(index_) as direct:
                members.await_that(
                    lambda direct=direct: not direct.admin.command("currentOp", desc="IndexBuildsCoordinator")["inprog"],
                    f"member {index_} still builds")
        members.await_healthy(timeout_seconds=120)
    return storm
