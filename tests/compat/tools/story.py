"""The database tools' story: mongodump and mongorestore (with the oplog, and as an archive), mongoexport and mongoimport,
mongostat, mongotop.

Every tool is the one on the PATH; what was dumped is compared with what was restored document by document, with its
options and indexes. What it deliberately does not do: install the tools. They are in no package registry.
"""

import json
import os
import pathlib
import re
import subprocess
import tempfile
import threading

import pymongo
from bson import Decimal128, Int64, Regex, Timestamp

URI = os.environ["BATON_URI"]


def run(tool, *arguments):
    """Runs a tool; gives what it wrote to standard output and to standard error."""
    done = subprocess.run([tool, f"--uri={URI}", *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{tool} {' '.join(arguments)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout, done.stderr


def fill(database):
    """Collections of every kind that a dump has to bring back."""
    database.carts.insert_many([
        {"_id": n, "user": f"u{n % 7}", "items": [n, {"sku": "x"}], "price": Decimal128("1.50"), "n": Int64(n),
         "at": Timestamp(n + 1, 1), "pattern": Regex("^a", "i")} for n in range(3000)])
    database.carts.create_index("user")
    database.carts.create_index([("items", 1), ("price", -1)], name="by_items", sparse=True)
    database.carts.create_index("n", unique=True, partialFilterExpression={"n": {"$gt": 5}})
    database.create_collection("log", capped=True, size=100_000, max=10)
    database.log.insert_many([{"_id": n} for n in range(20)])
    database.create_collection("checked", validator={"a": {"$gt": 1}})
    database.checked.insert_one({"a": 2})
    database.create_collection("of_u1", viewOn="carts", pipeline=[{"$match": {"user": "u1"}}])


def picture(database):
    """All that the database holds; collections' UUIDs are the member's own and may change."""
    collections = {}
    for listed in database.list_collections():
        name = listed["name"]
        if name.startswith("system."):
            continue
        is_view = listed["type"] == "view"
        indexes = {} if is_view else database[name].index_information()
        collections[name] = (listed["type"], listed["options"], indexes, list(database[name].find().sort("_id", 1)))
    return collections


def dump_drop_restore(client, folder):
    """mongodump, drop, mongorestore: everything is back."""
    shop = client.tools_shop
    fill(shop)
    before = picture(shop)
    run("mongodump", "--db", "tools_shop", "--out", f"{folder}/plain")
    run("mongodump", "--db", "tools_shop", "--gzip", f"--archive={folder}/shop.archive")
    client.drop_database("tools_shop")
    assert picture(shop) == {}
    run("mongorestore", f"{folder}/plain")
    assert picture(shop) == before
    shop.carts.delete_many({})
    shop.carts.drop_indexes()
    run("mongorestore", "--drop", "--gzip", f"--archive={folder}/shop.archive")
    assert picture(shop) == before


def dump_of_one_moment(client, folder):
    """mongodump --oplog under writes, then mongorestore --oplogReplay: the state is of one moment.

    The writer puts n into `first`, then into `second`: at every moment each holds 0, 1, …, and the second is at most
    one behind.
    """
    moment = client.tools_moment
    stop = threading.Event()

    def write():
        n = 0
        while not stop.is_set():
            moment.first.insert_one({"_id": n})
            moment.second.insert_one({"_id": n})
            moment.sums.update_one({"_id": 0}, {"$inc": {"n": 1}}, upsert=True)
            n += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        while moment.sums.count_documents({"n": {"$gte": 50}}) == 0:
            pass
        run("mongodump", "--oplog", "--out", f"{folder}/moment")
    finally:
        stop.set()
        writer.join()
    assert (pathlib.Path(folder) / "moment/oplog.bson").stat().st_size > 0
    written = moment.first.count_documents({})
    client.drop_database("tools_moment")
    client.drop_database("tools_shop")
    run("mongorestore", "--drop", "--oplogReplay", f"{folder}/moment")
    first = [document["_id"] for document in moment.first.find().sort("_id", 1)]
    second = [document["_id"] for document in moment.second.find().sort("_id", 1)]
    total = moment.sums.find_one({"_id": 0})["n"]
    assert first == list(range(len(first))) and second == list(range(len(second))), "a hole"
    assert len(first) - 1 <= len(second) <= len(first), (len(first), len(second))
    assert len(second) - 1 <= total <= len(second), (len(second), total)
    assert 50 <= len(first) <= written
    assert client.tools_shop.carts.count_documents({}) == 3000


def export_and_import(client, folder):
    """mongoexport, mongoimport: JSON keeps the types, CSV the chosen fields."""
    shop = client.tools_shop
    run("mongoexport", "--db", "tools_shop", "--collection", "carts", "--sort", '{"_id": 1}', "--out", f"{folder}/c.json")
    lines = pathlib.Path(f"{folder}/c.json").read_text().splitlines()
    assert len(lines) == 3000 and json.loads(lines[0])["price"] == {"$numberDecimal": "1.50"}
    run("mongoimport", "--db", "tools_shop", "--collection", "copy", "--file", f"{folder}/c.json")
    # Extended JSON writes 64-bit numbers that fit as plain ones; the values are the same.
    assert list(shop.copy.find().sort("_id", 1)) == list(shop.carts.find().sort("_id", 1))
    shop.copy.update_one({"_id": 5}, {"$set": {"user": "changed"}})
    shop.copy.delete_one({"_id": 6})
    run("mongoimport", "--db", "tools_shop", "--collection", "copy", "--mode", "upsert", "--file", f"{folder}/c.json")
    assert shop.copy.find_one({"_id": 5})["user"] == "u5" and shop.copy.count_documents({}) == 3000
    csv, _ = run("mongoexport", "--db", "tools_shop", "--collection", "carts", "--type", "csv", "--fields", "_id,user",
                 "--query", '{"_id": {"$lt": 3}}', "--sort", '{"_id": 1}')
    assert csv.split() == ["_id,user", "0,u0", "1,u1", "2,u2"], csv


def watch():
    """mongostat and mongotop show the member at work."""
    shown, _ = run("mongostat", "--json", "--rowcount", "2", "1")
    rows = [next(iter(json.loads(line).values())) for line in shown.splitlines() if line.strip()]
    assert len(rows) == 2
    for row in rows:
        assert row["set"] == "rs0" and row["repl"] == "PRI" and int(row["conn"]) >= 1, row
        assert re.match(r"\d", row["command"]), row
    shown, _ = run("mongotop", "--json", "--rowcount", "1", "1")
    totals = json.loads(shown.strip().splitlines()[-1])["totals"]
    assert "tools_shop.carts" in totals, sorted(totals)
    assert set(totals["tools_shop.carts"]) == {"total", "read", "write"}


def main():
    with tempfile.TemporaryDirectory(prefix="baton-tools-") as folder, pymongo.MongoClient(URI) as client:
        dump_drop_restore(client, folder)
        dump_of_one_moment(client, folder)
        export_and_import(client, folder)
        watch()
        for name in ("tools_shop", "tools_moment"):
            client.drop_database(name)
    print("the database tools: all as told")


main()
