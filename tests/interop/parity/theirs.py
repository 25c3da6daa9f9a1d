#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of the training runs of ours.cpp, with Python's DistributedDataParallel over Gloo, autocast and torch.optim.

Usage: theirs.py STEPS DIRECTORY, under mpirun      DIRECTORY has cases.json (cases.py)
       theirs.py types: prints the types of cases.py that this PyTorch can train
"""

import contextlib
import json
import os
import sys

import torch
import torch.distributed as distributed

INPUTS, CLASSES, BATCH = 20, 5, 8
OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW,
              "rmsprop": torch.optim.RMSprop, "adagrad": torch.optim.Adagrad}
AUTOCAST = {"bf16": torch.bfloat16, "bf16_weights": torch.bfloat16, "fp16": torch.float16}


def wave(count, frequency, phase, type_):
    index = torch.arange(count, dtype=torch.float64)
    return torch.sin(index * frequency + phase).to(type_)


class Net(torch.nn.Module):
    def __init__(self, rank, type_):
        super().__init__()
        self.first = torch.nn.Linear(INPUTS, 32)
        self.second = torch.nn.Linear(32, 24)
        self.third = torch.nn.Linear(24, CLASSES)
        self.to(type_)
        with torch.no_grad():
            for number, p in enumerate(self.parameters()):
                p.copy_(0.3 * wave(p.numel(), 0.7, rank + 1.3 * number, type_).view(p.shape))

    def forward(self, x):
        return self.third(torch.tanh(self.second(torch.tanh(self.first(x)))))


def loss_of(model, step, rank, micro_batch, type_):
    phase = 0.11 * step + 0.53 * rank + 0.29 * micro_batch
    inputs = wave(BATCH * INPUTS, 0.37, phase, type_).view(BATCH, INPUTS)
    targets = torch.remainder(3 * torch.arange(BATCH) + rank * micro_batch, CLASSES)
    return torch.nn.functional.cross_entropy(model(inputs), targets)


class Bf16Weights:
    """Matrices in bf16 with masters in fp32, by hand: Gloo reduces no bf16 before PyTorch 2, and torch.optim keeps no
    masters. Gradients have the type of their weights and are averaged in fp32, rounded once."""

    def __init__(self, net):
        for p in net.parameters():
            distributed.broadcast(p.data, 0)
        self.values = [p.detach().bfloat16().float().requires_grad_() if p.dim() > 1 else p for p in net.parameters()]
        for p in net.parameters():
            if p.dim() > 1:
                p.data = p.data.bfloat16()
        self.parameters = list(net.parameters())

    def average_gradients(self):
        for p, value in zip(self.parameters, self.values):
            mean = p.grad.float() / distributed.get_world_size()
            distributed.all_reduce(mean)
            p.grad = mean.to(p.dtype)
            value.grad = p.grad.float()

    def round_masters(self):
        with torch.no_grad():
            for p, value in zip(self.parameters, self.values):
                if p is not value:
                    p.copy_(value)
                    p.grad = None


def optimizer_arguments(case, values):
    """Returns the parameter groups, the class of the optimizer, and its other arguments."""
    matrices = [v for v in values if v.dim() > 1]
    biases = [v for v in values if v.dim() == 1]
    rate = case["options"]["lr"] * (1 if case["like_ddp_train"] else 2)
    groups = [{"params": matrices}, {"params": biases, "weight_decay": 0, "lr": rate}]
    # Without the default of AdamW's weight decay, which differs from that of the others.
    return groups, OPTIMIZERS[case["optimizer"]], {"weight_decay": 0, **case["options"]}


def train(case, rank, steps, file):
    type_ = torch.float64 if case["type"] == "fp64" else torch.float32
    net = Net(rank, type_)
    masters = Bf16Weights(net) if case["type"] == "bf16_weights" else None
    model = net if masters else torch.nn.parallel.DistributedDataParallel(net)
    values = masters.values if masters else list(net.parameters())
    groups, kind, options = optimizer_arguments(case, values)
    optimizer = kind(groups, **options)
    autocast = AUTOCAST.get(case["type"])
    scaler = torch.amp.GradScaler("cpu") if case["type"] == "fp16" else None
    for step in range(steps):
        optimizer.zero_grad(set_to_none=True)
        for micro_batch in range(case["micro_batches"]):
            last = micro_batch == case["micro_batches"] - 1
            with contextlib.nullcontext() if last or masters else model.no_sync():
                with torch.autocast("cpu", dtype=autocast) if autocast else contextlib.nullcontext():
                    loss = loss_of(model, step, rank, micro_batch, type_) / case["micro_batches"]
                (scaler.scale(loss) if scaler else loss).backward()
        if masters:
            masters.average_gradients()
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        if masters:
            masters.round_masters()
        for value in values:
            file.write(value.detach().contiguous().numpy().tobytes())


def types():
    try:
        torch.ones(2, 2, dtype=torch.float16) @ torch.ones(2, 2, dtype=torch.float16)
        torch.amp.GradScaler("cpu")
    except (RuntimeError, AttributeError):
        return ["fp32", "fp64", "bf16", "bf16_weights"]
    return ["fp32", "fp64", "bf16", "bf16_weights", "fp16"]


def finish(rank, directory):
    """Does not return."""
    if rank == 0:
        with open(f"{directory}/theirs-release", "w", encoding="utf-8") as file:
            file.write(torch.__version__)
    distributed.barrier()
    distributed.destroy_process_group()
    # Without the end of the interpreter, in which PyTorch 2.15 aborts now and then: "terminate called without an
    # active exception".
    sys.stdout.flush()
    os._exit(0)


def main():
    if sys.argv[1] == "types":
        print(*types())
        return
    steps, directory = int(sys.argv[1]), sys.argv[2]
    rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
    distributed.init_process_group("gloo", init_method=f"file://{directory}/rendezvous", rank=rank,
                                   world_size=int(os.environ["OMPI_COMM_WORLD_SIZE"]))
    with open(f"{directory}/cases.json", encoding="utf-8") as file:
        cases = json.load(file)
    for number, case in enumerate(cases):
        with open(f"{directory}/theirs-{number}-{rank}", "wb") as file:
            train(case, rank, steps, file)
    finish(rank, directory)


if __name__ == "__main__":
    main()
