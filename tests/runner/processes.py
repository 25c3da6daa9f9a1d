# SPDX-License-Identifier: Apache-2.0
"""Starts the commands of a run, and ends all that they leave behind."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time

_MARK = "SLURM_DDP_TEST_RUN"  # in the environment of all processes of the runs of a checkout


class Stopped(Exception):
    """The run was interrupted."""


class Processes:
    """All processes of this run, with a directory for their temporary files."""

    def __init__(self, root):
        self._root = root
        # A checkout has one run at a time. The same path can be another checkout in another container.
        self._mark = f"{root.stat().st_dev}-{root.stat().st_ino}-{root}"
        self._stopping = False
        self._starting = threading.Lock()
        # Not in /tmp, which is private to each node of the local cluster. A short path: sockets are in it.
        self.temporary = pathlib.Path(tempfile.mkdtemp(prefix="slurm-ddp-tests.", dir="/var/tmp"))
        self.temporary.chmod(0o755)

    def run(self, command, log, environment, silence, end=None):
        """Runs a command with its output in the file `log` and returns its exit status. If it prints nothing for `silence`
        seconds, calls `end` with the id of its session, and ends it a minute later, or without `end` at once. Raises
        Stopped if the run was interrupted."""
        environment = {**os.environ, **environment, _MARK: self._mark, "TMPDIR": str(self.temporary)}
        with self._starting:
            if self._stopping:
                raise Stopped
            # Under nohup, a case could not end a program with SIGHUP.
            process = subprocess.Popen(["env", "--default-signal=HUP", *command], cwd=self._root, env=environment,
                                       stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        size, printed = -1, time.monotonic()
        while process.poll() is None:
            time.sleep(0.05)
            now = os.fstat(log.fileno()).st_size
            if now != size:
                size, printed, limit, ended = now, time.monotonic(), silence, False
            elif time.monotonic() - printed > limit:
                if end and not ended:
                    end(process.pid)
                    limit, ended = silence + 60, True
                    continue
                log.write(f"{command[0]} was ended: it printed nothing for {limit} seconds; it ran:\n".encode())
                for line in (_read(pid, "cmdline") for pid in _pids() if _runs_in(pid, process.pid)):
                    if b"bats-core" not in line:
                        log.write(b"  " + re.sub(rb"[\0\s]+", b" ", line)[:200] + b"\n")
                log.flush()
                _end(lambda pid: _runs_in(pid, process.pid))
        if self._stopping:
            raise Stopped
        return process.returncode

    def stop(self):
        """Ends all processes of this run; run() raises Stopped from now on."""
        with self._starting:
            self._stopping = True
        _end(self._is_ours)

    def end_left_over(self):
        """Ends what this run left, or one before it that was killed: processes, the local cluster if it is one of theirs."""
        cluster = any(self._is_ours(pid) and _read(pid, "comm") == b"slurmctld\n" for pid in _pids())
        if cluster:
            subprocess.run([self._root / "tests/local_cluster/cluster", "down"], stdin=subprocess.DEVNULL,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        _end(self._is_ours)

    def clean(self):
        """Removes what this run left: processes, the local cluster, mounts, files."""
        self.end_left_over()
        for line in reversed(pathlib.Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()):
            if line.split()[1].startswith(f"{self.temporary}/"):
                subprocess.run(["umount", "--lazy", line.split()[1]], check=False)
        shutil.rmtree(self.temporary, ignore_errors=True)

    def _is_ours(self, pid):
        return f"{_MARK}={self._mark}".encode() in _read(pid, "environ").split(b"\0")


def _pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]


def _read(pid, file):
    """A file of a process; empty if the process has exited, or is another user's."""
    try:
        return pathlib.Path(f"/proc/{pid}/{file}").read_bytes()
    except OSError:
        return b""


def _session(pid):
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def _runs_in(pid, session):
    """Whether a process is in a session, and not one that has ended and was not yet waited for."""
    return _session(pid) == session and _read(pid, "cmdline") != b""


def end_case(session):
    """Ends the case that the bats of a session runs, which then reports it as failed, with its output."""
    parents = {pid: _parent(pid) for pid in _pids()}
    case = {pid for pid in parents if _session(pid) == session and b"bats-exec-test" in _read(pid, "cmdline")}
    while more := {pid for pid, parent in parents.items() if parent in case} - case:
        case |= more
    # All at once: a shell whose child was ended first would get the signal while it writes its result.
    for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGCONT):
        for pid in case:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def _parent(pid):
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    return int(fields[1]) if fields else None


def _end(wanted):
    """Ends the processes for which `wanted` is true: with SIGTERM, and after three seconds with SIGKILL."""
    begin = time.monotonic()
    while left := [pid for pid in _pids() if wanted(pid)]:
        waited = time.monotonic() - begin
        if waited > 20:  # none of them can be ended
            return
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM if waited < 3 else signal.SIGKILL)
        time.sleep(0.2)
