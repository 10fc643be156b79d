"""Updates: operators, positions in arrays, replacements and pipelines.

An update never names two paths of which one holds the other (40): each draws one operator for each field.
"""

import values

# One path of each field: what an update changes is drawn from these, so that its parts cannot conflict.
FIELDS = {"a": ("a",), "b": ("b",), "k": ("k",), "arr": ("arr", "arr.0", "arr.1.x"), "n": ("n", "n.x", "n.y.z"), "t": ("t",)}


def _value(draw, field):
    return {"k": values.number, "arr": values.array, "n": values.part, "t": values.time}.get(field, values.any_value)(draw)


def set_field(draw, field):
    return draw.pick("$set", "$set", "$set", "$setOnInsert"), draw.pick(*FIELDS[field]), _value(draw, field)


def unset_field(draw, field):
    return "$unset", draw.pick(*FIELDS[field]), ""


def reckon(draw, field):
    operator = draw.pick("$inc", "$inc", "$mul", "$min", "$max")
    return operator, draw.pick(*FIELDS[field]), values.number(draw)


def stamp(draw, field):
    return "$currentDate", field, draw.pick(True, {"$type": "timestamp"}, {"$type": "date"})


def flip_bits(draw, field):
    return "$bit", field, {draw.pick("and", "or", "xor"): draw.randint(0, 7)}


def change_array(draw, _):
    """Adds to the array, or takes from it."""
    item = draw.pick(values.number, values.part)
    return draw.pick(
        lambda: ("$push", "arr", item(draw)),
        lambda: ("$push", "arr", {
            "$each": [item(draw) for _ in range(draw.randint(0, 3))], **draw.maybe(0.5, **{"$slice": draw.randint(-4, 6)}),
            **draw.maybe(0.3, **{"$sort": draw.pick(1, -1)}), **draw.maybe(0.3, **{"$position": draw.randint(-2, 3)})}),
        lambda: ("$addToSet", "arr", draw.pick(item(draw), {"$each": [item(draw), item(draw)]})),
        lambda: ("$pop", "arr", draw.pick(1, -1)),
        lambda: ("$pull", "arr", draw.pick(values.number(draw), {"$gte": 2}, {"x": values.number(draw)}, {"$in": [1, 2]})),
        lambda: ("$pullAll", "arr", [values.number(draw), 1]),
    )()


def change_elements(draw, _):
    """Changes elements by their position: all, those that a filter of the array names, or the one that the query found."""
    path = draw.pick("arr.$[]", "arr.$[e]", "arr.$[d].x", "arr.$[d].y", "arr.$")
    return draw.pick(("$set", path, values.scalar(draw)), ("$set", path, values.number(draw)), ("$inc", path, 1), ("$unset", path, ""))


CHANGES = {set_field: 10, unset_field: 2, reckon: 5, stamp: 1, flip_bits: 1}
ARRAY_CHANGES = {set_field: 2, unset_field: 1, change_array: 8, change_elements: 5}


def operators(draw):
    """An update by operators, and the filters of arrays that it needs."""
    update = {}
    for field in draw.some(tuple(FIELDS)):
        operator, path, value = draw.one_of(ARRAY_CHANGES if field == "arr" else CHANGES)(draw, field)
        update.setdefault(operator, {})[path] = value
    if draw.chance(0.03):
        fields = {path.split(".")[0] for paths in update.values() for path in paths}
        if not fields & {"a", "b"}:
            update["$rename"] = {"a": "b"}
    paths = [path for changes in update.values() for path in changes]
    filters = [{"e": draw.pick({"$gt": 1}, {"$type": "number"}, values.number(draw))}] * any("$[e]" in path for path in paths)
    filters += [{"d.x": draw.pick({"$exists": True}, {"$gte": 1}, values.number(draw))}] * any("$[d]" in path for path in paths)
    return update, filters


def replacement(draw):
    """A whole document, without an `_id`, or the `_id` could not stay."""
    made = values.document(draw)
    made.pop("_id", None)
    return made


def pipeline(draw):
    """An update by a pipeline, over the fields that are there."""
    return [draw.pick(
        lambda: {"$set": {draw.pick("a", "b", "n.x"): draw.pick(
            {"$ifNull": ["$k", 0]}, {"$concatArrays": [{"$cond": [{"$isArray": "$arr"}, {"$slice": ["$arr", 3]}, []]}, [1]]},
            {"$cond": [{"$gt": ["$k", 2]}, "$b", {"$literal": values.scalar(draw)}]}, "$$NOW", {"$type": "$a"}, "$n")}},
        lambda: {"$unset": draw.pick("a", "n.x", ["b", "t"])},
        lambda: {"$replaceWith": {"$mergeObjects": ["$$ROOT", {"b": values.number(draw)}]}},
        lambda: {"$project": {"t": 0, "n.y": 0}},
        lambda: {"$addFields": {"arr": {"$map": {
            "input": {"$cond": [{"$isArray": "$arr"}, "$arr", []]}, "in": {"$ifNull": ["$$this.x", "$$this"]}}}}},
    )() for _ in range(draw.randint(1, 3))]


def statement(draw, query):
    """`u` of an update statement or `update` of findAndModify, `arrayFilters` if needed, and whether `multi` is allowed."""
    kind = draw.one_of({operators: 8, replacement: 1, pipeline: 2})
    made = kind(draw)
    if kind is not operators:
        return made, [], kind is pipeline
    update, filters = made
    if any(path.endswith(".$") for changes in update.values() for path in changes):
        # A position that the query must have found.
        query["arr"] = draw.pick({"$gte": 1}, 2, {"$elemMatch": {"x": 1}}, {"$exists": True})
    return update, filters, True
