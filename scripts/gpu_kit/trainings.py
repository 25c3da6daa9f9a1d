# SPDX-License-Identifier: Apache-2.0
"""What the parts share: programs of the kit, ranks that share a GPU, and what ddp-train prints."""

import os
import pathlib
import re
import signal
import time

from machine import NCCL_FOR_SHARED_GPUS, nccl_text
from runner import Step


def program(session, name):
    return session.kit / "bin" / name


def test(session, name):
    return session.kit / "tests" / name


def unless_there(file):
    return "" if file.exists() else f"the kit has no {file.name}"


def ranks(session, number, *command):
    return [session.kit / "mpi/bin/mpirun", "--quiet", "-n", number, *command]


# With NCCL 2.30 or newer. The limit of thread blocks leaves room for those of the other rank.
SHARES_A_GPU = {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_MAX_CTAS": "8"}


def shared_gpu(session, number=2):
    """Returns the variables with which ranks run on this machine's GPUs, or the reason why they cannot."""
    machine = session.machine
    if machine.gpus >= number:
        return {}, ""
    file, version = machine.nccl[0] if machine.nccl else (None, 0)
    if version < NCCL_FOR_SHARED_GPUS:
        newest = f"the newest here is {nccl_text(version)}" if version else "there is none here"
        return {}, machine.no_gpu or f"{number} ranks need {number} GPUs, or NCCL 2.30 to share one; {newest}; see --nccl"
    return {"GPU_TEST_NCCL_LIBRARY": str(file), **SHARES_A_GPU}, ""


def trainings_on(session, number=2):
    """The same for ddp-train, which takes the NCCL that is in the process already."""
    variables, impossible = shared_gpu(session, number)
    variables = dict(variables)
    if "GPU_TEST_NCCL_LIBRARY" in variables:
        variables["LD_PRELOAD"] = variables.pop("GPU_TEST_NCCL_LIBRARY")
    return variables, impossible


DONE = re.compile(r"^done: \d+ steps, .*parameters (0x[0-9a-f]{8})", re.MULTILINE)


def understand_training(text):
    """Reads the last line of ddp-train."""
    done = DONE.search(text)
    if not done:
        return "", {}, False
    numbers = {name: float(value) for name, value in re.findall(r"(train loss|accuracy) ([\d.]+)", done[0])}
    return done[0], {**numbers, "parameters": done[1]}, True


def rank_processes(mpirun):
    """Returns {rank: process ID} of the children of mpirun."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            variables = (entry / "environ").read_bytes().split(b"\0") if parent == mpirun else []
        except OSError:
            continue
        for variable in variables:
            if variable.startswith(b"OMPI_COMM_WORLD_RANK="):
                found[int(variable.split(b"=")[1])] = int(entry.name)
    return found


def wait_until(condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def kill_one_of_two_ranks(session, options=(), environment=None):
    """Kills rank 1 of a training, and measures the time until rank 0 has exited by itself."""
    directory = session.work / f"killed-{len(list(session.work.iterdir()))}"
    train = [program(session, "ddp-train"), "--data", "synthetic", "--steps", 1000000, *options]
    saving = ["--checkpoint-dir", directory, "--checkpoint-every", 5]
    step = Step("kill", ranks(session, 2, "--enable-recovery", *train, *saving), environment=environment or {})
    file = session.work / "killed.log"
    with open(file, "wb") as output, session.running(step, output) as mpirun:
        if not wait_until(lambda: list(directory.glob("step-*")), min(60, session.left())):
            return False, "the training did not begin", {}
        processes = rank_processes(mpirun.pid)
        begin = time.monotonic()
        os.kill(processes[1], signal.SIGKILL)
        ended = wait_until(lambda: 0 not in rank_processes(mpirun.pid), min(60, session.left()))
        seconds = round(time.monotonic() - begin, 2)
    text = file.read_text(errors="replace")
    session.log.write(text)
    named = re.search(r"rank 1 \(.*\) exited unexpectedly", text)
    note = f"rank 0 exited {seconds} s later and named rank 1" if named else "rank 0 did not name rank 1"
    return ended and bool(named), note if ended else "rank 0 still runs after 60 s", {"seconds": seconds}
