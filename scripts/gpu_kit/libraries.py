# SPDX-License-Identifier: Apache-2.0
"""Which shared libraries a machine with PyTorch has itself, so that the kit must not bring them."""

import re

# Loaded by programs that make graphs, if it is in lib beside bin.
GRAPH_LIBRARY = "libslurm_ddp_cuda_graph.so"

# The C and C++ libraries, which one process must have once. Those of CUDA belong to the driver or to PyTorch.
OF_MACHINE = re.compile(
    r"(ld-linux.*|linux-vdso|lib(c|m|dl|rt|pthread|resolv|util|anl|nsl|BrokenLocale|stdc\+\+|gcc_s))\.so(\.|$)"
    r"|lib(cuda|cudart|cublas|cublasLt|cudnn.*|cufft|curand|cusolver|cusparse|cupti|nccl|nvrtc.*|nvidia.*)\.so"
    r"|lib(torch.*|c10.*|gomp.*)\.so")


def is_of_machine(name):
    return OF_MACHINE.match(name) is not None
