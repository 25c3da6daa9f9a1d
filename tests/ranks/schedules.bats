#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Short runs of the schedules of faults; `tests/schedules/faults_of_ranks --help` lists the long ones.

bats_require_minimum_version 1.5.0

load training

setup() { training_setup; }

# bats test_tags=full
@test "faults while states are saved, and of several kinds, change no bit and are told" {
  run -0 "$here/tests/schedules/faults_of_ranks" saving mixed --ranks 2 --seconds 8 --every 2 --steps 400
  [[ $output == *$'\nok saving: '[1-9]*" kills"* ]]
  [[ $output == *$'\nok mixed: '[1-9]* ]]
}

@test "an unknown schedule is one sentence" {
  run -1 "$here/tests/schedules/faults_of_ranks" earthquake
  [[ $output == "faults_of_ranks: no schedule is named 'earthquake'; there are kills, pairs, same, "* ]]
}
