# SPDX-License-Identifier: Apache-2.0
"""Training programs that save in their own formats, and seal what they have saved. For sealed_saves."""
import os
import pathlib
import re
import subprocess
import time
import warnings

warnings.filterwarnings("ignore")
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import lightning  # noqa: E402
import torch  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
import transformers  # noqa: E402
from lightning.pytorch.callbacks import ModelCheckpoint  # noqa: E402

torch.set_num_threads(1)
WIDTH = 2048  # 16 million parameters
STEPS = 15


def sync(path):
    """Makes what a program has saved durable, as sealing does, so that the two can be compared."""
    for file in [path] if path.is_file() else path.rglob("*"):
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def seal(path, save, seconds):
    """Saves, and seals if SEAL is set. With `seconds`, a file, appends how long each took."""
    start = time.monotonic()
    save()
    if seconds:
        sync(path)
    saved = time.monotonic()
    if "SEAL" not in os.environ:
        return
    subprocess.run(["ddp-ckpt", "seal", path], check=True, stdout=subprocess.DEVNULL)
    if seconds:
        with seconds.open("a", encoding="utf-8") as file:
            print(saved - start, time.monotonic() - saved, file=file)


def numbered(root, pattern):
    """The checkpoints, the newest first."""
    found = [(int(match[1]), path) for path in root.iterdir() if (match := re.fullmatch(pattern, path.name))]
    return [path for _, path in sorted(found, reverse=True)]


class Plain:
    """State of a step: every number of every tensor is the step."""

    pattern = r"step-(\d+)"

    def state(self, step):
        names = ["a.pt", "b.pt", "c.pt"]
        return {name: torch.full((WIDTH * WIDTH * 4,), float(step)) for name in names}

    def save(self, path, step):
        path.mkdir()
        for name, tensor in self.state(step).items():
            torch.save({"step": step, "tensor": tensor}, path / name)

    def checkpoints(self, root):
        return numbered(root, self.pattern)

    def path(self, root, step):
        return root / f"step-{step}"

    def train(self, root, seconds=None):
        for step in range(1, STEPS if seconds else 1000):
            path = self.path(root, step)
            seal(path, lambda path=path, step=step: self.save(path, step), seconds)
            if "SEAL" not in os.environ:
                time.sleep(2)  # longer than the quiet for which the watch waits
        return True

    def load(self, path):
        return {name: torch.load(path / name)["tensor"] for name in self.state(0)}

    def resume(self, _root, path):
        step = float(re.search(r"(\d+)$", str(path))[1])
        return all(bool((tensor == step).all()) for tensor in self.load(pathlib.Path(path)).values())

    def own_choice(self, root):
        return self.checkpoints(root)[0]


class DeepSpeedLayout(Plain):
    """The directories and names of DeepSpeed, whose `latest` is written last."""

    name = "DeepSpeed's layout"
    pattern = r"global_step(\d+)"

    def path(self, root, step):
        return root / f"global_step{step}"

    def state(self, step):
        ranks = ["mp_rank_00_model_states.pt", *(f"zero_pp_rank_{i}_mp_rank_00_optim_states.pt" for i in range(2))]
        return {name: torch.full((WIDTH * WIDTH * 4,), float(step)) for name in ranks}

    def save(self, path, step):
        super().save(path, step)
        (path.parent / "latest").write_text(path.name, encoding="utf-8")

    def own_choice(self, root):
        return root / (root / "latest").read_text(encoding="utf-8")


class Dcp(Plain):
    name = "torch.distributed.checkpoint"

    def save(self, path, step):
        dcp.save(self.state(step), checkpoint_id=path, no_dist=True)

    def load(self, path):
        state = self.state(0)
        dcp.load(state, checkpoint_id=path, no_dist=True)
        return state


class Net(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Linear(WIDTH, 2 * WIDTH), torch.nn.ReLU(), torch.nn.Linear(2 * WIDTH, WIDTH))


class Transformers:
    name = "transformers.Trainer"

    def checkpoints(self, root):
        return numbered(root, r"checkpoint-(\d+)")

    def trainer(self, root, seconds=None):
        class Config(transformers.PretrainedConfig):
            model_type = "two_layers"

        class Model(transformers.PreTrainedModel):
            config_class = Config

            def __init__(self, config):
                super().__init__(config)
                self.net = Net()
                self.post_init()

            def forward(self, x=None, labels=None):
                return {"loss": (self.net(x) - labels).pow(2).mean()}

        class Trainer(transformers.Trainer):
            def _save_checkpoint(self, *arguments, **options):
                path = root / f"checkpoint-{self.state.global_step}"
                save = super()._save_checkpoint
                seal(path, lambda: save(*arguments, **options), seconds)

        rows = [{"x": torch.randn(WIDTH), "labels": torch.randn(WIDTH)} for _ in range(2 * STEPS)]
        options = transformers.TrainingArguments(
            output_dir=str(root), per_device_train_batch_size=2, use_cpu=True, report_to=[], save_steps=1,
            logging_steps=1000, disable_tqdm=True, max_steps=STEPS)
        return Trainer(model=Model(Config()), args=options, train_dataset=rows)

    def train(self, root, seconds=None):
        self.trainer(root, seconds).train()
        return True

    def resume(self, root, path):
        trainer = self.trainer(root)
        trainer.train(resume_from_checkpoint=str(path))
        return trainer.state.global_step == STEPS

    def own_choice(self, root):
        return transformers.trainer_utils.get_last_checkpoint(str(root))


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def training_step(self, batch, _):
        return self.net(batch).pow(2).mean()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


class Lightning:
    name = "Lightning"

    def checkpoints(self, root):
        return numbered(root, r"epoch=0-step=(\d+)\.ckpt")

    def trainer(self, root, seconds=None):
        class Saver(ModelCheckpoint):
            def _save_checkpoint(self, trainer, filepath):
                save = super()._save_checkpoint
                seal(pathlib.Path(filepath), lambda: save(trainer, filepath), seconds)

        saver = Saver(dirpath=root, every_n_train_steps=1, save_top_k=-1)
        return lightning.Trainer(accelerator="cpu", max_steps=STEPS, callbacks=[saver], logger=False,
                                 enable_progress_bar=False, enable_model_summary=False)

    def fit(self, root, seconds=None, path=None):
        loader = torch.utils.data.DataLoader(torch.randn(2 * STEPS, WIDTH), batch_size=2)
        trainer = self.trainer(root, seconds)
        trainer.fit(Module(), loader, ckpt_path=path)
        return trainer.global_step == STEPS

    def train(self, root, seconds=None):
        return self.fit(root, seconds)

    def resume(self, root, path):
        return self.fit(root, path=str(path))

    def own_choice(self, root):
        return self.checkpoints(root)[0]


PROGRAMS = [Transformers(), Lightning(), Dcp(), DeepSpeedLayout()]
