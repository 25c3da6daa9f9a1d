#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# --help of every program, as users see it. A changed option changes tests/readme/help.txt.

bats_require_minimum_version 1.5.0
load ../cluster/common

matches() { # FILE PROGRAM...
  "$project_root/tests/readme/print_help" "${@:2}" > "$BATS_TEST_TMPDIR/help.txt"
  diff -u "$project_root/tests/readme/$1" "$BATS_TEST_TMPDIR/help.txt" || {
    echo "if this change is intended: PATH=\$PWD/build/bin:\$PATH tests/readme/print_help ${*:2} > tests/readme/$1"
    false
  }
}

@test "--help of every program and subcommand matches help.txt" {
  matches help.txt ddp-train ddp-check ddp-report ddp-ckpt ddp-launch ddp-run
}

# bats test_tags=full
@test "--help of ddp-bench matches help_bench.txt" {
  matches help_bench.txt ddp-bench
}

@test "no line of --help is a fragment" {
  # An explanation must name the value of the option: "SGD momentum", not "Of sgd".
  run -1 grep -nE '^ {2,}.*(  |\] )(Of|Of the|The same)( |$)' "$project_root"/tests/readme/help*.txt
}
