#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Tests ddp-ckpt convert against the distribution's PyTorch. Each reads bitwise equal values from
the other's files, and ddp-ckpt rejects malicious files and gives the reason. Needs CKPT_FIXTURE and
CKPT_BIN; exits with 77 without PyTorch.
"""

import io
import json
import os
import pathlib
import pickle
import pty
import resource
import struct
import subprocess
import sys
import unittest
import zipfile
import zlib

try:
    import h5py
    import numpy as np
    import torch
except ImportError as error:
    print(f"skipped: {error}; apt install python3-h5py python3-torch")
    sys.exit(77)

from convert_case import FIXTURE, TOOL, ConvertCase, raw

DTYPES = {"float64": torch.float64, "float32": torch.float32, "float16": torch.float16,
          "bfloat16": torch.bfloat16, "int64": torch.int64, "int32": torch.int32,
          "int16": torch.int16, "int8": torch.int8, "uint8": torch.uint8, "bool": torch.bool}


class Convert(ConvertCase):
    def test_pytorch_reads_our_files(self):
        subprocess.run([FIXTURE, "save", self.at / "ckpt", "7"], check=True)
        expected = json.loads(subprocess.check_output([FIXTURE, "expected"]))
        self.assertEqual(self.convert(self.at / "ckpt", self.at / "m.pt").returncode, 0)
        for options in ({}, {"weights_only": True}):
            loaded = torch.load(self.at / "m.pt", **options)
            self.assertEqual(sorted(loaded), sorted(expected))
            for name, tensor in loaded.items():
                self.assertEqual(tensor.dtype, DTYPES[expected[name]["dtype"]], name)
                self.assertEqual(list(tensor.shape), expected[name]["shape"], name)
                self.assertEqual(raw(tensor).hex(), expected[name]["hex"], name)

    def test_we_read_pytorchs_files(self):
        torch.manual_seed(1)
        base = torch.randn(6, 8)
        state = {"model": torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.BatchNorm1d(3)).state_dict(),
                 "view": base[1:4, ::2], "turned": base.t(), "whole": base, "scalar": torch.tensor(7),
                 "empty": torch.empty(0, 4), "parameter": torch.nn.Parameter(torch.ones(2)),
                 "list": [torch.arange(3), torch.tensor([True, False])], "lr": 0.1, "step": 10 ** 9,
                 "brain": torch.randn(9).bfloat16(), "half": torch.randn(9).half(), "none": None}
        torch.save(state, self.at / "m.pt")
        done = self.convert(self.at / "m.pt", self.at / "ckpt")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(subprocess.run([TOOL, "verify", self.at / "ckpt"], capture_output=True).returncode, 0)
        arrays = self.arrays_of(self.at / "ckpt")
        tensors = {f"model/{k}": v for k, v in state["model"].items()}
        tensors.update({k: v for k, v in state.items() if isinstance(v, torch.Tensor)})
        tensors.update({f"list/{i}": v for i, v in enumerate(state["list"])})
        self.assertEqual(sorted(arrays), sorted(tensors))
        for name, tensor in tensors.items():
            dtype, shape, data = arrays[name]
            self.assertEqual((DTYPES[dtype], shape), (tensor.dtype, list(tensor.shape)), name)
            self.assertEqual(data, raw(tensor), name)
        # Values that are not tensors are kept.
        manifest = json.loads((self.at / "ckpt/step-00000000/manifest.json").read_text())
        self.assertEqual(manifest["state"]["values"], {"lr": 0.1, "step": 10 ** 9})
        self.assertIn("2 numbers and texts as 'values' in the checkpoint's state", done.stdout)

    def test_numbers_and_texts_beyond_bounds_are_counted(self):
        torch.save({"w": torch.ones(2), "nan": float("nan"), "long": "x" * 5000, "ok": True,
                    "many": list(range(10000))}, self.at / "m.pt")
        done = self.convert(self.at / "m.pt", self.at / "ckpt")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("10000 numbers and texts as 'values'", done.stdout)
        self.assertIn("3 objects were left out: 'nan' (not representable in JSON)", done.stdout)
        values = json.loads((self.at / "ckpt/step-00000000/manifest.json").read_text())["state"]["values"]
        self.assertIs(values["ok"], True)
        self.assertEqual(values["many/9998"], 9998)

    def test_complex_and_unsigned_numbers(self):
        base = torch.randn(3, 4)
        torch.save({"c": torch.complex(base, base), "d": torch.complex(base.double(), base.double())}, self.at / "m.pt")
        self.assertEqual(self.convert(self.at / "m.pt", self.at / "ckpt").returncode, 0)
        with h5py.File(self.at / "ckpt/step-00000000/model.h5") as file:
            self.assertEqual(file["c"].dtype, np.dtype("c8"))
            self.assertTrue(np.array_equal(file["d"][...], torch.complex(base.double(), base.double()).numpy()))
        self.assertEqual(self.convert(self.at / "ckpt", self.at / "n.pt").returncode, 0)
        self.assertTrue(torch.equal(torch.load(self.at / "n.pt")["c"], torch.complex(base, base)))
        done = self.convert(self.at / "ckpt", self.at / "n.safetensors")
        self.assertEqual(done.returncode, 1)
        self.assertIn("array 'd' is complex128, for which safetensors has no name; write .pt", done.stderr)
        self.assertFalse((self.at / "n.safetensors").exists())
        arrays = {"h": np.arange(5, dtype="u2"), "i": np.arange(5, dtype="u4"), "q": np.full(5, 2 ** 64 - 1, "u8")}
        with h5py.File(self.at / "x.h5", "w") as file:
            for name, values in arrays.items():
                file[name] = values
        self.assertEqual(self.convert(self.at / "x.h5", self.at / "unsigned").returncode, 0)
        with h5py.File(self.at / "unsigned/step-00000000/model.h5") as file:
            for name, values in arrays.items():
                self.assertEqual(file[name].dtype, values.dtype)
                self.assertTrue(np.array_equal(file[name][...], values))
        self.assertEqual(self.convert(self.at / "unsigned", self.at / "u.safetensors").returncode, 0)
        self.assertEqual(self.convert(self.at / "u.safetensors", self.at / "again").returncode, 0)
        self.assertEqual(self.arrays_of(self.at / "again"), self.arrays_of(self.at / "unsigned"))
        self.assertEqual(json.loads((self.at / "again/step-00000000/manifest.json").read_text())["min_reader"], 3)

    def test_safetensors_and_back(self):
        subprocess.run([FIXTURE, "save", self.at / "ckpt", "7"], check=True)
        expected = json.loads(subprocess.check_output([FIXTURE, "expected"]))
        file = self.at / "m.safetensors"
        self.assertEqual(self.convert(self.at / "ckpt", file).returncode, 0)
        data = file.read_bytes()
        length, = struct.unpack("<Q", data[:8])
        header = json.loads(data[8:8 + length])
        self.assertEqual(header.pop("__metadata__"), {"format": "pt"})  # transformers up to 4.48 needs it
        at = 0
        for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
            begin, end = entry["data_offsets"]
            self.assertEqual(begin, at)
            self.assertEqual(data[8 + length + begin:8 + length + end].hex(), expected[name]["hex"])
            at = end
        self.assertEqual(8 + length + at, len(data))
        self.assertEqual(self.convert(file, self.at / "again").returncode, 0)
        self.assertEqual({n: (d, s, b.hex()) for n, (d, s, b) in self.arrays_of(self.at / "again").items()},
                         {n: (e["dtype"], e["shape"], e["hex"]) for n, e in expected.items()})

    def test_a_prefix_is_removed_and_added(self):
        subprocess.run([FIXTURE, "save", self.at / "ckpt", "7"], check=True)
        self.assertEqual(self.convert(self.at / "ckpt", self.at / "m.pt", "--prefix", "model/").returncode, 0)
        self.assertEqual(sorted(torch.load(self.at / "m.pt")),
                         ["brain", "conv1.bias", "conv1.weight", "empty", "half"])
        self.convert(self.at / "m.pt", self.at / "ours", "--prefix", "model/")
        self.assertIn("model/conv1.bias", self.arrays_of(self.at / "ours"))
        self.assertEqual(self.convert(self.at / "ckpt", self.at / "n.pt", "--prefix", "nothing/").returncode, 1)
        self.assertFalse((self.at / "n.pt").exists())
        # Existing files are never replaced.
        self.assertEqual(self.convert(self.at / "ckpt", self.at / "m.pt").returncode, 1)

    def test_parts_become_whole_arrays(self):
        subprocess.run([FIXTURE, "parts", self.at / "ckpt", "1"], check=True)
        matrix = torch.arange(48.0).reshape(6, 8)
        self.assertEqual(self.convert(self.at / "ckpt", self.at / "m.pt").returncode, 0)
        loaded = torch.load(self.at / "m.pt")
        self.assertEqual(sorted(loaded), ["model/bias", "optim/alone", "optim/rows", "optim/tiles"])
        for name in ("alone", "rows", "tiles"):
            self.assertTrue(torch.equal(loaded[f"optim/{name}"], matrix), name)
        # After a round trip, diff finds no change.
        self.assertEqual(self.convert(self.at / "m.pt", self.at / "whole").returncode, 0)
        done = subprocess.run([TOOL, "diff", self.at / "ckpt", self.at / "whole"], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout),
                         (0, "4 arrays bitwise equal, 0 different, 0 only in A, 0 only in B\n"))

    def test_memory_does_not_grow_with_the_file(self):
        shape = [self.SIZE // 4096 // 4 // 2, 4096]
        header = json.dumps({"big": {"dtype": "F32", "shape": shape, "data_offsets": [0, self.SIZE // 2]},
                             "deep": {"dtype": "F32", "shape": [2, self.SIZE // 16],
                                      "data_offsets": [self.SIZE // 2, self.SIZE]}}).encode()
        with open(self.at / "big.safetensors", "wb") as file:
            file.write(struct.pack("<Q", len(header)) + header)
            at = file.tell()
            file.truncate(at + self.SIZE)  # zeros, not allocated on the disk
            for place in range(0, self.SIZE, 1 << 20):
                file.seek(at + place)
                file.write(struct.pack("<Q", place + 1))
        for source, target in (("big.safetensors", "ckpt"), ("ckpt", "again.safetensors"), ("ckpt", "big.pt")):
            done = self.limited(self.at / source, self.at / target)
            self.assertEqual(done.returncode, 0, done.stderr)
        ours = (self.at / "again.safetensors").stat().st_size - self.SIZE
        subprocess.run(["cmp", f"--ignore-initial={at}:{ours}", self.at / "big.safetensors",
                        self.at / "again.safetensors"], check=True)
        # The limit is effective: a process that needs the whole file in memory fails.
        done = subprocess.run([TOOL, "diff", str(self.at / "ckpt"), str(self.at / "ckpt")], capture_output=True,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (self.LIMIT, self.LIMIT)))
        self.assertEqual(done.returncode, 1)
        (self.at / "again.safetensors").unlink()
        # A tensor that is not dense in its file is reordered in a file on the disk.
        torch.save({"turned": torch.load(self.at / "big.pt")["big"].t()}, self.at / "turned.pt")
        (self.at / "big.pt").unlink()
        done = self.limited(self.at / "turned.pt", self.at / "turned")
        self.assertEqual(done.returncode, 0, done.stderr)
        manifest = json.loads((self.at / "turned/step-00000000/manifest.json").read_text())
        entry, = manifest["arrays"]
        self.assertEqual(entry["shape"], shape[::-1])
        ours = np.memmap(self.at / "turned/step-00000000/model.h5", "u4", "r", entry["offset"], tuple(entry["shape"]))
        whole = np.memmap(self.at / "big.safetensors", "u4", "r", at, tuple(shape))
        self.assertTrue(np.array_equal(ours, whole.T))

    def test_progress_on_a_terminal(self):
        subprocess.run([FIXTURE, "save", self.at / "ckpt", "7"], check=True)
        for source, target in (("ckpt", "m.safetensors"), ("m.safetensors", "again")):
            terminal, end = pty.openpty()
            done = subprocess.run([TOOL, "convert", self.at / source, self.at / target], stdout=subprocess.PIPE,
                                  stderr=end)
            os.close(end)
            shown = os.read(terminal, 1 << 20).decode()
            os.close(terminal)
            self.assertEqual(done.returncode, 0)
            self.assertRegex(shown, rf"{target}: .* of [0-9.]+ KiB")
            self.assertTrue(shown.endswith("\r\x1b[K"), shown)  # the line is cleared

    def test_a_file_becomes_the_file_that_was_asked_for(self):
        torch.save({"state_dict": {"a": torch.arange(3.0), "b": torch.ones(2, 2).t()}, "epoch": 3}, self.at / "m.pt")
        done = self.convert(self.at / "m.pt", self.at / "m.safetensors", "--prefix", "state_dict")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue((self.at / "m.safetensors").is_file())
        self.assertIn("left out a number or a text: the file holds only arrays", done.stdout)
        done = self.convert(self.at / "m.safetensors", self.at / "n.pt")
        self.assertEqual(done.returncode, 0, done.stderr)
        loaded = torch.load(self.at / "n.pt", weights_only=True)
        self.assertEqual(sorted(loaded), ["a", "b"])
        self.assertEqual(loaded["a"].tolist(), [0, 1, 2])
        done = self.convert(self.at / "m.pt", self.at / "m.h5")
        self.assertEqual(done.returncode, 1)
        self.assertIn("the ending selects the format", done.stderr)

    def test_a_prefix_may_lack_its_slash(self):
        subprocess.run([FIXTURE, "save", self.at / "ckpt", "7"], check=True)
        self.assertEqual(self.convert(self.at / "ckpt", self.at / "m.pt", "--prefix", "model").returncode, 0)
        self.assertIn("conv1.bias", torch.load(self.at / "m.pt"))
        self.assertEqual(self.convert(self.at / "m.pt", self.at / "ours", "--prefix", "model").returncode, 0)
        self.assertIn("model/conv1.bias", self.arrays_of(self.at / "ours"))

    def test_the_average_of_a_run_is_exported_with_what_it_does_not_average(self):
        torch.save({"model/w": torch.ones(2).half(), "model/bn/running_mean": torch.tensor([5.0]), "optim/w": torch.ones(1),
                    "user/ema/w": torch.tensor([3.0, 4.0])}, self.at / "in.pt")
        self.assertEqual(self.convert(self.at / "in.pt", self.at / "ckpt").returncode, 0)
        for number, prefix in enumerate(("average", "average/")):
            done = self.convert(self.at / "ckpt", self.at / f"{number}.pt", "--prefix", prefix)
            self.assertEqual((done.returncode, done.stdout.count("--ema")), (0, 0), done.stderr)
            loaded = torch.load(self.at / f"{number}.pt")
            self.assertEqual({n: (t.dtype, t.tolist()) for n, t in loaded.items()},
                             {"w": (torch.float32, [3, 4]), "bn/running_mean": (torch.float32, [5])})
        done = self.convert(self.at / "ckpt", self.at / "raw.pt", "--prefix", "model/")
        self.assertIn("--prefix average/ takes them", done.stdout)
        self.assertEqual(torch.load(self.at / "raw.pt")["w"].tolist(), [1, 1])
        self.assertNotIn("--ema", self.convert(self.at / "ckpt", self.at / "all.pt").stdout)
        torch.save({"model/w": torch.ones(2)}, self.at / "in.pt")
        self.convert(self.at / "in.pt", self.at / "without")
        done = self.convert(self.at / "without", self.at / "x.pt", "--prefix", "average/")
        self.assertIn("has no array whose name starts with 'average/'", done.stderr)

    def test_a_map_gives_the_names_of_another_program(self):
        matrix = torch.arange(6 * 5_000_000, dtype=torch.int16).reshape(6, -1)  # several pieces
        bias = torch.arange(3.0)
        torch.save({"model/a.weight": matrix, "model/a.bias": bias, "model/b": bias + 1}, self.at / "in.pt")
        self.assertEqual(self.convert(self.at / "in.pt", self.at / "ckpt").returncode, 0)
        (self.at / "names.map").write_text("x.*.w -> *.weight transpose\nx.*.bias -> *.bias\n")
        done = self.convert(self.at / "ckpt", self.at / "m.pt", "--prefix", "model/", "--map", self.at / "names.map")
        self.assertEqual(done.returncode, 0, done.stderr)
        loaded = torch.load(self.at / "m.pt")
        self.assertEqual(sorted(loaded), ["b", "x.a.bias", "x.a.w"])
        self.assertTrue(torch.equal(loaded["x.a.w"], matrix.t()))
        self.assertTrue(torch.equal(loaded["x.a.bias"], bias))
        for text, problem in (("q -> *.bias", "the same number of '*'"), ("x -> a.bias transpose", "which is not a matrix"),
                              ("b -> -", "leads from no name to 'b'"), ("b -> a.bias", "leads from no name to 'b'")):
            (self.at / "names.map").write_text(text + "\n")
            done = self.convert(self.at / "ckpt", self.at / "n.pt", "--prefix", "model/", "--map", self.at / "names.map")
            self.assertEqual(done.returncode, 1)
            self.assertIn(problem, done.stderr)
            self.assertFalse((self.at / "n.pt").exists())
        done = self.convert(self.at / "m.pt", self.at / "o.pt", "--map", "gpt2")
        self.assertIn("--map gives names to the arrays of a checkpoint", done.stderr)

    def test_a_directory_with_checkpoints_is_not_converted_into(self):
        torch.save({"a": torch.ones(1)}, self.at / "m.pt")
        self.assertEqual(self.convert(self.at / "m.pt", self.at / "ckpt").returncode, 0)
        done = self.convert(self.at / "m.pt", self.at / "ckpt")
        self.assertEqual(done.returncode, 1)
        self.assertIn("already holds the checkpoints of a run or of a conversion; name a new directory", done.stderr)

    def test_a_model_in_several_files_is_one_source(self):
        model = self.at / "model"
        model.mkdir()
        for i, name in enumerate("ab"):
            header = json.dumps({name: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
            (model / f"model-0000{i + 1}-of-00002.safetensors").write_bytes(
                struct.pack("<Q", len(header)) + header + struct.pack("<f", i))
        weights = {n: f"model-0000{i + 1}-of-00002.safetensors" for i, n in enumerate("ab")}
        index = model / "model.safetensors.index.json"
        index.write_text(json.dumps({"weight_map": weights}))
        for i, source in enumerate((model, index)):
            done = self.convert(source, self.at / f"ckpt{i}")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(self.arrays_of(self.at / f"ckpt{i}"),
                             {n: ("float32", [1], struct.pack("<f", v)) for v, n in enumerate("ab")})
        done = self.convert(model / weights["a"], self.at / "part")
        self.assertIn("it is only part 1 of 2 of a model; name the directory or 'model.safetensors.index.json'",
                      done.stderr)
        for change, sentence in (({"c": weights["a"]}, "lacks tensor 'c', which the index names"),
                                 ({"c": "../x"}, "is not a plain file name"),
                                 ({"c": "gone.safetensors"}, "it names 'gone.safetensors', which is not beside it")):
            index.write_text(json.dumps({"weight_map": {**weights, **change}}))
            self.assertIn(sentence, self.convert(model, self.at / "wrong").stderr)

    def test_inspect_lists_without_converting(self):
        torch.save({"w": torch.ones(2, 3), "q": torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
                    "lr": 0.5, "who": pathlib.PurePosixPath("x")}, self.at / "m.pt")
        done = subprocess.run([TOOL, "inspect", "--json", self.at / "m.pt"], capture_output=True, text=True)
        found = json.loads(done.stdout)
        self.assertEqual(found["arrays"], [{"name": "w", "dtype": "float32", "shape": [2, 3], "bytes": 24}])
        self.assertEqual((found["format"], found["values"], found["left_out"]), ("torch.save", {"lr": 0.5}, 1))
        self.assertEqual(found["unreadable"][0]["name"], "q")
        self.assertIn("PurePosixPath", found["left_out_named"][0]["reason"])
        done = subprocess.run([TOOL, "inspect", self.at / "m.pt"], capture_output=True, text=True)
        self.assertRegex(done.stdout, r"w +float32 +\[2, 3\]\nq +cannot be read +it is quantized")

    def test_other_kinds_of_files_are_named(self):
        np.savez(self.at / "a.npz", w=np.ones(2))
        np.save(self.at / "a.npy", np.ones(2))
        torch.jit.script(torch.nn.Linear(2, 2)).save(str(self.at / "script.pt"))
        (self.at / "page.pt").write_text("\n<!DOCTYPE html><html>404</html>")
        (self.at / "lfs.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n")
        (self.at / "m.gguf").write_bytes(b"GGUF" + bytes(60))
        (self.at / "p.pkl").write_bytes(pickle.dumps({"w": 1}))
        (self.at / "t.pt").write_bytes(bytes(257) + b"ustar" + bytes(250))
        (self.at / "z.pt").write_bytes(b"\x1f\x8b" + bytes(60))
        (self.at / "noise.safetensors").write_bytes(b"\xff" * 60)
        (self.at / "noise.pt").write_bytes(b"\xff" * 60)
        (self.at / "dcp").mkdir()
        (self.at / "dcp/__0_0.distcp").write_bytes(b"PK")
        (self.at / "zero").mkdir()
        (self.at / "zero/zero_to_fp32.py").write_text("")
        for name, sentence in (
                ("a.npz", "numpy archive (.npz); in Python"), ("a.npy", "numpy array (.npy); in Python"),
                ("script.pt", "TorchScript program; in Python"), ("page.pt", "a web page"),
                ("lfs.safetensors", "git lfs pull"), ("m.gguf", "GGUF"), ("p.pkl", "a pickle that torch.save did not"),
                ("t.pt", "archive of tar"), ("z.pt", "a compressed file or an archive"),
                ("noise.safetensors", "the header claims"), ("noise.pt", "of none of the kinds that are read"),
                ("dcp", f"dcp_to_torch {self.at}/dcp NEW.pt"),
                ("dcp/__0_0.distcp", f"dcp_to_torch {self.at}/dcp NEW.pt"), ("zero", f"python {self.at}/zero/zero_to_fp32.py")):
            with self.subTest(name):
                done = self.convert(self.at / name, self.at / "ckpt")
                self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1))
                self.assertIn(sentence, done.stderr)
        torch.save({"w": torch.ones(2)}, self.at / "renamed.safetensors")
        self.assertEqual(self.convert(self.at / "renamed.safetensors", self.at / "ckpt").returncode, 0)

    def test_attacks_in_safetensors(self):
        def file(header, data=b"", length=None):
            text = header if isinstance(header, bytes) else json.dumps(header).encode()
            return struct.pack("<Q", len(text) if length is None else length) + text + data

        def entry(begin, end, shape=(1,), dtype="F32"):
            return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
        for data, sentence in (
                (b"\1", "too short"), (file({}, length=2 ** 63), "the header claims"),
                (file({}, length=50), "the header claims"), (file(b"{"), "not JSON"),
                (file(b"[" * 100000), "nested too deep"), (file([]), "not a JSON object"),
                (file({"a": entry(0, 4), "b": entry(0, 4)}, bytes(4)), "begins at"),
                (file({"a": entry(0, 4), "b": entry(8, 12)}, bytes(12)), "begins at"),
                (file({"a": entry(0, 4)}, bytes(8)), "the file has"),
                (file({"a": entry(0, 400)}, bytes(4)), "do not fit the shape"),
                (file({"a": entry(0, 4, [2 ** 62, 2 ** 62])}, bytes(4)), "do not fit the shape"),
                (file({"a": entry(0, 4, [-1])}, bytes(4)), "not a number"),
                (file({"a": entry(0, 4, dtype="F128")}, bytes(4)), "its type is F128"),
                (file({"../a": entry(0, 4)}, bytes(4)), "a tensor's name")):
            with self.subTest(sentence):
                self.refused("x.safetensors", data, sentence)

    def test_attacks_in_pickles(self):
        marker = self.at / "executed"

        class Attack:
            def __reduce__(self):
                return os.system, (f"touch {marker}",)

        def archive(content, compression=zipfile.ZIP_STORED, storage=b"\0" * 16):
            out = io.BytesIO()
            with zipfile.ZipFile(out, "w", compression) as made:
                made.writestr("archive/data.pkl", content)
                made.writestr("archive/data/0", storage)
            return out.getvalue()

        def number(value):
            return b"\x8a\x08" + struct.pack("<q", value)

        def text(value):
            return b"X" + struct.pack("<I", len(value)) + value

        def tensor(offset=0, shape=(4,), stride=(1,), type_name=b"FloatStorage"):
            sizes = [b"(" + b"".join(map(number, values)) + b"t" for values in (shape, stride)]
            storage = (b"(" + text(b"storage") + b"ctorch\n" + type_name + b"\n" + text(b"0")
                       + text(b"cpu") + b"K\4tQ")
            return (b"\x80\x02}" + text(b"a") + b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage
                    + number(offset) + b"".join(sizes) + b"\x89NtRs.")

        def shared():
            # Each of 300 entries contains the next one, so that they have 300 times the bytes of the file.
            content, central = b"\0" * (8 << 20), b""
            headers = []
            for i in reversed(range(300)):
                name = b"archive/data/%06d" % i
                fields = (0, 0, 0, 33, zlib.crc32(content), len(content), len(content))
                content = struct.pack("<IHHHHHIIIHH", 0x04034b50, 20, *fields, len(name), 0) + name + content
                headers.append((name, fields, len(content)))
            for name, fields, length in headers:
                central += struct.pack("<IHHHHHHIIIHHHHHII", 0x02014b50, 20, 20, *fields, len(name), 0, 0, 0, 0, 0,
                                       len(content) - length) + name
            return content + central + struct.pack("<IHHHHIIH", 0x06054b50, 0, 0, 300, 300, len(central),
                                                   len(content), 0)
        path = self.at / "good.pt"
        path.write_bytes(archive(tensor()))
        done = self.convert(path, self.at / "good")
        self.assertEqual(done.returncode, 0, done.stderr)
        for data, sentence in (
                (archive(pickle.dumps({"a": Attack()}, 2)), "an object of 'posix.system'"),
                (archive(pickle.dumps(Attack(), 4)), "an object of 'posix.system'"),
                (archive(b"\x80\x02c__builtin__\neval\n."), "the class 'builtins.eval'"),
                (archive(tensor(offset=1)), "beyond its storage"),
                (archive(tensor(shape=(5,))), "beyond its storage"),
                (archive(tensor(shape=(2 ** 40, 2 ** 40), stride=(0, 0))), "beyond its storage"),
                (archive(tensor(shape=(2 ** 20,), stride=(0,))), "far more bytes"),
                (archive(tensor(shape=(4,), stride=(2 ** 62,))), "beyond its storage"),
                (archive(tensor(shape=(-1,))), "is negative"),
                (archive(tensor(type_name=b"QInt8Storage")), "cannot hold"),
                (shared(), "overlap"),
                (archive(b"\x80\x02}q\0X\1\0\0\0ah\0s."), "contains itself"),
                (archive(b"\x80\x02h\5."), "has not stored"), (archive(b"."), "stack is empty"),
                (archive(b"\x80\x02X\xff\xff\xff\xff"), "ends too early"),
                (archive(tensor(), zipfile.ZIP_DEFLATED), "is compressed"),
                (archive(tensor())[:-30], "it was cut off"), (b"PK", "of none of the kinds")):
            with self.subTest(sentence):
                self.refused("x.pt", data, sentence)
        self.assertFalse(marker.exists())


if __name__ == "__main__":
    unittest.main(verbosity=2)
