#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the installed headers with those that users' programs include.

public_headers.py check INSTALLED ENTRY...: checks that exactly the headers that an entry includes,
directly or through other headers, are installed below INSTALLED.

public_headers.py sources INSTALLED DIRECTORY: for each header that does not need libtorch, writes a
source file that includes only that header.
"""

import pathlib
import re
import sys


ROOMS = ("base/", "ddp_runtime/", "hdf5_ckpt/", "slurm_ddp/", "spank_plugin/")


def includes(path):
    return re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', path.read_text(), re.MULTILINE)


def closure(installed, entries):
    """Returns {header of the project: the file that includes it}, installed or not."""
    found = {}
    waiting = [(entry, "users' programs") for entry in entries]
    while waiting:
        name, includer = waiting.pop()
        if name in found:
            continue
        found[name] = includer
        if (installed / name).is_file():
            ours = [other for other in includes(installed / name) if other.startswith(ROOMS)]
            waiting += [(other, name) for other in ours]
    return found


def headers(installed):
    return sorted(path.relative_to(installed).as_posix() for path in installed.rglob("*") if path.is_file())


def check(installed, entries):
    wanted = closure(installed, entries)
    there = headers(installed)
    problems = [f"{name}: {wanted[name]} includes it; add it to PUBLIC_HEADERS in its CMakeLists.txt"
                for name in wanted if name not in there]
    problems += [f"{name}: no public header includes it; remove it from PUBLIC_HEADERS in its CMakeLists.txt"
                 for name in there if name not in wanted]
    print(*problems, sep="\n", end="\n" if problems else "")
    print(f"{len(there)} headers installed")
    return 1 if problems else 0


def sources(installed, directory):
    for name in headers(installed):
        needed = closure(installed, [name])
        if not any(other.startswith("torch/") for one in needed for other in includes(installed / one)):
            (directory / (name.replace("/", "__") + ".cpp")).write_text(f"#include <{name}>\n")
    return 0


if __name__ == "__main__":
    if sys.argv[1] == "check":
        sys.exit(check(pathlib.Path(sys.argv[2]), sys.argv[3:]))
    sys.exit(sources(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])))
