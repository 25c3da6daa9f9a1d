#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Tests which libtorch a build uses, and which ones it refuses with a one-sentence error. The directories are
# fake; tests/torch2 builds against real wheels.

bats_require_minimum_version 1.5.0

setup() {
  here=$(cd "$(dirname "$BATS_TEST_FILENAME")/../.." && pwd)
  cmake=$(command -v cmake)
  cd "$BATS_TEST_TMPDIR" || return
}

# A directory that looks like that of a PyTorch release.
make_wheel() { # directory, release
  mkdir -p "$1"/lib "$1"/include/torch/headeronly "$1"/include/torch/csrc/api/include/torch "$1"/share/cmake/Torch
  touch "$1"/lib/{libtorch_cpu.so,libc10.so} "$1"/include/torch/csrc/api/include/torch/torch.h
  local part number=0
  for part in MAJOR MINOR PATCH; do
    number=$((number + 1))
    echo "#define TORCH_VERSION_$part $(cut -d. -f$number <<< "$2")"
  done > "$1"/include/torch/headeronly/version.h
  echo 'set(TORCH_CXX_FLAGS "-D_GLIBCXX_USE_CXX11_ABI=1")' > "$1"/share/cmake/Torch/TorchConfig.cmake
}

inspect() { # directory
  run -0 "$cmake" -DROOT="$1" -P "$here/tests/install/find_torch.cmake"
}

@test "a wheel's release is read from its headers" {
  make_wheel wheel 2.15.0
  inspect "$PWD/wheel"
  [[ $output == *"found=[2.15.0] problem=[]" ]]
}

@test "before 2.8 the release is in a different header" {
  make_wheel wheel 2.7.1
  mv wheel/include/torch/headeronly/version.h wheel/include/torch/csrc/api/include/torch/
  inspect "$PWD/wheel"
  [[ $output == *"found=[2.7.1] problem=[]" ]]
}

@test "an environment that was removed is named" {
  inspect "$PWD/gone/torch"
  [[ $output == *"SLURM_DDP_TORCH_ROOT is $PWD/gone/torch, which does not exist: was its Python environment removed?"* ]]
}

@test "a PyTorch without headers is refused" {
  make_wheel wheel 2.15.0
  rm -r wheel/include
  inspect "$PWD/wheel"
  [[ $output == *"problem=[$PWD/wheel has no include/torch/csrc/api/include/torch/torch.h"* ]]
}

@test "a PyTorch older than 2.4 is refused" {
  make_wheel wheel 2.3.1
  inspect "$PWD/wheel"
  [[ $output == *"problem=[$PWD/wheel is PyTorch 2.3.1; slurm_ddp needs 2.4 or newer"* ]]
}

@test "a wheel with the old ABI is refused" {
  make_wheel wheel 2.5.1
  echo 'set(TORCH_CXX_FLAGS "-D_GLIBCXX_USE_CXX11_ABI=0")' > wheel/share/cmake/Torch/TorchConfig.cmake
  inspect "$PWD/wheel"
  [[ $output == *"problem=[$PWD/wheel (PyTorch 2.5.1) was built with libstdc++'s pre-C++11 ABI"* ]]
}

# Puts a script named python3 into PATH, which runs the command.
with_python() { # command
  mkdir -p bin
  printf '#!/bin/sh\n%s\n' "$1" > bin/python3
  chmod +x bin/python3
  PATH=$PWD/bin:$PATH run -0 "$cmake" -P "$here/tests/install/find_torch.cmake"
}

@test "python3's PyTorch is found without importing it" {
  make_wheel site/torch 2.15.0
  echo 'raise ImportError("libcudart.so.13 is missing")' > site/torch/__init__.py
  with_python "PYTHONPATH=$PWD/site exec /usr/bin/python3 -S \"\$@\""
  [[ $output == *"found=[$PWD/site/torch] problem=[]" ]]
}

@test "a Python without PyTorch is named" {
  with_python 'exec /usr/bin/python3 -S "$@"'
  [[ $output == *"found=[] problem=[/usr/bin/python3"*" has no PyTorch. Activate the environment that has it"* ]]
}

@test "a machine without python3 is distinguished from a Python without PyTorch" {
  mkdir empty
  PATH=$PWD/empty run -0 "$cmake" -P "$here/tests/install/find_torch.cmake"
  [[ $output == *"python3 cannot be run"* ]]
}

# A project that calls slurm_ddp_find_torch as this one and its package do.
make_project() { # lines before the call
  mkdir -p project fmt/include/fmt
  echo '#define FMT_VERSION 90100' > fmt/include/fmt/core.h
  cat > project/CMakeLists.txt << CMAKE
cmake_minimum_required(VERSION 3.23)
project(uses_torch NONE)
include($here/cmake/SlurmDdpFindTorch.cmake)
add_library(fmt::fmt INTERFACE IMPORTED)
set_target_properties(fmt::fmt PROPERTIES INTERFACE_INCLUDE_DIRECTORIES $PWD/fmt/include)
set(fmt_VERSION 9.1.0)
set(fmt_DIR /somewhere/cmake/fmt)
$1
add_library(found INTERFACE)
slurm_ddp_find_torch(found problem)
get_target_property(libraries found INTERFACE_LINK_LIBRARIES)
get_target_property(headers found INTERFACE_INCLUDE_DIRECTORIES)
message(STATUS "problem=[\${problem}] release=\${Torch_VERSION} root=\${SLURM_DDP_TORCH_ROOT}")
message(STATUS "libraries=[\${libraries}] headers=[\${headers}]")
CMAKE
}

configure() { # options of cmake
  run -0 "$cmake" -S project -B configured "$@"
  output=$(tr -s ' \n' ' ' <<< "$output")
}

@test "only the CPU half of a wheel is linked, after libstdc++, with the system's fmt before the wheel's" {
  make_wheel wheel 2.15.0
  make_project
  configure -DSLURM_DDP_TORCH_ROOT="$PWD/wheel"
  [[ $output == *"problem=[] release=2.15.0"* ]]
  [[ $output == *"libraries=["*"-lstdc++"*";$PWD/wheel/lib/libtorch_cpu.so;$PWD/wheel/lib/libc10.so]"* ]]
  [[ $output == *"headers=["*"/slurm_ddp_fmt_first;$PWD/wheel/include;"* ]]
  [ configured/slurm_ddp_fmt_first/fmt/core.h -ef fmt/include/fmt/core.h ]
}

@test "a wheel in CMAKE_PREFIX_PATH or Torch_DIR is used" {
  make_wheel wheel 2.15.0
  make_project
  local option
  for option in CMAKE_PREFIX_PATH="$PWD/wheel/share/cmake" CMAKE_PREFIX_PATH="$PWD/wheel" Torch_DIR="$PWD/wheel/share/cmake/Torch"; do
    rm -rf configured
    configure -D"$option"
    [[ $output == *"problem=[] release=2.15.0 root=$PWD/wheel"* ]]
  done
}

@test "a different python3 in PATH does not change the libtorch of an existing build" {
  make_wheel site/torch 2.15.0
  make_project
  mkdir bin
  printf '#!/bin/sh\nPYTHONPATH=%s exec /usr/bin/python3 -S "$@"\n' "$PWD/site" > bin/python3
  chmod +x bin/python3
  PATH=$PWD/bin:$PATH configure -DSLURM_DDP_TORCH=python
  configure
  [[ $output == *"root=$PWD/site/torch"* ]]
}

@test "two copies of libtorch in one program are refused, and both paths are named" {
  make_wheel wheel 2.15.0
  make_wheel other 2.15.0
  make_project "add_library(torch_cpu SHARED IMPORTED)
set_target_properties(torch_cpu PROPERTIES IMPORTED_LOCATION $PWD/other/lib/libtorch_cpu.so)"
  configure -DSLURM_DDP_TORCH_ROOT="$PWD/wheel"
  [[ $output == *"problem=[one program cannot link two copies of libtorch: $PWD/other/lib/libtorch_cpu.so from find_package(Torch), and $PWD/wheel/lib/libtorch_cpu.so."* ]]
}

@test "an fmt library whose release differs from that of the headers is refused, and both paths are named" {
  make_wheel wheel 2.15.0
  make_project 'set(fmt_VERSION 12.1.0)'
  configure -DSLURM_DDP_TORCH_ROOT="$PWD/wheel"
  [[ $output == *"problem=[one program cannot have two releases of fmt: the headers in $PWD/fmt/include/fmt are of 9, and /somewhere/cmake/fmt is fmt 12.1.0."* ]]
}
