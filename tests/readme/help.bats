#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# --help of every program, as users see it. A changed option changes tests/readme/help.txt.

bats_require_minimum_version 1.5.0
load ../cluster/common

@test "--help of every program and subcommand matches help.txt" {
  "$project_root/tests/readme/print_help" > "$BATS_TEST_TMPDIR/help.txt"
  diff -u "$project_root/tests/readme/help.txt" "$BATS_TEST_TMPDIR/help.txt" || {
    echo "if this change is intended: PATH=\$PWD/build/bin:\$PATH tests/readme/print_help > tests/readme/help.txt"
    false
  }
}

@test "no line of --help is a fragment" {
  # An explanation must name the value of the option: "SGD momentum", not "Of sgd".
  run -1 grep -nE '^ {2,}.*(  |\] )(Of|Of the|The same)( |$)' "$project_root/tests/readme/help.txt"
}
