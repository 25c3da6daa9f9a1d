#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Runs the ```sh blocks of each section of README.md, of docs/install.md and of docs/your_model.md, in order, on the local
# cluster. The second of the README's "two commands" runs this test.

bats_require_minimum_version 1.5.0
load ../cluster/common

setup_file() {
  export OMP_NUM_THREADS=1
  unset CMAKE_PREFIX_PATH
}
teardown_file() { cluster_down; }

# Prints the sh blocks of a section in order.
commands_of() { # heading [page]
  awk -v heading="## $1" '
    /^## / { inside = ($0 == heading) }
    /^```/ { code = inside && $0 == "```sh"; next }
    code' "$project_root/${2:-README.md}"
}

# Checks that $output contains every line of the text blocks of a section. Numbers are ignored, and
# "..." stands for omitted lines.
shows_its_output() { # heading
  local line printed
  printed=$(without_numbers <<< "$output")
  awk -v heading="## $1" '
    /^## / { inside = ($0 == heading) }
    /^```/ { text = inside && $0 == "```text"; next }
    text && $0 != "..."' "$project_root/README.md" | without_numbers > shown
  [ -s shown ]
  while read -r line; do
    grep -qxF -e "$line" <<< "$printed" || { echo "README.md shows a line that was not printed: $line"; return 1; }
  done < shown
}

without_numbers() { sed -E 's/0x[0-9a-f]+/HEX/g; s/[0-9][0-9.,]*/N/g; s/ +/ /g; s/^ //; s/ $//'; }

# Runs the blocks of a section in a separate directory that looks like the checkout.
run_section() { # heading [page]
  commands_of "$@" > commands
  [ -s commands ]
  run -0 bash -euo pipefail commands
}

# Starts a cluster once for all tests that need one.
on_cluster() {
  [ -n "${SLURM_CONF:-}" ] || cluster_up 2 --mpi-default none
  mkdir "$work/$BATS_TEST_NUMBER"
  cd "$work/$BATS_TEST_NUMBER"
  ln -s "$project_root"/{build,examples,jobscripts} .
}

@test "every section with commands is tested" {
  run awk '/^## / { heading = substr($0, 4) } /^```sh/ { print heading }' "$project_root/README.md"
  sections=$(sort -u <<< "$output")
  [ "$sections" = "$(sort -u <<'TEXT'
See it work: two commands
Your own script
Train without writing code
Is a node bad?
TEXT
  )" ]
}

@test "every file that the README points to exists" {
  sed '/^```/,/^```$/d' "$project_root/README.md" | grep -oE '\]\([^)#:]+' | cut -c3- | while read -r file; do
    [ -e "$project_root/$file" ] || { echo "README.md points to $file"; false; }
  done
}

@test "See it work: the quickstart" {
  [ "$(commands_of 'See it work: two commands')" = $'./quickstart\n./run-tests' ]
  cd "$project_root"
  run -0 ./quickstart
  [ "$(grep -c -E '^(accuracy|checkpoint|report) ' <<< "$output")" -eq 3 ]
  [ -s quickstart-run/sweep/scaling.html ]
  checkpoint=$(awk '$1 == "checkpoint" { print $2 }' <<< "$output")
  /usr/bin/python3 - "$checkpoint" <<'PY'
import h5py, sys
names = []
h5py.File(sys.argv[1] + "/model.h5", "r").visit(names.append)
for layer in ("conv1", "conv2", "fc1", "fc2"):
    for kind in ("weight", "bias"):
        assert f"model/{layer}.{kind}" in names, (layer, kind, names)
PY
}

@test "See it work: the same without SLURM" {
  cd "$project_root"
  # Makes `cluster up` behave as on a machine that cannot run SLURM.
  run -0 env SLURM_DDP_CLUSTER_MODE=none ./quickstart --out quickstart-run/without-slurm
  [[ $output == *"SLURM cannot run on this machine"* ]]
  [[ $output == *"resumed from"* ]]
  [ "$(grep -c -E '^(accuracy|checkpoint|report) ' <<< "$output")" -eq 3 ]
}

@test "Your own script" {
  on_cluster
  run_section "Your own script"
  [ "$(grep -oE 'rank [0-3] of 4 on node[12], leader node1:[0-9]+' <<< "$output" | sort -u | wc -l)" -eq 4 ]
  grep -E 'MASTER_PORT +[0-9]+' <<< "$output"
  shows_its_output "Your own script"
  [ "$(grep -cE '^rank [0-3] of 4$' <<< "$output")" -eq 4 ]
}

@test "Train without writing code" {
  on_cluster
  run_section "Train without writing code"
  grep -E '^epoch 5/5 .* accuracy 0\.(8[5-9]|9)' <<< "$output" # it depends on the CPU
  [ -s report/run.json ]
  [ -s report.html ]
  [[ $output == *"2 over tcp"* ]]
  grep -E '^125 +100 ' <<< "$output" # ddp-ckpt ls
}

@test "the program that docs/your_model.md shows is the one that is built" {
  shown=$(awk '/^```cpp/ { code = 1; next } /^```/ { if (code) exit } code' "$project_root/docs/your_model.md")
  [ -n "$shown" ]
  [[ $(cat "$project_root/examples/own_model/main.cpp") == *"$shown"* ]]
}

@test "the loop that docs/own_loop.md explains is the one that is built" {
  /usr/bin/python3 - "$project_root" <<'PY'
import pathlib, re, sys
root = pathlib.Path(sys.argv[1])
page = (root / "docs/own_loop.md").read_text()
program = (root / "examples/own_loop/main.cpp").read_text()
blocks = re.findall(r"```cpp\n(.*?)```", page[:page.index("### Mixed precision")], re.DOTALL)
assert len(blocks) >= 8, blocks
for block in blocks:
    assert block.rstrip() in program, block
PY
}

@test "the training script in docs/launch.md runs" {
  /usr/bin/python3 -c 'import torch' || skip "no PyTorch for Python here (apt-get install python3-torch)"
  on_cluster
  mkdir bin && ln -s /usr/bin/python3 bin/python
  awk '/^```python/ { code = 1; next } /^```/ { code = 0 } code' "$project_root/docs/launch.md" > train.py
  run -0 env PATH="$PWD/bin:$PATH" srun --ddp -N2 --ntasks-per-node=2 python train.py
  grep -E '^epoch 5 of 4 ranks: loss 0\.0' <<< "$output"
}

@test "docs/your_model.md: the quick start" {
  on_cluster
  rm -rf build/installed build/own_model # may be left from a run in a directory that no longer exists
  run_section "Quick start" docs/your_model.md
  accuracy=$(sed -n 's/^accuracy //p' <<< "$output")
  awk -v a="$accuracy" 'BEGIN { exit !(a > 0.9) }'
}

@test "an interrupted program of your own exits with 75 and continues when it is run again" {
  [ -x "$project_root/build/own_model/own-model" ] || skip "the test above did not build it"
  cd "$BATS_TEST_TMPDIR"
  "$project_root/build/own_model/own-model" > first 2>&1 3>&- &
  job=$!
  until compgen -G 'own-model-checkpoints/step-*' > /dev/null; do
    kill -0 "$job"
    sleep 0.02
  done
  kill -USR1 "$job"
  status=0
  wait "$job" || status=$?
  cat first
  [ "$status" -eq 75 ]
  run ! grep '^accuracy' first
  run -0 "$project_root/build/own_model/own-model"
  [[ $output == *"resumed from"*$'\n'"accuracy 0.9"* ]]
}

@test "Is a node bad?" {
  on_cluster
  # The check of a node exits with 1 if, for example, no time service synchronizes the clock.
  commands_of "Is a node bad?" | while read -r command; do
    status=0
    bash -c "$command" || status=$?
    [ "$status" -le 1 ]
  done
}

@test "docs/install.md: the quick start" {
  cd "$project_root"
  export PREFIX=$BATS_TEST_TMPDIR/prefix
  run -0 bash -euo pipefail -c "$(commands_of 'Quick start' docs/install.md)"
  [ -x "$PREFIX/bin/ddp-train" ]
  [ -f "$PREFIX/lib/slurm/ddp.so" ] || compgen -G "$PREFIX/lib/*/slurm/ddp.so"
  [ -f "$PREFIX/share/slurm-ddp/plugstack.conf.d/zz-ddp.conf" ]
}
