#!/usr/bin/env python3
"""Adds up the JUnit files of one ./test and prints passed, failed and skipped, or one suite's counts."""

import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path


def outcome_of(case):
    """One of passed, failed, skipped for a testcase element of ctest, GoogleTest or pytest."""
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    status = (case.get("status") or "").lower()
    if case.find("skipped") is not None or status in ("notrun", "disabled"):
        return "skipped"
    return "failed" if status == "fail" else "passed"


def count_file(path):
    """Counts the cases of a file; Counter() if it cannot be read (a program that died in mid-write)."""
    try:
        cases = ElementTree.parse(path).getroot().iter("testcase")
        return Counter(outcome_of(case) for case in cases)
    except (OSError, ElementTree.ParseError):
        return Counter()


def count_ctest(report, folder):
    """Counts a ctest report; a program's own cases count where it wrote them to `folder`."""
    total = Counter()
    try:
        cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    except (OSError, ElementTree.ParseError):
        return total
    for case in cases:
        own = count_file(folder / f"{case.get('name')}.xml")
        outcome = outcome_of(case)
        skipped = case.find("skipped")
        if outcome == "skipped" and skipped is not None and "SKIP_" not in skipped.get("message", ""):
            outcome = "failed"  # the program could not be started
        if not own or (outcome == "failed" and not own["failed"]):
            own[outcome] += 1  # no cases of its own, or it died outside of one
        total += own
    return total


def main(arguments):
    results = Path(arguments[0])
    total = Counter()
    for report in sorted(results.glob("*.xml")):
        if report.name.startswith("ctest-"):
            total += count_ctest(report, results / report.stem.replace("ctest-", "cases-"))
        else:
            total += count_file(report)
    print(f"{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped")


if __name__ == "__main__":
    main(sys.argv[1:])
