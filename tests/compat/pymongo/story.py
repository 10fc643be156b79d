"""pymongo's story, with what tests/cluster leaves out: GridFS, raw batches, monitoring, options, compression."""

import os
import uuid
from concurrent.futures import ThreadPoolExecutor

import bson
import gridfs
import pymongo
from bson.codec_options import CodecOptions
from pymongo import InsertOne, UpdateOne, monitoring
from pymongo.errors import BulkWriteError, OperationFailure, WriteConcernError, WTimeoutError
from pymongo.read_concern import ReadConcern


class Commands(monitoring.CommandListener):
    def __init__(self):
        self.events = []

    def started(self, event):
        self.events.append(event)

    def succeeded(self, event):
        pass

    def failed(self, event):
        pass


def configure(client, rules):
    """Gives the set these rules of priority."""
    config = client.admin.command("replSetGetConfig")["config"]
    config["version"] += 1
    config["settings"]["priority"] = {"rules": rules}
    client.admin.command("replSetReconfig", config)


def own_class(client):
    """Of which class a request is, as it sees itself."""
    comment = str(uuid.uuid4())
    shown = client.admin.aggregate([{"$currentOp": {}}], comment=comment)
    return next(op["class"] for op in shown if op.get("command", {}).get("comment") == comment)


def let_what_can_wait_wait(uri):
    """An operator gives a report the low class by its application's name, whichever of a pool's connections it asks on."""
    with pymongo.MongoClient(uri, appname="report-nightly") as report, pymongo.MongoClient(uri, appname="shop") as shop:
        with ThreadPoolExecutor(8) as threads:
            def classes():
                return set(threads.map(own_class, [report] * 40))

            assert classes() == {"normal"}
            configure(shop, [{"match": {"appName": "report*"}, "priority": "low"}])
            assert classes() == {"low"} and own_class(shop) == "normal"
            (rule,) = shop.admin.command("serverStatus")["priority"]["rules"]
            assert rule["matched"] >= 40
            configure(shop, [])
            assert classes() == {"normal"}


def main():
    for compressor in ("snappy", "zlib", "zstd"):
        with pymongo.MongoClient(os.environ["BATON_URI"], compressors=compressor) as client:
            client.pymongo_story.compressed.insert_one({"_id": compressor, "pad": "x" * 100_000})
            assert client.pymongo_story.compressed.find_one({"_id": compressor})["pad"] == "x" * 100_000

    let_what_can_wait_wait(os.environ["BATON_URI"])

    commands = Commands()
    with pymongo.MongoClient(os.environ["BATON_URI"], event_listeners=[commands], appname="story") as client:
        client.drop_database("pymongo_story")
        db = client.pymongo_story
        files = gridfs.GridFSBucket(db, chunk_size_bytes=1000)
        data = os.urandom(123_456)
        file_id = files.upload_from_stream("file", data, metadata={"a": 1})
        assert files.open_download_stream(file_id).read() == data
        files.rename(file_id, "other")
        assert [f.filename for f in files.find()] == ["other"]
        files.delete(file_id)
        assert db.fs.chunks.count_documents({}) == 0

        db.c.insert_many([{"_id": n, "a": n % 7} for n in range(2500)])
        raw = b"".join(db.c.find_raw_batches(batch_size=500))
        assert len(bson.decode_all(raw)) == 2500
        assert db.c.find({"a": 1}).hint([("_id", 1)]).max_time_ms(5000).comment("c").to_list(3) != []
        db.c.create_index("a", background=True, comment="index")
        assert [d["_id"] for d in db.c.find({"a": 3}).min([("a", 3)]).max([("a", 4)]).hint([("a", 1)]).limit(2)] == [3, 10]

        result = db.c.bulk_write([InsertOne({"_id": 10_000 + n}) for n in range(3000)], ordered=False)
        assert result.inserted_count == 3000
        session_events = [e for e in commands.events if e.command_name == "insert"]
        assert all("lsid" in e.command and "txnNumber" in e.command for e in session_events)
        try:
            db.c.with_options(write_concern=pymongo.WriteConcern(w=3, wtimeout=100)).insert_one({"_id": "w3"})
        except (WTimeoutError, WriteConcernError, OperationFailure) as error:
            assert error.code in (64, 100), error
        else:
            raise AssertionError("w:3 was acknowledged by one member")

        aware = db.with_options(codec_options=CodecOptions(tz_aware=True), read_concern=ReadConcern("majority"))
        assert aware.c.find_one({"_id": 3}) == {"_id": 3, "a": 3}
        try:
            db.c.bulk_write([UpdateOne({"_id": 1}, {"$set": {"_id": 2}})])
        except BulkWriteError as error:
            assert error.details["writeErrors"][0]["code"] == 66
        else:
            raise AssertionError("_id was changed")
        client.drop_database("pymongo_story")
    print("pymongo: all as told")


main()
