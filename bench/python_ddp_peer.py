#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of PyTorch's DistributedDataParallel over Gloo, or over NCCL on GPUs, started by ddp-bench for comparison.

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
    if spec["model"] == "resnet18":
        return resnet(nn, spec, (2, 2, 2, 2), lambda width, stride: [(width, 3, stride), (width, 3, 1)])
    if spec["model"] == "resnet50":
        return resnet(nn, spec, (3, 4, 6, 3), lambda width, stride: [(width, 1, 1), (width, 3, stride),
                                                                     (4 * width, 1, 1)])
    if spec["model"] == "gpt":
        return gpt(nn, spec)
    raise ValueError(f"no model '{spec['model']}' in Python")


def resnet(nn, spec, blocks, block):
    """A residual network; block(width, stride) gives the output channels, kernel and stride of its convolutions."""

    def convolution(before, after, kernel, stride=1):
        return nn.Conv2d(before, after, kernel, stride, kernel // 2, bias=False)

    class Block(nn.Module):
        def __init__(self, before, sizes):
            super().__init__()
            inputs, total = before, 1
            self.convolutions, self.norms = nn.ModuleList(), nn.ModuleList()
            for after, kernel, stride in sizes:
                self.convolutions.append(convolution(inputs, after, kernel, stride))
                self.norms.append(nn.BatchNorm2d(after))
                inputs, total = after, total * stride
            self.relu = nn.ReLU(inplace=True)
            self.downsample = None
            if before != inputs or total != 1:
                self.downsample = nn.Sequential(convolution(before, inputs, 1, total), nn.BatchNorm2d(inputs))

        def forward(self, inputs):
            x = inputs
            for i, (convolve, normalize) in enumerate(zip(self.convolutions, self.norms)):
                x = normalize(convolve(self.relu(x) if i > 0 else x))
            x += self.downsample(inputs) if self.downsample else inputs
            return self.relu(x)

    width, (channels, height, breadth) = spec["width"] or 64, spec["input"]
    small = height <= 32 and breadth <= 32
    layers = [convolution(channels, width, 3) if small else convolution(channels, width, 7, 2),
              nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
    if not small:
        layers.append(nn.MaxPool2d(3, 2, 1))
    before = width
    for stage, count in enumerate(blocks):
        for i in range(count):
            sizes = block(width << stage, 2 if stage > 0 and i == 0 else 1)
            layers.append(Block(before, sizes))
            before = sizes[-1][0]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(1), nn.Linear(before, spec["classes"]))


def gpt(nn, spec):
    """A pre-norm, causal transformer whose output layer is tied to the token embedding."""
    import torch

    width, heads = spec["width"], spec["heads"]

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1 = nn.LayerNorm(width)
            self.qkv = nn.Linear(width, 3 * width)
            self.projection = nn.Linear(width, width)
            self.norm2 = nn.LayerNorm(width)
            self.expand = nn.Linear(width, 4 * width)
            self.contract = nn.Linear(4 * width, width)
            self.gelu = nn.GELU(approximate="tanh")

        def attention(self, x, mask):
            n, t, _ = x.shape
            d = width // heads
            qkv = self.qkv(x).view(n, t, 3, heads, d).permute(2, 0, 3, 1, 4)
            if hasattr(nn.functional, "scaled_dot_product_attention"):  # PyTorch 2.x
                mixed = nn.functional.scaled_dot_product_attention(*qkv.unbind(0), is_causal=True)
                return self.projection(mixed.transpose(1, 2).reshape(n, t, width))
            query, key, value = qkv.reshape(3, n * heads, t, d).unbind(0)
            scores = torch.baddbmm(mask, query, key.transpose(1, 2), beta=1, alpha=d ** -0.5)
            mixed = torch.bmm(torch.softmax(scores, -1), value)
            return self.projection(
                mixed.view(n, heads, t, d).transpose(1, 2).reshape(n, t, width))

        def forward(self, x, mask):
            y = x + self.attention(self.norm1(x), mask)
            return y + self.contract(self.gelu(self.expand(self.norm2(y))))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(spec["classes"], width)
            self.positions = nn.Embedding(spec["input"][0], width)
            self.blocks = nn.ModuleList(Block() for _ in range(spec["layers"]))
            self.norm = nn.LayerNorm(width)

        def forward(self, inputs):
            t = inputs.shape[1]
            fused = hasattr(nn.functional, "scaled_dot_product_attention")
            mask = None if fused else torch.full((t, t), float("-inf"), device=inputs.device).triu(1)
            x = self.tokens(inputs) + self.positions.weight[:t]
            for block in self.blocks:
                x = block(x, mask)
            return nn.functional.linear(self.norm(x), self.tokens.weight)

    return Gpt()


def why_not(torch, spec):
    """Returns why this PyTorch cannot run the step, or nothing."""
    on_gpu, kind = spec["device"] != "cpu", spec["step"]
    if on_gpu and not torch.cuda.is_available():
        return "this PyTorch sees no GPU"
    if on_gpu and not torch.distributed.is_nccl_available():
        return "this PyTorch has no NCCL"
    if not on_gpu and not torch.distributed.is_gloo_available():
        return "this PyTorch has no Gloo"
    if kind != "eager" and tuple(map(int, torch.__version__.split(".")[:2])) < (2, 4):
        return f"PyTorch {torch.__version__} is too old for --python-step {kind}, which needs 2.4"
    if kind == "graph" and not on_gpu:
        return "--python-step graph needs --device cuda"
    return ""


def make_optimizer(optim, parameters, spec):
    options = {} if spec["step"] == "eager" else {"fused": True}
    if spec["optimizer"] == "sgd":
        return optim.SGD(parameters, lr=0.01, momentum=0.9, **options)
    if spec["step"] == "graph":
        options["capturable"] = True
    return {"adam": optim.Adam, "adamw": optim.AdamW}[spec["optimizer"]](parameters, lr=1e-4, **options)


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
        model = make_model(torch.nn, spec).to(device)
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
        self.model = self.torch.nn.parallel.DistributedDataParallel(model, **spec["ddp_arguments"])
        self.optimizer = make_optimizer(self.torch.optim, self.model.parameters(), spec)

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
    parameters = sum(p.numel() for p in make_model(torch.nn, spec).parameters())
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
