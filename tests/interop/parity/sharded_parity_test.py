#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that two ranks that divide the optimizer, the gradients or the parameters train the built-in models to the
same parameters as PyTorch's ZeroRedundancyOptimizer and FSDP2, after each of 20 steps.

Needs PARITY_SHARDED_OURS (the program built from sharded_ours.cpp) and MPIEXEC. SLURM_DDP_TEST_PYTHON names another
Python than this one: that of Debian has no FSDP2. Exits with 77 if PyTorch or numpy is not installed for it.
"""

import functools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import cases
import parity_test  # exits with 77 without numpy

MISSING = parity_test.why_not(parity_test.PYTHON)
if MISSING:
    print(f"skipped: {MISSING}")
    sys.exit(77)

np = parity_test.np
THEIRS = str(parity_test.HERE / "sharded_theirs.py")
RANKS, STEPS = 2, 20
# Two ranks add up in one order, so both programs have the same bits with PyTorch 1.13, and with 2.15 for SGD. Kernels
# of different releases and Adam of PyTorch 2 round differently: up to 4.2e-7 was seen in fp32, and 1.9e-11 in fp64,
# where AdamW makes rounding errors larger (cases.sharded()). A learning rate that is wrong by 0.1 % gives 1e-4.
TOLERANCE = {"fp32": 2e-6, "fp64": 1e-9}


@functools.lru_cache
def why_no_fsdp2():
    return subprocess.run([parity_test.PYTHON, THEIRS, "fsdp2"], stdout=subprocess.PIPE, text=True,
                          check=True).stdout.strip()


class Results:
    """The parameters of all cases after every step, by the strategies of both programs."""

    def __init__(self):
        self.cases = cases.sharded()
        with tempfile.TemporaryDirectory() as directory:
            pathlib.Path(directory, "cases.json").write_text(json.dumps(self.cases), encoding="utf-8")
            parity_test.launch(RANKS, [os.environ["PARITY_SHARDED_OURS"]], STEPS, directory)
            parity_test.launch(RANKS, [parity_test.PYTHON, THEIRS], STEPS, directory)
            self.releases = parity_test.releases(directory)
            self.sizes = json.loads(pathlib.Path(directory, "sizes.json").read_text(encoding="utf-8"))
            self.ours = {shard: self.read(directory, "ours", shard) for shard in cases.SHARDS}
            self.theirs = {shard: self.read(directory, "theirs", shard)
                           for shard in (cases.SHARDS[:1] if why_no_fsdp2() else cases.SHARDS)}

    def read(self, directory, who, shard):
        """Returns an array of [rank, step, value] for each case."""
        return [np.stack([np.fromfile(f"{directory}/{who}-{number}-{shard}-{rank}",
                                      dtype=np.float64 if case["type"] == "fp64" else np.float32).reshape(STEPS, -1)
                          for rank in range(RANKS)])
                for number, case in enumerate(self.cases)]


@functools.lru_cache
def results():
    return Results()


class ShardedParity(unittest.TestCase):
    def compare_with(self, theirs):
        found = results()
        print(f"\n{STEPS} steps, libtorch {' and Python with PyTorch '.join(found.releases)}; "
              f"largest relative difference of --shard {', '.join(cases.SHARDS)}:")
        for number, case in enumerate(found.cases):
            worst = [parity_test.difference(found.ours[shard][number], found.theirs[theirs][number][0],
                                            found.sizes[number]) for shard in cases.SHARDS]
            print(f"  {case['name']:28}", *(f"{value:7.1e}" for value in worst))
            for shard, value in zip(cases.SHARDS, worst):
                with self.subTest(f"{case['name']}, --shard {shard}"):
                    self.assertLessEqual(value, TOLERANCE[case["type"]])

    def test_zero_redundancy_optimizer(self):
        self.compare_with("optimizer")

    @unittest.skipIf(why_no_fsdp2(), why_no_fsdp2())
    def test_fsdp2(self):
        self.compare_with("parameters")

    @unittest.skipIf(why_no_fsdp2(), why_no_fsdp2())
    def test_fsdp2_that_keeps_weights_after_forward(self):
        self.compare_with("gradients")

    def test_all_parameters_change(self):
        """Equal initial parameters would prove nothing."""
        found = results()
        for number, case in enumerate(found.cases):
            with self.subTest(case["name"]):
                for values in parity_test.tensors(found.theirs["optimizer"][number][0], found.sizes[number]):
                    self.assertGreater(np.abs(values[-1] - values[0]).max(), 1e-2 * np.abs(values[0]).max())


if __name__ == "__main__":
    unittest.main(verbosity=2)
