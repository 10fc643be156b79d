"""A reader of the oplog that does what a secondary would: it applies every entry, strictly.

Invariants: OpTimes rise strictly, and leave none out within a second, which is how a member gives them out; an insert
meets no document, an update and a deletion meet one. A hole in the log shows as an OpTime left out, as a write that meets
the wrong state, or as a collection that differs in the end.
"""

import bson
from bson.codec_options import CodecOptions

UUID_OPTIONS = CodecOptions(uuid_representation=4)


class OplogFault(Exception):
    """An entry that cannot follow those before it."""


def apply_diff(document, diff):
    """An update's diff of version 2 applied to a document; gives the new one."""
    result = dict(document)
    for name in diff.get("d", {}):
        result.pop(name, None)
    for name, value in diff.get("u", {}).items():
        result[name] = value
    for name, value in diff.get("i", {}).items():
        result.pop(name, None)
        result[name] = value
    for key, value in diff.items():
        if key.startswith("s"):
            name = key[1:]
            inner = result[name]
            result[name] = apply_array(inner, value) if value.get("a") else apply_diff(inner, value)
    return result


def apply_array(array, diff):
    """An array's diff applied to an array."""
    result = list(array)
    if "l" in diff:
        result = (result + [None] * diff["l"])[: diff["l"]]
    for key, value in diff.items():
        if key in ("a", "l"):
            continue
        kind, index = key[0], int(key[1:])
        result += [None] * (index + 1 - len(result))
        if kind == "u":
            result[index] = value
        else:
            inner = result[index]
            result[index] = apply_array(inner, value) if value.get("a") else apply_diff(inner, value)
    return result


class Replay:
    """The collections as the oplog makes them."""

    def __init__(self):
        self.collections = {}  # uuid -> {id as BSON: document}
        self.names = {}  # namespace -> uuid
        self.last = None

    def follow(self, client):
        """Reads on from the last entry seen. False if that has been truncated: then there is nothing to go on from."""
        oplog = client.local.get_collection("oplog.rs", codec_options=UUID_OPTIONS)
        entries = oplog.find({"ts": {"$gte": self.last[0]}} if self.last else {}).sort("$natural", 1)
        first = True
        for entry in entries:
            optime = (entry["ts"], entry["t"])
            if first and self.last:
                if optime != self.last:
                    return False
                first = False
                continue
            first = False
            if self.last and not (entry["ts"] > self.last[0] and entry["t"] >= self.last[1]):
                raise OplogFault(f"OpTime {optime} follows {self.last}")
            if self.last and entry["ts"].inc not in (1, self.last[0].inc + 1):
                raise OplogFault(f"OpTime {optime} follows {self.last}: what was between them is gone")
            self.last = optime
            self.apply(entry)
        if first and self.last:
            raise OplogFault(f"the entry at {self.last} was read before, and is gone with all after it")
        return True

    def apply(self, entry):
        """Applies one entry, strictly."""
        op, o = entry["op"], entry["o"]
        if op == "n":
            return
        if op == "c":
            self.command(entry)
            return
        documents = self.collections.get(entry["ui"])
        if documents is None or self.names.get(entry["ns"]) != entry["ui"]:
            raise OplogFault(f"an entry for a collection that is not there: {entry}")
        identity = bson.encode({"": (o if op in "id" else entry["o2"])["_id"]})
        if (identity in documents) != (op != "i"):
            raise OplogFault(f"an entry that meets the wrong state ({identity in documents}): {entry}")
        if op == "i":
            documents[identity] = o
        elif op == "d":
            del documents[identity]
        elif o.get("$v") == 2:
            documents[identity] = apply_diff(documents[identity], o["diff"])
        else:
            documents[identity] = o

    def command(self, entry):
        """Applies a change of the catalog."""
        o, db = entry["o"], entry["ns"].split(".")[0]
        if "create" in o:
            self.names[f"{db}.{o['create']}"] = entry["ui"]
            self.collections[entry["ui"]] = {}
        elif "drop" in o:
            if self.names.pop(f"{db}.{o['drop']}", None) != entry["ui"]:
                raise OplogFault(f"a drop of what is not there: {entry}")
            del self.collections[entry["ui"]]
        elif "renameCollection" in o:
            if self.names.pop(o["renameCollection"], None) != entry["ui"]:
                raise OplogFault(f"a rename of what is not there: {entry}")
            target = self.names.pop(o["to"], None)
            if target != o.get("dropTarget"):
                raise OplogFault(f"a rename over {target}: {entry}")
            self.collections.pop(target, None)
            self.names[o["to"]] = entry["ui"]
        elif not any(name in o for name in ("createIndexes", "startIndexBuild", "commitIndexBuild", "abortIndexBuild",
                                            "dropIndexes", "dropDatabase", "collMod")):
            raise OplogFault(f"a command nobody sent: {entry}")

    def load(self, client):
        """Takes the collections as they are now for a new beginning."""
        self.collections, self.names = {}, {}
        for name, uuid, documents in collections_of(client):
            self.names[name], self.collections[uuid] = uuid, dict(documents)
        newest = client.local["oplog.rs"].find().sort("$natural", -1).limit(1).next()
        self.last = (newest["ts"], newest["t"])

    def differences(self, client):
        """Where the collections are not what the oplog makes of them."""
        faults = []
        names = dict(self.names)
        for name, uuid, documents in collections_of(client):
            if names.pop(name, None) != uuid:
                faults.append(f"{name}: there, but not in the oplog")
                continue
            expected = self.collections[uuid]
            found = dict(documents)
            for identity in found.keys() | expected.keys():
                there, logged = found.get(identity), expected.get(identity)
                if there is None or logged is None or bson.encode(there) != bson.encode(logged):
                    faults.append(f"{name}: the collection has {there}, the oplog gives {logged}")
        faults += [f"{name}: in the oplog, but not there" for name in names]
        return faults


def collections_of(client):
    """Name, UUID and documents of every collection that is logged."""
    for db in client.list_database_names():
        if db == "local":
            continue
        listed = client[db].command("listCollections", cursor={"batchSize": 1000}, codec_options=UUID_OPTIONS)
        for info in listed["cursor"]["firstBatch"]:
            if info["type"] == "collection":
                documents = client[db][info["name"]].find()
                yield (f"{db}.{info['name']}", info["info"]["uuid"],
                       [(bson.encode({"": document["_id"]}), document) for document in documents])
