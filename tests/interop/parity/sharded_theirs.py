#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of the training runs of sharded_ours.cpp, with ZeroRedundancyOptimizer and FSDP2 over Gloo.

Usage: sharded_theirs.py STEPS DIRECTORY, under mpirun      DIRECTORY has cases.json: cases.sharded()
       sharded_theirs.py fsdp2: prints why this PyTorch has no FSDP2, or nothing
"""

import json
import os
import pathlib
import sys

import torch
import torch.distributed as distributed

import cases
import theirs

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "bench"))
import python_models  # pylint: disable=wrong-import-position
import python_shards  # pylint: disable=wrong-import-position

SAMPLES = 6


def model_of(spec, type_):
    """FSDP2 does not copy rank 0's values, so all ranks start with them."""
    model = python_models.make_model(torch.nn, spec).to(type_)
    with torch.no_grad():
        for number, p in enumerate(model.parameters()):
            p.copy_(0.3 * theirs.wave(p.numel(), 0.7, 1.3 * number, type_).view(p.shape))
    return model


def loss_of(model, spec, step, rank, type_):
    classes, shape = spec["classes"], [SAMPLES] + spec["input"]
    index = torch.arange(torch.tensor(shape).prod().item())
    if spec["tokens"]:
        inputs = torch.remainder(index * index + 5 * step + 11 * rank, classes).view(shape)
        targets = torch.remainder(3 * inputs + 1, classes).flatten()
    else:
        inputs = theirs.wave(len(index), 0.37, 0.11 * step + 0.53 * rank, type_).view(shape)
        targets = torch.remainder(3 * torch.arange(SAMPLES) + rank, classes)
    return torch.nn.functional.cross_entropy(model(inputs).flatten(0, -2), targets)


def train(case, shard, rank, steps, file):
    type_ = torch.float64 if case["type"] == "fp64" else torch.float32
    model = python_shards.wrap(torch, model_of(case["model"], type_), shard, {})
    parameters = list(model.parameters())
    groups, kind, options = theirs.optimizer_arguments(case, parameters)
    optimizer = python_shards.make_optimizer(groups, shard, kind, options)
    for step in range(steps):
        optimizer.zero_grad(set_to_none=True)
        loss_of(model, case["model"], step, rank, type_).backward()
        optimizer.step()
        for p in parameters:
            whole = p.full_tensor() if python_shards.uses_fsdp2(shard) else p
            file.write(whole.detach().contiguous().numpy().tobytes())


def main():
    no_fsdp2 = python_shards.why_not(torch, "parameters")
    if sys.argv[1] == "fsdp2":
        print(no_fsdp2)
        return
    steps, directory = int(sys.argv[1]), sys.argv[2]
    rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
    distributed.init_process_group("gloo", init_method=f"file://{directory}/rendezvous", rank=rank,
                                   world_size=int(os.environ["OMPI_COMM_WORLD_SIZE"]))
    with open(f"{directory}/cases.json", encoding="utf-8") as file:
        runs = json.load(file)
    if rank == 0:
        sizes = [[p.numel() for p in model_of(case["model"], torch.float32).parameters()] for case in runs]
        pathlib.Path(directory, "sizes.json").write_text(json.dumps(sizes), encoding="utf-8")
    for number, case in enumerate(runs):
        for shard in cases.SHARDS[:1] if no_fsdp2 else cases.SHARDS:
            with open(f"{directory}/theirs-{number}-{shard}-{rank}", "wb") as file:
                train(case, shard, rank, steps, file)
    theirs.finish(rank, directory)


if __name__ == "__main__":
    main()
