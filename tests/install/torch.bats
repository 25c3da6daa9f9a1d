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

@test "a relative directory and a file are refused" {
  make_wheel wheel 2.15.0
  inspect wheel
  [[ $output == *"problem=[SLURM_DDP_TORCH_ROOT is wheel, a relative path, "*"; give the absolute path.]" ]]
  inspect "$PWD/wheel/lib/libc10.so"
  [[ $output == *"problem=[SLURM_DDP_TORCH_ROOT is $PWD/wheel/lib/libc10.so, which is a file; give the directory "* ]]
}

@test "a PyTorch without headers is refused" {
  make_wheel wheel 2.15.0
  rm -r wheel/include
  inspect "$PWD/wheel"
  [[ $output == *"problem=[$PWD/wheel has no include/torch/csrc/api/include/torch/torch.h"* ]]
}

@test "a PyTorch whose headers do not name a release is refused with one sentence" {
  make_wheel wheel 2.15.0
  rm wheel/include/torch/headeronly/version.h
  inspect "$PWD/wheel"
  [[ $output == *"problem=[$PWD/wheel has no include/torch/csrc/api/include/torch/version.h, so its release is unknown."* ]]
  [[ $output != *"CMake Error"* ]]
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

@test "the old ABI is recognized without TorchConfig.cmake" {
  make_wheel wheel 2.5.1
  rm -r wheel/share
  printf '\0_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE\0' > wheel/lib/libc10.so
  inspect "$PWD/wheel"
  [[ $output == *"problem=[]" ]]
  printf '\0_ZN3c105ErrorC1ENS_14SourceLocationESs\0' > wheel/lib/libc10.so
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

@test "a python3 that prints lines of its own is understood" {
  make_wheel site/torch 2.15.0
  touch site/torch/__init__.py
  echo 'print("Welcome")' > site/sitecustomize.py
  with_python "echo Loading; PYTHONPATH=$PWD/site /usr/bin/python3 \"\$@\"; echo Done"
  [[ $output == *"found=[$PWD/site/torch] problem=[]" ]]
}

@test "a python3 that does not run Python code is named" {
  with_python 'echo Usage: python3'
  [[ $output == *"found=[] problem=[SLURM_DDP_TORCH=python asks python3 for its PyTorch, but the python3 in PATH does not run Python code."* ]]
}

@test "a module torch that is not PyTorch is named" {
  mkdir site
  touch site/torch.py
  with_python "PYTHONPATH=$PWD/site exec /usr/bin/python3 -S \"\$@\""
  [[ $output == *"found=[] problem=[the module torch of /usr/bin/python3"*" is the file $PWD/site/torch.py, which is not PyTorch. Rename this file"* ]]
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

@test "a wheel that the environment names for find_package is used" {
  make_wheel wheel 2.15.0
  make_project
  local name
  for name in Torch_DIR Torch_ROOT CMAKE_PREFIX_PATH; do
    rm -rf configured
    run -0 env "$name=$PWD/wheel/share/cmake/Torch" "$cmake" -S project -B configured
    [[ $output == *"problem=[] release=2.15.0 root=$PWD/wheel"* ]]
  done
}

@test "a wheel that only find_package finds is refused, because its TorchConfig.cmake would link a second libtorch" {
  make_wheel wheel 2.15.0
  mkdir wheel/bin
  make_project
  PATH=$PWD/wheel/bin:$PATH configure
  [[ $output == *"problem=[find_package(Torch) found the wheel $PWD/wheel, whose TorchConfig.cmake would link parts of two libtorch; give -DSLURM_DDP_TORCH_ROOT=$PWD/wheel"* ]]
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

# Puts a python3 that has the PyTorch in the directory into PATH.
use_python() { # site-packages
  mkdir -p bin
  printf '#!/bin/sh\nPYTHONPATH=%s exec /usr/bin/python3 -S "$@"\n' "$1" > bin/python3
  chmod +x bin/python3
  PATH=$PWD/bin:${PATH#"$PWD/bin:"}
}

@test "SLURM_DDP_TORCH=system replaces the wheel of an existing build, and so does a new CMAKE_PREFIX_PATH" {
  make_wheel site/torch 2.15.0
  make_wheel other 2.14.0
  make_project
  use_python "$PWD/site"
  configure -DSLURM_DDP_TORCH=python
  [[ $output == *"root=$PWD/site/torch"* ]]
  configure -DSLURM_DDP_TORCH=system -DCMAKE_DISABLE_FIND_PACKAGE_Torch=ON
  [[ $output == *"problem=[no libtorch was found."*"root= "* ]]
  configure -DCMAKE_PREFIX_PATH="$PWD/other"
  [[ $output == *"problem=[] release=2.14.0 root=$PWD/other"* ]]
  configure -DCMAKE_PREFIX_PATH="$PWD/site/torch"
  [[ $output == *"problem=[] release=2.15.0 root=$PWD/site/torch"* ]]
}

@test "a wheel that was refused is not kept when python3 or CMAKE_PREFIX_PATH names another" {
  make_wheel old/torch 2.3.1
  make_wheel new/torch 2.15.0
  make_project
  use_python "$PWD/old"
  configure -DSLURM_DDP_TORCH=python
  [[ $output == *"problem=[$PWD/old/torch is PyTorch 2.3.1;"* ]]
  use_python "$PWD/new"
  configure
  [[ $output == *"problem=[] release=2.15.0 root=$PWD/new/torch"* ]]

  rm -r configured
  configure -DCMAKE_PREFIX_PATH="$PWD/old/torch"
  [[ $output == *"problem=[$PWD/old/torch is PyTorch 2.3.1;"* ]]
  configure -DCMAKE_PREFIX_PATH="$PWD/new/torch"
  [[ $output == *"problem=[] release=2.15.0 root=$PWD/new/torch"* ]]
}

@test "an unknown value of SLURM_DDP_TORCH is refused" {
  make_project
  configure -DSLURM_DDP_TORCH=Python
  [[ $output == *"problem=[SLURM_DDP_TORCH is Python, which is not one of system, python, ON and OFF; give one of these"* ]]
}

@test "SLURM_DDP_TORCH_ROOT comes before SLURM_DDP_TORCH=python, which is printed" {
  make_wheel wheel 2.15.0
  make_project
  configure -DSLURM_DDP_TORCH=python -DSLURM_DDP_TORCH_ROOT="$PWD/wheel"
  [[ $output == *"SLURM_DDP_TORCH_ROOT is given, so python3 is not asked"*"root=$PWD/wheel"* ]]
}

@test "a build after an upgrade of the wheel in place runs cmake again" {
  make_wheel wheel 2.15.0
  make_project
  configure -DSLURM_DDP_TORCH_ROOT="$PWD/wheel"
  run -0 "$cmake" --build configured
  [[ $output != *"problem="* ]]
  make_wheel wheel 2.16.0
  touch -d '1 minute' wheel/include/torch/headeronly/version.h
  run -0 "$cmake" --build configured
  [[ $output == *"problem=[] release=2.16.0"* ]]
}

@test "the PyTorch of an environment in CMAKE_PREFIX_PATH is not used, and cmake says how to" {
  make_wheel venv/lib/python3.11/site-packages/torch 2.15.0
  make_project
  configure -DCMAKE_PREFIX_PATH="$PWD/venv" -DCMAKE_DISABLE_FIND_PACKAGE_Torch=ON
  [[ $output == *"to use this PyTorch, give -DSLURM_DDP_TORCH_ROOT=$PWD/venv/lib/python3.11/site-packages/torch "* ]]
}

@test "two copies of libtorch in one program are refused, and both paths are named" {
  make_wheel wheel 2.15.0
  make_wheel other 2.15.0
  local location
  # Debian's TorchConfig.cmake sets the location of one configuration.
  for location in IMPORTED_LOCATION IMPORTED_LOCATION_RELEASE \
      'IMPORTED_CONFIGURATIONS RELWITHDEBINFO IMPORTED_LOCATION_RELWITHDEBINFO'; do
    make_project "add_library(torch_cpu SHARED IMPORTED)
set_target_properties(torch_cpu PROPERTIES $location $PWD/other/lib/libtorch_cpu.so)"
    configure -DSLURM_DDP_TORCH_ROOT="$PWD/wheel"
    [[ $output == *"problem=[one program cannot link two copies of libtorch: $PWD/other/lib/libtorch_cpu.so from find_package(Torch), and $PWD/wheel/lib/libtorch_cpu.so."* ]]
  done
  make_project "add_library(torch_cpu SHARED IMPORTED)"
  configure -DSLURM_DDP_TORCH_ROOT="$PWD/wheel"
  [[ $output == *"problem=[one program cannot link two copies of libtorch: the target torch_cpu, which has no location,"* ]]
}

@test "a second libtorch that the project finds later is refused, too" {
  make_wheel wheel 2.15.0
  make_wheel other 2.15.0
  make_project
  echo "add_library(torch_cpu SHARED IMPORTED)
set_target_properties(torch_cpu PROPERTIES IMPORTED_LOCATION $PWD/other/lib/libtorch_cpu.so)" >> project/CMakeLists.txt
  run -1 "$cmake" -S project -B configured -DSLURM_DDP_TORCH_ROOT="$PWD/wheel"
  output=$(tr -s ' \n' ' ' <<< "$output")
  [[ $output == *"slurm_ddp: one program cannot link two copies of libtorch: $PWD/other/lib/libtorch_cpu.so from find_package(Torch)"* ]]
}

@test "an fmt library whose release differs from that of the headers is refused, and both paths are named" {
  make_wheel wheel 2.15.0
  make_project 'set(fmt_VERSION 12.1.0)'
  configure -DSLURM_DDP_TORCH_ROOT="$PWD/wheel"
  [[ $output == *"problem=[one program cannot have two releases of fmt: the headers in $PWD/fmt/include/fmt are of 9, and /somewhere/cmake/fmt is fmt 12.1.0."* ]]
}

# A project that uses a package whose targets, and everything they depend on, are empty.
make_consumer() { # release of the package's libtorch, its recorded root, lines after the first find_package
  mkdir -p consumer/package consumer/modules fmt/include/fmt
  echo '#define FMT_VERSION 90100' > fmt/include/fmt/core.h
  local name
  for name in Threads nlohmann_json ZLIB HDF5; do echo "set(${name}_FOUND TRUE)" > consumer/modules/Find$name.cmake; done
  cat > consumer/modules/Findfmt.cmake << CMAKE
set(fmt_FOUND TRUE)
set(fmt_VERSION 9.1.0)
if(NOT TARGET fmt::fmt)
  add_library(fmt::fmt INTERFACE IMPORTED)
  set_target_properties(fmt::fmt PROPERTIES INTERFACE_INCLUDE_DIRECTORIES $PWD/fmt/include)
endif()
CMAKE
  cp "$here/cmake/SlurmDdpFindTorch.cmake" consumer/package/
  cat > consumer/package/slurm_ddpTargets.cmake << 'CMAKE'
if(NOT TARGET slurm_ddp::torch)
  add_library(slurm_ddp::torch INTERFACE IMPORTED)
  add_library(slurm_ddp::ddp INTERFACE IMPORTED)
endif()
CMAKE
  cat > consumer/CMakeLists.txt << CMAKE
cmake_minimum_required(VERSION 3.23)
project(consumer NONE)
function(install_package torch_release SLURM_DDP_TORCH_ROOT)
  include(CMakePackageConfigHelpers)
  set(with_torch ON)
  set(SLURM_DDP_RUNTIME OFF)
  configure_package_config_file($here/cmake/slurm_ddpConfig.cmake.in
    \${CMAKE_SOURCE_DIR}/package/slurm_ddpConfig.cmake INSTALL_DESTINATION lib/cmake/slurm_ddp)
endfunction()
install_package($1 "$2")
set(slurm_ddp_DIR \${CMAKE_SOURCE_DIR}/package)
set(CMAKE_MODULE_PATH \${CMAKE_SOURCE_DIR}/modules)
macro(enable_language)
endmacro()
find_package(slurm_ddp \${OPTIONS})
message(STATUS "found=[\${slurm_ddp_FOUND}] reason=[\${slurm_ddp_NOT_FOUND_MESSAGE}] root=[\${SLURM_DDP_TORCH_ROOT}]")
$3
CMAKE
}

consume() { # options of cmake
  run -0 "$cmake" -S consumer -B consumed "$@"
  output=$(tr -s ' \n' ' ' <<< "$output")
}

@test "find_package can be called again in a subdirectory" {
  make_wheel wheel 2.15.0
  make_consumer 2.15 "$PWD/wheel" 'add_subdirectory(part)'
  mkdir consumer/part
  cat > consumer/part/CMakeLists.txt << 'CMAKE'
find_package(slurm_ddp)
get_target_property(libraries slurm_ddp::torch INTERFACE_LINK_LIBRARIES)
list(LENGTH libraries count)
message(STATUS "again=[${slurm_ddp_FOUND}] libraries=[${count}]")
CMAKE
  consume
  [[ $output == *"found=[1] reason=[] root=[$PWD/wheel]"*"again=[1] libraries=[3]"* ]]
}

@test "a libtorch of another release than the package's is refused, and the project can name another one afterwards" {
  make_wheel wheel 2.15.0
  make_wheel other 2.14.0
  make_consumer 2.15 ''
  consume -DCMAKE_PREFIX_PATH="$PWD/other"
  [[ $output == *"found=[0] reason=[slurm_ddp was built with libtorch 2.15, but $PWD/other is libtorch 2.14.0. Set SLURM_DDP_TORCH_ROOT or Torch_DIR to a libtorch 2.15, "* ]]
  consume -DCMAKE_PREFIX_PATH="$PWD/wheel"
  [[ $output == *"found=[1] reason=[] root=[$PWD/wheel]"* ]]
}

@test "the message about another release names one directory" {
  make_wheel other 2.14.0
  make_consumer 2.15 ''
  consume -DTorch_DIR="$PWD/other/share/cmake/Torch"
  [[ $output == *"reason=[slurm_ddp was built with libtorch 2.15, but $PWD/other is libtorch 2.14.0."* ]]
}

@test "a libtorch that was refused is not there for a second find_package" {
  make_wheel wheel 2.15.0
  make_wheel other 2.14.0
  make_consumer 2.15 '' "find_package(slurm_ddp)
message(STATUS \"second=[\${slurm_ddp_FOUND}]\")"
  consume -DCMAKE_PREFIX_PATH="$PWD/other"
  [[ $output == *"second=[0]"* ]]
}

@test "ddp-bench drops the peers of libtorch 1.13 when its build directory changes to a wheel" {
  mkdir -p bench old/gloo old/torch/csrc/distributed/c10d wheel/include
  touch old/gloo/algorithm.h old/torch/csrc/distributed/c10d/reducer.hpp
  cat > bench/CMakeLists.txt << CMAKE
cmake_minimum_required(VERSION 3.23)
project(bench NONE)
foreach(name slurm_ddp_executable slurm_ddp_torch_executable target_compile_definitions install)
  function(\${name})
  endfunction()
endforeach()
function(target_sources target)
  message(STATUS "sources=[\${ARGN}]")
endfunction()
function(set_source_files_properties)
  message(STATUS "properties=[\${ARGN}]")
endfunction()
add_subdirectory($here/bench built)
CMAKE
  run -0 "$cmake" -S bench -B built -DTorch_VERSION=1.13.0 -DTORCH_INCLUDE_DIRS="$PWD/old" -DCMAKE_INCLUDE_PATH="$PWD/old"
  [[ $output == *c10d_gloo.cpp*SLURM_DDP_HAS_GLOO*SLURM_DDP_HAS_C10D_REDUCER* ]]
  run -0 "$cmake" -S bench -B built -DTorch_VERSION=2.15.0 -DSLURM_DDP_TORCH_ROOT="$PWD/wheel"
  [[ $output != *c10d_gloo.cpp* && $output != *SLURM_DDP_HAS_* ]]
}

@test "a project uses the package's wheel, unless Torch_DIR or CMAKE_PREFIX_PATH names another" {
  make_wheel wheel 2.15.0
  make_wheel copy 2.15.1
  make_consumer 2.15 "$PWD/wheel"
  consume
  [[ $output == *"found=[1] reason=[] root=[$PWD/wheel]"* ]]
  local option
  for option in CMAKE_PREFIX_PATH="$PWD/copy" Torch_DIR="$PWD/copy/share/cmake/Torch"; do
    rm -r consumed
    consume -D"$option"
    [[ $output == *"found=[1] reason=[] root=[$PWD/copy]"* ]]
  done
}

@test "the package's targets are its components, and a missing one is named" {
  make_wheel wheel 2.15.0
  make_consumer 2.15 "$PWD/wheel"
  consume '-DOPTIONS=REQUIRED;COMPONENTS;ddp;OPTIONAL_COMPONENTS;none'
  [[ $output == *"found=[1] reason=[]"* ]]
  consume '-DOPTIONS=COMPONENTS;ddp;nccl'
  [[ $output == *"found=[0] reason=[the slurm_ddp in $PWD/consumer/package has no component nccl: "* ]]
}
