#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how long training stands still after one of its workers was killed.

Starts the same PyTorch program by ddp-run and by torchrun in turns, kills a worker with SIGKILL, and
measures the time until the first step that was not made before. A third row has ddp-train, started
by ddp-run and mpirun.

    bench/recovery.py --ddp-run build/bin/ddp-run [--ddp-train build/bin/ddp-train] [--rounds 5]

needs a Python with PyTorch. The program saves its state after each step, so no step is lost.
"""

import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

STEPS_BEFORE = 20


def worker():
    """A data-parallel training that resumes from its newest step."""
    import datetime

    import torch
    import torch.distributed as dist

    # By default, a rank waits for half an hour for one whose node is gone, and torchrun for that rank.
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=30))
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rank = dist.get_rank()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    pathlib.Path(f"pid.{rank}").write_text(str(os.getpid()))
    state = pathlib.Path("state")
    step = 0
    if state.exists():
        saved = torch.load(state)
        model.load_state_dict(saved["model"])
        step = saved["step"]
    while True:
        optimizer.zero_grad()
        model(torch.randn(16, 64)).square().mean().backward()
        optimizer.step()
        step += 1
        if rank == 0:
            torch.save({"model": model.state_dict(), "step": step}, "state.new")
            os.replace("state.new", state)
            with open("steps", "a") as log:
                log.write(json.dumps({"step": step, "t": time.time()}) + "\n")
        dist.barrier()  # no rank is ahead of the state


def last_step(directory):
    """The newest step and its time."""
    try:
        lines = (directory / "steps").read_text().splitlines()
        last = json.loads(lines[-1])
        return last["step"], last["t"]
    except (OSError, IndexError, ValueError):
        return 0, 0.0


def progress_of_ddp_train(directory):
    """The newest step that ddp-train has told ddp-run."""
    newest = (0, 0.0)
    try:
        lines = (directory / "events.jsonl").read_text().splitlines()
    except OSError:
        return newest
    for line in lines:
        event = json.loads(line)
        if event.get("event") == "kept":
            newest = max(newest, (event["step"], event["t"]))
    return newest


def wait(process, condition, limit=120):
    end = time.monotonic() + limit
    while not condition():
        if process.poll() is not None or time.monotonic() > end:
            what = "ended" if process.poll() is not None else f"made no step within {limit} s"
            raise RuntimeError(f"the program {what}")
        time.sleep(0.005)


def measure(command, progress, victim):
    """Seconds from the SIGKILL to the first new step, and from the start to the first step."""
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        begun = time.time()
        with open(directory / "output", "w") as output:
            process = subprocess.Popen(command, cwd=directory, stdout=output, stderr=output, start_new_session=True)
        try:
            wait(process, lambda: progress(directory)[0] > 0)
            started = progress(directory)[1] - begun
            wait(process, lambda: progress(directory)[0] >= STEPS_BEFORE)
            pid = victim(directory)
            killed = time.time()
            os.kill(pid, signal.SIGKILL)
            time.sleep(0.2)  # a step that was under way
            before = progress(directory)[0]
            wait(process, lambda: progress(directory)[0] > before)
            return progress(directory)[1] - killed, started
        except RuntimeError as error:
            sys.exit(f"recovery.py: {error}: {' '.join(command)}\n{(directory / 'output').read_text()[-3000:]}")
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def newest_ddp_train(directory):
    for entry in sorted(pathlib.Path("/proc").glob("[0-9]*"), key=lambda e: -int(e.name)):
        try:
            if (entry / "comm").read_text().strip() == "ddp-train" and (entry / "cwd").readlink() == directory:
                return int(entry.name)
        except OSError:
            continue
    sys.exit("recovery.py: no ddp-train is running")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ddp-run", required=True)
    parser.add_argument("--ddp-train")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ranks", type=int, default=2)
    arguments = parser.parse_args()
    this = [sys.executable, os.path.abspath(__file__), "--worker"]
    ddp_run = os.path.abspath(arguments.ddp_run)
    ranks = str(arguments.ranks)
    written_pid = lambda directory: int((directory / "pid.1").read_text())
    rows = {
        "ddp-run": ([ddp_run, "--launcher", "direct", "--ranks-per-node", ranks, "--", *this], last_step, written_pid),
        "torchrun": (
            [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", ranks, "--max_restarts",
             "3", *this[1:]],
            last_step,
            written_pid,
        ),
    }
    if arguments.ddp_train:
        train = os.path.abspath(arguments.ddp_train)
        rows["ddp-run, ddp-train"] = (
            [ddp_run, "--launcher", "mpirun", "--launcher-options", "--oversubscribe --bind-to none",
             "--ranks-per-node", ranks, "--events", "events.jsonl", "--", train, "--model", "mlp", "--data", "digits",
             "--batch", "16", "--steps", "1000000", "--checkpoint-dir", "ck", "--checkpoint-every", "10"],
            progress_of_ddp_train,
            newest_ddp_train,
        )
    os.environ.update(OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    # Without these, torchrun of PyTorch 1.13 fails on Python 3.11.
    os.environ.update(PET_REDIRECTS="9:1", PET_TEE="9:1")
    recovered = {name: [] for name in rows}
    started = {name: [] for name in rows}
    for round_ in range(arguments.rounds):
        for name, row in rows.items():
            seconds, start = measure(*row)
            recovered[name].append(seconds)
            started[name].append(start)
            print(f"round {round_ + 1}: {name}: {seconds:.2f} s after the kill, {start:.2f} s after the start", flush=True)
    for name in rows:
        ratios = [mine / theirs for mine, theirs in zip(recovered[name], recovered["torchrun"])]
        print(
            f"{name}: kill to step {statistics.median(recovered[name]):.2f} s ({min(recovered[name]):.2f} to "
            f"{max(recovered[name]):.2f}), start to step {statistics.median(started[name]):.2f} s, "
            f"to torchrun {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
        )


if __name__ == "__main__":
    worker() if sys.argv[1:] == ["--worker"] else main()
