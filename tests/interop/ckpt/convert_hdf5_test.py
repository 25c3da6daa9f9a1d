#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Tests ddp-ckpt convert on HDF5 files that h5py writes: each value is the one that h5py reads, or is named with the
reason. Needs CKPT_FIXTURE and CKPT_BIN; exits with 77 without h5py or PyTorch.
"""

import json
import resource
import struct
import subprocess
import sys
import unittest

try:
    import h5py
    import numpy as np
    import torch
except ImportError as error:
    print(f"skipped: {error}; apt install python3-h5py python3-torch")
    sys.exit(77)

from convert_case import FIXTURE, TOOL, ConvertCase, raw


class ConvertHdf5(ConvertCase):
    def test_hdf5_behind_a_user_block_and_beyond_four_gibibytes(self):
        values = np.arange(1000, dtype="f4")
        for block in (512, 8 << 30):  # zeros, not allocated on the disk
            with h5py.File(self.at / "x.h5", "w", userblock_size=block) as file:
                file["w"] = values
            done = self.limited(self.at / "x.h5", self.at / f"from-{block}")
            self.assertEqual(done.returncode, 0, done.stderr)
            with h5py.File(self.at / f"from-{block}/step-00000000/model.h5") as file:
                self.assertTrue(np.array_equal(file["w"][...], values), block)

    def test_hdf5_with_many_names_in_one_group(self):
        names = [f"layer{i}" for i in range(3000)] + ["n" * 1000]
        with h5py.File(self.at / "x.h5", "w") as file:
            for i, name in enumerate(names):
                file.create_dataset(name, (), "i1", data=i % 100)
        done = self.convert(self.at / "x.h5", self.at / "ckpt")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(self.arrays_of(self.at / "ckpt")), sorted(names))

    def test_hdf5_larger_than_memory(self):
        size = max(self.SIZE, 3 << 29)  # 1.5 GiB: the child that runs libhdf5 may use 1 GiB
        with h5py.File(self.at / "x.h5", "w") as file:
            shape = (size // 8192, 2048)
            low = file.create_dataset("low", shape, "f4")
            low[0, 0], low[-1, -1] = 1, 2  # unwritten parts are not allocated on the disk
            file["behind"] = np.arange(7)
        done = self.limited(self.at / "x.h5", self.at / "ckpt")
        self.assertEqual(done.returncode, 0, done.stderr)
        with h5py.File(self.at / "ckpt/step-00000000/model.h5") as file:
            self.assertEqual((file["low"].shape, file["low"][0, 0], file["low"][-1, -1]), (shape, 1, 2))
            self.assertEqual(file["low"][shape[0] // 2].any(), False)
            self.assertEqual(file["behind"][...].tolist(), list(range(7)))

    def test_we_read_h5pys_files(self):
        rng = np.random.default_rng(1)
        arrays = {"a": rng.random((3, 4)), "g/b": rng.random(70000).astype("f4"), "g/h/c": np.int64(7),
                  "bool": np.array([True, False]), "half": rng.random(5).astype("f2"), "empty": np.zeros((0, 3), "i4")}
        with h5py.File(self.at / "m.h5", "w") as file:
            for name, array in arrays.items():
                file[name] = array
        done = self.convert(self.at / "m.h5", self.at / "ckpt")
        self.assertEqual(done.returncode, 0, done.stderr)
        ours = self.arrays_of(self.at / "ckpt")
        self.assertEqual({n: (d, s, b) for n, (d, s, b) in ours.items()},
                         {n: (np.asarray(a).dtype.name, list(np.shape(a)), np.asarray(a).tobytes())
                          for n, a in arrays.items()})

    def h5(self, work, name="x.h5", **options):
        with h5py.File(self.at / name, "w", **options) as file:
            work(file)
        return self.at / name

    def test_hdf5_in_every_storage_of_the_library(self):
        rng = np.random.default_rng(3)
        long, cube = rng.random(70001).astype("f4"), rng.integers(0, 9, (7, 11, 13)).astype("i4")
        big = (rng.random(5) + 1j * rng.random(5)).astype(">c8")

        def compact(file):
            plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            plist.set_layout(h5py.h5d.COMPACT)
            space = h5py.h5s.create_simple((3,))
            h5py.h5d.create(file.id, b"compact", h5py.h5t.IEEE_F64LE, space, plist).write(
                h5py.h5s.ALL, h5py.h5s.ALL, np.arange(3.0))

        def work(file):
            file.create_dataset("gzip", data=long, compression="gzip", shuffle=True, fletcher32=True)
            file.create_dataset("chunked", data=cube, chunks=(2, 3, 4), maxshape=(None, None, None))
            file.create_dataset("scaled", data=cube, chunks=(7, 11, 13), scaleoffset=0)
            file.create_dataset("flags", data=np.array([True, False, True]), chunks=(2,))
            file["order"], file["complex"], file["integers"] = np.arange(3, dtype=">f4"), big, np.arange(3, dtype=">i8")
            file.create_dataset("filled", (3, 2), "f4", fillvalue=1.5)
            file.create_dataset("never", (4,), "i2")
            partly = file.create_dataset("partly", (6,), "i2", chunks=(2,), fillvalue=7)
            partly[0:2] = 1
            file.create_dataset("scalar", data=np.float32(2.5))
            file.create_dataset("nothing", (0, 3), "f4", chunks=(1, 3), maxshape=(None, 3))
            file["group/name"] = np.arange(3)
            file["other name"] = file["group/name"]
            file["group again"] = file["group"]
            compact(file)
        done = self.convert(self.h5(work), self.at / "ckpt")
        self.assertEqual(done.returncode, 0, done.stderr)
        ours = self.arrays_of(self.at / "ckpt")
        with h5py.File(self.at / "x.h5") as file:
            names = [*(n for n in file if not isinstance(file[n], h5py.Group)), "group/name", "group again/name"]
            self.assertEqual(sorted(ours), sorted(names))
            for name in names:
                values = file[name][...]
                expected = values.astype(values.dtype.newbyteorder("<"))
                self.assertEqual(ours[name], (expected.dtype.name, list(expected.shape), expected.tobytes()), name)
        done = self.convert(self.at / "x.h5", self.at / "x.pt", "--only", "gzip,order")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(raw(torch.load(self.at / "x.pt")["gzip"]), long.tobytes())

    def test_hdf5_objects_that_are_no_arrays_are_left_out_by_name(self):
        def work(file):
            file["w"] = np.arange(3.0)
            file["soft"], file["out"] = h5py.SoftLink("/w"), h5py.ExternalLink(str(self.at / "other.h5"), "/x")
            file["text"], file["none"], file["type"] = "text", h5py.Empty("f4"), np.dtype("f4")
            file["record"] = np.zeros(2, [("a", "i4"), ("b", "f8")])
            file.create_group("g")
            file["g/again"] = file["g"]
        done = self.convert(self.h5(work), self.at / "ckpt")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(self.arrays_of(self.at / "ckpt")), ["w"])
        for sentence in ("7 objects were left out", "'soft' (a link to another place)", "'out' (a link to another",
                         "'text' (texts)", "'none' (it has no elements", "'type' (an element type)",
                         "'record' (records of several fields)", "'g/again' (a group that contains itself)"):
            self.assertIn(sentence, done.stdout)

    def test_hdf5_values_that_cannot_be_read_are_named(self):
        def work(file, name, value, **options):
            file["w"] = np.arange(3.0)
            dataset = file.create_dataset(name, data=value, **options)
            return dataset

        def scaled(file):
            work(file, "packed", np.arange(4, dtype="i2")).attrs["scale_factor"] = 0.5

        def nested(file):
            file["w"] = np.arange(3.0)
            pairs = h5py.h5t.array_create(h5py.h5t.IEEE_F32LE, (2,))
            h5py.h5d.create(file.id, b"nested", pairs, h5py.h5s.create_simple((3,)))

        for make, sentence in (
                (lambda f: work(f, "lzf", np.zeros(99), compression="lzf"), "'lzf' (it is compressed with 'lzf'"),
                (lambda f: work(f, "long", np.zeros(9, "f16")), "'long' (it has numbers of 128 bit"),
                (nested, "'nested' (its elements are arrays themselves; write it again with h5py"),
                (scaled, "'packed' (its attribute 'scale_factor' changes the meaning of its values")):
            with self.subTest(sentence):
                done = self.convert(self.h5(make), self.at / "ckpt")
                self.assertEqual(done.returncode, 1)
                self.assertIn(sentence, done.stderr)
                name = sentence.split("'")[1]
                self.assertIn(f"leave it out with --skip {name}", done.stderr)
                done = self.convert(self.at / "x.h5", self.at / name, "--skip", name)
                self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_damage_in_a_chunk_is_found(self):
        path = self.h5(lambda f: f.create_dataset("c", data=np.arange(9000.0), chunks=(1000,), fletcher32=True))
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        self.refused("x.h5", data, "cannot be read: HDF5 cannot read dataset 'c'")

    def test_a_full_disk_is_not_a_fault_of_the_source(self):
        self.h5(lambda file: file.create_dataset("a", data=np.zeros(100000), compression="gzip"))
        done = subprocess.run([TOOL, "convert", self.at / "x.h5", self.at / "ckpt"], capture_output=True, text=True,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536)))
        self.assertEqual(done.returncode, 1)
        self.assertIn("ddp-ckpt: cannot write 'a temporary file beside the output': File too large", done.stderr)

    def test_attributes_of_our_own_files_are_honored(self):
        values = torch.arange(16, dtype=torch.uint8).numpy()
        header = json.dumps({"f8": {"dtype": "F8_E4M3", "shape": [16], "data_offsets": [0, 16]}}).encode()
        (self.at / "f8.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + values.tobytes())
        self.assertEqual(self.convert(self.at / "f8.safetensors", self.at / "first").returncode, 0)
        file = self.at / "first/step-00000000/model.h5"
        self.assertEqual(self.convert(file, self.at / "second").returncode, 0)
        self.assertEqual(self.arrays_of(self.at / "second")["f8"], ("float8_e4m3fn", [16], values.tobytes()))
        data = bytearray(file.read_bytes())
        data[data.index(values.tobytes()) + 3] ^= 1
        self.refused("model.h5", data, "array 'f8' does not have its checksum")
        subprocess.run([FIXTURE, "parts", self.at / "parts", "1"], check=True)
        part = next(p for p in sorted((self.at / "parts/step-00000001").glob("rank-*.h5")))
        done = self.convert(part, self.at / "third")
        self.assertEqual(done.returncode, 1)
        self.assertIn("it has parts of arrays, because it is one of several files of a checkpoint; name the "
                      "directory", done.stderr)

    def test_attacks_in_hdf5(self):
        secret = self.at / "secret"
        secret.write_bytes(b"x" * 4096)
        with h5py.File(self.at / "other.h5", "w") as file:
            file["x"] = np.arange(4.0)

        def virtual(file):
            layout = h5py.VirtualLayout((4,), "f8")
            layout[:] = h5py.VirtualSource(str(self.at / "other.h5"), "x", (4,))
            file.create_virtual_dataset("v", layout)

        def make(work):
            return self.h5(work, "made.h5").read_bytes()
        for work, sentence in (
                (lambda f: f.__setitem__("l", h5py.ExternalLink(str(self.at / "other.h5"), "/x")), "link to another place"),
                (lambda f: f.create_dataset("e", (4096,), "u1", external=[(str(secret), 0, 4096)]), "in another file"),
                (virtual, "it is virtual"),
                (lambda f: f.create_dataset("bomb", (2 ** 40,), "f8"), "far more bytes"),
                (lambda f: f.create_dataset("bomb", (2 ** 40,), "f8", chunks=(1024,), compression="gzip"), "far more bytes")):
            with self.subTest(sentence):
                self.refused("x.h5", make(work), sentence)
        whole = make(lambda f: f.__setitem__("a", np.arange(30000.0)))
        self.refused("x.h5", whole[:len(whole) // 2], "truncated file")
        # The parser of untrusted files must neither hang nor crash this process.
        random = np.random.default_rng(2)
        for _ in range(60):
            broken = bytearray(whole)
            for at in random.integers(8, 2048, 4):
                broken[at] ^= 1 << random.integers(8)
            (self.at / "x.h5").write_bytes(broken)
            done = self.convert(self.at / "x.h5", self.at / f"out{_}")
            self.assertIn(done.returncode, (0, 1), done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
