# SPDX-License-Identifier: Apache-2.0
"""Three ranks that train over Gloo for some steps and then hang in the given way. Rank 1 is the cause, if there is one."""
import atexit
import ctypes
import datetime
import fcntl
import hashlib
import os
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
HOUR = datetime.timedelta(hours=1)
kind = sys.argv[1]
rank = int(os.environ["RANK"])
is_cause = rank == 1


class Samples(Dataset):
    def __len__(self):
        return 100000

    def __getitem__(self, number):
        if is_cause and number > 40 and kind == "loader sleeps":
            time.sleep(3600)
        if is_cause and number > 40 and kind == "loader waits for a lock":
            lock.acquire()
        return torch.randn(64)


def average():
    dist.all_reduce(torch.ones(4))


def step():
    optimizer.zero_grad()
    model(next(batches)).sum().backward()
    optimizer.step()
    average()


def spin():
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)  # without the interpreter's lock


def poll():
    while not os.path.exists("never"):
        time.sleep(0.1)


def hang():
    if kind.startswith("loader "):
        while True:
            step()
    if kind == "one collective left out":
        if is_cause:
            store.wait(["never"], HOUR)
        average()
    if kind == "one collective too many":
        if is_cause:
            average()
        store.wait(["never"], HOUR)
    if kind == "different collectives":
        if is_cause:
            dist.barrier()
            dist.barrier()
        for _ in range(3):
            average()
    if kind == "all receive":
        dist.recv(torch.ones(1), src=(rank + 1) % 3)
    if kind == "stopped" and is_cause:
        os.kill(os.getpid(), signal.SIGSTOP)
    if kind == "ends with 0" and is_cause:
        os._exit(0)
    if kind == "exception" and is_cause:
        raise ValueError("bad sample 17")
    if kind == "killed" and is_cause:
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "exception, and a thread continues" and is_cause:
        threading.Thread(target=time.sleep, args=(3600,)).start()
        raise ValueError("bad sample 17")
    if kind == "hangs in its exit" and is_cause:
        never = threading.Lock()
        never.acquire()
        atexit.register(never.acquire)
        sys.exit(0)
    if kind == "opens a FIFO" and is_cause:
        os.mkfifo("fifo")
        open("fifo").read()
    if kind == "file lock":
        lock_file = open("lock", "w")
        if rank == 0:
            fcntl.flock(lock_file, fcntl.LOCK_EX)
        dist.barrier()
        if is_cause:
            fcntl.flock(lock_file, fcntl.LOCK_EX)
    if kind == "debugger" and is_cause:
        reader, _ = os.pipe()
        os.dup2(reader, 0)
        sys.stdin = open(0)
        breakpoint()
    if kind == "uninterruptible" and is_cause and ctypes.CDLL(None).vfork() == 0:
        ctypes.CDLL(None).pause()
    if kind == "waits in C code with the interpreter's lock":
        taken = open("lock", "w")
        if rank == 0:
            fcntl.flock(taken, fcntl.LOCK_EX)
        dist.barrier()
        if is_cause:
            ctypes.PyDLL(None).flock(taken.fileno(), fcntl.LOCK_EX)
    if kind == "spins in C code with the interpreter's lock" and is_cause:
        sum(iter(int, 1))
    if kind == "polls for a file" and is_cause:
        poll()
    if kind == "all spin":
        spin()
    store.wait(["never"], HOUR) if kind in ("ends with 0", "exception", "killed") else average()


store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), 3, rank == 0)
dist.init_process_group("gloo", store=store, rank=rank, world_size=3, timeout=HOUR)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
lock = threading.Lock()
lock.acquire()
batches = iter(DataLoader(Samples(), batch_size=4, num_workers=1 if kind.startswith("loader ") else 0))
for _ in range(5):
    step()
hang()
