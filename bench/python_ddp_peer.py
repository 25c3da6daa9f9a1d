#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of PyTorch's DistributedDataParallel over Gloo, or over NCCL on GPUs, started by ddp-bench for comparison.
With "shard", it divides the training among the ranks (python_shards.py), and with "pipeline", the model is cut into
stages (python_pipeline.py).

Reads requests as lines of JSON from standard input and answers on standard output: first the
training configuration, then the address of rank 0, then {"run": K} any number of times. The
process sleeps between requests. It exits at the end of its input, or when the process that
started it exits.
"""

import ctypes
import json
import os
import signal
import sys
import time

import python_models
import python_pipeline
import python_shards


def end_with_parent():
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    if os.getppid() == 1:  # the parent exited before the call
        sys.exit(1)


def answers():
    """Reserves standard output for answers: output of libraries goes to standard error."""
    stream = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return stream


def why_not(torch, spec):
    """Returns why this PyTorch cannot run the step, or nothing."""
    on_gpu, kind = spec["device"] != "cpu", spec["step"]
    if on_gpu and not torch.cuda.is_available():
        return "this PyTorch sees no GPU"
    if on_gpu and not torch.distributed.is_nccl_available():
        return "this PyTorch has no NCCL"
    if not on_gpu and not torch.distributed.is_gloo_available():
        return "this PyTorch has no Gloo"
    if kind != "eager" and python_shards.release(torch) < (2, 4):
        return f"PyTorch {torch.__version__} is too old for --python-step {kind}, which needs 2.4"
    if kind == "graph" and not on_gpu:
        return "--python-step graph needs --device cuda"
    if spec["shard"] and kind in ("graph", "compile"):
        return f"--shard is compared with --python-step eager or fused, not with {kind}"
    if spec["pipeline"]:
        return python_pipeline.why_not(torch, spec)
    return python_shards.why_not(torch, spec["shard"])


def optimizer_of(optim, spec):
    """Returns the class of the optimizer and its options."""
    options = {} if spec["step"] == "eager" else {"fused": True}
    if spec["optimizer"] == "sgd":
        return optim.SGD, {"lr": 0.01, "momentum": 0.9, **options}
    if spec["step"] == "graph":
        options["capturable"] = True
    return {"adam": optim.Adam, "adamw": optim.AdamW}[spec["optimizer"]], {"lr": 1e-4, **options}


class Replica:
    """One rank of the training, with the same step as in ddp-bench itself."""

    def __init__(self, torch, spec, store):
        self.torch = torch
        device = torch.device(spec["device"])
        self.on_gpu = device.type == "cuda"
        if self.on_gpu:
            torch.cuda.set_device(device)
            torch.backends.cudnn.benchmark = True  # as in ddp-bench
        torch.distributed.init_process_group(
            "nccl" if self.on_gpu else "gloo", store=store, rank=spec["rank"], world_size=spec["world_size"])
        torch.manual_seed(1)
        if spec["pipeline"]:
            self.step = python_pipeline.Pipeline(torch, spec, *optimizer_of(torch.optim, spec)).step
            return
        model = python_models.make_model(torch.nn, spec).to(device)
        if spec["channels_last"]:
            model = model.to(memory_format=torch.channels_last)
        samples = [spec["batch"]] + spec["input"]
        if spec["tokens"]:
            inputs = torch.randint(0, spec["classes"], samples)
            targets = torch.randint(0, spec["classes"], samples)
        else:
            inputs = torch.randn(samples)
            targets = torch.randint(0, spec["classes"], [spec["batch"]])
        if spec["channels_last"]:
            inputs = inputs.to(memory_format=torch.channels_last)
        self.inputs, self.targets = inputs.to(device), targets.to(device)
        self.loss = torch.nn.functional.cross_entropy
        self.autocast = {"device_type": device.type, "dtype": torch.bfloat16, "enabled": spec["precision"] == "bf16"}
        self.step = self.eager_step
        if spec["step"] == "graph":
            self.capture(model, spec)
        else:
            self.wrap(model, spec)
            if spec["step"] == "compile":
                self.model = torch.compile(self.model)

    def wrap(self, model, spec):
        kind, options = optimizer_of(self.torch.optim, spec)
        self.model = python_shards.wrap(self.torch, model, spec["shard"], spec["ddp_arguments"])
        self.optimizer = python_shards.make_optimizer(self.model.parameters(), spec["shard"], kind, options)

    def capture(self, model, spec):
        """Captures the whole step, by the rules in PyTorch's notes on CUDA graphs with DistributedDataParallel."""
        cuda = self.torch.cuda
        stream = cuda.Stream()
        stream.wait_stream(cuda.current_stream())  # which moved the model and the batch
        with cuda.stream(stream):
            self.wrap(model, spec)
            for _ in range(11):
                self.eager_step()
        cuda.synchronize()
        graph = cuda.CUDAGraph()
        with cuda.graph(graph, stream=stream):
            self.eager_step()
        self.step = graph.replay

    def eager_step(self):
        self.optimizer.zero_grad(set_to_none=True)
        with self.torch.autocast(**self.autocast):
            scores = self.model(self.inputs)
            loss = self.loss(scores.flatten(0, -2), self.targets.flatten())
        loss.backward()
        self.optimizer.step()

    def run(self, steps):
        return self.run_block(steps) if self.on_gpu else [self.run_block(1)[0] for _ in range(steps)]

    def run_block(self, steps):
        """A GPU runs behind the host, so that only the time of several steps is known."""
        begin = time.perf_counter()
        for _ in range(steps):
            self.step()
        if self.on_gpu:
            self.torch.cuda.synchronize()
        return [(time.perf_counter() - begin) / steps] * steps


def converse(questions, answer):
    spec = json.loads(questions.readline())
    if spec["step"] == "graph":  # which must not be disturbed by a thread that asks for the state of events
        os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "0"
    import torch  # imported here, so that its absence is reported as an answer
    import torch.distributed as distributed
    reason = why_not(torch, spec)
    if reason:
        answer(error=reason)
        return
    torch.set_num_threads(spec["threads"])
    parameters = sum(p.numel() for p in python_models.make_model(torch.nn, spec).parameters())
    # Rank 0 listens on a port that the kernel chooses, so that it cannot be in use.
    store = None
    if spec["rank"] == 0:
        store = distributed.TCPStore("localhost", 0, spec["world_size"], is_master=True,
                                     wait_for_workers=False)
    answer(version=torch.__version__, parameters=parameters, port=store.port if store else 0)

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
    # Skips the shutdown of Gloo or NCCL, which waits for the other ranks.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
