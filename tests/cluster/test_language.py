"""The query language, through a driver: references, regular expressions, validators, names, and the messages of errors."""

import time

import bson
import pytest
from bson.dbref import DBRef
from bson.son import SON
from pymongo import ReturnDocument
from pymongo.errors import OperationFailure, WriteError


def refused(code, run):
    with pytest.raises(OperationFailure) as failure:
        run()
    assert failure.value.code == code, failure.value
    return failure.value.details["errmsg"] if "errmsg" in (failure.value.details or {}) else str(failure.value)


@pytest.fixture
def links(db):
    """Documents with a reference each, and with several."""
    db.people.insert_many([{"_id": n, "name": name} for n, name in enumerate(["Ann", "Bob", "Cid"])])
    db.links.insert_many([
        {"_id": n, "l": DBRef("people", 2 - n, f"d{n}"), "many": [DBRef("people", n), DBRef("people", 9)]} for n in range(3)])
    return db.links


def test_the_fields_of_a_reference_are_paths_wherever_paths_are(db, links):
    assert [d["_id"] for d in links.find({"l.$id": 2})] == [0]
    assert [d["_id"] for d in links.find({"l.$ref": "people", "l.$db": "d1"})] == [1]
    assert [d["_id"] for d in links.find({"many.$id": 9}).sort("l.$id", 1)] == [2, 1, 0]
    assert [d["_id"] for d in links.find({"l": DBRef("people", 1, "d1")})] == [1]
    assert [d["_id"] for d in links.find({"l.$id": {"$in": [0, 1]}}, sort=[("l.$db", -1)])] == [2, 1]
    raw = bson.codec_options.CodecOptions(document_class=SON)
    first = db.get_collection("links", codec_options=raw).find_one({"_id": 0}, {"l.$id": 1, "_id": 0})
    assert first["l"].to_dict() == {"$id": 2} if hasattr(first["l"], "to_dict") else first == {"l": {"$id": 2}}
    assert sorted(links.distinct("l.$id")) == [0, 1, 2] and links.distinct("many.$ref") == ["people"]
    links.create_index([("l.$id", 1)])
    explained = links.find({"l.$id": 2}).explain()["queryPlanner"]["winningPlan"]
    assert explained["inputStage"]["keyPattern"] == {"l.$id": 1}
    assert [d["_id"] for d in links.find({"l.$id": 2}).hint([("l.$id", 1)])] == [0]
    assert db.people.find_one({"_id": links.find_one({"_id": 1})["l"].id})["name"] == "Bob"


def test_the_fields_of_a_reference_are_paths_in_pipelines(links):
    def run(*stages):
        return list(links.aggregate([*stages]))

    assert run({"$match": {"l.$id": 2}}, {"$project": {"i": "$l.$id", "c": "$l.$ref", "d": "$l.$db"}}) == [
        {"_id": 0, "i": 2, "c": "people", "d": "d0"}]
    assert run({"$lookup": {"from": "people", "localField": "l.$id", "foreignField": "_id", "as": "who"}},
               {"$sort": {"l.$id": 1}}, {"$project": {"name": {"$first": "$who.name"}}}) == [
        {"_id": 2, "name": "Ann"}, {"_id": 1, "name": "Bob"}, {"_id": 0, "name": "Cid"}]
    assert run({"$match": {"_id": 0}}, {"$lookup": {
        "from": "links", "localField": "_id", "foreignField": "many.$id", "as": "back"}}, {"$project": {"back._id": 1}}) == [
        {"_id": 0, "back": [{"_id": 0}]}]
    assert run({"$group": {"_id": "$l.$ref", "ids": {"$push": "$l.$id"}}}) == [{"_id": "people", "ids": [2, 1, 0]}]
    assert run({"$unwind": "$many"}, {"$sortByCount": "$many.$id"}, {"$limit": 1}) == [{"_id": 9, "count": 3}]
    assert run({"$match": {"$expr": {"$eq": ["$l.$id", "$_id"]}}}, {"$unset": ["l.$db", "many"]},
               {"$addFields": {"l.$id": 7}}, {"$replaceWith": {"l": "$l.$id"}}) == [{"l": 7}]
    for path in ("$l.$name", "$l.$idx"):
        message = refused(16410, lambda path=path: run({"$project": {"x": path}}))
        assert "FieldPath field names may not start with '$'. Consider using $getField or $setField." in message


def test_a_reference_is_updated_by_its_fields(links):
    links.update_one({"_id": 0}, {"$set": {"l.$id": 5}, "$unset": {"l.$db": 1}})
    assert links.find_one({"_id": 0})["l"] == DBRef("people", 5)
    links.update_one({"_id": 1, "many.$id": 9}, {"$set": {"many.$.$id": 8}})
    assert [d.id for d in links.find_one({"_id": 1})["many"]] == [1, 8]
    links.update_one({"_id": 2}, {"$set": {"many.$[m].$id": 7}}, array_filters=[{"m.$id": 9}])
    assert [d.id for d in links.find_one({"_id": 2})["many"]] == [2, 7]
    links.update_one({"_id": 0}, [{"$set": {"l.$id": {"$add": ["$l.$id", 1]}}}])
    assert links.find_one({"_id": 0})["l"].id == 6


def test_regular_expressions_are_pcres(db):
    db.c.insert_many([{"_id": text} for text in ("(a(b))", "(a", "abcabc", "x1", "X1", "a\nb")])

    def found(pattern, options=""):
        return [d["_id"] for d in db.c.find({"_id": {"$regex": pattern, "$options": options}}).sort("_id", 1)]

    assert found(r"^(\((?:[^()]|(?1))*\))$") == ["(a(b))"]
    assert found(r"^(?<p>abc)\k<p>$") == ["abcabc"] == found("^(?>abc)++$")
    assert found("a(*COMMIT)(*FAIL)|.1$") == ["X1", "x1"]
    assert found("X1", "i") == ["X1", "x1"] == found("(?i)x1") == found("x 1 # comment", "xi")
    assert found("^b$", "m") == ["a\nb"] == found("^a.b", "s")
    for pattern, cause in (("(", "missing closing parenthesis"), (r"[\w-.]", "invalid range in character class"),
                           ("*", "quantifier does not follow a repeatable item"),
                           ("c" * 32765, "pattern string is longer than the limit set by the application")):
        assert f"Regular expression is invalid: {cause}" in refused(51091, lambda pattern=pattern: found(pattern))
        message = refused(51111, lambda pattern=pattern: list(db.c.aggregate(
            [{"$project": {"m": {"$regexMatch": {"input": "$_id", "regex": pattern}}}}])))
        assert f"Failed to optimize pipeline :: caused by :: Invalid Regex in $regexMatch: {cause}" in message


def test_an_index_serves_what_a_pattern_begins_with_and_finds_the_same(db):
    texts = ["", "a", "ab", "abc", "a.b", "aXb", "b", "|", "a|b", "A", "ab\n", "(ab"]
    db.c.insert_many([{"t": text} for text in texts])
    db.c.create_index("t")
    for pattern in ("^a", "^ab*", r"^ab\E*", r"^a\Q.b\E", r"^a\Q.\E*b", "^a|b", "^ab(?#x)?", r"^\Qa|\E", "^ab?c", "(?i)^a", r"\Aab$"):
        def found(hint, pattern=pattern):
            return sorted(d["t"] for d in db.c.find({"t": {"$regex": pattern}}).hint(hint))
        assert found([("t", 1)]) == found([("$natural", 1)]), pattern
    assert db.c.find({"t": {"$regex": r"^a\Q.b\E"}}).explain()["queryPlanner"]["winningPlan"]["inputStage"]["indexBounds"] == {
        "t": ['["a.b", "a.c")', "[/^a\\Q.b\\E/, /^a\\Q.b\\E/]"]}


def test_a_search_that_goes_back_without_end_is_given_up_soon(db):
    db.c.insert_one({"text": "a" * 40 + "!"})
    started = time.monotonic()
    message = refused(51156, lambda: list(db.c.find({"text": {"$regex": "^(a+)+$"}})))
    assert "match limit exceeded" in message
    message = refused(51156, lambda: list(db.c.aggregate(
        [{"$project": {"m": {"$regexMatch": {"input": "$text", "regex": "^(a+)+$"}}}}])))
    assert message.endswith("Error occurred while executing the regular expression in $regexMatch. "
                            "Result code: match limit exceeded")
    assert time.monotonic() - started < 20


def told(run):
    with pytest.raises(WriteError) as failure:
        run()
    assert failure.value.code == 121
    assert failure.value.details["errmsg"].endswith("Document failed validation")
    return failure.value.details["errInfo"]


def test_a_document_that_fails_validation_is_told_which_rules_and_which_values(db):
    schema = {"bsonType": "object", "required": ["name", "year"], "properties": {
        "name": {"bsonType": "string", "description": "must be a string"},
        "year": {"bsonType": "int", "minimum": 2017, "description": "since 2017"},
        "price": {"multipleOf": 0.01},
        "tags": {"bsonType": "array", "items": {"enum": ["x", "y"]}, "uniqueItems": True}}}
    c = db.create_collection("c", validator={"$jsonSchema": schema})
    c.insert_one({"_id": 0, "name": "n", "year": 2020, "price": 0.35, "tags": ["x", "y"]})
    expected = {"failingDocumentId": 1, "details": {"operatorName": "$jsonSchema", "schemaRulesNotSatisfied": [
        {"operatorName": "properties", "propertiesNotSatisfied": [
            {"propertyName": "year", "description": "since 2017", "details": [
                {"operatorName": "minimum", "specifiedAs": {"minimum": 2017}, "reason": "comparison failed",
                 "consideredValue": 1999}]},
            {"propertyName": "price", "details": [
                {"operatorName": "multipleOf", "specifiedAs": {"multipleOf": 0.01},
                 "reason": "considered value is not a multiple of the specified value", "consideredValue": 0.355}]},
            {"propertyName": "tags", "details": [
                {"operatorName": "items", "reason": "At least one item did not match the sub-schema", "itemIndex": 1,
                 "details": [{"operatorName": "enum", "specifiedAs": {"enum": ["x", "y"]},
                              "reason": "value was not found in enum", "consideredValue": "z"}]}]}]},
        {"operatorName": "required", "specifiedAs": {"required": ["name", "year"]}, "missingProperties": ["name"]}]}}
    bad = {"_id": 1, "year": 1999, "price": 0.355, "tags": ["x", "z"]}
    assert told(lambda: c.insert_one(bad)) == expected
    assert told(lambda: c.replace_one({"_id": 0}, {k: v for k, v in bad.items() if k != "_id"}))["details"] == expected["details"]
    assert told(lambda: c.update_one({"_id": 0}, {"$set": {"year": 1}}))["failingDocumentId"] == 0
    with pytest.raises(OperationFailure) as failure:
        c.find_one_and_update({"_id": 0}, {"$unset": {"name": 1}}, return_document=ReturnDocument.AFTER)
    assert failure.value.details["errInfo"]["details"]["schemaRulesNotSatisfied"][0]["missingProperties"] == ["name"]
    assert c.count_documents({}) == 1


def test_a_validator_of_operators_tells_its_clauses(db):
    c = db.create_collection("c", validator={"$or": [
        {"phone": {"$type": "string"}}, {"email": {"$regex": r"@mongodb\.com$"}}, {"$expr": {"$gt": ["$a", {"$divide": [1, "$b"]}]}}]})
    assert told(lambda: c.insert_one({"_id": 1, "email": "info@x.co", "a": 1, "b": 0}))["details"] == {
        "operatorName": "$or", "clausesNotSatisfied": [
            {"index": 0, "details": {"operatorName": "$type", "specifiedAs": {"phone": {"$type": "string"}}, "reason": "field was missing"}},
            {"index": 1, "details": {"operatorName": "$regex", "specifiedAs": {"email": {"$regex": r"@mongodb\.com$"}},
                                     "reason": "regular expression did not match", "consideredValue": "info@x.co"}},
            {"index": 2, "details": {"operatorName": "$expr", "specifiedAs": {"$expr": {"$gt": ["$a", {"$divide": [1, "$b"]}]}},
                                     "reason": "failed to evaluate aggregation expression",
                                     "details": {"code": 2, "codeName": "BadValue", "errmsg": "can't $divide by zero"}}}]}


def test_lengths_in_a_schema_that_are_no_numbers_fail_to_parse(db):
    for keyword in ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"):
        for wrong in ("x", -1, 1.5):
            refused(9, lambda keyword=keyword, wrong=wrong: list(db.c.find({"$jsonSchema": {"properties": {"a": {keyword: wrong}}}})))


def test_names_with_a_dollar_are_stored_where_mongodb_stores_them(db):
    c = db.c
    c.insert_one({"_id": 0, "$a": 1, "b": {"$c": 1, "d.e": 2}})
    for update in ({"$set": {"$a": 2}}, {"$set": {"$x": 1}}, {"$inc": {"$x.y": 1}}):
        assert "The dollar ($) prefixed field" in refused(52, lambda update=update: c.update_one({"_id": 0}, update))
    c.update_one({"_id": 0}, {"$set": {"b.$c": 2, "n": {"$m": 1}}, "$unset": {"$a": 1}})
    assert c.find_one({"_id": 0}) == {"_id": 0, "b": {"$c": 2, "d.e": 2}, "n": {"$m": 1}}
    c.update_one({"_id": 1}, {"$set": {"$x": 1}, "$setOnInsert": {"$y": 2}}, upsert=True)
    assert c.find_one({"_id": 1}) == {"_id": 1, "$x": 1, "$y": 2}
    c.update_one({"_id": 1}, {"$setOnInsert": {"$y": 3}}, upsert=True)
    assert c.find_one({"_id": 1})["$y"] == 2
    reply = db.command("update", "c", updates=[{"q": {"_id": 2}, "u": {"a": 1, "$x": 1}, "upsert": True}])
    assert reply["ok"] == 1 and "writeErrors" not in reply
    assert c.find_one({"_id": 2}) == {"_id": 2, "a": 1, "$x": 1}
    reply = db.command("update", "c", updates=[{"q": {"_id": 0}, "u": {"a": 1, "$x": 1}}])
    assert reply["writeErrors"][0]["code"] == 52
    assert "_id fields may not contain '$'-prefixed fields" in refused(52, lambda: c.insert_one({"_id": {"a": {"$b": 1}}}))


def test_an_equal_replacement_is_a_change_unless_it_is_the_document_itself(db):
    db.c.insert_one({"_id": 1, "a": 1})
    assert db.c.replace_one({"_id": 1}, {"a": 1}).modified_count == 1
    assert db.c.replace_one({"_id": 1}, {"_id": 1, "a": 1}).modified_count == 0
    assert db.c.update_one({"_id": 1}, {"$set": {"a": 1}}).modified_count == 0
    assert db.c.update_one({"_id": 1}, [{"$set": {"a": 1}}]).modified_count == 0
    assert db.c.find_one() == {"_id": 1, "a": 1}


def test_empty_components_of_paths_are_names_in_filters_and_refused_elsewhere(db):
    db.c.insert_many([
        {"_id": 0, "a": {"": 1}}, {"_id": 1, "a": {"b": 1}}, {"_id": 2, "": {"": {"x": 1}}}, {"_id": 3, "a": [{"": 2}]},
        {"_id": 4, "a": ["X", "Y"]}, {"_id": 5, "a": []}, {"_id": 6, "a": [[1], [2, 3]]}, {"_id": 7, "a": None}])

    def found(filter):
        return [d["_id"] for d in db.c.find(filter).sort("_id", 1)]

    # A dot at the end of a path that leads to an array names the array itself.
    assert found({"a.": {"$exists": True}}) == [0, 3, 4, 5, 6] and found({"a.": 1}) == [0] and found({"a.": "Y"}) == [4]
    assert found({"a.": {"$exists": False}}) == [1, 2, 7] and found({"a.1.": {"$exists": True}}) == [6]
    assert found({"": {"$exists": True}}) == [2] == found({"..x": 1})
    assert found({".a": {"$exists": True}}) == found({"a..": {"$exists": True}}) == found({"a.b.": {"$exists": True}}) == []
    assert db.c.count_documents({"a.": {"": 2}}) == 1 and db.c.delete_many({"a.": {"": 2}}).deleted_count == 1
    assert [d["_id"] for d in db.c.aggregate([{"$match": {"a.": 1}}, {"$match": {"a.": {"$gt": 0}}}])] == [0]
    assert [d["_id"] for d in db.c.aggregate([
        {"$sort": {"_id": 1}}, {"$addFields": {"z": 1}}, {"$match": {"a.": {"$exists": True}}}])] == [0, 4, 5, 6]
    refused(40353, lambda: list(db.c.find({}, {"a.": 1})))
    refused(40353, lambda: list(db.c.find({}).sort("a.", 1)))
    refused(15998, lambda: list(db.c.aggregate([{"$project": {"x": "$a..b"}}])))
    refused(56, lambda: db.c.update_one({}, {"$set": {"a.": 1}}))
    refused(67, lambda: db.c.create_index("a."))


def test_errors_of_pipelines_say_when_they_happened(db):
    def run(*stages):
        return list(db.c.aggregate([*stages]))

    constant = {"$project": {"x": {"$divide": [1, 0]}}}
    assert refused(2, lambda: run(constant)) == "Failed to optimize pipeline :: caused by :: can't $divide by zero"
    untaken = {"$match": {"$expr": {"$cond": [True, 1, {"$toInt": "x"}]}}}
    assert refused(241, lambda: run(untaken)).startswith("Failed to optimize pipeline :: caused by :: Failed to parse number")
    db.c.insert_one({"a": 0, "s": "x"})
    assert refused(2, lambda: run({"$project": {"x": {"$divide": [1, "$a"]}}})) == (
        "PlanExecutor error during aggregation :: caused by :: can't $divide by zero")
    assert refused(2, lambda: run({"$project": {"x": {"$divide": [1, "$a"]}}}, {"$out": "o"})) == (
        "PlanExecutor error during aggregation :: caused by :: can't $divide by zero")
    assert refused(2, lambda: list(db.c.find({}, {"x": {"$divide": [1, "$a"]}}))) == (
        f"Executor error during find command: {db.name}.c :: caused by :: can't $divide by zero")
    assert refused(2, lambda: list(db.c.find({"$expr": {"$divide": [1, 0]}}))) == "can't $divide by zero"
    assert refused(40324, lambda: run({"$frob": 1})) == "Unrecognized pipeline stage name: '$frob'"
