#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of the training run of ours.cpp, with Python's DistributedDataParallel over Gloo.

Usage: theirs.py MICRO_BATCHES STEPS DIRECTORY, under mpirun
"""

import contextlib
import os
import sys

import torch
import torch.distributed as distributed

INPUTS, CLASSES, BATCH = 20, 5, 8


def wave(count, frequency, phase):
    index = torch.arange(count, dtype=torch.float64)
    return torch.sin(index * frequency + phase).to(torch.float32)


class Net(torch.nn.Module):
    def __init__(self, rank):
        super().__init__()
        self.first = torch.nn.Linear(INPUTS, 32)
        self.second = torch.nn.Linear(32, 24)
        self.third = torch.nn.Linear(24, CLASSES)
        with torch.no_grad():
            for number, p in enumerate(self.parameters()):
                p.copy_(0.3 * wave(p.numel(), 0.7, rank + 1.3 * number).view(p.shape))

    def forward(self, x):
        return self.third(torch.tanh(self.second(torch.tanh(self.first(x)))))


def loss_of(model, step, rank, micro_batch):
    phase = 0.11 * step + 0.53 * rank + 0.29 * micro_batch
    inputs = wave(BATCH * INPUTS, 0.37, phase).view(BATCH, INPUTS)
    targets = torch.remainder(3 * torch.arange(BATCH) + rank * micro_batch, CLASSES)
    return torch.nn.functional.cross_entropy(model(inputs), targets)


def main():
    micro_batches, steps, directory = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
    distributed.init_process_group("gloo", init_method=f"file://{directory}/rendezvous", rank=rank,
                                   world_size=int(os.environ["OMPI_COMM_WORLD_SIZE"]))
    net = Net(rank)
    model = torch.nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with open(f"{directory}/theirs-{rank}.f32", "wb") as file:
        for step in range(steps):
            optimizer.zero_grad(set_to_none=True)
            for micro_batch in range(micro_batches):
                last = micro_batch == micro_batches - 1
                with contextlib.nullcontext() if last else model.no_sync():
                    (loss_of(model, step, rank, micro_batch) / micro_batches).backward()
            optimizer.step()
            for p in net.parameters():
                file.write(p.detach().contiguous().numpy().tobytes())
    distributed.barrier()
    distributed.destroy_process_group()
    # Without the end of the interpreter, in which PyTorch 2.15 aborts now and then: "terminate called without an
    # active exception".
    os._exit(0)


if __name__ == "__main__":
    main()
