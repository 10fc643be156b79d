"""Sorts the results of pymongo's suite: what is counted, what a rule leaves out, and how much of the rest passes.

    classify.py RESULTS.xml FAILURES.txt

Counted are the tests that talk with the server (watch.py tells them apart); those of the driver alone are shown beside
them. A rule leaves a test out, whether it passes or fails, because of one of the features that Baton does not have yet:
transactions, change streams, collation, text and geospatial search, encryption, authentication. Rules go by the names of
modules, classes and tests alone; what fails for any other reason counts as failed. Tests that the suite itself skips are
listed by reason, because a reason may be a fault ("test commands must be enabled").
"""

import collections
import re
import sys
import xml.etree.ElementTree as ElementTree

# Feature, and the pattern that is searched in "module.Class.test".
RULES = [
    ("transactions", r"[tT]ransaction|_txn|mongos_pinned"),
    ("change streams", r"[cC]hange_?[sS]tream|ChangeStream|[_.]watch\b"),
    ("collation", r"[cC]ollation"),
    ("text and geospatial search", r"[gG]eo|[_.]text\b|2dsphere|\bnear\b|[sS]earch_?[iI]ndex"),
    ("encryption", r"[eE]ncrypt|csfle|fle2|[kK]ms|data_?[kK]ey|DataKey|TestQE|rewrap"),
    ("authentication", r"(?<![a-z])[aA]uth(?!or)|Auth|[sS]cram|saslprep|x509|oidc|OIDC"),
]
RULES = [(feature, re.compile(pattern)) for feature, pattern in RULES]
# Tests that use a feature without saying so in their names.
NAMED = {
    "test.test_cursor.TestCursor.test_command_cursor_to_list": "change streams",
    "test.test_cursor.TestCursor.test_command_cursor_to_list_empty": "change streams",
}


def feature_of(name):
    """The feature for which a test is left out, or None."""
    if name in NAMED:
        return NAMED[name]
    for feature, pattern in RULES:
        if pattern.search(name):
            return feature
    return None


def cause_of(element):
    """One line that says why a test failed."""
    text = (element.get("message") or "") + "\n" + (element.text or "")
    errors = re.findall(r"^E +(\S.*)$", text, re.M)
    line = errors[0] if errors else text.strip().splitlines()[0] if text.strip() else "?"
    line = re.sub(r", full error: .*", "", line)
    return line[:240]


def talks_with_server(case):
    """What watch.py noted of a test case."""
    noted = {entry.get("name"): entry.get("value") for entry in case.iter("property")}
    return noted.get("server") != "no"


def write_failures(path, failures):
    """The failures by cause, the most frequent first."""
    by_cause = collections.defaultdict(list)
    for cause, name in failures:
        by_cause[cause].append(name)
    with open(path, "w", encoding="utf-8") as file:
        for cause, names in sorted(by_cause.items(), key=lambda item: (-len(item[1]), item[0])):
            file.write(f"{len(names)}  {cause}\n")
            for name in sorted(names):
                file.write(f"      {name}\n")


def main():
    results, failures_path = sys.argv[1:]
    # Keyed by whether a test talks with the server.
    passed, failed, skipped = collections.Counter(), collections.Counter(), collections.Counter()
    left_out = collections.defaultdict(collections.Counter)
    reasons = collections.Counter()
    failures = []
    # A test whose clean-up failed too is there twice.
    seen = {}
    for case in ElementTree.parse(results).getroot().iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        bad = case.find("failure")
        bad = case.find("error") if bad is None else bad
        if name not in seen or bad is not None:
            seen[name] = (case, bad)
    for name, (case, bad) in seen.items():
        server = talks_with_server(case)
        skip = case.find("skipped")
        if skip is not None:
            # A test that the suite itself expects to fail proves nothing of the server either.
            expected = skip.get("type") == "pytest.xfail"
            skipped[server] += 1
            reasons["expected to fail" if expected else skip.get("message") or "?"] += server
        elif feature := feature_of(name):
            left_out[feature]["passed" if bad is None else "failed"] += 1
        elif bad is None:
            passed[server] += 1
        else:
            failed[server] += 1
            failures.append((("" if server else "(driver alone) ") + cause_of(bad), name))
    write_failures(failures_path, failures)
    print("left out by feature (passed, failed):")
    for feature, counts in left_out.items():
        print(f"  {feature}: {counts['passed']}, {counts['failed']}")
    print("skipped by the suite itself, of the tests that talk with the server:")
    for reason, count in reasons.most_common(40):
        if count:
            print(f"  {count:5}  {reason[:110]}")
    print(f"failures by cause: {failures_path}")
    print(f"tests of the driver alone: {passed[False]} passed, {failed[False]} failed, {skipped[False]} skipped")
    share = 100 * passed[True] / max(1, passed[True] + failed[True])
    print(f"tests that talk with the server: {passed[True]} passed, {failed[True]} failed, {skipped[True]} skipped: "
          f"{share:.1f} % pass")
    sys.exit(0 if share >= 90 else 1)


if __name__ == "__main__":
    main()
