# SPDX-License-Identifier: Apache-2.0
"""The models of ddp_runtime/models in Python, layer by layer and with their parameters in the same order."""


def make_model(nn, spec):
    """spec: the options of ModelOptions."""
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


def units(model):
    """The modules that FSDP2 gathers one by one, as in Model::units(): blocks, or all layers but the last."""
    if hasattr(model, "blocks"):
        return list(model.blocks)
    return [layer for layer in model if any(True for _ in layer.parameters())][:-1]
