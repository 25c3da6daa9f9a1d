# SPDX-License-Identifier: Apache-2.0
"""The tiers of ./run-tests as steps. A tag or a label `full` on a case decides what is left out of the gate."""

import subprocess

from steps import Bats, Command, Ctest


STRICT = "-DSLURM_DDP_WERROR=ON"  # not a user's build: compilers that we have not met have other warnings


def build(run):
    # With a tree of one's own, as for development. Else the unity build, which takes half the time.
    preset = "release" if (run.root / "build/CMakeCache.txt").exists() else "release-at-once"
    everything = ["-DSLURM_DDP_TESTS=FULL", "-DSLURM_DDP_BENCH=ON"] if run.full else ["-DSLURM_DDP_TESTS=ON"]
    return [
        Command("cmake --preset", ["cmake", "--preset", preset, STRICT, *everything], needed=True),
        Command("cmake --build", ["cmake", "--build", "build"], needed=True),
    ]


def unit(_run):
    return [Ctest("build", ["--label-regex", "^unit$"])]


def ranks(run):
    # Debian's libtorch loads 190 libraries that no test needs.
    lean = subprocess.run(["tests/ranks/lean_libtorch", run.root / "build/lean"], cwd=run.root, check=True,
                          capture_output=True, text=True).stdout.strip()
    libraries = ":".join(filter(None, [lean, run.environment.get("LD_LIBRARY_PATH")]))
    # Ranks mostly wait for each other.
    return [Bats(["tests/ranks"], jobs=run.jobs + 1, environment={"LD_LIBRARY_PATH": libraries})]


def cluster(_run):
    return [Bats(["tests/cluster"])]


def interop(_run):
    return [Ctest("build", ["--label-regex", "^interop$"])]


def browser(_run):
    return [Bats(["tests/browser"])]


def install(_run):
    return [Bats(["tests/install"])]


def readme(_run):
    return [Bats(["tests/readme"])]


def lint(run):
    short = [Command(check, ["tests/lint", check]) for check in
             ("format", "shell", "includes", "licenses", "words", "cppcheck")]
    return [*short, *([Command(check, ["tests/lint", check]) for check in ("tidy", "alone")] if run.full else [])]


# libtorch is not instrumented, so the address sanitizer sees what does not use it; the thread sanitizer, also the reducer.
def sanitize(run):
    suppressions = f"suppressions={run.root}/tests/tsan.supp halt_on_error=1"
    return [
        Command("cmake --preset asan", ["cmake", "--preset", "asan", STRICT, "-DSLURM_DDP_TORCH=OFF"], needed=True),
        Command("cmake --build build-asan", ["cmake", "--build", "build-asan", "--target", "unit_tests"], needed=True),
        Ctest("build-asan", ["--label-regex", "^unit$", "--label-exclude", "^gpu$"]),
        Command("cmake --preset tsan", ["cmake", "--preset", "tsan", STRICT, "-DSLURM_DDP_PLUGIN=OFF"], needed=True),
        Command("cmake --build build-tsan", ["cmake", "--build", "build-tsan", "--target", "threads_tests"], needed=True),
        Ctest("build-tsan", ["--label-regex", "^threads$"], environment={"TSAN_OPTIONS": suppressions}),
    ]


def torch2(_run):
    tree = "build-torch2/newest"
    return [
        Command("tests/torch2/build", ["tests/torch2/build", "--fast", "newest"], needed=True, skip_status=77),
        Ctest(tree, ["--label-regex", "^torch$"]),
        Bats(["tests/torch2/thin_nccl.bats"]),
        Command("tests/torch2/across_releases", ["tests/torch2/across_releases", tree], skip_status=77),
    ]


def debian(run):
    def on(release, test):
        return Command(f"Debian {release}: {test}", ["scripts/on_debian", release, f"tests/debian/{test}"], skip_status=77,
                       tests=True)

    return [on("13", "smoke"), *([on("13", "whole"), on("sid", "smoke"), on("sid", "whole")] if run.full else [])]


# In the order of their results. The gate leaves out those that take long and rarely find what the others do not.
ALL = {tier.__name__: tier for tier in
       (build, unit, ranks, cluster, interop, browser, install, readme, lint, debian, sanitize, torch2)}
GATE = [name for name in ALL if name not in ("sanitize", "torch2")]
NEED_BUILD = ("unit", "ranks", "cluster", "interop", "browser", "install", "readme")
# After the build, the lanes run side by side, and the tiers of a lane one after the other. There is one local cluster on a
# machine, so its tiers share a lane.
LANES = [["ranks"], ["cluster", "readme", "install"], ["unit", "lint", "interop", "browser", "sanitize", "torch2"], ["debian"]]
