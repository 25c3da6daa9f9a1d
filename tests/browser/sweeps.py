#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes run.json files of sweeps whose charts are hard to draw.

usage: sweeps.py DIRECTORY    writes DIRECTORY/SWEEP/RUN/run.json
"""
import json
import math
import pathlib
import sys

PHASES = ("data", "forward", "backward", "exposed_comm", "optimizer", "checkpoint", "other")


def run(world_size, batch, parts, factor=1.0):
    seconds = {name: part * factor for name, part in zip(PHASES, parts)}
    mean = sum(seconds.values())
    seconds.update(mean=mean, p50=0.98 * mean, p95=1.2 * mean)
    return {
        "schema": "slurm-ddp/run/1", "program": "ddp-train 0.1.0",
        "command": f"ddp-train --model resnet50 --data cifar10:/data --batch {batch // world_size}",
        "started_unix": 1700000000.0 + world_size, "world_size": world_size,
        "nodes": max(1, world_size // 8), "backend": "mpi", "device": "cpu", "model": "resnet50",
        "data": "cifar10", "parameters": 25557032, "global_batch": batch, "steps": 500,
        "samples_per_second": batch / mean,
        "final": {"train_loss": 0.1, "eval_loss": 0.2, "eval_accuracy": 0.931},
        "parameters_crc32c": "0x1234abcd", "step_seconds": seconds,
        "comm": {"bytes_per_step": 102228128, "busbw_GBps": 9.1,
                 "overlap_ratio": None if world_size == 1 else 0.9 / (1 + 0.1 * math.log2(world_size))},
        "ranks": [{"rank": r, "node": f"node{r // 8 + 1}", "step_seconds": seconds}
                  for r in range(min(world_size, 128))],
        "environment": {"SLURM_JOB_ID": "4711"},
    }


def strong(n):
    return [0.004 / n + 0.0004 * math.log2(n), 0.3 / n, 0.62 / n,
            0.0 if n == 1 else 0.003 + 0.0006 * math.log2(n), 0.004, 0.0008, 0.0006]


def weak(n):
    return [0.004, 0.3, 0.62, 0.01 * math.log2(n) if n > 1 else 0.0, 0.004, 0.0008, 0.0006]


SWEEPS = {
    "strong": [run(n, 512, strong(n), f) for n in (1, 2, 4, 8, 16, 32, 64) for f in (0.97, 1.0, 1.05)],
    "weak": [run(n, 64 * n, weak(n)) for n in (1, 2, 4, 8)],
    "one": [run(4, 512, strong(4))],
    "two": [run(1, 512, strong(1)), run(2, 512, strong(2))],
    "crowded": [run(n, 4096, strong(n)) for n in (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64, 96, 128,
                                                  192, 256, 384, 512)],
    "poor": [run(n, 64, [1e-6, 3e-5 / n, 6e-5 / n, 2e-4 if n > 1 else 0, 2e-5, 0, 3e-6]) for n in (1, 2, 4)],
    "faster": [run(1, 64, strong(1)), run(2, 64, strong(4)), run(4, 64, strong(12))],
    "huge": [run(n, 65536 * n, weak(n), 1e-4) for n in (1, 1024, 65536)],
}

if __name__ == "__main__":
    for sweep, runs in SWEEPS.items():
        for i, record in enumerate(runs):
            directory = pathlib.Path(sys.argv[1]) / sweep / f"run-{i:02}"
            directory.mkdir(parents=True)
            (directory / "run.json").write_text(json.dumps(record))
