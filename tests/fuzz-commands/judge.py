"""What must hold of replies, and of members when all is quiet.

Of a reply: it comes in time; it is no internal error (1, 8); its code is one that a valid request can be answered with, because
of what the data is, of what another client did, or of a fail-over. A code that is in no list below is a fault: of Baton, or of
the grammar.

Of the members in the end: nobody's request is under way any more; all have the same collections, options, indexes and
documents; every collection is valid in full; the planner's answer is that of a scan.
"""

import hashlib
import re
import time

import bson
import bson.raw_bson
import pymongo

import filters
import values
from draw import Draw

# Filters tried on each collection.
PLANS_EACH = 10


class Gone(Exception):
    """The connection was lost."""


class Ended(Exception):
    """The run is over."""


# A fail-over or a stop is an answer to anything, and so is a limit of time that the request set, or another client's killOp.
FAILOVER = {10107, 13435, 13436, 189, 91, 11600, 11602}
LIMITS = {64, 50, 11601}
# A name that was a collection, a view, a capped collection or nothing when the request was drawn, and is another thing now.
NAMES = {26, 48, 166}
WRITING = ("insert", "update", "findAndModify", "aggregate")
CHANGING = ("update", "findAndModify")
READING = ("find", "aggregate", "count", "distinct", "create", "collMod", "explain")
# What else a valid request can be answered with: the code, the commands, and how the message begins where the code says little.
ALLOWED = (
    (11000, WRITING + ("createIndexes",), ""),
    (121, WRITING, "Document failed validation"),
    # What an index cannot hold.
    (171, WRITING + ("createIndexes",), "cannot index parallel arrays"),
    (16766, WRITING + ("createIndexes",), "Error: hashed indexes do not currently support array values"),
    # What an operator cannot be applied to.
    (14, CHANGING, "Cannot apply \\$"),
    (14, READING + ("getMore",), "\\$add only supports numeric or date types"),
    (2, CHANGING, "Cannot apply \\$|The path '.*' must exist|Cannot apply array updates|The positional operator did not find|"
                  "The field .* must be an array"),
    # More than 64 bits hold.
    (2, CHANGING, "Failed to apply \\$(inc|mul) operations to current value"),
    (14, CHANGING, "Path .* contains an element of non-array type"),
    (53, CHANGING, "The '_id' value cannot be of type array"),
    (28, CHANGING, "Cannot create field"),
    (54, CHANGING, "cannot infer query fields to set"),
    (10003, CHANGING, "Cannot change the size of a document in a capped collection"),
    # A cursor, or the collection below it, that is gone.
    (43, ("getMore",), ""), (175, READING + CHANGING + ("getMore", "delete"), ""), (136, ("getMore", "find"), ""),
    (2, ("find",), "error processing query: .* tailable cursor requested on non capped collection"),
    (167, ("find",), "tailable cursors are not supported on views"),
    (2, READING + CHANGING + ("getMore",), "cannot sort with keys that are parallel arrays"),
    # Projections that a view has no stage for.
    (28667, READING, "Invalid \\$project :: caused by :: Expression \\$slice"), (31325, READING, "Invalid \\$project"),
    # A view of a view of itself, and too many of them.
    (5, ("create", "collMod"), "View cycle detected"), (165, READING, ""),
    (246, READING + ("getMore",), "Unable to read from a snapshot"), (239, READING + ("getMore",), ""),
    # Where a pipeline writes.
    (125, ("aggregate",), "(collection options|indexes) of target collection .* changed during processing"),
    (13113, ("aggregate",), "\\$merge could not find a matching document"),
    (66, ("aggregate",), "Performing an update on the path '_id'|After applying the update, the .*'_id' was found to have been altered"),
    (40602, ("aggregate",), r"\$(indexStats|collStats) is only valid as the first stage"),
    (51183, ("aggregate",), "Cannot find index to verify that join fields will be unique"),
    (51185, ("aggregate",), ""), (51132, ("aggregate",), ""),
    (17152, ("aggregate",), "namespace '.*' is capped so it can't be used for \\$out"),
    (31319, ("aggregate",), ""), (17017, ("aggregate",), ""),
    # Indexes and collections that others changed meanwhile.
    (27, ("dropIndexes", "collMod"), ""), (85, ("createIndexes",), ""), (86, ("createIndexes",), ""), (68, ("createIndexes",), ""),
    (12587, ("collMod", "drop", "dropDatabase", "renameCollection", "convertToCapped", "dropIndexes", "create"), "cannot perform operation"),
    (117, ("renameCollection", "convertToCapped", "cloneCollectionAsCapped"), ".* was (altered|dropped|changed) while it was copied"),
    (276, ("createIndexes", "aggregate", "renameCollection", "convertToCapped", "cloneCollectionAsCapped"), "Index build aborted"),
    (67, ("createIndexes",), ""),
    (72, ("collMod",), ""), (20, ("renameCollection",), "Can't rename a collection to itself"), (10, ("renameCollection",), ""),
)


def codes(reply):
    """All codes in a reply, each with its message."""
    found = []
    if not reply.get("ok"):
        found.append((reply.get("code"), reply.get("errmsg", "")))
    for error in reply.get("writeErrors", ()):
        found.append((error.get("code"), error.get("errmsg", "")))
    if "writeConcernError" in reply:
        found.append((reply["writeConcernError"].get("code"), reply["writeConcernError"].get("errmsg", "")))
    return found


def of_reply(request, reply):
    """What is wrong with a reply."""
    for code, message in codes(reply):
        if code in FAILOVER or code in LIMITS:
            continue
        if request.database == "ledger" or not is_allowed(request.name, code, message):
            yield f"{request.name} is answered with {code}: {message}"


# What MongoDB puts before the message of what went wrong.
PREFIX = re.compile(r"^(Index build failed|PlanExecutor error|Plan executor error|Executor error during|Failed to optimize pipeline|"
                    r"\$merge failed).* :: caused by :: ")


def is_allowed(command, code, message):
    """Whether a valid command can be answered with this."""
    message = PREFIX.sub("", message)
    return code in NAMES or any(
        code == allowed and command in commands and re.match(begin, message) for allowed, commands, begin in ALLOWED)


def is_of_failover(reply):
    """Whether somebody else is primary now, or nobody."""
    return any(code in FAILOVER for code, _ in codes(reply))


def same(one, other):
    """Whether two values are the same to the bit: as Python compares them, not-a-number is unlike itself, and 1 like 1.0."""
    return bson.encode({"": one}) == bson.encode({"": other})


def short(reply):
    """A reply in one line."""
    found = codes(reply)
    if found:
        return "; ".join(f"{code}: {message[:300]}" for code, message in found)
    return str({name: value for name, value in reply.items() if name not in ("$clusterTime", "operationTime", "ok")})[:300]


def of_members(run):
    """Raises AssertionError, or tells the run, of what is wrong when all is quiet."""
    run.set.await_states(time.monotonic() + run.reply_seconds_max)
    _nobody_is_at_work(run)
    _logs_are_clean(run)
    set_ttl(run, False)
    digest = _are_equal(run)
    _keep_what_was_promised(run)
    _are_valid(run)
    _plans_agree(run)
    if run.arguments.restart:
        for index in range(len(run.members)):
            run.set.kill(index)
        for index in range(len(run.members)):
            run.set.spawn(index)
        run.set.await_states(time.monotonic() + run.reply_seconds_max)
        set_ttl(run, False)
        after = _are_equal(run)
        assert digest == after, "a SIGKILL of all members changed: " + difference("before", digest, "after", after)
    set_ttl(run, True)


def _nobody_is_at_work(run):
    """All clients are gone, so what they asked for has ended."""
    for index in range(len(run.members)):
        def rests():
            with run.set.direct(index) as direct:
                return not [operation for operation in direct.admin.command("currentOp")["inprog"]
                            if operation.get("ns", "").split(".")[0] in ("fuzz", "other", "ledger")]
        run.set.await_that(rests, f"member {index} at rest, all clients being gone", run.reply_seconds_max)


def _logs_are_clean(run):
    """No panic, nothing fatal."""
    for index, member in enumerate(run.members):
        with open(member.log_path, errors="replace") as log:
            for line in log:
                if "panic" in line or '"s":"F"' in line:
                    run.fault("a log", f"member {index}: {line[:2000]}")


def set_ttl(run, active):
    """Whether members delete what has expired. Not while they are compared."""
    for index in range(len(run.members)):
        with run.set.direct(index) as direct:
            direct.admin.command("setParameter", 1, ttlMonitorEnabled=active)


def content(run, index):
    """What a member holds: for each collection its kind, options, indexes, and a digest of its documents."""
    held = {}
    with run.set.direct(index, read_preference=pymongo.ReadPreference.SECONDARY_PREFERRED) as client:
        for database in client.list_database_names():
            if database in ("local", "config", "admin"):
                continue
            hashes = client[database].command("dbHash")["collections"]
            for info in client[database].list_collections():
                name = info["name"]
                entry = {"type": info["type"], "options": info["options"], "uuid": info["info"].get("uuid")}
                if info["type"] != "view":
                    documents = sorted(raw.raw for raw in client[database].get_collection(
                        name, codec_options=RAW).find().hint([("$natural", 1)]))
                    entry["indexes"] = sorted((bson.encode(spec) for spec in client[database][name].list_indexes()))
                    entry["count"] = len(documents)
                    entry["dbHash"] = hashes.get(name)
                    entry["documents"] = hashlib.sha256(b"".join(documents)).hexdigest()
                held[f"{database}.{name}"] = entry
    return held


RAW = bson.codec_options.CodecOptions(document_class=bson.raw_bson.RawBSONDocument)


def difference(one, content_of_one, other, content_of_other):
    """In what two differ, in words."""
    said = []
    for name in sorted(content_of_one.keys() | content_of_other.keys()):
        left, right = content_of_one.get(name), content_of_other.get(name)
        if left is None or right is None:
            said.append(f"{name} is on {other if left is None else one} alone")
        else:
            said += [f"{name}: {part} of {one}: {left.get(part)!r}, of {other}: {right.get(part)!r}"
                     for part in sorted(left.keys() | right.keys()) if left.get(part) != right.get(part)]
    return "; ".join(said)


def _are_equal(run):
    """Waits until all members hold the same, and returns it."""
    deadline = time.monotonic() + run.reply_seconds_max
    while True:
        try:
            contents = [content(run, index) for index in range(len(run.members))]
            unlike = [index for index in range(1, len(contents)) if contents[index] != contents[0]]
            if not unlike:
                return contents[0]
            why = difference("member 0", contents[0], f"member {unlike[0]}", contents[unlike[0]])
        except (pymongo.errors.AutoReconnect, pymongo.errors.OperationFailure) as error:
            why = str(error)
        assert time.monotonic() < deadline, f"the members differ: {why}"
        time.sleep(0.1)


def _are_valid(run):
    """`validate {full: true}` on every member."""
    for index in range(len(run.members)):
        with run.set.direct(index, read_preference=pymongo.ReadPreference.SECONDARY_PREFERRED) as client:
            for database in client.list_database_names():
                # system.views is made from the catalog whenever it is asked for: there is nothing to check.
                for name in client[database].list_collection_names(filter={"type": "collection", "name": {"$ne": "system.views"}}):
                    report = client[database].command("validate", name, full=True)
                    if not report["valid"] or report.get("errors"):
                        run.fault("in the end", f"member {index}: {database}.{name} is not valid: {report}")


def _plans_agree(run):
    """What the planner chooses finds what a scan finds, on the primary."""
    draw = Draw(f"{run.arguments.seed} {run.accounts.round} plans")
    with run.set.client() as client:
        for database in values.DATABASES:
            for name in client[database].list_collection_names(filter={"type": "collection"}):
                for _ in range(PLANS_EACH):
                    query = filters.filter_of(draw)
                    planned, scanned = (
                        sorted(bson.encode(found) for found in client[database][name].find(query, {"_id": 1}).hint(hint))
                        for hint in (None, [("$natural", 1)]))
                    if planned != scanned:
                        run.fault("a plan", f"{database}.{name}: {query} finds {len(planned)} by "
                                  f"{client[database][name].find(query).explain()['queryPlanner']['winningPlan']}, {len(scanned)} by a scan")


def _keep_what_was_promised(run):
    """The ledger, on every member."""
    for index in range(len(run.members)):
        with run.set.direct(index, read_preference=pymongo.ReadPreference.SECONDARY_PREFERRED) as client:
            for fault in run.accounts.check(index, client.ledger.kept.find(), client.ledger.shared.find()):
                run.fault("the ledger", fault)
