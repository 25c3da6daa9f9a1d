# SPDX-License-Identifier: Apache-2.0
"""Results of cases, read from what bats and ctest write. Pure functions of text."""

import dataclasses
import re
import xml.etree.ElementTree as ET

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


@dataclasses.dataclass
class Case:
    where: str  # a bats file, a test of ctest, or a command
    name: str  # the title in a bats file, or empty
    result: str
    seconds: float = 0.0
    text: str = ""  # the output of a failed case, the reason of a skipped one
    # A GoogleTest program is one test of ctest, with this many cases that passed, and the reasons of the skipped ones.
    passed_inside: int = 1
    skipped_inside: list[str] = dataclasses.field(default_factory=list)

    @property
    def title(self):
        return f"{self.where}: {self.name}" if self.name else self.where

    @property
    def of_whole_file(self):
        """Whether bats reports a failure that belongs to no case."""
        return self.name in ("setup_file failed", "teardown_file failed")


_RESULT = re.compile(r"(not )?ok \d+ (.*?)(?: in (\d+)ms)?(?: # (skip|timeout)\b ?(.*))?")


def of_bats(log, file, root=""):
    """Cases in the output of bats with the formatter `cat` for a file. Its path is shown relative to `root`.

    A stream that ends early is a failed case of its own: a crash of bats must not hide the cases that did not run.
    """
    cases, where, planned, rest, begun = [], file, None, [], []
    for line in log.removesuffix("\n").split("\n"):  # splitlines() would also split the output of cases at "\r"
        result = _RESULT.fullmatch(line)
        if re.fullmatch(r"1\.\.\d+", line) and planned is None:
            planned = int(line[3:])
        elif line.startswith("suite /"):
            where = line.removeprefix("suite ").removeprefix(root.rstrip("/") + "/")
        elif result and planned is not None:
            bad, name, milliseconds, mark, reason = result.groups()
            state = FAILED if bad else SKIPPED if mark == "skip" else PASSED
            text = reason if state == SKIPPED else f"{mark}: {reason}\n" if mark else ""
            cases.append(Case(where, name, state, int(milliseconds or 0) / 1000, text or ""))
            begun = [other for other in begun if other != name]
        elif line.startswith("#") and cases and cases[-1].result == FAILED:
            cases[-1].text += line[2:] + "\n"
        elif begin := re.fullmatch(r"begin \d+ (.*)", line):
            begun.append(begin[1])
        else:
            rest.append(line)
    ran = sum(not case.of_whole_file for case in cases)
    set_up = all(case.name != "setup_file failed" for case in cases)
    if planned is None or (ran < planned and set_up):
        problem = f"{planned - ran} of {planned} cases have no result" if planned else "bats did not start"
        problem += f"; began: {', '.join(begun)}" if begun else ""
        cases.append(Case(where, "", FAILED, text="\n".join([problem, *rest[-40:]]) + "\n"))
    return cases


_SKIPPED_INSIDE = re.compile(r"^(\S+:\d+): Skipped\n(.*)$", re.MULTILINE)
_ENDED = re.compile(r"^\t +\d+ - (.*) \((?!Failed|Not Run)(.*?)\)", re.MULTILINE)


def of_ctest(xml, log=""):
    """Cases in the text of `ctest --output-junit`, and in what ctest printed, where alone it says that a test crashed, or
    took too long. ctest must not shorten the output of tests that pass."""
    cases, ended = [], dict(_ENDED.findall(log.rpartition("The following tests FAILED:")[2]))
    for test in ET.fromstring(xml).iter("testcase"):
        output = test.findtext("system-out") or ""
        skipped = test.find("skipped")
        # A missing program is "skipped", too.
        on_purpose = skipped is not None and skipped.get("message", "").startswith("SKIP_")
        result = PASSED if test.get("status") == "run" else SKIPPED if on_purpose else FAILED
        case = Case(test.get("name"), "", result, float(test.get("time") or 0))
        passed = re.findall(r"^\[  PASSED  \] (\d+) test", output, re.MULTILINE)
        if result == PASSED and passed:
            case.passed_inside = int(passed[-1])
            case.skipped_inside = [f"{place}: {reason}" for place, reason in _SKIPPED_INSIDE.findall(output)]
        elif result == SKIPPED:
            case.text = (output.strip().splitlines() or ["no reason given"])[-1]
        elif result == FAILED:
            case.text = "\n".join(filter(None, [output.rstrip(), ended.get(case.where)]))
        cases.append(case)
    return cases
