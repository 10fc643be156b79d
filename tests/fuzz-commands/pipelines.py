"""Pipelines of aggregation. What they compute holds for any document, or fails with the codes that the judge knows."""

import filters
import values

GROUP_KEYS = ("$a", "$b", "$n.x", None, {"x": "$a", "y": "$b"}, {"$type": "$a"})


def matching(draw):
    return {"$match": filters.filter_of(draw)}


def sorting(draw):
    return {"$sort": {path: draw.pick(1, -1) for path in draw.some(values.PATHS)}}


def limiting(draw):
    return {draw.pick("$limit", "$skip"): draw.randint(1, 8)}


def projecting(draw):
    return draw.pick(
        {"$project": {"a": 1, "n.x": 1, "size": {"$size": {"$ifNull": [{"$cond": [{"$isArray": "$arr"}, "$arr", []]}, []]}}}},
        {"$project": {"arr": 0, "n.y": 0}},
        {"$addFields": {"c": {"$concat": [{"$toString": {"$cond": [{"$isNumber": "$a"}, "$a", 1]}}, "-"]}}},
        {"$set": {"c": {"$cond": {"if": {"$gt": ["$a", "$b"]}, "then": "$a", "else": {"$literal": values.scalar(draw)}}}}},
        {"$set": {"c": {"$switch": {"branches": [{"case": {"$lt": ["$k", 2]}, "then": "low"}], "default": "high"}}}},
        {"$set": {"c": {"$reduce": {"input": {"$cond": [{"$isArray": "$arr"}, "$arr", []]}, "initialValue": 0,
                                    "in": {"$add": ["$$value", 1]}}}}},
        {"$set": {"c": {"$filter": {"input": {"$cond": [{"$isArray": "$arr"}, "$arr", []]}, "cond": {"$gt": ["$$this", 1]}}}}},
        {"$unset": draw.pick("a", ["n.x", "t"])},
        {"$replaceRoot": {"newRoot": {"_id": "$_id", "was": "$$ROOT"}}})


def grouping(draw):
    accumulators = {
        "n": {"$sum": 1}, "sum": {"$sum": "$k"}, "mean": {"$avg": "$k"}, "all": {"$push": "$k"}, "set": {"$addToSet": "$b"},
        "first": {"$first": "$a"}, "low": {"$min": "$b"}, "top": {"$topN": {"n": 2, "sortBy": {"k": 1}, "output": "$k"}},
        "high": {"$maxN": {"n": 2, "input": "$k"}}, "count": {"$count": {}}}
    return draw.pick(
        {"$group": {"_id": draw.pick(*GROUP_KEYS), **{name: accumulators[name] for name in draw.some(tuple(accumulators))}}},
        {"$sortByCount": "$a"}, {"$count": "n"},
        {"$bucket": {"groupBy": "$k", "boundaries": [0, 2, 4], "default": "other"}},
        {"$bucketAuto": {"groupBy": "$a", "buckets": 2}})


def unwinding(draw):
    return {"$unwind": draw.pick("$arr", {"path": "$arr", "preserveNullAndEmptyArrays": True, "includeArrayIndex": "at"})}


def joining(draw):
    other = draw.pick(*values.NAMES)
    return draw.pick(
        {"$lookup": {"from": other, "localField": draw.pick("a", "k", "_id"), "foreignField": draw.pick("_id", "k", "b"),
                     "as": "joined"}},
        {"$lookup": {"from": other, "let": {"k": "$k"}, "as": "joined",
                     "pipeline": [{"$match": {"$expr": {"$eq": ["$k", "$$k"]}}}, {"$limit": 2}]}},
        {"$unionWith": draw.pick(other, {"coll": other, "pipeline": [matching(draw)]})})


def several(draw):
    return {"$facet": {"one": [matching(draw), limiting(draw)], "two": [grouping(draw)]}}


def sampling(draw):
    return {"$sample": {"size": draw.randint(1, 5)}}


STAGES = {matching: 6, sorting: 3, limiting: 3, projecting: 4, grouping: 3, unwinding: 2, joining: 2, several: 1, sampling: 1}


def pipeline(draw, at_most=4):
    """Stages that read."""
    return [draw.one_of(STAGES)(draw) for _ in range(draw.randint(0, at_most))]


def of_view(draw):
    """What a view can be made of; short, for views are made of views."""
    return [draw.pick(matching, projecting, sorting)(draw) for _ in range(draw.randint(0, 2))]


def writing(draw):
    """A pipeline that ends with `$out` or `$merge`."""
    stages = [draw.pick(matching, limiting, projecting, sorting)(draw) for _ in range(draw.randint(0, 2))]
    target, database = draw.pick(*values.NAMES), draw.pick(*values.DATABASES)
    into = draw.pick(target, {"db": database, "coll": target})
    if draw.chance(0.4):
        return stages + [{"$out": into}]
    on = draw.maybe(0.2, on=draw.pick("_id", ["_id"], "k"))
    matched = draw.pick("merge", "replace", "keepExisting", "fail", [{"$set": {"b": "$$new.b"}}])
    # Some pairs make no sense, and MongoDB refuses them.
    unmatched = "insert" if matched in ("keepExisting", "fail") else draw.pick("insert", "discard", "fail")
    return stages + [{"$merge": {"into": into, **on, "whenMatched": matched, "whenNotMatched": unmatched}}]
