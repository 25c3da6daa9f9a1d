#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that training with this project and with Python's PyTorch gives the same parameters after each of 50 steps,
for every optimizer and type of cases.py, and that our optimizers give the bits of libtorch's.

Needs PARITY_OURS (the program built from ours.cpp) and MPIEXEC. SLURM_DDP_TEST_PYTHON names another Python than
this one. Exits with 77 if neither has PyTorch of PARITY_RELEASE, with which the program is built (short types are
rounded differently from release to release), or if numpy is not installed.
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

try:
    import numpy as np
except ImportError as error:
    print(f"skipped: {error}; apt install python3-numpy")
    sys.exit(77)

PYTHON = os.environ.get("SLURM_DDP_TEST_PYTHON", sys.executable)  # for sharded_parity_test.py
HERE = pathlib.Path(__file__).resolve().parent
SIZES = [32 * 20, 32, 24 * 32, 24, 5 * 24, 5]
STEPS = 50
TOLERANCE = {"fp32": 1e-6, "fp64": 1e-12, "bf16": 1e-6, "bf16_weights": 1e-6, "fp16": 1e-6}
# Of steps that compute in a short type with an optimizer whose updates libtorch and Python round differently, as
# PyTorch 2 does in Adam: a weight on the boundary between two numbers of that type then differs by a unit.
UNIT = 2.0 ** -9


def why_not(python, release=""):
    """Returns the reason why this Python cannot be compared with, or nothing. `release`: of PyTorch; empty for any."""
    check = f"""import torch, torch.distributed as d
if not torch.__version__.startswith('{release}'):
    exit(f'its PyTorch is {{torch.__version__}}, and the program has {release}')
exit(None if d.is_gloo_available() else 'this PyTorch has no Gloo')"""
    done = subprocess.run([python, "-c", check], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"{python}: {done.stderr.strip().splitlines()[-1]}; apt install python3-torch"


@functools.lru_cache
def comparable_python():
    """Returns the first Python whose PyTorch is of the program's release, or exits."""
    release = ".".join(os.environ["PARITY_RELEASE"].split(".")[:2]) + "."
    reasons = [why_not(python, release) for python in (PYTHON, sys.executable)]
    if "" in reasons:
        return (PYTHON, sys.executable)[reasons.index("")]
    print(f"skipped: {'; '.join(dict.fromkeys(reasons))}")
    sys.exit(77)


def launch(ranks, program, steps, directory):
    environment = dict(os.environ, OMP_NUM_THREADS="1", OMPI_MCA_rmaps_base_oversubscribe="1",
                       PRTE_MCA_rmaps_default_mapping_policy=":oversubscribe",
                       OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    subprocess.run([os.environ["MPIEXEC"], "-n", str(ranks), *program, str(steps), directory], env=environment,
                   check=True, timeout=200)


def trainable_types():
    return subprocess.run([comparable_python(), str(HERE / "theirs.py"), "types"], stdout=subprocess.PIPE, text=True,
                          check=True).stdout.split()


def releases(directory):
    return [pathlib.Path(directory, f"{who}-release").read_text(encoding="utf-8") for who in ("ours", "theirs")]


class Results:
    """The parameters of all cases after every step, from both programs."""

    def __init__(self, all_cases):
        self.cases = all_cases
        with tempfile.TemporaryDirectory() as directory:
            pathlib.Path(directory, "cases.json").write_text(json.dumps(all_cases), encoding="utf-8")
            ranks = all_cases[0]["ranks"]
            launch(ranks, [os.environ["PARITY_OURS"]], STEPS, directory)
            launch(ranks, [comparable_python(), str(HERE / "theirs.py")], STEPS, directory)
            self.releases = releases(directory)
            self.ours = self.read(directory, "ours")
            self.libtorch = self.read(directory, "libtorch")
            self.theirs = self.read(directory, "theirs")

    def read(self, directory, who):
        """Returns an array of [rank, step, value] for each case."""
        return [np.stack([np.fromfile(f"{directory}/{who}-{number}-{rank}",
                                      dtype=np.float64 if case["type"] == "fp64" else np.float32).reshape(STEPS, -1)
                          for rank in range(case["ranks"])])
                for number, case in enumerate(self.cases)]


def tensors(values, sizes):
    """Returns the parameters in an array whose last dimension has the values of all of them."""
    ends = np.cumsum(sizes)
    assert values.shape[-1] == ends[-1]
    return np.split(values, ends[:-1], axis=-1)


def difference(values, others, sizes):
    """Returns the largest difference, relative to the largest value of the parameter in the same step."""
    return max((np.abs(mine - other).max(axis=-1) / np.abs(other).max(axis=-1)).max()
               for mine, other in zip(tensors(values, sizes), tensors(others, sizes)))


@functools.lru_cache
def results_of(ranks):
    return Results(cases.rows(trainable_types()) if ranks == 2 else cases.four_ranks())


class Parity(unittest.TestCase):
    def compare(self, ranks):
        results = results_of(ranks)
        print(f"\n{STEPS} steps, {ranks} ranks, libtorch {' and Python with PyTorch '.join(results.releases)}; "
              "largest relative difference:")
        rounded_alike = set()  # optimizers
        for case, ours, theirs in zip(results.cases, results.ours, results.theirs):
            worst = difference(ours, theirs[0], SIZES)
            print(f"  {case['name']:40} {worst:7.1e}")
            optimizer = case["name"].rsplit(",", 1)[0]
            if case["type"] == "fp32" and worst == 0:
                rounded_alike.add(optimizer)
            is_short = case["type"] not in ("fp32", "fp64")
            with self.subTest(case["name"]):
                allowed = UNIT if is_short and optimizer not in rounded_alike else TOLERANCE[case["type"]]
                self.assertLessEqual(worst, allowed)

    def test_two_ranks(self):
        self.compare(ranks=2)

    def test_four_ranks(self):
        self.compare(ranks=4)

    def test_our_optimizers_give_the_bits_of_libtorchs(self):
        results = results_of(2)
        for case, ours, libtorch in zip(results.cases, results.ours, results.libtorch):
            with self.subTest(case["name"]):
                np.testing.assert_array_equal(ours, libtorch)

    def test_all_parameters_change(self):
        """Equal initial parameters would prove nothing."""
        results = results_of(2)
        for case, theirs in zip(results.cases, results.theirs):
            with self.subTest(case["name"]):
                for values in tensors(theirs[0], SIZES):
                    self.assertGreater(np.abs(values[-1] - values[0]).max(), 0.1 * np.abs(values[0]).max())

    def test_every_option_has_an_effect(self):
        """Two rows with one result would not notice an option that both programs ignore."""
        results = results_of(2)
        for number, case in enumerate(results.cases):
            for other in range(number):
                if results.cases[other]["type"] == case["type"]:
                    with self.subTest(f"{case['name']} and {results.cases[other]['name']}"):
                        mine, others = results.theirs[number][0], results.theirs[other][0]
                        self.assertGreater(difference(mine, others, SIZES), 1e-3)


if __name__ == "__main__":
    comparable_python()
    unittest.main(verbosity=2)
