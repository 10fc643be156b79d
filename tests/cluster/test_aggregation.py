"""Pipelines, through a driver: every stage that applications send does its work, on stored documents."""

import pytest
from pymongo.errors import OperationFailure


@pytest.fixture
def sales(db):
    db.sales.insert_many([
        {"_id": n, "item": "abc"[n % 3], "price": n + 1, "quantity": n % 4, "tags": ["x", "y"][: n % 3]} for n in range(12)])
    db.items.insert_many([{"_id": "a", "name": "apple"}, {"_id": "b", "name": "beet"}])
    return db.sales


def test_grouping_and_sorting(sales):
    assert list(sales.aggregate([
        {"$match": {"quantity": {"$gt": 0}}},
        {"$group": {"_id": "$item", "revenue": {"$sum": {"$multiply": ["$price", "$quantity"]}}, "n": {"$sum": 1},
                    "prices": {"$push": "$price"}, "top": {"$max": "$price"}}},
        {"$sort": {"_id": 1}}])) == [
            {"_id": "a", "revenue": 36, "n": 3, "prices": [4, 7, 10], "top": 10},
            {"_id": "b", "revenue": 48, "n": 3, "prices": [2, 8, 11], "top": 11},
            {"_id": "c", "revenue": 48, "n": 3, "prices": [3, 6, 12], "top": 12}]


def test_reshaping(sales):
    assert list(sales.aggregate([
        {"$sort": {"_id": 1}}, {"$skip": 4}, {"$limit": 2},
        {"$addFields": {"dear": {"$gte": ["$price", 6]}}},
        {"$project": {"_id": 0, "label": {"$concat": ["$item", "-", {"$toString": "$price"}]}, "dear": 1}}])) == [
            {"dear": False, "label": "b-5"}, {"dear": True, "label": "c-6"}]
    assert list(sales.aggregate([{"$unwind": "$tags"}, {"$sortByCount": "$tags"}])) == [
        {"_id": "x", "count": 8}, {"_id": "y", "count": 4}]
    assert list(sales.aggregate([
        {"$match": {"_id": 0}}, {"$replaceRoot": {"newRoot": {"$mergeObjects": [{"z": 1}, "$$ROOT"]}}}, {"$unset": "tags"}])) == [
            {"z": 1, "_id": 0, "item": "a", "price": 1, "quantity": 0}]


def test_joining(sales):
    joined = list(sales.aggregate([
        {"$match": {"_id": {"$lt": 3}}}, {"$sort": {"_id": 1}},
        {"$lookup": {"from": "items", "localField": "item", "foreignField": "_id", "as": "item"}},
        {"$project": {"names": "$item.name"}}]))
    assert joined == [{"_id": 0, "names": ["apple"]}, {"_id": 1, "names": ["beet"]}, {"_id": 2, "names": []}]
    correlated = list(sales.aggregate([
        {"$match": {"_id": 0}},
        {"$lookup": {"from": "items", "let": {"i": "$item"},
                     "pipeline": [{"$match": {"$expr": {"$ne": ["$_id", "$$i"]}}}], "as": "others"}},
        {"$project": {"others": 1}}]))
    assert correlated == [{"_id": 0, "others": [{"_id": "b", "name": "beet"}]}]
    assert list(sales.aggregate([
        {"$match": {"_id": 11}}, {"$project": {"_id": 1}}, {"$unionWith": {"coll": "items", "pipeline": [{"$project": {"_id": 1}}]}}])) == [
            {"_id": 11}, {"_id": "a"}, {"_id": "b"}]


def test_several_answers_at_once(sales):
    answer = next(sales.aggregate([{"$facet": {
        "count": [{"$count": "n"}],
        "buckets": [{"$bucket": {"groupBy": "$price", "boundaries": [0, 5, 100], "output": {"n": {"$sum": 1}}}}],
        "automatic": [{"$bucketAuto": {"groupBy": "$price", "buckets": 2}}]}}]))
    assert answer == {
        "count": [{"n": 12}], "buckets": [{"_id": 0, "n": 4}, {"_id": 5, "n": 8}],
        "automatic": [{"_id": {"min": 1, "max": 7}, "count": 6}, {"_id": {"min": 7, "max": 12}, "count": 6}]}
    assert len(list(sales.aggregate([{"$sample": {"size": 5}}]))) == 5


def test_writing_the_result(db, sales):
    sales.aggregate([{"$group": {"_id": "$item", "n": {"$sum": 1}}}, {"$out": "totals"}])
    assert list(db.totals.find().sort("_id", 1)) == [{"_id": "a", "n": 4}, {"_id": "b", "n": 4}, {"_id": "c", "n": 4}]
    sales.aggregate([
        {"$match": {"item": {"$ne": "c"}}}, {"$group": {"_id": "$item", "n": {"$sum": 10}}},
        {"$merge": {"into": "totals", "whenMatched": "merge", "whenNotMatched": "insert"}}])
    assert list(db.totals.find().sort("_id", 1)) == [{"_id": "a", "n": 40}, {"_id": "b", "n": 40}, {"_id": "c", "n": 4}]


def test_pipelines_without_a_collection(client):
    assert list(client.admin.aggregate([{"$documents": [{"a": 1}, {"a": 2}]}, {"$match": {"a": 2}}])) == [{"a": 2}]


def test_a_view_is_a_pipeline_by_name(db, sales):
    db.create_collection("dear", viewOn="sales", pipeline=[{"$match": {"price": {"$gt": 10}}}, {"$project": {"price": 1}}])
    assert list(db.dear.find().sort("price", -1)) == [{"_id": 11, "price": 12}, {"_id": 10, "price": 11}]
    assert db.dear.count_documents({"price": 11}) == 1
    with pytest.raises(OperationFailure) as refused:
        db.dear.insert_one({})
    assert refused.value.code == 166


def test_what_is_not_there_yet_says_so(sales):
    for stage in ({"$changeStream": {}}, {"$graphLookup": {
            "from": "items", "startWith": "$item", "connectFromField": "item", "connectToField": "_id", "as": "x"}}):
        with pytest.raises(OperationFailure) as refused:
            list(sales.aggregate([stage]))
        assert refused.value.code in (238, 40573)


@pytest.mark.parametrize("stage", [{"$indexStats": {}}, {"$collStats": {"count": {}}}])
def test_a_stage_that_must_be_first_is_refused_behind_those_of_a_view(db, stage):
    """An internal error (1) once, found by the fuzzer of commands."""
    db.things.insert_one({"_id": 1})
    db.create_collection("some", viewOn="things", pipeline=[{"$match": {"_id": 1}}])
    with pytest.raises(OperationFailure, match="is only valid as the first stage in a pipeline") as refused:
        list(db.some.aggregate([stage]))
    assert refused.value.code == 40602
