# SPDX-License-Identifier: Apache-2.0
"""The parts that time training steps: ours, a plain loop's, and Python's, in turns on the same GPU."""

import json
import os
import pathlib
import shlex
import sys

from runner import Step
from step_cases import LARGE, LAUNCH_BOUND

HERE = pathlib.Path(__file__).resolve().parent
CEILINGS = "ceilings by PyTorch: GB/s and TFLOP/s"
# Seconds for a command, and for one in which Python compiles.
LIMIT, LIMIT_TO_COMPILE = 75, 150


def nvidia_smi(title):
    query = ("name,driver_version,memory.total,memory.used,clocks.sm,clocks.mem,temperature.gpu,power.draw,"
             "compute_mode,mig.mode.current")
    return Step(title, ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"], of_kit=False, needs_gpu=True,
                shown=".+")


def understand_ceilings(text):
    values = json.loads(text[text.index("{"):])
    medians = [f"{name} {entry['p50']:.4g}" for name, entry in values.items() if isinstance(entry, dict)]
    return ", ".join(medians), values, True


def ceilings():
    return Step(CEILINGS, [sys.executable, HERE / "ceilings.py"], of_kit=False, needs_gpu=True, limit=120,
                understand=understand_ceilings)


def python_for_peers(session, python):
    """Writes a command that runs Python without the libraries of the kit, which ddp-bench itself needs."""
    file = session.work / "python-for-peers"
    libraries = os.environ.get("LD_LIBRARY_PATH")
    setting = f"LD_LIBRARY_PATH={shlex.quote(libraries)}" if libraries else "-u LD_LIBRARY_PATH"
    file.write_text(f'#!/bin/sh\nexec env {setting} {shlex.quote(str(python))} "$@"\n')
    file.chmod(0o755)
    return file


def quantile_text(values, scale=1, digits=3):
    p10, p50, p90 = (f"{scale * values[name]:.{digits}f}" for name in ("p10", "p50", "p90"))
    return f"{p50} ({p10} to {p90})"


def measured_ceiling(session):
    """Returns the TFLOP/s of bf16 matrix products, if this part has measured them."""
    for step in session.result["steps"]:
        if step["name"] == CEILINGS and step["result"] == "ok":
            return step["values"]["bf16_TFLOPps"]["p50"]
    return None


def compare(case, result, peer, aim, ceiling):
    """Returns the note and the values of a comparison with `peer` in a result of ddp-bench step."""
    missing = result.get("not_compared", {}).get(peer)
    if missing:
        return f"not compared with {peer}: {missing}", result, False
    theirs = result["compared"][peer]
    ratio, seconds = theirs["ratio_per_round"], result["step_seconds"]
    rate = case.operations / seconds["p50"] / 1e12
    values = {"ratio": ratio, "our_ms": 1000 * seconds["p50"], "their_ms": 1000 * theirs["step_seconds"]["p50"],
              "TFLOPps": rate, "aim": aim, "result": result}
    note = f"{quantile_text(ratio)} of its time, ours {quantile_text(seconds, 1000, 2)} ms, {rate:.3g} TFLOP/s"
    if ceiling and result["precision"] == "bf16":
        values["of_ceiling"] = rate / ceiling
        note += f", {100 * values['of_ceiling']:.0f} % of the ceiling"
    if aim:
        values["reached"] = ratio["p50"] <= aim
        note += f"; the aim of {aim} is {'reached' if values['reached'] else 'missed'}"
    return note, values, True


def bench(session, case, name, peer, options, aim, device, limit):
    """A comparison by ddp-bench. Whether an aim is reached does not decide whether the command passed."""
    file = session.work / f"{name}.json".replace(" ", "-")

    def understand(_):
        return compare(case, json.loads(file.read_text()), peer, aim, measured_ceiling(session))

    command = [session.kit / "bin/ddp-bench", "step", *case.options, "--device", device, "--json", file, *options]
    program = session.kit / "bin/ddp-bench"
    return Step(name, command, needs_gpu=device != "cpu", limit=limit, understand=understand,
                skip="" if program.exists() else "the kit has no ddp-bench")


def against_python(session, cases, device, python, pairs):
    """pairs: how we run a step, and how Python does."""
    python = python_for_peers(session, python)
    peer = "python_ddp_gloo" if device == "cpu" else "python_ddp_nccl"
    return [bench(session, case, f"{case.name}: our {ours} step and Python's {theirs}", peer,
                  ["--python", python, "--python-step", theirs, *(["--graph"] if ours == "graph" else [])],
                  case.aims.get((ours, theirs)), device, LIMIT_TO_COMPILE if theirs == "compile" else LIMIT)
            for ours, theirs in pairs for case in cases]


def without_optimizer(options):
    """All loops take libtorch's optimizer then, so that the loops differ in the data parallelism alone."""
    at = options.index("--optimizer")
    return options[:at] + options[at + 2:]


def against_plain_loop(session, cases, device):
    steps = []
    for case in cases:
        plain = type(case)(case.name, without_optimizer(case.options), case.operations)
        steps.append(bench(session, plain, f"{case.name}: ours and a plain loop", "plain_loop_without_communication",
                           ["--no-python"], 1.01, device, LIMIT))
    return steps


LAUNCH_BOUND_PAIRS = (("eager", "eager"), ("graph", "graph"), ("graph", "eager"), ("eager", "fused"), ("graph", "compile"))
LARGE_PAIRS = (("eager", "eager"), ("graph", "graph"), ("graph", "compile"))


def launch_bound_steps(session, cases=tuple(LAUNCH_BOUND), device="cuda", python=sys.executable,
                       pairs=LAUNCH_BOUND_PAIRS):
    return [nvidia_smi("clocks before"), *against_python(session, cases, device, python, pairs),
            *against_plain_loop(session, cases, device), nvidia_smi("clocks after")]


def large_steps(session, cases=tuple(LARGE), device="cuda", python=sys.executable, pairs=LARGE_PAIRS):
    return [nvidia_smi("clocks before"), ceilings(), *against_python(session, cases, device, python, pairs),
            *against_plain_loop(session, cases, device), nvidia_smi("clocks after")]
