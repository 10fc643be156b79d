"""Sorts the results of pymongo's suite: what is counted, what a rule leaves out, and how much of the rest passes.

    classify.py RESULTS.xml FAILURES.txt

A rule leaves out what Baton says it does not have yet (docs/compatibility.md) and what no single member can show. Rules
go by the names of modules, classes and tests, and by the reply "not implemented" only where a rule says so: a test that
merely fails is counted as failed. Skipped tests are those that the suite itself skips; they are listed by reason, because
a reason may be a fault ("test commands must be enabled").
"""

import collections
import re
import sys
import xml.etree.ElementTree as ElementTree

# Area, and the pattern that is searched in "module.Class.test".
RULES = [
    ("transactions", r"transaction|Transaction|convenient|mongos_pinned|pinned"),
    ("change streams", r"change_?stream|ChangeStream|_watch\b|[wW]atch"),
    ("collation", r"collation|Collation"),
    ("text and geospatial search", r"geo_?|Geo|\btext_|_text\b|2dsphere|near\b|search_index|SearchIndex"),
    ("encryption", r"encryption|Encryption|csfle|fle2|kms|Kms|rewrap|createDataKey|create_data_key|key_alt_name|QE\b|range"
                   r"_explicit|Explicit.*Encr|DataKey|custom_endpoint"),
    ("authentication and TLS", r"auth|Auth|\bssl|SSL|tls|TLS|ocsp|OCSP|scram|Scram|saslprep|x509|user_commands|sasl"),
    ("load balancer, mongos, serverless", r"load_?balanc|LoadBalanc|mongos|Mongos|serverless|Serverless|srv|SRV|sfp|SFP"),
    ("mockupdb, other processes", r"mockupdb|mod_wsgi|aws|Aws|azure|gcp|lambda|atlas|Atlas|data_lake"),
    ("MapReduce, $where, server-side JavaScript", r"map_reduce|mapReduce|\bwhere\b|_where|server_side_js|javascript"),
    ("wire version of MongoDB 8 (client bulk write)", r"client_?[bB]ulk_?[wW]rite|ClientBulkWrite|clientBulkWrite"),
    ("asynchronous twins", r"asynchronous"),
    ("the driver alone, not the server", r"\btest_(?:typing|typing_strict|default_exports)\b"),
]
RULES = [(area, re.compile(pattern)) for area, pattern in RULES]


def area_of(name):
    """The rule that leaves a test out, or None."""
    for area, pattern in RULES:
        if pattern.search(name):
            return area
    return None


def cause_of(element):
    """One line that says why a test failed."""
    text = (element.get("message") or "") + "\n" + (element.text or "")
    errors = re.findall(r"^E +(\S.*)$", text, re.M)
    line = errors[0] if errors else text.strip().splitlines()[0] if text.strip() else "?"
    line = re.sub(r", full error: .*", "", line)
    return line[:240]


def main():
    results, failures_path = sys.argv[1:]
    counted = collections.Counter()
    excluded = collections.Counter()
    skipped = collections.Counter()
    failures = []
    for case in ElementTree.parse(results).getroot().iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        bad = case.find("failure")
        bad = case.find("error") if bad is None else bad
        skip = case.find("skipped")
        if skip is not None and skip.get("type") != "pytest.xfail":
            skipped[skip.get("message") or "?"] += 1
            continue
        area = area_of(name)
        if area:
            excluded[area] += 1
        elif bad is None:
            counted["passed"] += 1
        else:
            counted["failed"] += 1
            failures.append((cause_of(bad), name))
    with open(failures_path, "w", encoding="utf-8") as file:
        by_cause = collections.defaultdict(list)
        for cause, name in failures:
            by_cause[cause].append(name)
        for cause, names in sorted(by_cause.items(), key=lambda item: (-len(item[1]), item[0])):
            file.write(f"{len(names)}  {cause}\n")
            for name in sorted(names):
                file.write(f"      {name}\n")
    print("left out by rule:")
    for area, count in excluded.most_common():
        print(f"  {count:5}  {area}")
    print("skipped by the suite itself:")
    for reason, count in skipped.most_common(25):
        print(f"  {count:5}  {reason[:110]}")
    total = counted["passed"] + counted["failed"]
    share = 100 * counted["passed"] / total if total else 0
    print(f"failures by cause: {failures_path}")
    print(f"pymongo's suite: {share:.1f} % of {total}")
    print(f"{counted['passed']} passed, {counted['failed']} failed, {sum(skipped.values())} skipped")
    sys.exit(0 if share >= 90 else 1)


if __name__ == "__main__":
    main()
