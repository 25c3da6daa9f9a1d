# SPDX-License-Identifier: Apache-2.0
"""Ranks that train over Gloo, until one of them fails in the given way: failing_ranks.py RANK KIND FILE. It writes the
time at which it does into the file."""
import ctypes
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

torch.set_num_threads(1)
rank = int(os.environ["RANK"])
culprit, kind, file = int(sys.argv[1]), sys.argv[2], sys.argv[3]


def fail():
    with open(file, "w") as out:
        out.write(str(time.time()))
    if kind == "exception":
        raise ValueError("bad sample 17")
    if kind == "exit code":
        os._exit(3)
    if kind == "exit code 0":
        os._exit(0)
    if kind == "SIGKILL":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "SIGSEGV":
        ctypes.string_at(0)
    if kind == "SIGABRT":
        os.abort()


if "handler" in sys.argv:  # as Lightning's: it only notes the signal
    signal.signal(signal.SIGTERM, lambda *_: None)
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(10**9):
    if step == 20 and rank == culprit:
        fail()
    optimizer.zero_grad()
    model(torch.randn(8, 64)).sum().backward()
    optimizer.step()
