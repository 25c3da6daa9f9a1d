#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Kills a real process while it saves, or makes a call fail, at each of its system calls.

strace injects a fault into the K-th call of one kind. Afterwards the previous checkpoint must be
whole, the new one whole or absent, but present if it was acknowledged, and nothing may hang. Needs
CKPT_FIXTURE and CKPT_BIN. Exits with 77 if strace is not allowed to trace. SLURM_DDP_LONG_TESTS=1
tries more errors.
"""

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

FIXTURE = os.environ["CKPT_FIXTURE"]
TOOL = os.environ["CKPT_BIN"]
DOCUMENT = pathlib.Path(__file__).resolve().parents[3] / "docs" / "evidence" / "checkpoint.md"
CALLS = ("mkdir", "fallocate", "pwrite64", "ftruncate", "fsync", "renameat2", "rename", "unlink")
FAULTS = ["signal=SIGKILL", "error=EIO"]
if os.environ.get("SLURM_DDP_LONG_TESTS") == "1":
    FAULTS += ["error=ENOSPC", "error=EDQUOT", "error=EINTR", "retval=0"]
SECONDS = 30


def documented(row):
    match = re.search(rf"^\| {re.escape(row)} \| (\d+) \|", DOCUMENT.read_text(), re.MULTILINE)
    return int(match.group(1)) if match else None


class Point:
    """One save of step 2 with one fault, and the state afterwards."""

    def __init__(self, base, call, fault, number):
        self.name = f"{call} {number} {fault}"
        with tempfile.TemporaryDirectory() as directory:
            root = pathlib.Path(directory) / "ckpt"
            shutil.copytree(base, root)
            trace = pathlib.Path(directory) / "trace"
            saved = subprocess.run(
                ["strace", "-f", "-y", "-o", trace, "-e", f"trace={call}", "-e",
                 f"inject={call}:{fault}:when={number}", FIXTURE, "save", root, "2"],
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=SECONDS)
            text = trace.read_text(errors="replace")
            self.struck = "(INJECTED)" in text or "killed by SIGKILL" in text
            self.acknowledged = saved.returncode == 0
            self.message = saved.stderr.decode()
            # libhdf5 1.10 crashes at exit if its own write to the skeleton failed. The skeleton is
            # in reserved memory, so such writes fail only in this test.
            in_memory = any("/skeleton.h5" in line for line in text.splitlines()
                            if "(INJECTED)" in line)
            self.died = saved.returncode < 0 and "SIGKILL" not in fault and not in_memory
            self.whole = {step: self.verified(root / f"step-0000000{step}") for step in (1, 2)}

    @staticmethod
    def verified(step):
        """Returns True if the checkpoint is whole, False if not, and None if no checkpoint has that name."""
        if not step.exists():
            return None
        tool = subprocess.run([TOOL, "verify", step], capture_output=True, timeout=SECONDS)
        return tool.returncode == 0


class CrashPoints(unittest.TestCase):
    def points_of(self, base, call, fault):
        points = []
        for number in range(1, 200):
            point = Point(base, call, fault, number)
            if not point.struck:
                return points
            points.append(point)
        self.fail(f"{call} never ends")

    def test_every_call(self):
        with tempfile.TemporaryDirectory() as directory:
            base = pathlib.Path(directory) / "base"
            subprocess.run([FIXTURE, "save", base, "1"], check=True)
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                found = list(pool.map(lambda pair: self.points_of(base, *pair),
                                      [(call, fault) for call in CALLS for fault in FAULTS]))
        points = [point for some in found for point in some]
        for point in points:
            with self.subTest(point.name):
                self.assertTrue(point.whole[1])
                self.assertIsNot(point.whole[2], False)
                self.assertFalse(point.died, point.message)
                if point.acknowledged and "retval" not in point.name:
                    self.assertTrue(point.whole[2])
        row = "real process struck by the kernel at a call"
        print(f"fault matrix: {row}: {len(points)} points")
        self.assertIsNotNone(documented(row))
        self.assertGreaterEqual(len(points), documented(row))


def may_trace():
    if shutil.which("strace") is None:
        return False
    return subprocess.run(["strace", "-o", "/dev/null", "true"], check=False).returncode == 0


if __name__ == "__main__":
    if not may_trace():
        print("skipped: strace is not installed, or not allowed to trace here")
        sys.exit(77)
    unittest.main(verbosity=2)
