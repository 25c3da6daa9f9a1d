#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the recipes below packaging/ with CMakeLists.txt: version, options, and the packages of find_package.

site_recipes.py spack RECIPE | easybuild RECIPE
Stand-ins for the names of Spack and EasyBuild record the contents of a recipe, so neither is needed.
"""

import pathlib
import re
import subprocess
import sys
import types

# The names that the packages of find_package have in Spack and in EasyBuild. The value None marks a
# package that is part of the compiler or the toolchain.
PACKAGES = {
    "CLI11": ("cli11", "CLI11"),
    "fmt": ("fmt", "fmt"),
    "HDF5": ("hdf5", "HDF5"),
    "MPI": ("openmpi", None),
    "nlohmann_json": ("nlohmann-json", "nlohmann_json"),
    "OpenSSL": ("openssl", "OpenSSL"),
    "Threads": (None, None),
    "Torch": ("py-torch", "PyTorch"),
    "ZLIB": ("zlib-api", "zlib"),
}
TOOLS = {"c", "cxx", "cmake", "slurm", "CMake", "Ninja"}
ROOT = pathlib.Path(__file__).resolve().parents[2]


def cmake_text():
    listed = subprocess.run(["git", "ls-files", "*CMakeLists.txt", "cmake/*.cmake"], cwd=ROOT, check=True,
                            capture_output=True, text=True)
    ours = [path for path in listed.stdout.split() if not path.startswith(("tests/", "examples/"))]
    return re.sub(r"#[^\n]*", "", "\n".join((ROOT / path).read_text() for path in ours))


class Anything:
    """Stands for functions of a recipe whose result does not matter; also a context manager."""

    def __call__(self, *args, **kwargs):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *args):
        return False


def read_spack(recipe):
    """Returns version, names of dependencies, {CMake option: variant or None}."""
    said = {"versions": [], "dependencies": [], "variants": []}

    class CMakePackage:
        def define(self, option, value):
            return option, None

        def define_from_variant(self, option, variant):
            return option, variant

    package = types.ModuleType("spack.package")
    for name in ("license", "generator", "when", "conflicts", "requires"):
        setattr(package, name, Anything())
    package.version = lambda number, **_: said["versions"].append(number)
    package.depends_on = lambda spec, **_: said["dependencies"].append(re.match(r"[\w-]+", spec)[0])
    package.variant = lambda name, **_: said["variants"].append(name)
    build_system = types.ModuleType("spack_repo.builtin.build_systems.cmake")
    build_system.CMakePackage = CMakePackage
    for name in ("spack", "spack_repo", "spack_repo.builtin", "spack_repo.builtin.build_systems"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["spack.package"] = package
    sys.modules["spack_repo.builtin.build_systems.cmake"] = build_system

    names = {}
    exec(compile(recipe.read_text(), str(recipe), "exec"), names)
    options = dict(names["SlurmDdp"]().cmake_args())
    problems = [f"variant {name} sets no CMake option" for name in said["variants"] if name not in options.values()]
    problems += [f"{option} asks for variant {variant}, which does not exist" for option, variant in options.items()
                 if variant and variant not in said["variants"]]
    return said["versions"], said["dependencies"], options, problems


def read_easybuild(recipe):
    names = {"SOURCE_TAR_GZ": "%(name)s-%(version)s.tar.gz", "SYSTEM": "system"}
    exec(compile(recipe.read_text(), str(recipe), "exec"), names)
    dependencies = [dependency[0] for dependency in names["builddependencies"] + names["dependencies"]]
    options = re.findall(r"-D(\w+)=", names["configopts"])
    toolchain = names["toolchain"]
    expected = f"{names['name']}-{names['version']}-{toolchain['name']}-{toolchain['version']}.eb"
    problems = [] if recipe.name == expected else [f"the file must be called {expected}"]
    return [names["version"]], dependencies, options, problems


def main():
    kind, recipe = sys.argv[1], pathlib.Path(sys.argv[2])
    versions, dependencies, options, problems = (read_spack if kind == "spack" else read_easybuild)(recipe)
    text = cmake_text()
    version = re.search(r"project\(slurm_ddp VERSION ([\d.]+)", text)[1]
    if versions != [version]:
        problems.append(f"version {', '.join(versions)}, but CMakeLists.txt says {version}")
    known = set(re.findall(r"\boption\((\w+)", text)) | set(re.findall(r"\bset\((\w+)[^()]*\bCACHE\b", text))
    problems += [f"{option} is not an option of CMakeLists.txt" for option in options if option not in known]
    needed = set()
    for found in set(re.findall(r"\bfind_package\((\w+)", text)) - {"GTest"}:
        if found not in PACKAGES:
            problems.append(f"find_package({found}): name its package in {pathlib.Path(__file__).name} and in the recipes")
        else:
            needed.add(PACKAGES[found][0 if kind == "spack" else 1])
    needed.discard(None)
    problems += [f"{name} is needed but is not a dependency" for name in needed - set(dependencies)]
    problems += [f"{name} is a dependency, but nothing needs it" for name in set(dependencies) - needed - TOOLS]
    print(*(f"{recipe}: {problem}" for problem in problems), sep="\n", end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
