"""What YCSB left behind: every record that it loaded is there and whole, and A's updates changed some of them."""

import os
import sys

import pymongo


def main():
    records = int(sys.argv[1])
    with pymongo.MongoClient(os.environ["BATON_URI"]) as client:
        for workload in "abcdef":
            table = client[f"ycsb_{workload}"].usertable
            count = table.count_documents({})
            # D and E insert.
            assert count > records if workload in "de" else count == records, (workload, count)
            for document in table.find():
                assert len(document) == 11 and all(len(document[f"field{n}"]) == 100 for n in range(10)), document["_id"]
            assert client[f"ycsb_{workload}"].command("validate", "usertable")["valid"]
            client.drop_database(f"ycsb_{workload}")
    print("YCSB: workloads A to F, every record whole")


main()
