"""Requests about documents: each function draws one command. All go to one namespace, which may be anything by then."""

import bson

import filters
import pipelines
import updates
import values


def insert(draw, name):
    return {"insert": name, "documents": [values.document(draw) for _ in range(draw.pick(1, 1, 2, 5))], "ordered": draw.chance(0.6)}


def update(draw, name):
    return {"update": name, "updates": [_statement(draw) for _ in range(draw.pick(1, 1, 1, 2, 4))], "ordered": draw.chance(0.6)}


def _statement(draw):
    query = draw.pick(filters.filter_of, filters.by_key, filters.by_key)(draw)
    change, array_filters, multi = updates.statement(draw, query)
    return {"q": query, "u": change, **draw.maybe(0.4, upsert=True), **({"multi": True} if multi and draw.chance(0.3) else {}),
            **({"arrayFilters": array_filters} if array_filters else {})}


def delete(draw, name):
    return {"delete": name, "ordered": draw.chance(0.6), "deletes": [
        {"q": draw.pick(filters.filter_of, filters.by_key)(draw), "limit": draw.pick(1, 1, 1, 0)} for _ in range(draw.pick(1, 1, 2))]}


def find_and_modify(draw, name):
    query = draw.pick(filters.filter_of, filters.by_key, filters.by_key)(draw)
    body = {"findAndModify": name, "query": query, **draw.maybe(0.4, sort=lambda draw: {draw.pick(*values.PATHS): draw.pick(1, -1)})}
    if draw.chance(0.2):
        return {**body, "remove": True}
    change, array_filters, _ = updates.statement(draw, query)
    return {**body, "update": change, **({"arrayFilters": array_filters} if array_filters else {}),
            **draw.maybe(0.5, upsert=True), **draw.maybe(0.5, new=True), **draw.maybe(0.3, fields={"a": 1, "n": 1})}


def find(draw, name):
    return {"find": name, "filter": filters.filter_of(draw), **draw.maybe(0.4, sort=lambda draw: pipelines.sorting(draw)["$sort"]),
            **draw.maybe(0.3, limit=lambda draw: draw.randint(1, 5)), **draw.maybe(0.2, skip=lambda draw: draw.randint(0, 3)),
            **draw.maybe(0.5, batchSize=lambda draw: draw.randint(0, 3)), **draw.maybe(0.1, singleBatch=True),
            **draw.maybe(0.3, projection=lambda draw: draw.pick(
                {"a": 1, "_id": 0}, {"arr": 0}, {"arr": {"$slice": 1}}, {"arr": {"$elemMatch": {"$gte": 1}}},
                {"c": {"$add": ["$k", 1]}, "b": 1})),
            **draw.maybe(0.1, hint=lambda draw: draw.pick("_id_", {"$natural": 1}, {"$natural": -1}, {"_id": 1}))}


def tail(draw, name):
    """A tailable cursor: of a capped collection, or refused."""
    return {"find": name, "filter": {}, "tailable": True, **draw.maybe(0.5, awaitData=True), "batchSize": draw.randint(0, 3)}


def aggregate(draw, name):
    return {"aggregate": name, "pipeline": pipelines.pipeline(draw), "cursor": draw.maybe(0.5, batchSize=draw.randint(0, 3))}


def aggregate_into(draw, name):
    return {"aggregate": name, "pipeline": pipelines.writing(draw), "cursor": {}}


def count(draw, name):
    return {"count": name, "query": filters.filter_of(draw), **draw.maybe(0.2, limit=2), **draw.maybe(0.2, skip=1)}


def distinct(draw, name):
    return {"distinct": name, "key": draw.pick(*values.PATHS), "query": filters.filter_of(draw)}


def explain(draw, name):
    command = draw.pick(find, count, distinct, update, delete, find_and_modify, aggregate)(draw, name)
    for several in ("updates", "deletes"):
        if several in command:
            command[several] = command[several][:1]
    command.pop("singleBatch", None)
    return {"explain": command, "verbosity": draw.pick("queryPlanner", "executionStats", "allPlansExecution")}


WRITES = {insert: 8, update: 14, delete: 3, find_and_modify: 8, aggregate_into: 1}
READS = {find: 8, aggregate: 6, count: 2, distinct: 1, explain: 1, tail: 1}


def retryable(draw, body):
    """Makes a write one that may be sent again, unless it changes several documents; returns whether it is."""
    if "aggregate" in body or any(each.get("multi") for each in body.get("updates", ())):
        return False
    if any(each["limit"] == 0 for each in body.get("deletes", ())):
        return False
    body["lsid"] = {"id": bson.Binary(draw.randbytes(16), 4)}
    body["txnNumber"] = bson.Int64(1)
    return True
