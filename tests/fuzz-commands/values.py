"""Names, values, documents and filters. There are few of each, so that clients meet: on a collection, on a key, in an index.

Every document has the same fields, of any type: `a`, `b` and `k` (a unique key, often), `arr` (numbers or documents), `n` (a
document with `x` and `y`), `t` (a time, for TTL indexes).
"""

import datetime

import bson
from bson import Decimal128, Int64, MaxKey, MinKey, Regex, Timestamp

DATABASES = ("fuzz", "other")
# Collections, capped ones, views: what a name is changes all the time.
NAMES = ("red", "blue", "green", "gold", "grey")
PATHS = ("a", "b", "k", "arr", "n", "n.x", "n.y", "arr.x", "arr.0", "t", "_id")
EPOCH = datetime.datetime(2026, 1, 1)


def number(draw):
    """A small number, of any type."""
    value = draw.randint(-1, 5)
    return draw.pick(value, value, value, Int64(value), float(value), value + 0.5, Decimal128(str(value)))


def scalar(draw):
    """A value without parts."""
    kind = draw.one_of({"number": 12, "text": 5, "null": 1, "bool": 1, "time": 1, "rare": 1})
    if kind == "number":
        return number(draw)
    if kind == "text":
        return draw.pick("x", "y", "xy", "", "X", "ü", "$a", "a.b")
    if kind == "null":
        return None
    if kind == "bool":
        return draw.chance(0.5)
    if kind == "time":
        return time(draw)
    return draw.pick(
        float("nan"), float("inf"), -0.0, MinKey(), MaxKey(), Int64(2**62), Decimal128("NaN"), Decimal128("1E+300"), 1e300,
        b"\x01", bson.ObjectId(b"0123456789ab"), Timestamp(1, 1), Regex("^x"), "long " * draw.randint(1, 300), bson.Code("x"))


def time(draw):
    """A time: long ago, or a few seconds around now, for TTL indexes."""
    now = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0)
    return draw.pick(EPOCH, now, now + datetime.timedelta(seconds=draw.randint(-3, 6)), now + datetime.timedelta(days=1))


def array(draw):
    """Numbers, documents, or a mixture."""
    item = draw.pick(number, number, part, scalar, any_value)
    return [item(draw) for _ in range(draw.randint(0, 4))]


def part(draw):
    """A document within one."""
    return {name: scalar(draw) for name in draw.some(("x", "y"), 2)}


def any_value(draw):
    """Anything that a field can hold."""
    kind = draw.one_of({scalar: 8, part: 2, array: 2})
    return kind(draw)


def key(draw):
    """An `_id`."""
    return draw.pick(draw.randint(0, 12), draw.randint(0, 12), scalar(draw), part(draw))


def document(draw):
    """A document; its `_id` is given to it, or not."""
    made = {"_id": safe_id(draw)} if draw.chance(0.7) else {}
    for name, probability, value in (
            ("a", 0.8, any_value), ("b", 0.7, scalar), ("k", 0.7, number), ("arr", 0.7, array), ("n", 0.5, part), ("t", 0.2, time)):
        if draw.chance(probability):
            made[name] = value(draw)
    return made


def safe_id(draw):
    """An `_id` that may be stored: neither an array nor a regular expression."""
    while True:
        value = key(draw)
        if not isinstance(value, (Regex, list)):
            return value
