#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# A program that starts with another libtorch than that of its build, which would crash without a message.

bats_require_minimum_version 1.5.0

load training

setup() { training_setup; }

# A library that claims, before the real one, to be another release.
@test "ddp-train names the libtorch of another release, instead of crashing" {
  echo '#include <cstdint>
#include <string>
namespace at { std::string show_config() { return "PyTorch built with: TORCH_VERSION=9.9.0, "; } }
extern "C" std::uint64_t aoti_torch_abi_version() { return 0x0909000000000000; }' > other.cpp
  c++ -std=c++20 -shared -fPIC -o libother.so other.cpp
  LD_PRELOAD=$PWD/libother.so run -1 "$train" --steps 1
  [[ $output == *"this program was built with libtorch "*", but $PWD/libother.so is libtorch 9.9.0; remove its directory from LD_LIBRARY_PATH, "* ]]
  [ "${#lines[@]}" -eq 1 ]
}

# All libraries of PyTorch but that of CUDA.
@test "--device cuda names a PyTorch without CUDA" {
  local directory file
  directory=$(dirname "$(ldd "$train" | awk '/libtorch_cpu/ { print $3 }')")
  [ -e "$directory/libtorch_cuda.so" ] || skip "the PyTorch of this build has no CUDA that could be hidden"
  mkdir without
  for file in "$directory"/*; do [[ $file == */libtorch_cuda.so ]] || ln -s "$file" without; done
  LD_LIBRARY_PATH=$PWD/without run -2 "$train" --steps 1 --device cuda
  [ "$output" = "ddp-train: the NCCL backend cannot start (rank 0 on $(hostname)): this program's PyTorch has no CUDA \
(there is no $PWD/without/libtorch_cuda.so); install a PyTorch for CUDA, or use --device cpu" ]
}
