#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Reads checkpoints with h5py: names, bitwise equal values, attributes, rejection of torn files.

Needs CKPT_FIXTURE, the program that writes them, and CKPT_BIN, which is ddp-ckpt. Exits with 77 if
h5py is not installed.
"""

import json
import os
import pathlib
import re
import shutil
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
CKPT_BIN = os.environ["CKPT_BIN"]
DOCUMENT = pathlib.Path(__file__).resolve().parents[3] / "docs" / "checkpoint.md"


def datasets_of(file):
    found = {}
    file.visititems(lambda name, item: found.update({name: item})
                    if isinstance(item, h5py.Dataset) else None)
    return found


class Checkpoint(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        root = pathlib.Path(cls.directory.name)
        subprocess.run([FIXTURE, "save", root, "7"], check=True)
        cls.step = root / "step-00000007"
        subprocess.run([CKPT_BIN, "view", cls.step], check=True, stdout=subprocess.DEVNULL)
        cls.manifest = json.loads((cls.step / "manifest.json").read_text())
        cls.expected = json.loads(subprocess.check_output([FIXTURE, "expected"]))
        cls.file = h5py.File(cls.step / "model.h5", "r")
        cls.datasets = datasets_of(cls.file)

    @classmethod
    def tearDownClass(cls):
        cls.file.close()
        cls.directory.cleanup()

    def raw(self, name):
        return bytes.fromhex(self.expected[name]["hex"])

    def test_names_and_shapes(self):
        self.assertEqual(sorted(self.datasets), sorted(self.expected))
        for name, dataset in self.datasets.items():
            self.assertEqual(list(dataset.shape), self.expected[name]["shape"], name)
        self.assertIs(type(self.file["model/conv1.weight"]), h5py.Dataset)
        # Tools that respect the UTF-8 flag must show non-ASCII names correctly.
        for name in ("mod\u00e8le".encode(), b"model"):
            info = self.file.id.links.get_info(name)
            self.assertEqual(info.cset, h5py.h5t.CSET_UTF8, name)

    def test_values_are_bitwise_equal(self):
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
        working_directory = os.getcwd()
        os.chdir(self.step.parent)
        try:
            for snippet in snippets:
                exec(snippet.replace("step-00012345", self.step.name), {})
        finally:
            os.chdir(working_directory)


class TornFiles(unittest.TestCase):
    def test_torn_files_are_rejected(self):
        with tempfile.TemporaryDirectory() as name:
            directory = pathlib.Path(name)
            subprocess.run([FIXTURE, "torn", directory], check=True)
            complete = (directory / "complete.h5").read_bytes()
            self.assertEqual(len(datasets_of(h5py.File(directory / "complete.h5", "r"))), 14)
            refused = 0
            for path in sorted(directory.glob("torn-*.h5")):
                if path.read_bytes() == complete:  # died after the last write
                    continue
                with self.assertRaises(OSError, msg=path.name):
                    h5py.File(path, "r")
                refused += 1
            self.assertGreater(refused, 20)

    def test_truncated_files_are_rejected(self):
        with tempfile.TemporaryDirectory() as name:
            subprocess.run([FIXTURE, "save", name, "1"], check=True)
            path = pathlib.Path(name) / "step-00000001" / "model.h5"
            for size in (path.stat().st_size - 1, path.stat().st_size // 2, 4096, 100):
                os.truncate(path, size)
                with self.assertRaises(OSError):
                    h5py.File(path, "r")


class Parts(unittest.TestCase):
    """Arrays in parts of four ranks; see save_parts in fixture.cpp."""

    MATRIX = np.arange(48, dtype=np.float32).reshape(6, 8)
    # The ranks whose files contain part of an array.
    HOLDERS = {"optim/rows": (0, 2, 3), "optim/tiles": (0, 1, 2, 3), "optim/alone": (1,), "model/bias": (2,)}

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = pathlib.Path(directory.name)
        self.step = self.make(self.root / "ck")
        self.working_directory = os.getcwd()
        self.addCleanup(os.chdir, self.working_directory)

    @staticmethod
    def make(root, step="1"):
        subprocess.run([FIXTURE, "parts", root, step], check=True)
        return root / f"step-0000000{step}"

    @staticmethod
    def make_view(step):
        printed = subprocess.check_output([CKPT_BIN, "view", step], text=True).strip()
        assert printed == str((step / "view.h5").resolve()), printed
        return step / "view.h5"

    def expected(self, name):
        return np.float32([0.5, -1]) if name == "model/bias" else self.MATRIX

    def assert_shows(self, path, names):
        with h5py.File(path, "r") as view:
            for name in names:
                np.testing.assert_array_equal(view[name][...], self.expected(name), name)

    def assert_raises(self, path, names):
        with h5py.File(path, "r") as view:
            for name in names:
                with self.assertRaises((OSError, KeyError), msg=name):
                    view[name][...]

    def test_each_file_has_the_position_of_its_part(self):
        seen = np.zeros((6, 8), int)
        for path in sorted(self.step.glob("rank-*.h5")):
            with h5py.File(path, "r") as file:
                part = file["optim/tiles"]
                self.assertEqual(list(part.attrs["global_shape"]), [6, 8])
                i, j = (int(n) for n in part.attrs["part_offset"])
                place = np.s_[i:i + part.shape[0], j:j + part.shape[1]]
                np.testing.assert_array_equal(part[...], self.MATRIX[place])
                seen[place] += 1
                self.assertEqual((file.attrs["version"], file.attrs["min_reader"]), (2, 2))
        self.assertTrue((seen == 1).all())

    def test_a_view_shows_arrays_whole(self):
        path = self.make_view(self.step)
        with h5py.File(path, "r") as view:
            self.assertTrue(view["optim/rows"].is_virtual)
            np.testing.assert_array_equal(view["optim/tiles"][2:4, 3:5], self.MATRIX[2:4, 3:5])
            self.assertEqual(len(view[".view/files"]), 4)
        os.chdir("/")
        self.assert_shows(path, self.HOLDERS)
        self.make_view(self.step)  # a second time
        self.assert_shows(path, self.HOLDERS)
        # The view is not part of the checkpoint, but is deleted with it.
        subprocess.run([CKPT_BIN, "verify", self.step], check=True, stdout=subprocess.DEVNULL)

    def test_a_view_raises_if_a_file_is_missing_or_renamed(self):
        path = self.make_view(self.step)
        # A directory with files of the same names must not be used instead.
        os.chdir(self.make(self.root / "other"))
        raised = 0
        for rank in range(4):
            file = self.step / f"rank-0000{rank}-of-00004.h5"
            for change in ("renamed", "missing"):
                away = self.step / "renamed.h5" if change == "renamed" else self.root / "away.h5"
                file.rename(away)
                holds = [name for name, ranks in self.HOLDERS.items() if rank in ranks]
                self.assert_raises(path, holds)
                self.assert_shows(path, set(self.HOLDERS) - set(holds))
                raised += len(holds)
                away.rename(file)
        self.assertEqual(raised, 18)
        self.assert_shows(path, self.HOLDERS)

    def test_a_truncated_file_is_detected_when_it_is_opened(self):
        path = self.make_view(self.step)
        file = self.step / "rank-00002-of-00004.h5"
        for size in (file.stat().st_size - 1, file.stat().st_size // 2, 100):
            os.truncate(file, size)
            with h5py.File(path, "r") as view:
                with self.assertRaises((OSError, KeyError)):
                    view[".view/files"][file.name]
                with self.assertRaises((OSError, KeyError)):
                    view["model/bias"]

    def test_a_view_belongs_to_one_checkpoint_in_one_place(self):
        self.make_view(self.step)
        parts = ["optim/rows", "optim/tiles"]
        copy = self.root / "copy"
        shutil.copytree(self.step, copy, symlinks=True)
        # Another checkpoint replaces the first, and the copy must not show it.
        shutil.rmtree(self.step)
        self.make(self.root / "ck2", "2").rename(self.step)
        self.make_view(self.step)
        self.assert_raises(copy / "view.h5", parts)
        self.assert_shows(self.make_view(copy), self.HOLDERS)

    def test_names_reserved_for_views_are_rejected(self):
        self.make_view(self.step)
        (self.step / "view.h5").unlink()
        (self.step / "view.h5").mkdir()
        done = subprocess.run([CKPT_BIN, "view", self.step], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot replace", done.stderr)
        self.assertEqual(list(self.step.glob(".view.h5.*")), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
