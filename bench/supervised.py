#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what it costs to train under ddp-run when nothing fails.

Trains the same model by mpirun and by ddp-run, which starts mpirun, in turns, and compares the seconds of
their steps, from run.json. What ddp-run adds at the start and at the end is in the second figure, the time of
the whole command.

    bench/supervised.py --build build [--rounds 5] [--steps 400] [--ranks 2] [-- OPTIONS OF ddp-train]
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

OPTIONS = ["--quiet", "--oversubscribe", "--bind-to", "none"]


def measure(command):
    """Seconds of a step (median, mean) and of the whole command."""
    with tempfile.TemporaryDirectory() as directory:
        begun = time.monotonic()
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True)
        seconds = time.monotonic() - begun
        if done.returncode != 0:
            sys.exit(f"supervised.py: {' '.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        steps = json.loads((pathlib.Path(directory) / "report" / "run.json").read_text())["step_seconds"]
        return steps["p50"], steps["mean"], seconds


def spread(values):
    return f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("training", nargs="*", help="options of ddp-train [--model mlp --data digits --checkpoint-dir ck]")
    arguments = parser.parse_args()
    os.environ.update(OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    binaries = arguments.build.resolve() / "bin"
    training = arguments.training or ["--model", "mlp", "--data", "digits", "--checkpoint-dir", "ck"]
    program = [str(binaries / "ddp-train"), *training, "--steps", str(arguments.steps), "--report-dir", "report"]
    ranks = str(arguments.ranks)
    alone = ["mpirun", *OPTIONS, "-n", ranks, *program]
    supervised = [
        str(binaries / "ddp-run"), "--launcher", "mpirun", "--launcher-options", " ".join(OPTIONS), "--ranks-per-node",
        ranks, "--", *program,
    ]  # fmt: skip
    ratios = []
    for round_ in range(arguments.rounds):
        # In every other round, ddp-run is first.
        order = [alone, supervised] if round_ % 2 == 0 else [supervised, alone]
        first, second = measure(order[0]), measure(order[1])
        without, with_ = (first, second) if round_ % 2 == 0 else (second, first)
        ratios.append([a / b for a, b in zip(without, with_)])
        print(
            f"round {round_ + 1}: p50 {without[0] * 1e3:.3f} ms alone, {with_[0] * 1e3:.3f} ms under ddp-run; "
            f"mean {without[1] * 1e3:.3f}, {with_[1] * 1e3:.3f}; whole {without[2]:.2f} s, {with_[2]:.2f} s",
            flush=True,
        )
    for name, column in zip(("p50 of a step", "mean of a step", "whole command"), zip(*ratios)):
        print(f"speed under ddp-run, {name}: {spread(column)} of that alone")


if __name__ == "__main__":
    main()
