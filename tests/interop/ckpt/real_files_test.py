#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests ddp-ckpt on files that the current PyTorch, transformers, safetensors and Lightning write:
each value is the one that the library itself reads, or is named. Needs CKPT_BIN; exits with 77
without the libraries (see tests/interop/weights/real_libraries).
"""

import argparse
import collections
import json
import pathlib
import subprocess
import sys
import unittest
import warnings

warnings.simplefilter("ignore")
try:
    import lightning
    import numpy as np
    import torch
    import torch.distributed.checkpoint as dcp
    from safetensors.torch import load_file, save_file
    from transformers import GPT2Config, GPT2LMHeadModel
except ImportError as error:
    print(f"skipped: {sys.executable}: {error}; see SLURM_DDP_TEST_PYTHON in real_libraries")
    sys.exit(77)

from convert_case import TOOL, ConvertCase


class RealFiles(ConvertCase):
    def run_tool(self, *words):
        return subprocess.run([TOOL, *map(str, words)], capture_output=True, text=True, timeout=120)

    def converted(self, source, *options):
        """The tensors that the tool reads, and what it says."""
        target = self.at / f"out{len(list(self.at.iterdir()))}.safetensors"
        done = self.run_tool("convert", source, target, *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return load_file(target), done.stdout

    def check(self, source, *options):
        """Each tensor is the one that torch.load gives."""
        ours, said = self.converted(source, *options)
        theirs = torch.load(source, weights_only=False)
        for name, tensor in ours.items():
            expected = theirs
            for key in name.split("/"):
                expected = expected[key] if isinstance(expected, dict) else expected[int(key)]
            expected = expected.detach().resolve_conj().resolve_neg().contiguous()
            self.assertEqual((tensor.dtype, tensor.shape), (expected.dtype, expected.shape), name)
            self.assertTrue(torch.equal(tensor.view(torch.uint8), expected.view(torch.uint8)), name)
        return ours, said

    def saved(self, content, **options):
        path = self.at / f"in{len(list(self.at.iterdir()))}.pt"
        torch.save(content, path, **options)
        return path

    def test_views(self):
        numbers = torch.tensor([1 + 2j, 3 - 4j])
        ours, _ = self.check(self.saved({
            "conj": numbers.conj(), "neg": torch._neg_view(torch.ones(3)), "both": torch._neg_view(numbers.conj()),
            "turned": torch.stack([numbers, numbers]).conj().t(), "half": torch._neg_view(torch.ones(2).half()),
            "integers": torch._neg_view(torch.tensor([5, -7, 0])), "plain": numbers}))
        self.assertEqual(len(ours), 7)
        self.check(self.saved({"imaginary": numbers.conj().imag}))

    def test_protocols_and_the_old_format(self):
        layer = torch.nn.Linear(3, 2)
        content = {"model": layer.state_dict(), "turned": torch.arange(6).reshape(2, 3).t(), "set": {1}, "none": None,
                   "slice": torch.arange(9.)[3:5], "type": torch.float16, "order": collections.OrderedDict(a=1)}
        for protocol in (2, 3, 4, 5):
            for zipped in (True, False):
                with self.subTest(protocol=protocol, zipped=zipped):
                    ours, _ = self.check(self.saved(content, pickle_protocol=protocol,
                                                    _use_new_zipfile_serialization=zipped))
                    self.assertEqual(sorted(ours), ["model/bias", "model/weight", "slice", "turned"])

    def test_types_and_options(self):
        try:
            import torch.utils.serialization as serialization
        except ImportError:
            self.skipTest(f"PyTorch {torch.__version__} has no options for torch.save")
        self.check(self.saved({"u": torch.tensor([1, 65535], dtype=torch.uint16),
                               "f": torch.tensor([1., 2.]).to(torch.float8_e4m3fn)}))
        serialization.config.save.compute_crc32 = False
        path = self.saved({"w": torch.arange(3.)})
        serialization.config.save.compute_crc32 = True
        self.check(path)
        self.check(self.saved({"p": torch.nn.Parameter(torch.ones(2)), "b": torch.nn.Buffer(torch.ones(2))}))

    def test_what_weights_only_takes(self):
        layer = torch.nn.Linear(3, 2)
        optimizer = torch.optim.SGD(layer.parameters(), 0.1)
        schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 5])
        default = collections.defaultdict(int, a=3)
        content = {"model": layer.state_dict(), "schedule": schedule.state_dict(), "size": torch.Size([1, 2]),
                   "device": torch.device("cuda:0"), "type": torch.bfloat16, "bytes": b"ab\xff", "set": {1, 2},
                   "default": default, (0, "a"): 1, True: 2, None: 3, 0.5: 4, b"k": 5, "seed": 2 ** 63 + 5,
                   "random": np.random.default_rng(0).bit_generator.state}
        _, said = self.check(self.saved(content))
        self.assertIn("'bytes' (3 bytes)", said)
        self.assertIn("'random/state/state' (an integer of 128 bits)", said)

    def test_other_classes_are_named(self):
        path = self.saved({"w": torch.ones(2), "args": argparse.Namespace(lr=1), "best": np.float64(2),
                           "path": pathlib.PosixPath("/a"), "array": np.ones(3), "net": torch.nn.Linear(2, 2)})
        ours, said = self.check(path)
        self.assertEqual(list(ours), ["w"])
        for text in ("5 objects were left out", "argparse.Namespace", "numpy.ndarray", "pathlib.",
                     "'net' (an object of 'torch.nn.modules.linear.Linear' with 2 tensors)"):
            self.assertIn(text, said)
        path = self.saved({"w": torch.ones(2), "half": torch.ones(2, dtype=torch.complex32),
                           "sparse": torch.ones(2, 2).to_sparse(), "meta": torch.ones(2, device="meta"),
                           "nested": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])})
        done = self.run_tool("convert", path, self.at / "x.safetensors")
        self.assertIn("leave them out with --skip half,sparse,meta,nested", done.stderr)
        self.check(path, "--skip", "half,sparse,meta,nested")
        done = self.run_tool("convert", self.saved(torch.nn.Linear(2, 2)), self.at / "x.safetensors")
        self.assertIn("save the state_dict() of the model in Python", done.stderr)

    def test_lightning(self):
        class Net(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(2, 1)

            def training_step(self, batch, _):
                loss = self.layer(batch).mean()
                self.log("loss", loss)
                return loss

            def configure_optimizers(self):
                optimizer = torch.optim.Adam(self.parameters())
                return [optimizer], [torch.optim.lr_scheduler.MultiStepLR(optimizer, [1])]
        keep = lightning.pytorch.callbacks.ModelCheckpoint(self.at, "m", monitor="loss")
        trainer = lightning.Trainer(max_epochs=1, callbacks=[keep], logger=False, enable_progress_bar=False,
                                    enable_model_summary=False, accelerator="cpu", default_root_dir=self.at)
        net = Net()
        trainer.fit(net, torch.utils.data.DataLoader(torch.ones(4, 2)))
        ours, _ = self.converted(self.at / "m.ckpt", "--prefix", "state_dict/")
        self.assertTrue(torch.equal(ours["layer.weight"], net.layer.weight.detach()))
        done = self.run_tool("convert", self.at / "m.ckpt", self.at / "all")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_transformers(self):
        model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=32, vocab_size=64, n_positions=16,
                                           bos_token_id=0, eos_token_id=0))
        model.save_pretrained(self.at / "parts", max_shard_size="20KB")
        model.save_pretrained(self.at / "one")
        self.assertTrue((self.at / "parts/model.safetensors.index.json").exists())
        expected = load_file(self.at / "one/model.safetensors")
        for name in ("parts", "parts/model.safetensors.index.json", "one"):
            ours, _ = self.converted(self.at / name)
            self.assertEqual(sorted(ours), sorted(expected))
            self.assertTrue(all(torch.equal(ours[n], expected[n]) for n in ours))
        # And back, through a checkpoint.
        self.assertEqual(self.run_tool("convert", self.at / "parts", self.at / "ckpt").returncode, 0)
        target = self.at / "one/model.safetensors"
        target.unlink()
        self.assertEqual(self.run_tool("convert", self.at / "ckpt", target).returncode, 0)
        again = GPT2LMHeadModel.from_pretrained(self.at / "one")
        self.assertTrue(torch.equal(again.transformer.wte.weight, model.transformer.wte.weight))

    def test_a_trained_gpt_goes_back_to_transformers(self):
        weights = pathlib.Path(__file__).parents[1] / "weights/gpt2.safetensors"
        train = [pathlib.Path(TOOL).parent / "ddp-train", "--model", "gpt", "--data", f"text:{weights.parents[3]}/README.md",
                 "--width", "16", "--layers", "2", "--heads", "2", "--context", "16", "--batch", "4", "--steps", "2"]
        subprocess.run([*train, "--init-from", weights, "--init-map", "gpt2", "--checkpoint-dir", self.at / "ckpt"],
                       check=True, capture_output=True, timeout=120)
        raw, _ = self.converted(self.at / "ckpt", "--prefix", "model/")
        (self.at / "hf").mkdir()
        config = GPT2Config(n_layer=2, n_head=2, n_embd=16, vocab_size=256, n_positions=16, bos_token_id=0, eos_token_id=0)
        config.save_pretrained(self.at / "hf")
        done = self.run_tool("convert", self.at / "ckpt", self.at / "hf/model.safetensors", "--prefix", "model/", "--map",
                             "gpt2")
        self.assertEqual(done.returncode, 0, done.stderr)
        model, loading = GPT2LMHeadModel.from_pretrained(self.at / "hf", output_loading_info=True)
        self.assertEqual([list(loading[k]) for k in ("missing_keys", "unexpected_keys", "mismatched_keys")], [[], [], []])
        self.assertTrue(torch.equal(model.lm_head.weight, raw["tokens.weight"]))
        self.assertTrue(torch.equal(model.transformer.h[1].attn.c_attn.weight, raw["blocks.1.qkv.weight"].t()))
        self.assertTrue(torch.equal(model.transformer.h[1].mlp.c_proj.bias, raw["blocks.1.contract.bias"]))

    @unittest.skipUnless(hasattr(torch, "float8_e8m0fnu"), "this PyTorch has no F8_E8M0")
    def test_new_types_of_safetensors(self):
        save_file({"w": torch.ones(2), "x": torch.ones(2).to(torch.float8_e8m0fnu)}, self.at / "e8.safetensors")
        done = self.run_tool("convert", self.at / "e8.safetensors", self.at / "x.pt")
        self.assertIn("'x' (its type is F8_E8M0, which a checkpoint cannot hold); leave it out with --skip x",
                      done.stderr)
        ours, _ = self.converted(self.at / "e8.safetensors", "--skip", "x")
        self.assertEqual(list(ours), ["w"])
        save_file({"w": torch.ones(2)}, self.at / "m.sft", {"format": "pt", "step": "7"})
        found = json.loads(self.run_tool("inspect", "--json", self.at / "m.sft").stdout)
        self.assertEqual((found["format"], found["values"]), ("safetensors", {"__metadata__/step": "7"}))

    def test_other_formats_are_named(self):
        layer = torch.nn.Linear(3, 2)
        torch.jit.script(layer).save(str(self.at / "script.pt"))
        torch.export.save(torch.export.export(layer, (torch.ones(1, 3),)), self.at / "export.pt2")
        dcp.save({"w": torch.ones(3)}, checkpoint_id=str(self.at / "dcp"))
        for name, text in (("script.pt", "torch.jit.load('FILE'"), ("export.pt2", "torch.export.load('FILE')"),
                           ("dcp", f"dcp_to_torch {self.at}/dcp NEW.pt")):
            done = self.run_tool("inspect", self.at / name)
            self.assertEqual(done.returncode, 1)
            self.assertIn(text, done.stderr)
        subprocess.run([sys.executable, "-W", "ignore", "-m", "torch.distributed.checkpoint.format_utils",
                        "dcp_to_torch", self.at / "dcp", self.at / "joined.pt"], check=True, capture_output=True)
        ours, _ = self.check(self.at / "joined.pt")
        self.assertEqual(ours["w"].tolist(), [1, 1, 1])


if __name__ == "__main__":
    unittest.main(verbosity=2)
