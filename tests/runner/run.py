# SPDX-License-Identifier: Apache-2.0
"""Runs tiers of tests; started by ./run-tests, which installs what they need.

    run.py gate|full [TIER...]
"""

import contextlib
import dataclasses
import fcntl
import os
import pathlib
import re
import shutil
import signal
import sys
import threading
import time
import traceback

import cases
import reruns
import summary
import tiers
from processes import Processes, Stopped

_DISK = {False: 4, True: 12}  # GiB that the gate, and all tests, need at most


@dataclasses.dataclass
class Run:
    """What steps need to know."""

    root: pathlib.Path
    full: bool  # whether cases with the tag `full` run
    processes: Processes
    jobs: int
    environment: dict[str, str]


class Results:
    """What the tiers found so far. The lanes share it."""

    def __init__(self, logs):
        self._logs = logs
        self._lock = threading.Lock()
        self.cases = []
        self.flaky = []

    def add(self, tier, seconds, found, flaky):
        bad = [case for case in found if case.result == cases.FAILED]
        skipped = found and all(case.result == cases.SKIPPED for case in found)
        words = [f"FAILED: {len(bad)}, see build/test-logs/{tier}.log"] if bad else ["skipped" if skipped else "ok"]
        words += [f"flaky: {len(flaky)}"] if flaky else []
        with self._lock:
            self.cases += found
            self.flaky += flaky
            print(f"{tier:<10} {seconds:8.0f}  {', '.join(words)}", flush=True)
            for case in bad:
                print(summary.failure(case), flush=True)

    def keep(self, tier, flaky):
        """Writes the outputs of the failures of flaky cases."""
        with self._lock, open(self._logs / "flaky.txt", "a", encoding="utf-8") as file:
            for case in flaky:
                for number, output in enumerate(case.outputs, 1):
                    file.write(f"== {tier}: {case.title}: output of failure {number}\n{output}\n")


def lane(names, run, results, logs):
    """Runs tiers one after the other. A tier that breaks is a failed case."""
    for name in names:
        begin = time.monotonic()
        try:
            with open(logs / f"{name}.log", "w+b") as log:
                found, flaky = reruns.run_tier(tiers.ALL[name](run), run, log)
            if flaky:
                results.keep(name, flaky)
        except Stopped:
            return
        except Exception:  # pylint: disable=broad-exception-caught  # it would end this thread only
            found, flaky = [cases.Case(f"the tier {name}", "", cases.FAILED, text=traceback.format_exc(limit=-5))], []
        results.add(name, time.monotonic() - begin, found, flaky)


def is_full(directory):
    return directory.exists() and shutil.disk_usage(directory).free < 2**16


def run_lanes(names, run, results, logs):
    threads = [threading.Thread(target=lane, args=([name for name in each if name in names], run, results, logs))
               for each in tiers.LANES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def report(results, logs, begin, root):
    times = {case.title: case.seconds for case in results.cases if not case.title.startswith("cmake ")}
    units = {}
    for log in sorted(root.glob("build*/.ninja_log")) + sorted(root.glob("build-torch2/*/.ninja_log")):
        built = summary.compiled(log.read_text(encoding="utf-8"))
        units |= {f"{log.parent.relative_to(root)}/{file}": seconds for file, seconds in built.items()
                  if (log.parent / file).exists() and (log.parent / file).stat().st_mtime >= begin}
    blocks = {"slowest translation units": summary.slowest(units), "slowest cases": summary.slowest(times),
              "skipped, with the reason": summary.skipped(results.cases),
              "flaky: failed, and then passed by itself; outputs in build/test-logs/flaky.txt":
                  [f"  {case.title}" for case in results.flaky]}
    for title, lines in blocks.items():
        if lines:
            print(f"\n{title}:\n" + "\n".join(lines))
    failed = [case for case in results.cases if case.result == cases.FAILED]
    if failed:
        print("\nfailed:\n" + "\n".join(f"  {case.title}" for case in failed))
    if failed and is_full(logs):
        print(f"\nrun-tests: the disk of {logs} is full; free some space, and run the tests again")
    print("\n" + summary.totals(results.cases))
    return not failed


@contextlib.contextmanager
def only_run(logs):
    """Refuses a second run in one checkout: both would use its build, its logs and the cluster."""
    try:
        logs.mkdir(parents=True, exist_ok=True)
        lock = open(logs / "lock", "a+", encoding="utf-8")  # pylint: disable=consider-using-with
    except OSError as error:
        sys.exit(f"run-tests: cannot write {error.filename}: {error.strerror}; if it is another user's, remove {logs}")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            sys.exit(f"run-tests: another run uses this checkout: {lock.read().strip()}; wait for its end, or stop it")
        lock.truncate(0)
        lock.write(f"process {os.getpid()}, started at {time.strftime('%H:%M')}\n")
        lock.flush()
        yield


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def ignore_signals():
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def interrupted(number, _frame):
    ignore_signals()
    raise KeyboardInterrupt(signal.Signals(number).name)


def run_all(names, run, results, logs):
    """Runs the build, and then the lanes. Returns False if a signal stopped the run."""
    for number in _SIGNALS:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # `nohup ./run-tests`
            signal.signal(number, interrupted)
    try:
        run.processes.end_left_over()  # of a run that was killed
        if "build" in names:
            lane(["build"], run, results, logs)
        if not any(case.result == cases.FAILED for case in results.cases):
            run_lanes(names, run, results, logs)
        elif others := [name for name in names if name != "build"]:
            print(f"\nnot run, because the build failed: {' '.join(others)}")
        return True
    except KeyboardInterrupt as name:
        with contextlib.suppress(OSError):  # the terminal, or the `tee` behind a pipe, may be gone, too
            print(f"run-tests: stopped by {name}; removing what it started", file=sys.stderr, flush=True)
        run.processes.stop()
        return False
    finally:
        ignore_signals()
        run.processes.clean()


def make_run(root, full):
    build = root / "build"
    jobs = len(os.sched_getaffinity(0))
    environment = {
        "SLURM_DDP_BUILD": str(build),
        "PATH": f"{build}/bin:{os.environ['PATH']}",
        "CMAKE_BUILD_PARALLEL_LEVEL": str(jobs),
        "OMP_NUM_THREADS": "1",
        # Without this, Open MPI looks for UCX's fabrics: half a second at each of a thousand starts.
        "OMPI_MCA_pml": "ob1",
        "GTEST_BRIEF": "1",
        # The developer's own filter would leave out cases.
        "GTEST_FILTER": "*",
    }
    return Run(root, full, Processes(root), jobs, environment)


def require(root, full, names):
    """Exits with one sentence if the tiers cannot run."""
    if "build" in names:
        free = shutil.disk_usage(root).free / 2**30
        if free < _DISK[full]:
            sys.exit(f"run-tests: {root} has {free:.1f} GiB of free disk, and the build needs {_DISK[full]} GiB")
        return
    cache = root / "build/CMakeCache.txt"
    tests = cache.exists() and re.search(r"^SLURM_DDP_TESTS:\w+=(\w+)", cache.read_text(encoding="utf-8"), re.MULTILINE)
    needs_build = [name for name in names if name in tiers.NEED_BUILD]
    if needs_build and not (tests and tests[1] in (["FULL"] if full else ["ON", "FULL"])):
        sys.exit(f"run-tests: build/ does not have the programs of {needs_build[0]}; "
                 f"run ./run-tests {'' if full else 'gate '}build {' '.join(names)}")


def main(level, names):
    root = pathlib.Path(__file__).resolve().parents[2]
    names = names or (list(tiers.ALL) if level == "full" else tiers.GATE)
    require(root, level == "full", names)
    logs = root / "build/test-logs"
    with only_run(logs):
        (logs / "flaky.txt").write_text("", encoding="utf-8")
        begin = time.time()
        run = make_run(root, level == "full")
        results = Results(logs)
        print(f"{'tier':<10} {'seconds':>8}  result", flush=True)
        if not run_all(names, run, results, logs):
            return 130
        return 0 if report(results, logs, begin, root) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
