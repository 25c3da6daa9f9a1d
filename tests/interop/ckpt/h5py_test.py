#!/usr/bin/python3
"""Checkpoints through h5py: names, values equal to the bit, attributes, torn files refused.

Needs CKPT_FIXTURE, the program that writes them. Exits with 77 where h5py is not installed.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

try:
    import h5py
    import numpy as np
except ImportError as error:
    print(f"skipped: {error}; apt install python3-h5py")
    sys.exit(77)

FIXTURE = os.environ["CKPT_FIXTURE"]
DOCUMENT = pathlib.Path(__file__).resolve().parents[3] / "docs" / "checkpoint.md"


def datasets_of(file):
    found = {}
    file.visititems(lambda name, item: found.update({name: item})
                    if isinstance(item, h5py.Dataset) else None)
    return found


class Checkpoint(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        root = pathlib.Path(cls.folder.name)
        subprocess.run([FIXTURE, "save", root, "7"], check=True)
        cls.step = root / "step-00000007"
        cls.manifest = json.loads((cls.step / "manifest.json").read_text())
        cls.expected = json.loads(subprocess.check_output([FIXTURE, "expected"]))
        cls.file = h5py.File(cls.step / "model.h5", "r")
        cls.datasets = datasets_of(cls.file)

    @classmethod
    def tearDownClass(cls):
        cls.file.close()
        cls.folder.cleanup()

    def raw(self, name):
        return bytes.fromhex(self.expected[name]["hex"])

    def test_names_and_shapes(self):
        self.assertEqual(sorted(self.datasets), sorted(self.expected))
        for name, dataset in self.datasets.items():
            self.assertEqual(list(dataset.shape), self.expected[name]["shape"], name)
        self.assertIs(type(self.file["model/conv1.weight"]), h5py.Dataset)
        # Tools that obey the flag must show non-ASCII names right.
        for name in ("mod\u00e8le".encode(), b"model"):
            info = self.file.id.links.get_info(name)
            self.assertEqual(info.cset, h5py.h5t.CSET_UTF8, name)

    def test_values_to_the_bit(self):
        for name, dataset in self.datasets.items():
            dtype = self.expected[name]["dtype"]
            if dtype == "bfloat16":
                continue
            self.assertEqual(dataset.dtype, np.dtype(dtype), name)
            self.assertEqual(dataset[...].tobytes(), self.raw(name), name)

    def test_bfloat16_is_shown_as_float32(self):
        shown = self.file["model/brain"][...]
        self.assertEqual(shown.dtype, np.float32)
        bits = np.frombuffer(self.raw("model/brain"), np.uint16)
        exact = (bits.astype(np.uint32) << 16).view(np.float32)
        finite = ~np.isnan(exact)
        self.assertEqual(int(finite.sum()), 65536 - 2 * 127)
        np.testing.assert_array_equal(shown.view(np.uint32)[finite], exact.view(np.uint32)[finite])
        self.assertTrue(np.isnan(shown[~finite]).all())

    def test_attributes(self):
        arrays = {array["name"]: array for array in self.manifest["arrays"]}
        self.assertEqual(sorted(arrays), sorted(self.expected))
        for name, dataset in self.datasets.items():
            self.assertEqual(dataset.attrs["dtype"].decode(), self.expected[name]["dtype"])
            self.assertEqual(f'{dataset.attrs["crc32c"]:08x}', arrays[name]["crc32c"])
            self.assertEqual(list(dataset.attrs["global_shape"]), list(dataset.shape))
        root = self.file.attrs
        self.assertEqual(root["format"], b"hdf5_ckpt")
        for name, value in {"version": 1, "min_reader": 1, "step": 7, "epoch": 2}.items():
            self.assertEqual(root[name], value, name)

    def test_layout_is_plain(self):
        arrays = {array["name"]: array for array in self.manifest["arrays"]}
        for name, dataset in self.datasets.items():
            self.assertIsNone(dataset.chunks)
            self.assertIsNone(dataset.compression)
            if dataset.size:
                self.assertEqual(dataset.id.get_offset(), arrays[name]["offset"])
            if dataset.nbytes >= 65536:
                self.assertEqual(arrays[name]["offset"] % 4096, 0)

    def test_snippets_of_the_documentation(self):
        text = DOCUMENT.read_text()
        snippets = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        self.assertGreaterEqual(len(snippets), 1)
        working_folder = os.getcwd()
        os.chdir(self.step.parent)
        try:
            for snippet in snippets:
                exec(snippet.replace("step-00012345", self.step.name), {})
        finally:
            os.chdir(working_folder)


class TornFiles(unittest.TestCase):
    def test_are_refused(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            subprocess.run([FIXTURE, "torn", folder], check=True)
            complete = (folder / "complete.h5").read_bytes()
            self.assertEqual(len(datasets_of(h5py.File(folder / "complete.h5", "r"))), 14)
            refused = 0
            for path in sorted(folder.glob("torn-*.h5")):
                if path.read_bytes() == complete:  # died after the last write
                    continue
                with self.assertRaises(OSError, msg=path.name):
                    h5py.File(path, "r")
                refused += 1
            self.assertGreater(refused, 20)

    def test_cut_files_are_refused(self):
        with tempfile.TemporaryDirectory() as name:
            subprocess.run([FIXTURE, "save", name, "1"], check=True)
            path = pathlib.Path(name) / "step-00000001" / "model.h5"
            for size in (path.stat().st_size - 1, path.stat().st_size // 2, 4096, 100):
                os.truncate(path, size)
                with self.assertRaises(OSError):
                    h5py.File(path, "r")


if __name__ == "__main__":
    unittest.main(verbosity=2)
