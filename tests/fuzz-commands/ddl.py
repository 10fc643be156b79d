"""Requests about collections and indexes: create, drop, rename, index, change, convert. Each function draws one command.

A command may not fit what the name is by the time it arrives: the judge knows the codes of that.
"""

import filters
import pipelines
import values

INDEXES = (
    ({"a": 1}, {}), ({"a": 1}, {"hidden": True}), ({"a": 1}, {"name": "other_name"}), ({"a": -1, "b": 1}, {}),
    ({"b": 1}, {"sparse": True}),
    ({"k": 1}, {"unique": True}), ({"k": 1, "b": 1}, {"unique": True}), ({"k": -1}, {"unique": True, "sparse": True}),
    ({"n.x": 1}, {"unique": True, "partialFilterExpression": {"n.x": {"$exists": True}, "k": {"$gt": 2}}}),
    ({"b": -1}, {"partialFilterExpression": {"a": {"$gte": 1}}}), ({"arr": 1}, {}), ({"arr.x": 1, "a": 1}, {}), ({"n": 1}, {}),
    ({"a": "hashed"}, {}), ({"n.y": "hashed", "k": 1}, {}), ({"t": 1}, {"expireAfterSeconds": 1}),
    ({"t": 1}, {"expireAfterSeconds": 3600}),
    ({"t": -1}, {"expireAfterSeconds": 0, "partialFilterExpression": {"k": {"$lt": 2}}}),
    ({"s": "text"}, {}), ({"where": "2dsphere"}, {}),
    ({"place": "2d"}, {}),
    # With these some kinds of index cannot be, and are refused.
    ({"s": "text"}, {"expireAfterSeconds": 60}), ({"where": "2dsphere"}, {"expireAfterSeconds": 60}),
    ({"a": "hashed"}, {"unique": True}), ({"a": 1, "b": 1}, {"expireAfterSeconds": 60}),
    ({"k": 1}, {"sparse": True, "partialFilterExpression": {"k": 1}}))
NAMES_OF_INDEXES = tuple("_".join(f"{path}_{kind}" for path, kind in key.items()) for key, _ in INDEXES) + ("other_name",)
VALIDATORS = (
    {}, {"a": {"$exists": True}}, {"k": {"$not": {"$gt": 4}}}, {"$jsonSchema": {"required": ["b"]}}, {"$expr": {"$ne": ["$a", "$b"]}})


def create(draw, name):
    kind = draw.one_of({"plain": 4, "capped": 2, "view": 2, "valid": 1})
    if kind == "capped":
        return {"create": name, "capped": True, "size": draw.pick(4096, 20_000, 1_000_000), **draw.maybe(0.3, max=draw.randint(1, 20))}
    if kind == "view":
        return {"create": name, "viewOn": draw.pick(*values.NAMES), "pipeline": pipelines.of_view(draw)}
    if kind == "valid":
        return {"create": name, "validator": draw.pick(*VALIDATORS), **_strictness(draw)}
    return {"create": name}


def _strictness(draw):
    return {**draw.maybe(0.5, validationLevel=draw.pick("strict", "moderate", "off")),
            **draw.maybe(0.5, validationAction=draw.pick("error", "warn"))}


def drop(_, name):
    return {"drop": name}


def create_indexes(draw, name):
    indexes = []
    for key, options in draw.some(INDEXES, 2):
        indexes.append({"key": key, "name": "_".join(f"{path}_{kind}" for path, kind in key.items()), **options})
    return {"createIndexes": name, "indexes": indexes, **draw.maybe(0.2, commitQuorum=draw.pick("majority", "votingMembers", 1))}


def drop_indexes(draw, name):
    key, _ = draw.pick(*INDEXES)
    return {"dropIndexes": name, "index": draw.pick("*", key, draw.pick(*NAMES_OF_INDEXES), list(draw.some(NAMES_OF_INDEXES, 2)))}


def coll_mod(draw, name):
    """A change of an index, of the validator, of a capped collection's limits, or of a view."""
    index = draw.pick({"name": draw.pick(*NAMES_OF_INDEXES)}, {"keyPattern": draw.pick(*INDEXES)[0]})
    return {"collMod": name, **draw.pick(
        lambda: {"index": {**index, "hidden": draw.chance(0.5)}},
        lambda: {"index": {**index, "expireAfterSeconds": draw.pick(1, 5, 3600)}},
        lambda: {"validator": draw.pick(*VALIDATORS), **_strictness(draw)},
        lambda: draw.pick({"cappedSize": draw.pick(4096, 50_000)}, {"cappedMax": draw.randint(1, 30)}),
        lambda: {"viewOn": draw.pick(*values.NAMES), "pipeline": pipelines.of_view(draw)},
    )()}


def rename(draw, name):
    """Goes to `admin`: `namespace` in fuzz.py puts the databases in."""
    return {"renameCollection": name, "to": draw.pick(*values.NAMES), "dropTarget": draw.chance(0.6)}


def convert(draw, name):
    return {"convertToCapped": name, "size": draw.pick(4096, 100_000)}


def clone_as_capped(draw, name):
    return {"cloneCollectionAsCapped": name, "toCollection": draw.pick(*values.NAMES), "size": draw.pick(4096, 100_000)}


def drop_database(_draw, _name):
    return {"dropDatabase": 1}


CHANGES = {
    create: 8, drop: 5, create_indexes: 14, drop_indexes: 5, coll_mod: 7, rename: 3, convert: 1, clone_as_capped: 1,
    drop_database: 0.3}


def list_collections(draw, _):
    return {"listCollections": 1, **draw.maybe(0.3, nameOnly=True)}


def list_indexes(_, name):
    return {"listIndexes": name}


def statistics(draw, name):
    return draw.pick({"collStats": name}, {"dbStats": 1}, {"aggregate": name, "pipeline": [{"$collStats": {"count": {}}}], "cursor": {}},
                     {"aggregate": name, "pipeline": [{"$indexStats": {}}], "cursor": {}}, {"dataSize": f"fuzz.{name}"})


def validate(draw, name):
    return {"validate": name, "full": draw.chance(0.5)}


LOOKS = {list_collections: 2, list_indexes: 3, statistics: 2, validate: 1}
