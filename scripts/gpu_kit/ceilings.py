# SPDX-License-Identifier: Apache-2.0
"""Measures, with PyTorch alone, what the GPU can do: copies in GB/s and bf16 matrix products in TFLOP/s.

Prints JSON with the median, p10 and p90 of each. Inputs are random, because products of zeros run
faster. GB/s count the bytes read and written on the GPU, and the bytes moved between host and GPU.
"""

import json

import torch

COPY_BYTES = 4 << 30
HOST_BYTES = 1 << 30
MATRIX = 8192


def quantiles(values):
    ordered = sorted(values)
    shares = {"p10": 0.1, "p50": 0.5, "p90": 0.9}
    return {name: ordered[round(share * (len(ordered) - 1))] for name, share in shares.items()}


def rates(amount, repetitions, call):
    """Returns quantiles of amount per second, by events around each call after a warm-up."""
    for _ in range(3):
        call()
    seconds = []
    for _ in range(repetitions):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        end.synchronize()
        seconds.append(begin.elapsed_time(end) / 1000)
    return quantiles([amount / second for second in seconds])


def main():
    gpu = torch.device("cuda", 0)
    result = {"gpu": torch.cuda.get_device_name(0), "torch": torch.__version__, "seed": 1, "matrix": MATRIX}
    torch.manual_seed(1)
    source = torch.randint(0, 1 << 30, (COPY_BYTES // 4,), dtype=torch.int32, device=gpu)
    target = torch.empty_like(source)
    result["copy_GBps"] = rates(2 * COPY_BYTES / 1e9, 50, lambda: target.copy_(source))
    host = torch.empty(HOST_BYTES // 4, dtype=torch.int32).pin_memory()
    part = target[:HOST_BYTES // 4]
    result["to_gpu_GBps"] = rates(HOST_BYTES / 1e9, 20, lambda: part.copy_(host, non_blocking=True))
    result["from_gpu_GBps"] = rates(HOST_BYTES / 1e9, 20, lambda: host.copy_(part, non_blocking=True))
    a, b = (torch.randn(MATRIX, MATRIX, dtype=torch.bfloat16, device=gpu) for _ in range(2))
    product = torch.empty_like(a)
    result["bf16_TFLOPps"] = rates(2 * MATRIX**3 / 1e12, 100, lambda: torch.mm(a, b, out=product))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
