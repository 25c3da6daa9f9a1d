# SPDX-License-Identifier: Apache-2.0
"""The three kinds of steps of which tiers are made. Each runs, and runs one failed case again."""

import concurrent.futures
import dataclasses
import pathlib
import re
import tempfile
import time

import cases
from processes import end_case

_SILENCE = 1800  # seconds without output after which a command has failed
_CASE = 600  # seconds after which a case in bash has failed, on the slowest machine


@dataclasses.dataclass
class Step:
    environment: dict[str, str] = dataclasses.field(default_factory=dict, kw_only=True)


@dataclasses.dataclass
class Command(Step):
    """A command that must succeed. It is one case. If `needed`, the later steps of the tier need it. It runs again only if
    it runs `tests` of its own."""

    name: str
    command: list[str]
    needed: bool = False
    skip_status: int | None = None
    tests: bool = False

    def run(self, run, log):
        begin = time.monotonic()
        status, output = _output(run, self.command, log, self.environment)
        result = cases.PASSED if status == 0 else cases.SKIPPED if status == self.skip_status else cases.FAILED
        lines = output.splitlines()[-60:]
        text = lines[-1] if lines and result == cases.SKIPPED else "\n".join(lines) + "\n"
        return [cases.Case(self.name, "", result, time.monotonic() - begin, "" if status == 0 else text)]

    def again(self, run, log, _case):
        return self.run(run, log)


@dataclasses.dataclass
class Bats(Step):
    """Files of cases in bash, or directories of them. Cases with the tag `full` are left out of the gate.

    Each file has a bats of its own, `jobs` of them side by side. (`bats --jobs` shows nothing before a file has ended; and the
    limit of bats 1.8 for a case can miss the end of a short one, and then waits for the limit.)
    """

    files: list[str]
    jobs: int = 1
    limit: int = _CASE

    def run(self, run, log):
        found = [pathlib.Path(name) for name in self.files]
        files = [str(file) for name in found for file in (sorted(name.glob("*.bats")) if (run.root / name).is_dir() else [name])]
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            results = pool.map(lambda file: self._file(run, log, file), files)
            return [case for result in results for case in result]

    def again(self, run, log, case):
        if not case.name or case.of_whole_file:
            return self._file(run, log, case.where)
        found = self._run(run, log, case.where, ["--filter", f"^{re.escape(case.name)}$"])
        if not found:  # its title has a variable, which the filter does not see
            found = [other for other in self._run(run, log, case.where, []) if other.name == case.name]
        return found

    def _file(self, run, log, file):
        found = self._run(run, log, file, [] if run.full else ["--filter-tags", "!full"])
        if not found and self._command(run, log, ["bats", "--count", file]) == (0, "0\n"):
            found.append(cases.Case(file, "", cases.FAILED, text='it has no case; a line such as @test "title" { begins one'))
        return found

    def _run(self, run, log, file, options):
        options = ["--formatter", "cat", "--timing", "--print-output-on-failure", *options]
        status, output = self._command(run, log, ["bats", *options, file])
        found = cases.of_bats(output, file, str(run.root))
        if status != 0 and not any(case.result == cases.FAILED for case in found):
            found.append(cases.Case(file, "", cases.FAILED, text=f"bats exited with {status}\n{output[-4000:]}"))
        return found

    def _command(self, run, log, command):
        with tempfile.TemporaryFile(dir=run.processes.temporary) as own:
            try:
                return _output(run, command, own, self.environment, self.limit, end_case)
            finally:  # also of a run that was interrupted
                own.seek(0)
                log.write(own.read())
                log.flush()


@dataclasses.dataclass
class Ctest(Step):
    """Tests of a build. Those with the label `full` are left out of the gate."""

    build: str
    selection: list[str]  # options of ctest

    def run(self, run, log):
        return self._run(run, log, [*self.selection, *([] if run.full else ["--label-exclude", "full"])], run.jobs)

    def again(self, run, log, case):
        if case.where == self.build:  # ctest itself failed
            return self.run(run, log)
        return self._run(run, log, ["--tests-regex", f"^{re.escape(case.where)}$"], 1)

    def _run(self, run, log, selection, jobs):
        results = pathlib.Path(log.name).with_suffix(".xml")
        results.unlink(missing_ok=True)
        command = ["ctest", "--test-dir", self.build, "--output-on-failure", "-j", str(jobs), "--no-tests=error",
                   "--output-junit", str(results), "--test-output-size-passed", "100000000",
                   "--test-output-size-failed", "1000000", "--test-output-truncation", "head", *selection]
        status, output = _output(run, command, log, self.environment)
        found = cases.of_ctest(results.read_text(encoding="utf-8"), output) if results.exists() else []
        results.unlink(missing_ok=True)
        if status != 0 and not any(case.result == cases.FAILED for case in found):
            found.append(cases.Case(self.build, "", cases.FAILED, text=f"ctest exited with {status}\n{output[-4000:]}"))
        return found


def _output(run, command, log, environment, silence=_SILENCE, end=None):
    """Runs a command, and returns its exit status and its part of the log."""
    begin = log.seek(0, 2)
    status = run.processes.run([str(word) for word in command], log, {**run.environment, **environment}, silence, end)
    log.seek(begin)
    return status, log.read().decode(errors="replace")
