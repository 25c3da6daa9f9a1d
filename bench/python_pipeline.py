# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own pipelines (torch.distributed.pipelining) of the models that ddp-bench pipeline cuts into stages."""

import python_models
import python_shards

SCHEDULES = {"gpipe": "ScheduleGPipe", "1f1b": "Schedule1F1B", "interleaved": "ScheduleInterleaved1F1B"}


def why_not(torch, spec):
    """Returns why this PyTorch does not have the pipeline, or nothing."""
    if python_shards.release(torch) < (2, 6):
        return f"PyTorch {torch.__version__} is too old for this use of its pipelines, which needs 2.6"
    if spec["pipeline"]["schedule"] not in SCHEDULES:
        return f"PyTorch has no schedule of the kind {spec['pipeline']['schedule']}"
    if spec["step"] not in ("eager", "fused"):
        return f"pipelines are compared with --python-step eager or fused, not with {spec['step']}"
    return ""


def make_stage(torch, spec, number, stages):
    """One of the stages into which ddp-bench cuts the model; the weights of gpt's first and last layer are two."""
    nn = torch.nn
    layers, is_last = spec["layers"] // stages, number == stages - 1
    model = python_models.make_model(nn, {**spec, "layers": layers})
    if spec["model"] == "mlp":
        hidden = list(model)[1:-1]
        return nn.Sequential(*hidden, model[-1]) if is_last else nn.Sequential(*hidden)

    class GptStage(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = model.blocks
            if number == 0:
                self.tokens, self.positions = model.tokens, model.positions
            if is_last:
                self.norm, self.head = model.norm, nn.Linear(spec["width"], spec["classes"], bias=False)

        def forward(self, x):
            if number == 0:
                x = self.tokens(x) + self.positions.weight[:x.shape[1]]
            for block in self.blocks:
                x = block(x, None)
            return self.head(self.norm(x)) if is_last else x

    return GptStage()


class Pipeline:
    """One rank of a pipeline, with the same step as in ddp-bench itself."""

    def __init__(self, torch, spec, kind, optimizer_options):
        import torch.distributed.pipelining as pipelining

        how, ranks = spec["pipeline"], spec["world_size"]
        micro_batches, stages = how["micro_batches"], ranks * how["stages_per_rank"]
        samples = spec["batch"] * ranks
        own = list(range(spec["rank"], stages, ranks))
        modules = [make_stage(torch, spec, number, stages) for number in own]
        self.optimizer = kind([p for m in modules for p in m.parameters()], **optimizer_options)
        device = torch.device("cpu")
        parts = [pipelining.PipelineStage(m, number, stages, device) for number, m in zip(own, modules)]
        schedule = getattr(pipelining, SCHEDULES[how["schedule"]])

        def loss(scores, targets):
            return torch.nn.functional.cross_entropy(scores.flatten(0, -2), targets.flatten())

        self.schedule = schedule(parts if how["schedule"] == "interleaved" else parts[0], micro_batches, loss_fn=loss)
        self.has_first, self.has_last = own[0] == 0, own[-1] == stages - 1
        shape = [samples] + spec["input"]
        if spec["tokens"]:
            self.inputs = torch.randint(0, spec["classes"], shape)
            self.targets = torch.randint(0, spec["classes"], shape)
        else:
            self.inputs = torch.randn(shape)
            self.targets = torch.randint(0, spec["classes"], [samples])

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        # Without the outputs, which our step does not return either.
        self.schedule.step(*([self.inputs] if self.has_first else []),
                           **({"target": self.targets, "losses": []} if self.has_last else {}),
                           return_outputs=False)
        self.optimizer.step()
