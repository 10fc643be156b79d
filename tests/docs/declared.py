"""What the documentation's test does not run as it is typed: each line by name, with the reason; and what it shortens.

Invariant: an entry that no line of the documentation needs any more is a failure, so that nothing is declared that is gone.
"""

BUILDS = "it builds, which takes minutes"
LONG = "it runs for longer than a test may"
ROOT = "it needs root, network namespaces, and long runs"
NAME = "it is a name in the text, and not a command line"
ARGUMENT = "it needs arguments, of which MongoDB's manual tells"

# Not run. Of those that call make, the targets and the variables must exist; of scripts, the file.
NOT_RUN = {
    "make build && tests/compat/pymongo-suite.sh": LONG,
    "make build && tests/compat/pymongo-set.sh": LONG,
    "make cluster": "it is what runs this",
    "make test": "it is what runs this",
    "make test-clients": LONG,
    "make sim": LONG,
    "make soak": LONG,
    "make spec": "`make test` runs it beside this",
    "make faults": LONG,
    "make crash": LONG,
    "make crash CRASH_AT=drop,freeing,index-build": LONG,
    "make fuzz-commands": LONG,
    "make fuzz-commands MINUTES=60": LONG,
    "make linearizability": LONG,
    "make advisories": "it fetches a database",
    "make bench-disturbance": LONG,
    "make bench-disturbance RECORDS=100000 EVENTS=\"drop compact\"": LONG,
    "make bench-disturbance BENCH_FLAGS=\"--quiet 6 --rest 12\"": LONG,
    "make bench-failover": LONG,
    "make bench-connections": LONG,
    "make bench-idle": LONG,
    "make bench-initial-sync": LONG,
    "make bench-memory": LONG,
    "make bench-one": LONG,
    "make bench-one RECORDS=100000 SECONDS_EACH=3 CLIENTS=\"8 64\" WORKLOADS=\"a c\"": LONG,
    "make bench-recovery": LONG,
    "make bench-scale": LONG,
    "make bench-set": LONG,
    "make bench-set BENCH_FLAGS=\"--members 3,5,7 --seconds 8\"": LONG,
    "make bench-one RECORDS=200000 JAVA_RECORDS=200000 SECONDS_EACH=5": LONG,
    "make bench-connections SECONDS_EACH=5": LONG,
    "make bench-door": LONG,
    "make bench-spill": LONG,
    "make bench-index-build": LONG,
    "make lab": ROOT,
    "make lab-chaining": ROOT,
    "make lab-check": "it is the lab's own test",
    "make lab-failover": ROOT,
    "make lab-lag": ROOT,
    "make lab-leadership": ROOT,
    "make lab-priority": ROOT,
    "make lab-uplink": ROOT,
    "make install PROFILE=release": BUILDS,
    "make image": BUILDS,
    "make test-image": BUILDS,
    "podman run --cap-add SYS_NICE -p 27017:27017 -v baton:/var/lib/baton baton": "it needs an image; `make test-image` tests that",
    "npm install -g mongosh": "the pinned one is installed beside the tests instead (tests/compat/install.sh)",
    "tests/fuzz-commands/run.sh --mutants": BUILDS,
    "tests/linearizability/run.sh --mutants": BUILDS,
    ". build/env.sh; MUTANT_WORLDS=8000 cargo test -p baton-sim --test mutants -- --nocapture postponing_for_ever": BUILDS,
    ". build/env.sh; cargo run --release -p baton-bench --features driver -- --client driver": BUILDS,
    ". build/env.sh; cargo run --release -p baton-bench --example record_ids": BUILDS,
    ". build/env.sh; cargo run --release -p baton-bench --example oplog_as_log": BUILDS,
    ". build/env.sh; cargo run --release -p baton-bench --example versions": BUILDS,
    "build/env.sh": NAME,
    "cargo deny": NAME,
    "kill -9": NAME,
    "rs.initiate()": "the set that the lines are typed to is one already",
    "rs.add()": ARGUMENT,
    "rs.remove()": ARGUMENT,
    "rs.reconfig()": ARGUMENT,
    "rs.syncFrom()": ARGUMENT,
}

# Typed again, in a new session, if mongosh shows a MongoNetworkError or nothing, as the README tells its reader to: the Node driver
# tries a write again only if its monitor has not heard of the broken connection before the write has.
TYPED_AGAIN = {
    "db.carts.insertOne({_id: 3, user: \"grace\", total: 7})",
}

# Run with these arguments more, without which they would take minutes or stand in each other's way; not run again after the
# fail-over, since they are about a set of their own or measure.
WITH_MORE = {
    "baton bench --uri URI --workload a --clients 64": "--records 300 --seconds 0.5 --warmup 0.1",
    "baton bench --uri URI --workload a --clients 8": "--records 300 --seconds 0.5 --warmup 0.1",
}
