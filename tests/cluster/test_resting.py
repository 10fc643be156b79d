"""Requests that run for long beside small ones: they rest, and what they answer and change is the same."""

import os
import threading

DOCUMENTS = 20_000


def test_requests_that_run_for_long_beside_small_ones_rest_and_answer_the_same(shared_member, client, db):
    """Fails if scans, sorts, aggregations or deletions of many clients on all processors never rest, or miss a document, while another
    client reads one document after the other."""
    db.c.insert_many([{"_id": n, "n": -n, "part": n % 10, "pad": "x" * 300} for n in range(DOCUMENTS)])
    before = client.admin.command("serverStatus")["restingOperations"]
    wrong = []

    def read(check):
        with shared_member.client() as own:
            c = own[db.name].c
            for _ in range(4):
                if not check(c):
                    wrong.append(check)

    def in_order(c):
        return [document["_id"] for document in c.find({}, {"pad": 0}).sort("n", 1)] == list(range(DOCUMENTS))[::-1]

    def all_found(c):
        return sum(1 for _ in c.find({"pad": {"$regex": "x$"}}, batch_size=5000)) == DOCUMENTS

    def all_grouped(c):
        groups = c.aggregate([{"$group": {"_id": "$part", "count": {"$sum": 1}}}])
        return {group["_id"]: group["count"] for group in groups} == {part: DOCUMENTS // 10 for part in range(10)}

    is_over = threading.Event()

    def read_little():
        with shared_member.client() as own:
            n = 0
            while not is_over.is_set():
                if own[db.name].c.find_one({"_id": n})["n"] != -n:
                    wrong.append(n)
                n = (n + 1) % DOCUMENTS

    small = threading.Thread(target=read_little)
    small.start()
    checks = [in_order, all_found, all_grouped] * (1 + os.cpu_count())
    threads = [threading.Thread(target=read, args=(check,)) for check in checks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    is_over.set()
    small.join()
    assert not wrong
    after = client.admin.command("serverStatus")["restingOperations"]
    assert after["rests"] > before["rests"] and after["micros"] > before["micros"], (before, after)
    assert db.c.delete_many({"part": {"$lt": 4}}).deleted_count == DOCUMENTS * 4 // 10
    assert db.c.count_documents({}) == DOCUMENTS * 6 // 10
