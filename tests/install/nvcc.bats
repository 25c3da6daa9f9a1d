#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What configuring says and does about the CUDA kernels, with every kind of nvcc. The script that decides runs alone.

bats_require_minimum_version 1.5.0

setup() {
  here=$BATS_TEST_DIRNAME/../..
  bin=$BATS_TEST_TMPDIR/bin
  mkdir "$bin"
  unset CUDA_HOME CUDA_PATH
}

# nvcc STATUS [TEXT]: the nvcc that is found first prints TEXT and exits with STATUS.
nvcc() {
  printf '#!/bin/sh\necho "%s"\nexit %s\n' "${2:-}" "$1" > "$bin/nvcc"
  chmod +x "$bin/nvcc"
}

# configure MODE [OPTION...]: prints one line.
configure() {
  PATH=$bin:$PATH cmake -DSLURM_DDP_CUDA_KERNELS="$1" "${@:2}" -P "$here/ddp_runtime/kernels/FindNvcc.cmake" 2>&1 |
    tr -s ' \n' ' '
  return "${PIPESTATUS[0]}"
}

# CMake looks for programs only below a directory that has none.
none=(-DCMAKE_FIND_ROOT_PATH=/nonexistent -DCMAKE_FIND_ROOT_PATH_MODE_PROGRAM=ONLY)

@test "a suitable nvcc compiles the kernels, unless they are switched off" {
  nvcc 0 "Cuda compilation tools, release 12.8, V12.8.93"
  for mode in AUTO ON; do
    run -0 configure $mode
    [[ "$output" == *"compiled by $bin/nvcc 12.8 for sm_80, sm_90, sm_100"* ]]
  done
  run -0 configure OFF
  [[ "$output" == *"left out, because SLURM_DDP_CUDA_KERNELS is OFF"* ]]
}

@test "without nvcc, AUTO leaves the kernels out and ON says what to install" {
  run -0 configure AUTO "${none[@]}"
  [[ "$output" == *"left out, because there is no nvcc on PATH, in CUDA_HOME or in /usr/local/cuda"* ]]
  run -1 configure ON "${none[@]}"
  [[ "$output" == *"SLURM_DDP_CUDA_KERNELS is ON, but there is no nvcc"*"Install CUDA's nvcc 12.8 or newer"* ]]
}

@test "an nvcc that is too old or does not run is refused by name" {
  nvcc 0 "Cuda compilation tools, release 11.8, V11.8.89"
  run -0 configure AUTO
  [[ "$output" == *"left out, because $bin/nvcc is 11.8, and the oldest that compiles them is 12.8"* ]]
  run -1 configure ON
  [[ "$output" == *"but $bin/nvcc is 11.8, and the oldest"* ]]
  nvcc 1 "error while loading shared libraries"
  run -0 configure AUTO
  [[ "$output" == *"left out, because $bin/nvcc --version fails"* ]]
  run -1 configure ON
  [[ "$output" == *"but $bin/nvcc --version fails"* ]]
}
