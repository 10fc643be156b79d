"""A plugin for pytest, used by run.sh: tells which tests talk with the server, and tells of failures as they happen.

Each test case in results.xml gets the property `server`: `yes` for the tests of classes that connect to the server under
test (pymongo's IntegrationTest), `no` for those of the driver alone. Failures also go to the file that WATCH_FILE names.
"""

import os


def pytest_collection_modifyitems(items):
    from test import IntegrationTest

    for item in items:
        uses_server = item.cls is not None and issubclass(item.cls, IntegrationTest)
        item.user_properties.append(("server", "yes" if uses_server else "no"))


def pytest_runtest_logreport(report):
    if report.failed:
        lines = [line for line in report.longreprtext.splitlines() if line.startswith("E ")]
        with open(os.environ["WATCH_FILE"], "a", encoding="utf-8") as file:
            file.write(f"{report.nodeid} ({report.when}, {report.duration:.1f} s)\n    {lines[0][:200] if lines else '?'}\n")
