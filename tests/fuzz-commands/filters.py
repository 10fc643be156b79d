"""Filters of the query language, all valid: what a document holds decides whether it matches, never whether it may be asked."""

from bson import Regex

import values

TYPES = ("double", "string", "object", "array", "bool", "date", "null", "int", "long", "decimal", "number", 2, 16)


def equal(draw):
    value = values.any_value(draw)
    return value if isinstance(value, Regex) else draw.pick(value, {"$eq": value})


def in_range(draw):
    value = draw.pick(values.number, values.number, values.scalar, values.any_value)
    return {operator: _no_regex(draw, value) for operator in draw.some(("$gt", "$gte", "$lt", "$lte"), 2)}


def in_list(draw):
    return {draw.pick("$in", "$in", "$nin"): [values.any_value(draw) for _ in range(draw.randint(0, 4))]}


def unequal(draw):
    return {"$ne": _no_regex(draw, values.any_value)}


def exists(draw):
    return {"$exists": draw.chance(0.5)}


def of_type(draw):
    return {"$type": draw.pick(draw.pick(*TYPES), draw.some(TYPES))}


def with_element(draw):
    return {"$elemMatch": draw.pick(
        {"$gte": draw.randint(0, 4), "$lt": 5}, {"x": values.number(draw)}, {"x": {"$gt": 1}, "y": {"$exists": True}},
        {"$in": [1, "x"]}, {"$or": [{"x": 1}, {"y": 2}]})}


def with_all(draw):
    return {"$all": [values.number(draw) for _ in range(draw.randint(1, 2))]}


def of_size(draw):
    return {"$size": draw.randint(0, 3)}


def with_remainder(draw):
    return {"$mod": [draw.pick(1, 2, 3), draw.randint(0, 2)]}


def with_bits(draw):
    return {draw.pick("$bitsAllSet", "$bitsAnySet", "$bitsAllClear", "$bitsAnyClear"): draw.pick(1, 5, [0, 2])}


def negated(draw):
    return {"$not": draw.pick(in_range, in_list, exists, of_size, with_element)(draw)}


def like(draw):
    return {"$regex": draw.pick("^x", "y$", "^X", "x|y", "^(x|y)+$", ".", "\\d"), **draw.maybe(0.3, **{"$options": "i"})}


COMPARISONS = {
    equal: 8, in_range: 6, in_list: 3, unequal: 1, exists: 1, of_type: 1, with_element: 2, with_all: 1, of_size: 1,
    with_remainder: 1, with_bits: 1, negated: 1, like: 1}


def comparison(draw):
    """What one field is asked for."""
    return draw.one_of(COMPARISONS)(draw)


def filter_of(draw, depth=2):
    """A filter, empty now and then."""
    if draw.chance(0.05):
        return {}
    made = {path: comparison(draw) for path in draw.some(values.PATHS, 2)}
    if depth and draw.chance(0.2):
        made[draw.pick("$or", "$and", "$nor")] = [filter_of(draw, depth - 1) for _ in range(draw.randint(1, 3))]
    if draw.chance(0.06):
        made["$expr"] = {draw.pick("$eq", "$lt", "$gte"): [draw.pick("$a", "$b", "$n.x"), draw.pick(1, "x", "$k")]}
    if draw.chance(0.03):
        made["$jsonSchema"] = schema(draw)
    return made


def by_key(draw):
    """A filter of nothing but equalities, as those of an upsert often are: on `_id`, or on the fields of a unique key."""
    return draw.pick(
        lambda: {"_id": values.safe_id(draw)},
        lambda: {"k": values.number(draw)},
        lambda: {"k": values.number(draw), "b": values.number(draw)},
        lambda: {"_id": draw.randint(0, 12), "a": values.number(draw)},
        lambda: {"k": values.number(draw), "t": {"$lt": values.time(draw)}},
        lambda: {"k": values.number(draw), "n.x": {"$gt": values.number(draw)}},
    )()


def schema(draw):
    """A JSON schema that some documents meet."""
    return draw.pick(
        {"required": ["a"]}, {"properties": {"a": {"bsonType": ["int", "double", "string", "array"]}}},
        {"properties": {"k": {"minimum": 0, "maximum": 5}}}, {"properties": {"arr": {"bsonType": "array", "maxItems": 4}}})


def _no_regex(draw, value):
    """Regular expressions can be compared with by equality alone."""
    while True:
        made = value(draw)
        if not isinstance(made, Regex):
            return made
