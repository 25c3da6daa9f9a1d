#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Errors in the command line of several ranks. mpirun ends all ranks when the first one exits.

bats_require_minimum_version 1.5.0
load training

setup() {
  training_setup
  [ -x "$train" ] || skip "ddp-train was not built"
}

# late EXIT-CODE PROGRAM...: two ranks, of which rank 0 starts half a second later. Open MPI 5 then says that they failed.
late() {
  local code=$1
  shift
  # shellcheck disable=SC2016 # for the ranks' shells
  run "-$code" mpirun -n 2 bash -c '[ "$OMPI_COMM_WORLD_RANK" != 0 ] || sleep 0.5; exec "$@"' rank "$@"
  output=$(grep '^ddp-' <<< "$output")
}

@test "a usage error is printed once, although rank 0 is the last to find it" {
  late 3 "$build/bin/ddp-check" net --noise ok
  [[ $output == "ddp-check: --noise: "*"; see ddp-check --help" ]]
  late 2 "$build/bin/ddp-train" --no-such-option
  [[ $output == "ddp-train: "*"--no-such-option; see --help" ]]
  late 2 "$build/bin/ddp-train" --backend nccl
  [[ $output == "ddp-train: --backend nccl is for GPUs; "* ]]
}

# bats test_tags=full
@test "a usage error of ddp-bench is printed once" {
  late 2 "$build/bin/ddp-bench" step --no-such-option
  [[ $output == "ddp-bench: "*"; see --help" ]]
}

# mpirun lost the message in one of twelve runs, when another rank exited at the same time.
# bats test_tags=full
@test "a usage error is printed in every run" {
  for _ in {1..20}; do
    run -3 mpirun -n 4 "$build/bin/ddp-check" net --noise ok
    [[ $output == "ddp-check: --noise: "*"; see ddp-check --help" ]]
  done
}
