# SPDX-License-Identifier: Apache-2.0
"""A test case with a directory of its own, for tests of ddp-ckpt convert. Needs CKPT_BIN, and PyTorch."""

import json
import os
import pathlib
import resource
import subprocess
import tempfile
import unittest

import torch

FIXTURE = os.environ.get("CKPT_FIXTURE")
TOOL = os.environ["CKPT_BIN"]


def raw(tensor):
    flat = tensor.detach().contiguous().reshape(-1)
    if flat.dtype == torch.bool:
        flat = flat.to(torch.uint8)
    elif flat.dtype == torch.bfloat16:
        flat = flat.view(torch.int16)
    return flat.numpy().tobytes()


class ConvertCase(unittest.TestCase):
    # Many times the memory that a process under LIMIT may use.
    SIZE = (1 << 30) if os.environ.get("SLURM_DDP_LONG_TESTS") else (192 << 20)
    LIMIT = (64 << 20) + (4 << 20)  # plus one block

    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.at = pathlib.Path(self.directory.name)

    def tearDown(self):
        self.directory.cleanup()

    def convert(self, *words):
        return subprocess.run([TOOL, "convert", *map(str, words)], capture_output=True, text=True,
                              timeout=60)

    def arrays_of(self, root):
        step = root / "step-00000000"
        manifest = json.loads((step / "manifest.json").read_text())
        data = (step / "model.h5").read_bytes()
        return {a["name"]: (a["dtype"], a["shape"], data[a["offset"]:a["offset"] + a["length"]])
                for a in manifest["arrays"]}

    def limited(self, *words):
        return subprocess.run([TOOL, "convert", *map(str, words)], capture_output=True, text=True, timeout=60,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (self.LIMIT, self.LIMIT)))

    def refused(self, name, data, sentence):
        path = self.at / name
        path.write_bytes(data)
        done = self.convert(path, self.at / "ckpt")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn(sentence, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertFalse((self.at / "ckpt").exists())
