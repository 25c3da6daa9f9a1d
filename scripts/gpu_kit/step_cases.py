# SPDX-License-Identifier: Apache-2.0
"""The training steps that are compared with Python's, and the floating-point operations of each.

Operations are those of matrix products and convolutions, with two for a multiplication and its addition. Backward
takes twice as many as forward. Attention counts as if a position saw all others, as is usual.
"""

import dataclasses


@dataclasses.dataclass
class Case:
    name: str
    options: list  # of ddp-bench step
    operations: float  # of a step
    # Aims for our time over Python's: {(how we run a step, how Python does): ratio}.
    aims: dict = dataclasses.field(default_factory=dict)


def gpt_operations(batch, context, width, layers, vocabulary):
    products = 12 * layers * width**2 + width * vocabulary
    attention = 2 * layers * context * width
    return 3 * 2 * batch * context * (products + attention)


def resnet_operations(batch, image, classes, blocks, block, width=64):
    """block(width, stride) gives the output channels, kernel and stride of each convolution of a block."""
    small = image <= 32
    side = image if small else image // 2
    total = side**2 * 3 * width * (9 if small else 49)
    side = side if small else side // 2  # a pooling
    channels = width
    for stage, count in enumerate(blocks):
        for i in range(count):
            before, end = channels, side
            for after, kernel, stride in block(width << stage, 2 if stage > 0 and i == 0 else 1):
                end //= stride
                total += end**2 * channels * after * kernel**2
                channels = after
            if before != channels or end != side:
                total += end**2 * before * channels
            side = end
    return 3 * 2 * batch * (total + channels * classes)


def basic(width, stride):
    return [(width, 3, stride), (width, 3, 1)]


def bottleneck(width, stride):
    return [(width, 1, 1), (width, 3, stride), (4 * width, 1, 1)]


def gpt(name, batch, aims, width=768, layers=12, heads=12, context=1024, vocabulary=50257, steps=60, block=10):
    sizes = ["--width", width, "--layers", layers, "--heads", heads, "--context", context, "--classes", vocabulary]
    options = ["--model", "gpt", *sizes, "--batch", batch, "--precision", "bf16", "--optimizer", "adamw",
               "--steps", steps, "--block", block]
    return Case(name, options, gpt_operations(batch, context, width, layers, vocabulary), aims)


LAUNCH_BOUND_AIMS = {("eager", "eager"): 0.75, ("graph", "eager"): 0.5, ("graph", "graph"): 1.0}


def resnet18(batch=64, width=64, steps=400, block=40):
    options = ["--model", "resnet18", "--width", width, "--batch", batch, "--optimizer", "sgd", "--steps", steps,
               "--block", block]
    return Case("resnet18 32x32", options, resnet_operations(batch, 32, 10, (2, 2, 2, 2), basic, width),
                LAUNCH_BOUND_AIMS)


def resnet50():
    options = ["--model", "resnet50", "--image", 224, "--classes", 1000, "--batch", 256, "--precision", "bf16",
               "--channels-last", "--optimizer", "sgd", "--steps", 60, "--block", 10]
    return Case("resnet50 224x224", options, resnet_operations(256, 224, 1000, (3, 4, 6, 3), bottleneck),
                {("eager", "eager"): 0.98})


# Of two ranks that share the GPU, so each step takes about twice as long.
SHARDED = [gpt("gpt 124M, 4 x 1024, two ranks", 4, {}, vocabulary=50304, steps=30, block=5)]

# The host is the limit of the first, the GPU of the second.
LAUNCH_BOUND = [resnet18(), gpt("gpt 124M, batch 1", 1, LAUNCH_BOUND_AIMS, steps=200, block=20)]
LARGE = [gpt("gpt 124M, 16 x 1024", 16, {("eager", "eager"): 0.97}),
         gpt("gpt 124M, 50304 tokens, 16 x 1024", 16, {("eager", "eager"): 0.97}, vocabulary=50304), resnet50()]
