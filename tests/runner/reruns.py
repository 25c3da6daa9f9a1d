# SPDX-License-Identifier: Apache-2.0
"""Runs the steps of a tier, and failed cases again: one that then passes is flaky, and does not fail the run."""

import dataclasses

import cases
from steps import Command

_AGAIN = 2  # times
_MANY = 10  # more failed cases are no accident, and to repeat them would take long


@dataclasses.dataclass
class Flaky:
    title: str
    outputs: list[str]  # of the runs that failed


def run_tier(steps, run, log):
    """Returns the cases of the steps, and the flaky ones among them."""
    found, failed = [], []
    for step in steps:
        new = step.run(run, log)
        found += new
        failed += [(step, case) for case in new if case.result == cases.FAILED]
        if isinstance(step, Command) and step.needed and new[0].result != cases.PASSED:
            break
    flaky = []
    if len(failed) <= _MANY:
        for step, case in failed:
            if not isinstance(step, Command) or step.tests:
                replaced, outputs = _again(step, run, log, case)
                position = next(i for i, other in enumerate(found) if other is case)
                # A file that ran again as a whole has cases that are here already.
                known = {other.title for other in found if other is not case}
                found[position:position + 1] = [other for other in replaced if other.title not in known]
                flaky += [Flaky(case.title, outputs)] if outputs else []
    return found, flaky


def _again(step, run, log, case):
    """Returns the cases that stand for `case` after it has run again, and if it is flaky, the outputs of its failures."""
    outputs = [case.text]
    for _ in range(_AGAIN):
        new = step.again(run, log, case)
        results = {other.result for other in new}
        # A case that is skipped when it runs alone has not passed.
        if cases.PASSED in results and cases.FAILED not in results:
            return new, outputs
        outputs += [other.text for other in new if other.result != cases.PASSED]
    return [case], []
