#!/usr/bin/python3
"""PyTorch's DistributedDataParallel over Gloo as one rank, started by ddp-bench beside its own.

Lines of JSON come in on standard input and are answered on standard output: first what to train,
then where rank 0 is, then {"run": K} as often as wanted. Between lines the process sleeps. It ends
with its input, or with the process that started it.
"""

import ctypes
import json
import os
import signal
import sys
import time


def end_with_parent():
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    if os.getppid() == 1:  # it ended before the call
        sys.exit(1)


def answers():
    """Standard output for answers alone: whatever libraries print goes to standard error."""
    stream = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return stream


def make_model(nn, spec):
    """The models of ddp_runtime/models, layer by layer."""
    if spec["model"] == "mlp":
        width = spec["width"] or 128
        sizes = [spec["input"][0]] + [width] * (spec["layers"] or 2)
        layers = [nn.Flatten(1)]
        for before, after in zip(sizes, sizes[1:]):
            layers += [nn.Linear(before, after), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(sizes[-1], spec["classes"]))
    if spec["model"] == "mnist-cnn":
        channels, height, width = spec["input"]
        features = spec["width"] or 16
        return nn.Sequential(
            nn.Conv2d(channels, features, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(features, 2 * features, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(1),
            nn.Linear(2 * features * (height // 4) * (width // 4), 8 * features), nn.ReLU(),
            nn.Linear(8 * features, spec["classes"]))
    raise ValueError(f"no model '{spec['model']}' in Python")


class Replica:
    """One rank of the training: what ddp-bench's own step does."""

    def __init__(self, torch, spec, store):
        torch.distributed.init_process_group(
            "gloo", store=store, rank=spec["rank"], world_size=spec["world_size"])
        torch.manual_seed(1)
        self.model = torch.nn.parallel.DistributedDataParallel(
            make_model(torch.nn, spec), **spec["ddp_arguments"])
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.inputs = torch.randn([spec["batch"]] + spec["input"])
        self.targets = torch.randint(0, spec["classes"], [spec["batch"]])
        self.loss = torch.nn.functional.cross_entropy

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        self.loss(self.model(self.inputs), self.targets).backward()
        self.optimizer.step()

    def run(self, steps):
        seconds = []
        for _ in range(steps):
            begin = time.perf_counter()
            self.step()
            seconds.append(time.perf_counter() - begin)
        return seconds


def converse(questions, answer):
    spec = json.loads(questions.readline())
    import torch  # here, so that its absence is an answer
    import torch.distributed as distributed
    if not distributed.is_gloo_available():
        raise RuntimeError("this PyTorch has no Gloo")
    torch.set_num_threads(spec["threads"])
    make_model(torch.nn, spec)
    # Rank 0 listens on a port that the kernel chooses, so that no other program can be in the way.
    store = None
    if spec["rank"] == 0:
        store = distributed.TCPStore("localhost", 0, spec["world_size"], is_master=True,
                                     wait_for_workers=False)
    answer(version=torch.__version__, port=store.port if store else 0)

    place = json.loads(questions.readline())
    if not store:
        store = distributed.TCPStore(place["leader"], place["port"], spec["world_size"],
                                     is_master=False)
    replica = Replica(torch, spec, store)
    answer(connected=True)
    for line in questions:
        answer(seconds=replica.run(json.loads(line)["run"]))


def main():
    end_with_parent()
    stream = answers()

    def answer(**values):
        print(json.dumps(values), file=stream)

    try:
        converse(sys.stdin, answer)
    except Exception as error:  # pylint: disable=broad-except
        answer(error=f"{type(error).__name__}: {error}")
        return 1
    # Without Gloo's own farewell, which waits for the other ranks.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
