# SPDX-License-Identifier: Apache-2.0
"""Measures PyTorch's own operators at the work of the project's kernels (tests/gpu/kernels_speed.cpp):
gradients of a bucket copied into one array, a norm, and fused AdamW, for 256 MiB of fp32 elements.

Prints JSON with the median, p10 and p90 of GB/s, which count the bytes that the work must read and write.
"""

import json

import torch

from ceilings import rates

ELEMENTS = (256 << 20) // 4
PIECES = 160


def sizes():
    """Returns the lengths of the pieces, as in kernels_speed.cpp."""
    left, found = ELEMENTS, []
    while len(found) + 1 < PIECES and left > 64:
        found.append(max(left // 8 // 4 * 4, 4))
        left -= found[-1]
    return [*found, left]


def main():
    gpu = torch.device("cuda", 0)
    torch.manual_seed(1)
    gradients, parameters, averages = ([torch.randn(n, device=gpu) for n in sizes()] for _ in range(3))
    squares = [torch.rand(n, device=gpu) for n in sizes()]
    flat = torch.empty(ELEMENTS, device=gpu)
    windows = list(flat.split(sizes()))
    half = list(torch.empty(ELEMENTS, dtype=torch.bfloat16, device=gpu).split(sizes()))
    steps = [torch.full((), 10.0, device=gpu) for _ in gradients]

    def adamw():
        torch._fused_adamw_(parameters, gradients, averages, squares, [], steps, lr=1e-3, beta1=0.9, beta2=0.999,
                            weight_decay=0.1, eps=1e-8, amsgrad=False, maximize=False)

    gigabytes = ELEMENTS / 1e9
    result = {
        "_foreach_copy_f32": rates(8 * gigabytes, 30, lambda: torch._foreach_copy_(windows, gradients)),
        "_foreach_copy_bf16": rates(6 * gigabytes, 30, lambda: torch._foreach_copy_(half, gradients)),
        "norm": rates(4 * gigabytes, 30, lambda: torch.linalg.vector_norm(flat)),
        "isfinite_all": rates(4 * gigabytes, 30, lambda: torch.isfinite(flat).all()),
        "_fused_adamw_": rates(28 * gigabytes, 30, adamw),
    }
    print(json.dumps({"torch": torch.__version__, "GBps": result}))


if __name__ == "__main__":
    main()
