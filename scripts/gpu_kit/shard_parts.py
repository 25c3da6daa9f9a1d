# SPDX-License-Identifier: Apache-2.0
"""The parts for trainings that are divided among ranks (ddp-train --shard), which share a GPU if there is only one."""

import functools
import json
import os
import pathlib
import shlex
import subprocess
import sys

from runner import Step, run_command
from step_cases import SHARDED
from step_parts import LIMIT, nvidia_smi, python_for_peers, quantile_text
from trainings import kill_one_of_two_ranks, program, ranks, trainings_on, understand_training

HERE = pathlib.Path(__file__).resolve().parent

STRATEGIES = {
    "none": [],
    "optimizer": ["--shard", "optimizer"],
    "gradients": ["--shard", "gradients"],
    "parameters, kept": ["--shard", "parameters", "--keep-after-forward"],
    "parameters": ["--shard", "parameters"],
    "hybrid": ["--shard", "hybrid"],
}
MEBIBYTE = 1 << 20
MOST_RANKS = 4


def values_of(session, name):
    return next(step["values"] for step in session.result["steps"] if step["name"] == name)


def compare_bits(session, names):
    """Two summands have one sum, in whatever order NCCL adds them."""
    bits = [values_of(session, name).get("parameters") for name in names]
    return None not in bits and len(set(bits)) == 1, f"parameters {', '.join(map(str, bits))}", {"bits": bits}


def compare_losses(session, names, limit):
    losses = [values_of(session, name).get("train loss") for name in names]
    if None in losses:
        return False, "a run did not end", {}
    apart = max(losses) / min(losses) - 1
    return apart < limit, f"train losses {', '.join(map(str, losses))}, {100 * apart:.2f} % apart", {"apart": apart}


def understand_memory(session, directory, text):
    """Reads the prediction and the measurement from the report that the run has just written."""
    note, values, passed = understand_training(text)
    if not passed:
        return note, values, passed
    sharding = json.loads((session.work / directory / "run.json").read_text())["sharding"]
    predicted = sharding["predicted_bytes_between_steps"] + sharding["predicted_bytes_in_step"]
    measured = sharding["measured_peak_bytes"]
    values = {**values, "predicted": predicted, "measured": measured, "sharding": sharding}
    if measured is None:
        return "the peak is not measured", values, False
    return (f"{predicted / MEBIBYTE:.1f} MiB predicted, {measured / MEBIBYTE:.1f} measured, "
            f"{measured / predicted:.3f}", values, True)


class Trainings:
    """Makes steps that run ddp-train on ranks of this machine's GPUs."""

    def __init__(self, session, device):
        self.session, self.device, self.on_gpu = session, device, device != "cpu"
        self.variables, self.impossible = trainings_on(session, MOST_RANKS) if self.on_gpu else ({}, "")

    def run(self, name, number, options, backend="nccl", limit=60, understand=understand_training, **more):
        over = ["--device", self.device, *(["--backend", backend] if self.on_gpu else [])]
        environment = dict(self.variables)
        if self.variables and number > 2:
            environment["NCCL_MAX_CTAS"] = "4"
        return Step(name, ranks(self.session, number, program(self.session, "ddp-train"), *over, *options), limit=limit,
                    understand=understand, environment=environment, skip=self.impossible, needs_gpu=self.on_gpu, **more)

    def compare(self, name, function):
        return Step(name, function=function, skip=self.impossible, needs_gpu=self.on_gpu)


def on_two_nodes(session, step):
    """Lets each half of the ranks take the others for another machine, which it cannot share memory with."""
    directory = session.work / "nodes"
    wrapper = session.work / "on-its-node"
    wrapper.write_text("""#!/bin/sh
node=$((OMPI_COMM_WORLD_RANK * 2 / OMPI_COMM_WORLD_SIZE))
export NCCL_HOSTID=node-$node
exec unshare --mount sh -c 'mount --bind "$0" /dev/shm && exec "$@"' "%s/$node" "$@"
""" % directory)
    wrapper.chmod(0o755)
    at = next(i for i, word in enumerate(step.command) if str(word).endswith("ddp-train"))
    command = [*step.command[:at], wrapper, *step.command[at:]]
    mount = " && ".join(f"mkdir -p {directory}/{node} && mount -t tmpfs tmpfs {directory}/{node}" for node in (0, 1))
    step.command = ["unshare", "--mount", "sh", "-c", f"{mount} && exec {shlex.join(map(str, command))}"]
    # Messages between nodes must not travel through shared memory either.
    step.environment = {**step.environment, "OMPI_MCA_btl": "self,tcp", "NCCL_SOCKET_IFNAME": "lo"}
    return step


def same_bits(trainings, mlp):
    """Each strategy, and a run that changes it twice, ends with the bits of plain data parallelism."""
    two = lambda name, *options, **more: trainings.run(name, 2, [*mlp, *options], **more)
    plain = [two(f"mlp, {name}", "--epochs", 2, *options) for name, options in STRATEGIES.items()]
    names = [step.name for step in plain]
    changed = [two(f"mlp, {name} until epoch {epoch}", "--epochs", epoch, "--checkpoint-dir", "changed", *STRATEGIES[name],
                   expected="resumed from" if epoch > 1 else "")
               for epoch, name in enumerate(("parameters", "hybrid", "gradients", "none"), 1)]
    whole = two("mlp, none in one run of 4 epochs", "--epochs", 4)
    staged = [two(f"mlp, {name} over MPI", "--epochs", 2, *STRATEGIES[name], backend="mpi") for name in ("none", "parameters")]
    return [*plain, trainings.compare("compare the bits", lambda session: compare_bits(session, names)),
            *changed, whole,
            trainings.compare("compare the bits after changes of the strategy",
                              lambda session: compare_bits(session, (changed[-1].name, whole.name))),
            *staged,
            trainings.compare("compare the bits over MPI",
                              lambda session: compare_bits(session, [step.name for step in staged]))]


# What all strategies share with plain data parallelism.
OPTIONS = {
    "bf16 weights": ["--precision", "bf16", "--param-type", "bf16"],
    "fp16 and a loss scale": ["--precision", "fp16"],
    "an average": ["--ema", 0.9],
    "flags of skipped steps, and a norm below the limit": ["--on-nan", "skip", "--clip", 1000],
}


def same_bits_with_options(trainings, mlp):
    steps = []
    for what, options in OPTIONS.items():
        runs = [trainings.run(f"mlp with {what}, {name}", 2, [*mlp, "--epochs", 1, *options, *STRATEGIES[name]])
                for name in ("none", "gradients", "parameters")]
        names = [step.name for step in runs]
        steps += [*runs, trainings.compare(f"compare the bits with {what}",
                                           functools.partial(compare_bits, names=names))]
    return steps


def same_losses(trainings, gpt):
    runs = {name: trainings.run(f"gpt in bf16, {name}", 2, [*gpt, *options], limit=90) for name, options in STRATEGIES.items()}
    runs["again"] = trainings.run("gpt in bf16, parameters with checkpointed activations", 2,
                                  [*gpt, *STRATEGIES["parameters"], "--checkpoint-activations"], limit=90)
    runs["clipped"] = trainings.run("gpt in bf16, parameters with clipping and micro-batches", 2,
                                    [*gpt, *STRATEGIES["parameters"], "--clip", 1, "--accumulate", 2], limit=90)
    names = [step.name for key, step in runs.items() if key != "clipped"]
    return [*runs.values(), trainings.compare("compare the losses of gpt", lambda session: compare_losses(session, names, 0.02))]


def divided_by(session, directory, wanted):
    found = json.loads((session.work / directory / "run.json").read_text())["sharding"]["divided_by"]
    return found == wanted, f"divided by {found} ranks", {"divided_by": found}


def two_nodes(session, trainings, mlp):
    def run(where, name, directory):
        return trainings.run(f"mlp, {name} on {where}", MOST_RANKS,
                             [*mlp, "--epochs", 2, *STRATEGIES[name], "--report-dir", directory], limit=90)

    runs = [run("4 ranks", name, f"one-node-{name}") for name in ("none", "hybrid", "parameters")]
    runs += [on_two_nodes(session, run("two nodes", name, f"two-nodes-{name}")) for name in ("none", "hybrid")]
    return [*runs, trainings.compare("compare the losses of 4 ranks",
                                     lambda session: compare_losses(session, [step.name for step in runs], 0.02)),
            trainings.compare("hybrid shards of one node", lambda session: divided_by(session, "one-node-hybrid", MOST_RANKS)),
            trainings.compare("hybrid shards of two nodes",
                              lambda session: divided_by(session, "two-nodes-hybrid", MOST_RANKS // 2))]


def memory(session, trainings, gpt):
    steps = []
    for number in (2, 4):
        for name, options in STRATEGIES.items():
            directory = f"memory-{number}-{name}".replace(" ", "-").replace(",", "")
            steps.append(trainings.run(f"memory of {number} ranks, {name}", number,
                                       [*gpt, *options, "--report-dir", directory], limit=90,
                                       understand=functools.partial(understand_memory, session, directory)))
    return steps


# Takes the memory of the GPU but for some bytes, says so, and keeps it until its input ends.
BALLAST = """
import sys, torch
rest, free = int(sys.argv[1]), torch.cuda.mem_get_info()[0]
taken = torch.empty(max(free - rest, 1), dtype=torch.uint8, device="cuda")
print(torch.cuda.mem_get_info()[0], flush=True)
sys.stdin.read()
"""


def in_little_memory(session, trainings, rest, small_options, large_options):
    """The rest of a GPU is too small for a model without shards, and large enough for one of three times the size."""
    small = trainings.run("without shards", MOST_RANKS, small_options, limit=150, exit_codes=range(1, 256),
                          understand=None, expected="out of memory|cannot allocate", shown="(CUDA )?out of memory.*")
    large = trainings.run("three times the size with --shard parameters", MOST_RANKS,
                          [*large_options, *STRATEGIES["parameters"]], limit=150)
    variables, impossible = trainings_on(session, session.machine.gpus + 1)  # all on the first GPU
    if impossible:
        return False, impossible, {}
    for step in (small, large):
        step.environment = {**step.environment, **variables, "NCCL_MAX_CTAS": "4", "CUDA_VISIBLE_DEVICES": "0"}
    with subprocess.Popen([sys.executable, "-c", BALLAST, str(rest)],
                          env={**os.environ, "CUDA_VISIBLE_DEVICES": "0"}, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as ballast:
        left = int(ballast.stdout.readline())
        results = [run_command(session, step, min(step.limit, session.left())) for step in (small, large)]
        ballast.stdin.close()
    notes = [f"{step.name}: {note}" for step, (_, note, _) in zip((small, large), results)]
    values = {"left": left, **results[1][2]}
    return all(result == "ok" for result, _, _ in results), f"{left / 2**30:.1f} GiB left; " + "; ".join(notes), values


MLP = ["--model", "mlp", "--optimizer", "adamw", "--batch", 32]
GPT = ["--model", "gpt", "--data", f"text:{HERE / 'parts.py'}", "--batch", 8, "--steps", 50, "--optimizer", "adamw",
       "--precision", "bf16"]
LARGE_GPT = ["--model", "gpt", "--data", f"text:{HERE / 'parts.py'}", "--width", 1024, "--heads", 16,
             "--batch", 1, "--context", 8, "--steps", 3, "--optimizer", "adamw"]
# Without shards, 4 ranks of the first take 16 bytes for each of 403 million weights, 24.0 GiB, those of the second with
# shards 4 bytes for each of 1.2 billion, 18.0 GiB, and 1.0 GiB for whole units; both 1.2 GiB more for each process.
# With 25.5 GiB, neither fits.
LITTLE_MEMORY = int(27.5 * 2**30)


def shards(session, device="cuda", mlp=tuple(MLP), gpt=tuple(GPT), large_gpt=tuple(LARGE_GPT), layers=(24, 32, 96)):
    trainings = Trainings(session, device)
    little = lambda session: in_little_memory(session, trainings, LITTLE_MEMORY,
                                              *([*large_gpt, "--layers", count] for count in layers[1:]))
    killed = functools.partial(kill_one_of_two_ranks,
                               options=("--shard", "parameters", "--device", device,
                                        *(["--backend", "nccl"] if trainings.on_gpu else [])),
                               environment=trainings.variables)
    return [*same_bits(trainings, mlp), *same_bits_with_options(trainings, mlp), *same_losses(trainings, gpt),
            *two_nodes(session, trainings, mlp),
            trainings.compare("kill -9 of one of two ranks with shards", killed),
            *memory(session, trainings, [*large_gpt, "--layers", layers[0]]),
            *([trainings.compare("a model that does not fit without shards", little)] if trainings.on_gpu else [])]


# ---- shard-steps

def compare_shards(result, peer):
    """Returns the note and the values of a result of ddp-bench step --shard."""
    compared = result["compared"]
    with_shards = compared["ours_with_shards"]
    # The inverse of quantiles: p10 of one is p90 of the other.
    over_ours = {new: 1 / with_shards["ratio_per_round"][old]
                 for new, old in (("p10", "p90"), ("p50", "p50"), ("p90", "p10"))}
    values = {"our_ms": 1000 * with_shards["step_seconds"]["p50"], "over_our_ddp": over_ours, "result": result}
    note = f"{1000 * with_shards['step_seconds']['p50']:.1f} ms, {quantile_text(over_ours)} of our DDP's time"
    if peer is None:
        return note, values, True
    if peer in result.get("not_compared", {}):
        return f"{note}; not compared with {peer}: {result['not_compared'][peer]}", values, False
    values["over_python"] = compared[peer]["ours_with_shards"]["ratio_per_round"]
    return f"{note}, {quantile_text(values['over_python'])} of {peer}'s", values, True


def shard_steps(session, cases=tuple(SHARDED), device="cuda", python=sys.executable, limit=2 * LIMIT):
    on_gpu = device != "cpu"
    variables, impossible = trainings_on(session) if on_gpu else ({}, "")
    python = python_for_peers(session, python)
    peers = {"optimizer": "zero1", "gradients": "fsdp2_keep", "parameters": "fsdp2", "hybrid": None}
    steps = [nvidia_smi("clocks before")] if on_gpu else []
    for case in cases:
        for strategy, peer in peers.items():
            peer = peer and f"python_{peer}_{'nccl' if on_gpu else 'gloo'}"
            name = f"{case.name}: {strategy}"
            file = session.work / f"{name}.json".replace(" ", "-")
            against = ["--python", python, "--python-step", "fused"] if peer else ["--no-python"]
            command = [program(session, "ddp-bench"), "step", *case.options, "--shard", strategy, "--device", device,
                       "--json", file, *against]
            understand = functools.partial(lambda file, peer, _: compare_shards(json.loads(file.read_text()), peer), file, peer)
            steps.append(Step(name, ranks(session, 2, *command), needs_gpu=on_gpu, limit=limit, understand=understand,
                              environment=variables, skip=impossible))
    return steps + ([nvidia_smi("clocks after")] if on_gpu else [])
