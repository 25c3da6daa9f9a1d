#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The pages have the form that CONTRIBUTING.md describes, and the targets of their links exist.

bats_require_minimum_version 1.5.0
load ../cluster/common

@test "every link of a page works, and every page has its four parts" {
  run -0 "$project_root/tests/readme/check_docs"
}

@test "a page that breaks a rule is named" {
  mkdir -p "$BATS_TEST_TMPDIR/tests/readme" "$BATS_TEST_TMPDIR/docs"
  cp "$project_root/tests/readme/check_docs" "$BATS_TEST_TMPDIR/tests/readme"
  cd "$BATS_TEST_TMPDIR"
  touch README.md CONTRIBUTING.md SECURITY.md
  printf '# Page\n\n## Quick start\n\n[a](none.md) [b](#nowhere)\n\n%s\n\n%0130d\n' "$(printf 'word %.0s\n' {1..90})" 1 > docs/page.md
  run -1 tests/readme/check_docs
  [[ $output == *"docs/page.md: links to none.md, which does not exist"* ]]
  [[ $output == *"docs/page.md: links to #nowhere, but that page has no such heading"* ]]
  [[ $output == *"docs/page.md: has the parts"* ]]
  [[ $output == *"more than 80 words"* ]]
  [[ $output == *"has 130 columns"* ]]
}
