#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of PyTorch's DistributedDataParallel over Gloo, started by ddp-bench for comparison.

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
        return resnet18(nn, spec)
    if spec["model"] == "gpt":
        return gpt(nn, spec)
    raise ValueError(f"no model '{spec['model']}' in Python")


def resnet18(nn, spec):
    """ResNet-18 with the stem for small images."""

    def convolution(before, after, kernel, stride=1):
        return nn.Conv2d(before, after, kernel, stride, kernel // 2, bias=False)

    class Block(nn.Module):
        def __init__(self, before, after, stride):
            super().__init__()
            self.conv1 = convolution(before, after, 3, stride)
            self.bn1 = nn.BatchNorm2d(after)
            self.conv2 = convolution(after, after, 3)
            self.bn2 = nn.BatchNorm2d(after)
            self.relu = nn.ReLU(inplace=True)
            self.downsample = None
            if before != after or stride != 1:
                self.downsample = nn.Sequential(
                    convolution(before, after, 1, stride), nn.BatchNorm2d(after))

        def forward(self, inputs):
            x = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(inputs)))))
            x += self.downsample(inputs) if self.downsample else inputs
            return self.relu(x)

    width = spec["width"] or 64
    layers = [convolution(spec["input"][0], width, 3), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
    before = width
    for stage in range(4):
        for block in range(2):
            after = width << stage
            layers.append(Block(before, after, 2 if stage > 0 and block == 0 else 1))
            before = after
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(1),
                         nn.Linear(before, spec["classes"]))


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
            mask = torch.full((t, t), float("-inf")).triu(1)
            x = self.tokens(inputs) + self.positions.weight[:t]
            for block in self.blocks:
                x = block(x, mask)
            return nn.functional.linear(self.norm(x), self.tokens.weight)

    return Gpt()


class Replica:
    """One rank of the training, with the same step as in ddp-bench itself."""

    def __init__(self, torch, spec, store):
        torch.distributed.init_process_group(
            "gloo", store=store, rank=spec["rank"], world_size=spec["world_size"])
        torch.manual_seed(1)
        self.model = torch.nn.parallel.DistributedDataParallel(
            make_model(torch.nn, spec), **spec["ddp_arguments"])
        self.optimizer = {
            "sgd": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
            "adam": lambda p: torch.optim.Adam(p, lr=1e-4),
            "adamw": lambda p: torch.optim.AdamW(p, lr=1e-4),
        }[spec["optimizer"]](self.model.parameters())
        samples = [spec["batch"]] + spec["input"]
        if spec["tokens"]:
            self.inputs = torch.randint(0, spec["classes"], samples)
            self.targets = torch.randint(0, spec["classes"], samples)
        else:
            self.inputs = torch.randn(samples)
            self.targets = torch.randint(0, spec["classes"], [spec["batch"]])
        self.loss = torch.nn.functional.cross_entropy

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        scores = self.model(self.inputs)
        self.loss(scores.flatten(0, -2), self.targets.flatten()).backward()
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
    import torch  # imported here, so that its absence is reported as an answer
    import torch.distributed as distributed
    if not distributed.is_gloo_available():
        raise RuntimeError("this PyTorch has no Gloo")
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
    # Skips Gloo's own shutdown, which waits for the other ranks.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
