# SPDX-License-Identifier: Apache-2.0
"""Runs the commands of a part one after the other, and records each result as soon as it is known."""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from typing import Callable, Optional

from machine import Machine
from usage_error import UsageError

COLUMNS = 118


@dataclasses.dataclass
class Step:
    name: str
    command: Optional[list] = None
    # Instead of a command: called with the Session, returns (whether it passed, note, values).
    function: Optional[Callable] = None
    limit: float = 60  # seconds
    exit_codes: tuple = (0,)
    expected: str = ""  # a regular expression that the output must contain
    shown: str = ""  # a regular expression whose first match in the output is the note
    understand: Optional[Callable] = None  # called with the output, returns (note, values, whether it passed)
    environment: dict = dataclasses.field(default_factory=dict)
    of_kit: bool = True  # uses the kit's libraries
    skip: str = ""  # why it cannot run here
    needs_gpu: bool = False


class Session:
    """One part: its log, its results, its deadline, and a directory for what the commands write."""

    def __init__(self, kit, machine, part, out, minutes, work):
        self.kit, self.machine, self.part, self.work = kit, machine, part, pathlib.Path(work)
        self.begin = time.monotonic()
        self.deadline = self.begin + minutes * 60
        self.json = out / f"{part}.json"
        self.log = open(out / f"{part}.log", "w", encoding="utf-8", buffering=1)
        self.result = {"schema": "slurm-ddp/gpu-day/1", "part": part, "finished": False,
                       "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                       "kit": {key: value for key, value in kit_manifest(kit).items() if key != "files"},
                       "machine": machine.facts(), "steps": []}
        self.save()

    def left(self):
        return self.deadline - time.monotonic()

    def save(self):
        new = self.json.with_suffix(".json.new")
        new.write_text(json.dumps(self.result, indent=1) + "\n")
        new.replace(self.json)

    def environment(self, step):
        variables = dict(os.environ)
        if step.of_kit:
            variables.update(self.machine.environment())
        variables.update(step.environment)
        return variables

    @contextlib.contextmanager
    def running(self, step, output):
        """Starts a command in a session of its own, which ends as a whole with the block."""
        self.log.write(f"\n$ {shlex.join(map(str, step.command))}\n")
        process = None
        try:
            with termination_delayed():
                process = subprocess.Popen([str(word) for word in step.command], cwd=self.work,
                                           stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                           env=self.environment(step), start_new_session=True)
            yield process
        finally:
            if process:
                end_session(process)


def kit_manifest(kit):
    return json.loads((kit / "manifest.json").read_text())


def processes_of(session_id):
    """The processes of a session, without those that have ended and wait for their parent."""
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, its_session = stat.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue  # it has ended
        if int(its_session) == session_id and state not in "ZX":
            found.append(int(stat.parent.name))
    return found


@contextlib.contextmanager
def termination_delayed():
    """Keeps SIGTERM until the end of the block: a child that no variable holds yet would not be ended."""
    requests = []
    handler = signal.signal(signal.SIGTERM, lambda *_: requests.append(True))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)
        if requests:
            os.kill(os.getpid(), signal.SIGTERM)


def end_session(process):
    """Ends what is left of a command and its children. Waits, so that nothing disturbs the next command.

    mpirun gives each rank a process group of its own, so they are found by their session.
    """
    with termination_delayed():
        for sign in (signal.SIGTERM, signal.SIGKILL):
            until = time.monotonic() + 5
            signaled = set()
            while (left := processes_of(process.pid)) and time.monotonic() < until:
                for pid in set(left) - signaled:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, sign)
                    signaled.add(pid)
                process.poll()
                time.sleep(0.02)
        process.wait()


def run_command(session, step, limit):
    """Returns the result, the note and the values of a command."""
    file = session.work / "output"
    with open(file, "wb") as output:
        code = None
        with session.running(step, output) as process, contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(limit)
    text = file.read_text(errors="replace")
    session.log.write(text)
    session.log.write(f"\n[exit code {code}]\n")
    if code is None:
        return "timeout", f"not done after {limit:.0f} s", {}
    note, values, passed = "", {}, True
    if step.understand:
        try:
            note, values, passed = step.understand(text)
        except (ValueError, KeyError, FileNotFoundError):
            passed = False  # the command failed before it wrote its results
    shown = re.search(step.shown, text, re.MULTILINE) if step.shown else None
    note = note or (shown[0].strip() if shown else "")
    if code not in step.exit_codes:
        words = [line for line in text.splitlines() if line.strip()]
        return "failed", f"exit code {code}: {note or (words[-1].strip() if words else 'no output')}", values
    if step.expected and not re.search(step.expected, text, re.MULTILINE):
        return "failed", f"the output lacks /{step.expected}/", values
    return ("ok" if passed else "failed"), note or ("" if passed else "the output is not as expected"), values


def run_step(session, step):
    skip = step.skip or (session.machine.no_gpu if step.needs_gpu else "")
    limit = min(step.limit, session.left())
    begin = time.monotonic()
    entry = {"name": step.name, "result": "running", "seconds": 0, "note": "", "values": {}}
    if step.command:
        entry["command"] = shlex.join(map(str, step.command))
    session.result["steps"].append(entry)
    session.save()
    if skip:
        entry["result"], entry["note"] = "skipped", skip
    elif limit < 1:
        entry["result"], entry["note"] = "not run", "the time of this part is over"
    else:
        try:
            if step.function:
                passed, entry["note"], entry["values"] = step.function(session)
                entry["result"] = "ok" if passed else "failed"
            else:
                entry["result"], entry["note"], entry["values"] = run_command(session, step, limit)
        except FileNotFoundError as error:
            entry["result"], entry["note"] = "failed", f"{error.filename} is not found"
        except Exception as error:  # a mistake in one step must not stop the others
            entry["result"], entry["note"] = "failed", f"{type(error).__name__}: {error}"
            session.log.write(f"\n{entry['note']}\n")
    entry["seconds"] = round(time.monotonic() - begin, 2)
    session.save()
    line = f"{entry['result']:8} {entry['seconds']:6.1f}  {step.name}" + (f": {entry['note']}" if entry["note"] else "")
    print(line if len(line) <= COLUMNS else line[:COLUMNS - 3] + "...", flush=True)


def run_part(kit, machine, name, build_steps, out, minutes):
    with tempfile.TemporaryDirectory(prefix="gpu-day-") as work:
        session = Session(kit, machine, name, out, minutes, work)
        print(f"== {name}: result, seconds, step", flush=True)
        for step in build_steps(session):
            run_step(session, step)
        result = session.result
        counts = {}
        for entry in result["steps"]:
            counts[entry["result"]] = counts.get(entry["result"], 0) + 1
        result["finished"] = True
        result["seconds"] = round(time.monotonic() - session.begin, 2)
        result["counts"] = counts
        result["skipped"] = set(counts) <= {"skipped"}
        session.save()
        session.log.close()
    told = ", ".join(f"{count} {word}" for word, count in sorted(counts.items()))
    print(f"{name}: {told} in {result['seconds']:.0f} s; {out / name}.json and .log", flush=True)
    return not set(counts) - {"ok", "skipped"}


def check_kit(kit, machine):
    if not (kit / "manifest.json").exists():
        raise UsageError(f"{kit} is not an unpacked kit; make one with 'scripts/gpu_day pack', unpack it with "
                         "'python3 -m tarfile -e gpu-kit.tar.xz .', and run gpu-kit/gpu_day")
    if machine.torch is None:
        raise UsageError("this python3 has no PyTorch, which the programs need; put the python3 that has it first in "
                         "PATH")
    made_for, found = kit_manifest(kit)["torch"], machine.facts()["torch"]
    if made_for and made_for.split("+")[0].split(".")[:2] != found.split("+")[0].split(".")[:2]:
        print(f"note: the programs were built with PyTorch {made_for}, and {machine.torch} is {found}")


def run(kit, options, parts):
    """parts: {name: function from a Session to its steps}."""
    unknown = [part for part in options.parts if part not in parts]
    if unknown:
        raise UsageError(f"there is no part '{unknown[0]}'; the parts are {', '.join(parts)}")
    if options.nccl and not options.nccl.exists():
        raise UsageError(f"{options.nccl} does not exist; --nccl names a file libnccl.so.2")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # ends the running command, too
    machine = Machine(kit, options.nccl.resolve() if options.nccl else None)
    check_kit(kit, machine)
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    passed = [run_part(kit, machine, part, parts[part], out, options.minutes) for part in options.parts]
    return 0 if all(passed) else 1
