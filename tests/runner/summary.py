# SPDX-License-Identifier: Apache-2.0
"""What a run prints about its cases."""

import collections
import re

import cases


def failure(case):
    """A failed case with the end of its output."""
    lines = case.text.rstrip().splitlines()
    cut = [f"... ({len(lines) - 40} more lines in the log)"] if len(lines) > 40 else []
    return "\n".join([f"FAILED  {case.title}", *(f"    {line}" for line in [*cut, *lines[-40:]])])


def skipped(found):
    """The reasons of skipped cases, with their numbers."""
    reasons = collections.Counter()
    for case in found:
        reasons.update(re.sub(r"^\S*?(tests/)", r"\1", reason) for reason in case.skipped_inside)
        if case.result == cases.SKIPPED:
            reasons[f"{case.title}: {case.text}"] += 1
    return [f"  {f'{number} x ' if number > 1 else ''}{reason}" for reason, number in sorted(reasons.items())]


def slowest(seconds, number=10):
    """The ten slowest of {title: seconds}."""
    ordered = sorted(seconds.items(), key=lambda item: -item[1])[:number]
    return [f"  {time:7.1f} s  {title}" for title, time in ordered]


def compiled(ninja_log):
    """{output: seconds} of the object files in the text of a .ninja_log; the last line of a file counts."""
    seconds = {}
    for line in ninja_log.splitlines():
        fields = line.split("\t")
        if len(fields) == 5 and fields[3].endswith((".o", ".gch", ".pch")):
            seconds[fields[3]] = (int(fields[1]) - int(fields[0])) / 1000
    return seconds


def totals(found):
    """The last line of a run."""
    passed = sum(case.passed_inside for case in found if case.result == cases.PASSED)
    failed = sum(case.result == cases.FAILED for case in found)
    left_out = sum(case.result == cases.SKIPPED for case in found) + sum(len(case.skipped_inside) for case in found)
    return f"{passed} passed, {failed} failed, {left_out} skipped"
