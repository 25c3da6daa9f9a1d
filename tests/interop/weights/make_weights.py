#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes files of weights with the real libraries, and the scores that their models compute from them.

    make_weights.py DIRECTORY

Needs torch, torchvision, transformers and safetensors. The files in this directory come from torch
1.13.0, torchvision 0.15.0, transformers 4.40.2 and safetensors 0.8.0; real_libraries runs this
script again where the libraries are installed. The models are small: GPT-2 with a width of 16, and
torchvision's resnet18 with a sixteenth of its channels, saved in float16.
"""

import pathlib
import sys

import torch
from safetensors.torch import save_file
from torchvision.models.resnet import BasicBlock, ResNet
from transformers import GPT2Config, GPT2LMHeadModel

CONTEXT = 16
NARROW = 16


class NarrowResNet(ResNet):
    """torchvision's own network, except that every layer has a sixteenth of the channels."""

    def __setattr__(self, name, value):
        first = name == "inplanes" and "inplanes" not in self.__dict__
        super().__setattr__(name, value // NARROW if first else value)

    def _make_layer(self, block, planes, *arguments, **options):
        return super()._make_layer(block, planes // NARROW, *arguments, **options)


def randomize(model, spread):
    """Also changes the values that the constructors set to 0 or 1, which would hide exchanged names."""
    for name, tensor in model.state_dict().items():
        if not tensor.is_floating_point():
            tensor.fill_(7)
        elif name.endswith("running_var"):
            tensor.uniform_(0.5, 1.5)
        elif tensor.dim() == 1 and "weight" in name:
            tensor.normal_(1, 0.1)
        else:
            tensor.normal_(0, spread)
    return model.eval()


def make_gpt2(directory, expected):
    config = GPT2Config(vocab_size=256, n_positions=CONTEXT, n_embd=16, n_layer=2, n_head=2)
    model = randomize(GPT2LMHeadModel(config), 0.2)
    model.save_pretrained(directory / "gpt2", safe_serialization=True)
    (directory / "gpt2" / "model.safetensors").rename(directory / "gpt2.safetensors")
    for other in (directory / "gpt2").iterdir():
        other.unlink()
    (directory / "gpt2").rmdir()
    torch.save(model.state_dict(), directory / "gpt2.pt")
    expected["gpt2.inputs"] = torch.randint(0, 256, (2, CONTEXT))
    expected["gpt2.logits"] = model(expected["gpt2.inputs"]).logits


def make_resnet18(directory, expected):
    model = NarrowResNet(BasicBlock, [2, 2, 2, 2])
    model.fc = torch.nn.Linear(512 // NARROW, 5)
    model = randomize(model, 0.15).half()
    torch.save({"model": model.state_dict(), "epoch": 3}, directory / "resnet18.pt")
    expected["resnet18.inputs"] = torch.rand(1, 3, 40, 40)
    expected["resnet18.logits"] = model.float()(expected["resnet18.inputs"])


def main():
    directory = pathlib.Path(sys.argv[1])
    torch.manual_seed(1)
    expected = {}
    with torch.no_grad():
        make_gpt2(directory, expected)
        make_resnet18(directory, expected)
    save_file({name: tensor.contiguous() for name, tensor in expected.items()}, directory / "expected.safetensors")


if __name__ == "__main__":
    main()
