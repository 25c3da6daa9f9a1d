#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# An installed tree is self-contained: programs find their data, and a custom
# program builds with find_package(slurm_ddp). packages.bats does the same from a package.

bats_require_minimum_version 1.5.0

setup_file() {
  here=$(cd "$(dirname "$BATS_TEST_FILENAME")/../.." && pwd)
  export here OMP_NUM_THREADS=1 prefix=$BATS_FILE_TMPDIR/prefix
  cmake --install "${SLURM_DDP_BUILD:-$here/build}" --prefix "$prefix" > "$BATS_FILE_TMPDIR/install.log"
}

@test "the tree contains programs, plugin, headers, package, job scripts, data" {
  for file in bin/ddp-train bin/ddp-launch bin/ddp-check bin/ddp-report bin/ddp-ckpt bin/ddp-run \
    lib/slurm/ddp.so lib/slurm/ddp-python/sitecustomize.py share/slurm-ddp/ddp-python/sitecustomize.py include/slurm_ddp/ddp_runtime/ddp.h lib/cmake/slurm_ddp/slurm_ddpConfig.cmake \
    share/slurm-ddp/jobscripts/train.sbatch share/slurm-ddp/datasets/digits/digits.csv.gz \
    share/slurm-ddp/configs/gpt.ini share/slurm-ddp/plugstack.conf.d/zz-ddp.conf; do
    [ -s "$prefix/$file" ] || { echo "missing: $file"; return 1; }
  done
}

@test "the target that has libtorch's headers requires their C++ standard" {
  run -0 grep -A 1 'set_target_properties(slurm_ddp::torch ' "$prefix/lib/cmake/slurm_ddp/slurm_ddpTargets.cmake"
  [[ $output == *INTERFACE_COMPILE_FEATURES*cxx_std_20* ]]
}

@test "every program has --version and --help" {
  for program in ddp-train ddp-launch ddp-check ddp-report ddp-ckpt ddp-run; do
    run -0 "$prefix/bin/$program" --version
    [[ $output =~ ^$program\ [0-9]+\.[0-9]+\.[0-9]+$ ]]
    run -0 "$prefix/bin/$program" --help
    [[ $output == *xample* ]]
  done
}

@test "an installed ddp-train reads the data that was installed with it" {
  cd "$BATS_TEST_TMPDIR"
  run -0 "$prefix/bin/ddp-train" --epochs 1
  : > "$prefix/share/slurm-ddp/datasets/digits/digits.csv.gz"
  run -1 "$prefix/bin/ddp-train" --epochs 1
  [[ $output == *"$prefix"*"holds only 0 digits"* ]]
  cp "$here/datasets/digits/digits.csv.gz" "$prefix/share/slurm-ddp/datasets/digits/"
}

@test "a custom loop resumes from its checkpoint with bitwise equal results, and ddp-report reads its report" {
  run -0 cmake -S "$here/examples/own_loop" -B "$BATS_TEST_TMPDIR/own" -DCMAKE_PREFIX_PATH="$prefix"
  run -0 cmake --build "$BATS_TEST_TMPDIR/own"
  local ranks=(env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -n 2)
  mkdir "$BATS_TEST_TMPDIR/"{straight,resumed}
  cd "$BATS_TEST_TMPDIR/straight"
  run -0 "${ranks[@]}" ../own/own-loop 3
  cd ../resumed
  run -0 "${ranks[@]}" ../own/own-loop 2
  run -0 "${ranks[@]}" ../own/own-loop 3
  grep -x 'begins with epoch 3' <<< "$output"
  local steps=(own-loop-checkpoints/step-*)
  newest=$(basename "${steps[-1]}")
  run -0 "$prefix/bin/ddp-ckpt" diff {.,../straight}/own-loop-checkpoints/"$newest"
  run -0 "$prefix/bin/ddp-report" run ../straight/own-loop-report
  [[ $output == *"2 ranks on 1 node"* ]]
  # The program also has the check of libtorch's release, which it does not call itself.
  echo '#include <cstdint>
#include <string>
namespace at { std::string show_config() { return "TORCH_VERSION=9.9.0"; } }
extern "C" std::uint64_t aoti_torch_abi_version() { return 0x0909000000000000; }' > other.cpp
  c++ -std=c++20 -shared -fPIC -o libother.so other.cpp
  LD_PRELOAD=$PWD/libother.so run -1 ../own/own-loop 4
  [[ $output == *"this program was built with libtorch "*"/libother.so is libtorch 9.9.0; "* ]]
}

# bats test_tags=full
@test "a generator and a discriminator resume from one checkpoint with bitwise equal results" {
  run -0 cmake -S "$here/examples/gan" -B "$BATS_TEST_TMPDIR/gan" -DCMAKE_PREFIX_PATH="$prefix"
  run -0 cmake --build "$BATS_TEST_TMPDIR/gan"
  local ranks=(env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -n 2)
  mkdir "$BATS_TEST_TMPDIR/"{straight,resumed}
  cd "$BATS_TEST_TMPDIR/straight"
  run -0 "${ranks[@]}" ../gan/gan 3
  local straight=$output
  cd ../resumed
  run -0 "${ranks[@]}" ../gan/gan 2
  run -0 "${ranks[@]}" ../gan/gan 3
  [[ $output == *"resumed from"*"step-00000050"* ]]
  [ "$(grep '^parameters 0x' <<< "$output")" = "$(grep '^parameters 0x' <<< "$straight")" ]
  run -0 "$prefix/bin/ddp-ckpt" diff {.,../straight}/gan-checkpoints/step-00000075
  # Both learn: neither loss is that of guessing, log(2) for each kind of picture.
  awk '$1 == "epoch" && $2 == 3 { exit !($4 < 1.38 && $6 < 2) }' <<< "$straight"
}

# bats test_tags=full
@test "a data set of one's own with a collate function resumes with bitwise equal results" {
  run -0 cmake -S "$here/examples/own_data" -B "$BATS_TEST_TMPDIR/own" -DCMAKE_PREFIX_PATH="$prefix"
  run -0 cmake --build "$BATS_TEST_TMPDIR/own"
  local ranks=(env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -n 2)
  mkdir "$BATS_TEST_TMPDIR/"{straight,resumed}
  cd "$BATS_TEST_TMPDIR/straight"
  run -0 "${ranks[@]}" ../own/own-data 6
  local straight=$output
  cd ../resumed
  run -0 "${ranks[@]}" ../own/own-data 4
  run -0 "${ranks[@]}" ../own/own-data 6
  [[ $output == *"resumed from"* ]]
  [ "$(grep '^loss per target' <<< "$output")" = "$(grep '^loss per target' <<< "$straight")" ]
  local steps=(own-data-checkpoints/step-*)
  run -0 "$prefix/bin/ddp-ckpt" diff {.,../straight}/own-data-checkpoints/"$(basename "${steps[-1]}")"
  # It learns: guessing gives log(2) = 0.69.
  awk '/^loss per target/ { exit !($4 < 0.1) }' <<< "$straight"
}

# bats test_tags=full
@test "a pipeline trains to the same losses on 1, 2 and 4 ranks" {
  run -0 cmake -S "$here/examples/pipeline" -B "$BATS_TEST_TMPDIR/own" -DCMAKE_PREFIX_PATH="$prefix"
  run -0 cmake --build "$BATS_TEST_TMPDIR/own"
  cd "$BATS_TEST_TMPDIR"
  run -0 own/pipeline 3
  grep '^epoch' <<< "$output" > alone
  # It learns: guessing gives 0.1.
  awk '$2 == 3 { exit !($6 > 0.8) }' alone
  local n
  for n in 2 4; do
    run -0 env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -n "$n" own/pipeline 3
    diff alone <(grep '^epoch' <<< "$output")
  done
}

# bats test_tags=full
@test "a fine-tune of GPT-2 resumes from its checkpoint with bitwise equal results" {
  run -0 cmake -S "$here/examples/fine_tune" -B "$BATS_TEST_TMPDIR/own" -DCMAKE_PREFIX_PATH="$prefix"
  run -0 cmake --build "$BATS_TEST_TMPDIR/own"
  local run=(env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -n 2 ../own/fine-tune
    "$here/tests/interop/weights/gpt2.safetensors" "$here/README.md")
  mkdir "$BATS_TEST_TMPDIR/"{straight,resumed}
  cd "$BATS_TEST_TMPDIR/straight"
  run -0 "${run[@]}" 2
  [[ $output == *"28 of 28 tensors start from"* ]]
  cd ../resumed
  run -0 "${run[@]}" 1
  run -0 "${run[@]}" 2
  [[ $output != *"tensors start from"* ]]
  local steps=(fine-tune-checkpoints/step-*)
  newest=$(basename "${steps[-1]}")
  run -0 "$prefix/bin/ddp-ckpt" diff {.,../straight}/fine-tune-checkpoints/"$newest"
  # The frozen embeddings are those of the file; the blocks are not.
  run -0 "$prefix/bin/ddp-ckpt" show "fine-tune-checkpoints/$newest"
  [[ $output != *optim/tokens* && $output == *optim/blocks.0.qkv.weight* ]]
}

@test "a project that adds this one as a subdirectory keeps its own settings" {
  cat > "$BATS_TEST_TMPDIR/CMakeLists.txt" << CMAKE
cmake_minimum_required(VERSION 3.23)
project(outer C CXX)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "\${CMAKE_BINARY_DIR}/outer-bin")
add_subdirectory("$here" slurm_ddp)
get_target_property(directory ddp-ckpt RUNTIME_OUTPUT_DIRECTORY)
message(STATUS "type=[\${CMAKE_BUILD_TYPE}] directory=[\${directory}]")
CMAKE
  run -0 env -u CMAKE_BUILD_TYPE cmake -S "$BATS_TEST_TMPDIR" -B "$BATS_TEST_TMPDIR/outer" \
    -DSLURM_DDP_PLUGIN=OFF -DSLURM_DDP_RUNTIME=OFF
  [[ $output == *"type=[] directory=[$BATS_TEST_TMPDIR/outer/outer-bin]"* ]]
  [ ! -e "$BATS_TEST_TMPDIR/outer/slurm_ddp/CPackConfig.cmake" ]
  run ! grep -q SLURM_DDP_TESTS:BOOL=ON "$BATS_TEST_TMPDIR/outer/CMakeCache.txt"
}
