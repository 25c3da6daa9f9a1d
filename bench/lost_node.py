#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how long training stands still after the network of one of its two nodes was cut.

Starts the same PyTorch program (that of recovery.py) by ddp-run and by torchrun in turns, in jobs of a SLURM of two
nodes on this machine, cuts the second node's link, and measures the time until the first step that was not made
before, which one node makes alone.

    SLURM_DDP_BUILD=build bench/lost_node.py [--rounds 3] [--python /usr/bin/python3]

needs root, as tests/local_cluster/cluster does, and a Python with PyTorch.
"""

import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from recovery import STEPS_BEFORE, last_step

HERE = pathlib.Path(__file__).resolve().parent
BIN = pathlib.Path(os.environ.get("SLURM_DDP_BUILD", HERE.parent / "build")).resolve() / "bin"
CLUSTER = HERE.parent / "tests" / "local_cluster" / "cluster"
VICTIM = "node2"
# Both may use one node or two. torchrun's agents meet at the node that stays.
STARTS = {
    "ddp-run": "ddp-run --nodes 1:2 --launcher-options --ddp -- {python} {worker}",
    "torchrun": (
        "srun --no-kill --kill-on-bad-exit=0 --wait=0 {python} -m torch.distributed.run --nnodes 1:2 --nproc_per_node 1 "
        "--max_restarts 9 --rdzv_id 1 --rdzv_backend c10d --rdzv_endpoint $SLURMD_NODENAME:29400 {worker}"
    ),
}


def run(*words):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, stdin=subprocess.DEVNULL)


def wait(what, condition, limit):
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"not within {limit} s: {what}")
        time.sleep(0.02)


def link(state):
    run(CLUSTER, "exec", VICTIM, "--", "ip", "link", "set", "eth0", state)


def is_idle():
    return run("sinfo", "-h", "-N", "-o", "%T").stdout.split() == ["idle"] * 2


def measure(name, python, directory):
    """Seconds from the cut to the first new step."""
    directory.mkdir()
    script = directory / "job.sh"
    start = STARTS[name].format(python=python, worker=f"{HERE / 'recovery.py'} --worker")
    script.write_text(f"#!/bin/bash\ncd {directory}\n{start}\n")
    words = ["sbatch", "--parsable", "--nodes=2", "--ntasks-per-node=1", "--no-kill", "--time=10"]
    job = run(*words, f"--output={directory / 'log'}", script).stdout.strip()
    try:
        wait("the first steps", lambda: last_step(directory)[0] >= STEPS_BEFORE, 90)
        link("down")
        cut = time.time()
        time.sleep(2)  # steps that were under way
        before = last_step(directory)[0]
        wait("a new step", lambda: last_step(directory)[0] > before, 240)
        return last_step(directory)[1] - cut
    except RuntimeError as error:
        sys.exit(f"lost_node.py: {name}: {error}; see {directory}/log")
    finally:
        link("up")
        run("scancel", job)
        wait("the end of the job", lambda: not run("squeue", "-h", "-j", job).stdout.strip(), 120)
        run("scontrol", "update", f"nodename={VICTIM}", "state=resume")
        wait("two idle nodes", is_idle, 120)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--python", default="/usr/bin/python3")
    arguments = parser.parse_args()
    work = pathlib.Path(tempfile.mkdtemp(prefix="lost_node.", dir="/var/tmp"))
    os.environ.update(OMP_NUM_THREADS="1", PATH=f"{BIN}:{os.environ['PATH']}")
    # Without these, torchrun of PyTorch 1.13 fails on Python 3.11.
    os.environ.update(PET_REDIRECTS="9:1", PET_TEE="9:1")
    subprocess.run([CLUSTER, "up", "2"], check=True, stdin=subprocess.DEVNULL)
    taken = {name: [] for name in STARTS}
    try:
        for line in run(CLUSTER, "env").stdout.splitlines():
            name = line.removeprefix("export ").split("=", 1)[0]
            os.environ[name] = subprocess.run(["bash", "-c", f'{line}; printf %s "${name}"'], capture_output=True, text=True).stdout
        for round_ in range(arguments.rounds):
            for name in STARTS:
                taken[name].append(measure(name, arguments.python, work / f"{name}-{round_}"))
                print(f"round {round_ + 1}: {name}: {taken[name][-1]:.1f} s", flush=True)
    finally:
        subprocess.run([CLUSTER, "down"], stdin=subprocess.DEVNULL, capture_output=True)
    for name, seconds in taken.items():
        ratios = [mine / theirs for mine, theirs in zip(seconds, taken["torchrun"])]
        print(
            f"{name}: {statistics.median(seconds):.1f} s ({min(seconds):.1f} to {max(seconds):.1f}), to torchrun "
            f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
        )
    shutil.rmtree(work)


if __name__ == "__main__":
    main()
