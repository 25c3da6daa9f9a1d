#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Other checkpoint writers for the same arrays, started by ddp-bench for comparison with ours.

Reads requests as lines of JSON from standard input and answers on standard output: first the arrays
to write, {"names": [...], "shapes": [...], "directory": ...}, then {"write": KIND} any number of
times. The answer has "returned" and "durable", in seconds. The process exits at the end of its
input, or when its parent exits.
"""

import ctypes
import json
import os
import signal
import struct
import sys
import time


def end_with_parent():
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    if os.getppid() == 1:  # the parent exited before the call
        sys.exit(1)


def sync(path):
    for name in (path, os.path.dirname(path)):
        fd = os.open(name, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


def torch_save(arrays, path):
    torch.save({name: torch.from_numpy(array) for name, array in arrays.items()}, path)


def h5py_file(arrays, path):
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array)


def safetensors_layout(arrays, path):
    """The file format of safetensors, written as its own library does: in one buffered stream."""
    header, offset = {}, 0
    for name, array in arrays.items():
        header[name] = {"dtype": "F32", "shape": array.shape,
                        "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb", buffering=1 << 20) as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in arrays.values():
            file.write(memoryview(array).cast("B"))


WRITERS = {"torch.save": torch_save, "h5py": h5py_file, "safetensors layout": safetensors_layout}

end_with_parent()
stream = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)
task = json.loads(sys.stdin.readline())
try:
    import h5py
    import numpy
    import torch
except ImportError as error:
    print(json.dumps({"error": str(error)}), file=stream)
    sys.exit(0)
random = numpy.random.default_rng(1)
state = {name: random.random(shape, dtype=numpy.float32)
         for name, shape in zip(task["names"], task["shapes"])}
print(json.dumps({"kinds": list(WRITERS), "torch": torch.__version__, "h5py": h5py.__version__}),
      file=stream)
for line in sys.stdin:
    kind = json.loads(line)["write"]
    target = os.path.join(task["directory"], "peer.bin")
    begin = time.monotonic()
    WRITERS[kind](state, target)
    returned = time.monotonic() - begin
    sync(target)
    durable = time.monotonic() - begin
    os.unlink(target)
    print(json.dumps({"returned": returned, "durable": durable}), file=stream)
