# SPDX-License-Identifier: Apache-2.0
"""What must be true of a training under ddp-run after any schedule of faults."""

import csv
import json
import pathlib
import re


class Broken(Exception):
    """Something that must be true is not."""


def parameters(text):
    """The checksum of the parameters in what ddp-train has printed; None if it has not ended."""
    found = re.findall(r"parameters (0x[0-9a-f]+)$", text, re.MULTILINE)
    return found[-1] if found else None


def check_parameters(text, whole):
    found = parameters(text)
    if found != whole:
        raise Broken(f"the parameters are {found}, those of an undisturbed run {whole}")


def check_steps(report, steps):
    """steps.csv in the directory report has each step once."""
    with open(report / "steps.csv") as file:
        found = [int(row["step"]) for row in csv.DictReader(file)]
    if found != list(range(1, steps + 1)):
        raise Broken(f"steps.csv does not have each of {steps} steps once: {len(found)} lines")


def check_uses(report):
    """Returns the resilience of the run, whose uses of time sum to its time."""
    record = json.loads((report / "run.json").read_text())["resilience"]
    uses = record["productive_seconds"] + sum(record["lost"].values())
    if abs(uses - record["wall_seconds"]) > 1e-3 * record["wall_seconds"]:
        raise Broken(f"the uses of time sum to {uses:.2f} s of {record['wall_seconds']:.2f} s")
    return record


def complete_events(path, offset=0):
    """Returns the events that a file has after offset, without a last line that is being written, and their end."""
    found = []
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                offset += len(line)
                found.append(json.loads(line))
    except FileNotFoundError:
        pass
    return found, offset


def processes(name, directory=None):
    """[(pid, environment)] of the running programs of this name, in this working directory if one is given."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if name and (entry / "comm").read_text().strip() != name:
                continue
            if directory and (entry / "cwd").readlink() != directory:
                continue
            words = (entry / "environ").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        found.append((int(entry.name), dict(word.split("=", 1) for word in words if "=" in word)))
    return found
