# SPDX-License-Identifier: Apache-2.0
"""The cluster of tests/local_cluster, for benchmarks in Python."""
import contextlib
import os
import pathlib
import shlex
import subprocess

CLUSTER = pathlib.Path(__file__).resolve().parent.parent / "local_cluster" / "cluster"


@contextlib.contextmanager
def cluster(nodes):
    """Starts the nodes, and gives the environment in which srun finds them."""
    quiet = {"check": True, "stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    subprocess.run([CLUSTER, "up", str(nodes)], **quiet)
    try:
        lines = subprocess.run([CLUSTER, "env"], check=True, capture_output=True, text=True).stdout.splitlines()
        words = [word for line in lines for word in shlex.split(line)]
        yield {**os.environ, **dict(word.split("=", 1) for word in words if "=" in word), "OMP_NUM_THREADS": "1"}
    finally:
        subprocess.run([CLUSTER, "down"], **quiet)
