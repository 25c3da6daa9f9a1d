#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that our DistributedDataParallel and Python's over Gloo give the same parameters after every step.

Needs PARITY_OURS (the program built from ours.cpp) and MPIEXEC. Exits with 77 if PyTorch or
numpy is not installed for this Python.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    import numpy as np
    import torch.distributed
except ImportError as error:
    print(f"skipped: {error}; apt install python3-torch python3-numpy")
    sys.exit(77)
if not torch.distributed.is_gloo_available():
    print("skipped: this PyTorch has no Gloo")
    sys.exit(77)

HERE = pathlib.Path(__file__).resolve().parent
SHAPES = [(32, 20), (32,), (24, 32), (24,), (5, 24), (5,)]
STEPS = 50
TOLERANCE = 1e-6


def launch(ranks, program, micro_batches, directory):
    environment = dict(os.environ, OMP_NUM_THREADS="1", OMPI_MCA_rmaps_base_oversubscribe="1",
                       OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    subprocess.run([os.environ["MPIEXEC"], "-n", str(ranks), *program, str(micro_batches),
                    str(STEPS), directory], env=environment, check=True, timeout=100)


def parameters_per_step(file):
    """Returns the list of parameters after every step."""
    sizes = [int(np.prod(shape)) for shape in SHAPES]
    values = np.fromfile(file, dtype=np.float32).reshape(STEPS, sum(sizes))
    return [np.split(step, np.cumsum(sizes)[:-1]) for step in values]


class Parity(unittest.TestCase):
    def compare(self, ranks, micro_batches):
        with tempfile.TemporaryDirectory() as directory:
            launch(ranks, [os.environ["PARITY_OURS"]], micro_batches, directory)
            launch(ranks, [sys.executable, str(HERE / "theirs.py")], micro_batches, directory)
            theirs = parameters_per_step(f"{directory}/theirs-0.f32")
            worst = 0.0
            for rank in range(ranks):
                ours = parameters_per_step(f"{directory}/ours-{rank}.f32")
                for step in range(STEPS):
                    for mine, other in zip(ours[step], theirs[step]):
                        difference = np.abs(mine - other).max() / np.abs(other).max()
                        worst = max(worst, difference)
                        self.assertLessEqual(difference, TOLERANCE,
                                             f"rank {rank}, after step {step + 1}")
            self.require_that_it_trained(theirs)
        print(f"{ranks} ranks, {micro_batches} micro-batches: largest relative difference "
              f"over {STEPS} steps: {worst:.1e}")

    def require_that_it_trained(self, steps):
        """Checks that the parameters changed, because equal initial parameters would prove nothing."""
        for first, last in zip(steps[0], steps[-1]):
            self.assertGreater(np.abs(last - first).max(), 0.1 * np.abs(first).max())

    def test_two_ranks(self):
        self.compare(ranks=2, micro_batches=1)

    def test_four_ranks(self):
        self.compare(ranks=4, micro_batches=1)

    def test_four_ranks_that_accumulate(self):
        self.compare(ranks=4, micro_batches=2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
