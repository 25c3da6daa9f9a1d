# SPDX-License-Identifier: Apache-2.0
# ddp-launch without the plugin: its command line, its exit codes, mpirun. Does not need a cluster.

bats_require_minimum_version 1.5.0
load common

setup() {
  [[ -x $build_dir/bin/ddp-launch ]] || { echo "no ddp-launch in $build_dir" >&2; return 1; }
  cd "$BATS_TEST_TMPDIR"
  # The tests may run inside a step, or with the variables of a plan.
  unset MASTER_ADDR MASTER_PORT SLURM_DDP "${!SLURM_@}" "${!PMIX_@}" "${!OMPI_@}"
}

@test "one process is a world of one, on a free port" {
  run --separate-stderr ddp-launch bash -c 'echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $NODE_RANK $GROUP_RANK'
  [ "$output" = "0 1 0 1 0 0" ]
  [[ $stderr == "ddp: 1 rank on 1 node; MASTER_ADDR="* ]]
  ddp-launch rendezvous
}

@test "the command gets all of its own arguments" {
  [ "$(ddp-launch printf '%s|' --ddp off explain --help -- --version 2>/dev/null)" = "--ddp|off|explain|--help|--|--version|" ]
  [ "$(ddp-launch -- printf '%s|' -- x 2>/dev/null)" = "--|x|" ]
  [ "$(ddp-launch --ddp master_port=77 -- printenv MASTER_PORT 2>/dev/null)" = 77 ]
}

@test "the exit code is that of the command, or 126 or 127 as in a shell" {
  run ddp-launch bash -c 'exit 42'
  [ "$status" -eq 42 ]
  run -127 ddp-launch no-such-command
  [ "$status" -eq 127 ]
  [[ $output == *"ddp-launch: cannot run 'no-such-command': No such file or directory"* ]]
  touch not-executable
  run ddp-launch ./not-executable
  [ "$status" -eq 126 ]
  [[ $output == *"Permission denied"* ]]
}

@test "wrong arguments are usage errors, and nothing runs" {
  local arguments
  for arguments in "" "--bogus touch ran" "--ddp bogus touch ran" "--ddp order=x touch ran" "--ddp=master_port=0 touch ran" \
    "explain extra" "explain --format xml" "--config missing.ini touch ran" "--ddp"; do
    # shellcheck disable=SC2086
    run ddp-launch $arguments
    [ "$status" -eq 2 ]
    [ ! -e ran ]
  done
  SLURM_DDP=bogus run ddp-launch touch ran
  [ "$status" -eq 2 ]
  [[ $output == *"SLURM_DDP: unknown item 'bogus'"* ]]
  [ ! -e ran ]
}

@test "--help shows examples, and --version shows the version" {
  run ddp-launch --help
  [ "$status" -eq 0 ]
  [[ $output == *"srun -N2 --ntasks-per-node=4 ddp-launch python train.py"*"Exit codes"* ]]
  [[ $(ddp-launch --version) =~ ^ddp-launch\ [0-9]+\.[0-9]+\.[0-9]+$ ]]
}

@test "options can come from a file" {
  echo 'ddp = "master_port=4711"' >options.ini
  [ "$(ddp-launch --config options.ini printenv MASTER_PORT 2>/dev/null)" = 4711 ]
  [ "$(ddp-launch --config options.ini --ddp master_port=4712 printenv MASTER_PORT 2>/dev/null)" = 4712 ]
}

@test "explain: table, JSON, and exports for a shell" {
  [[ $(ddp-launch explain) == *"VARIABLE "*"WORLD_SIZE "*"MASTER_PORT "* ]]
  [ "$(ddp-launch explain --format json | jq -r '.variables[] | select(.name == "WORLD_SIZE") | .value')" = 1 ]
  (
    eval "$(MASTER_ADDR="it's" ddp-launch --ddp 'master_port=5' explain --format export)"
    [ "$RANK:$WORLD_SIZE:$MASTER_PORT:${MASTER_ADDR:-kept}" = 0:1:5:kept ]
  )
  # --ddp may also follow explain.
  [[ $(ddp-launch explain --ddp master_port=77) == *"MASTER_PORT "*" 77 "* ]]
  [ "$(ddp-launch --ddp explain touch ran | head -1 | cut -d' ' -f1-4)" = "plan of rank 0" ]
  [ ! -e ran ]
}

@test "explain --format taskprolog: values are not quoted, since SLURM does not remove quotes" {
  ddp-launch --ddp tf_config explain --format taskprolog >out
  grep -Fx 'export RANK=0' out
  grep -E '^export TF_CONFIG=\{"cluster":.*\}$' out
  run ! grep "'" out
}

@test "ranks of MPICH or Intel MPI are refused, and those of SLURM's own PMI are not" {
  PMI_RANK=1 PMI_SIZE=4 run ddp-launch touch ran
  [ "$status" -eq 1 ]
  [[ $output == *"started by the mpirun of MPICH, Intel MPI or the like"* ]]
  SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1 PMI_RANK=1 PMI_SIZE=4 run ddp-launch touch ran
  [ "$status" -eq 1 ]
  [ ! -e ran ]
  node=$(hostname)
  [ "$(on_node "$node" 0 env PMI_RANK=0 PMI_SIZE=2 MASTER_ADDR=192.0.2.1 ddp-launch printenv RANK WORLD_SIZE)" = $'0\n2' ]
  [ "$(PMI_RANK=0 PMI_SIZE=1 ddp-launch printenv WORLD_SIZE)" = 1 ]
}

@test "rank 0 prints a note if MASTER_ADDR does not lead to its node" {
  export SLURMD_NODENAME=here
  note() { on_node here "$1" env MASTER_ADDR="$2" ddp-launch true 2>&1 | grep 'ddp: note: MASTER_ADDR'; }
  note 0 192.0.2.1 | grep -F 'MASTER_ADDR=192.0.2.1 (environment) is not an address of here, where rank 0 runs'
  note 0 0.0.0.0 | grep -F 'leads to no address by which other nodes reach here'
  note 0 no-such-name.invalid | grep -F 'leads to no address by which other nodes reach here'
  note 0 192.0.2.1:29500 | grep -F 'is not a host name or address'
  own=$(hostname -I 2>/dev/null | awk '{ print $1 }')
  [ -z "$own" ] || run ! note 0 "$own"
  run ! note 1 192.0.2.1
  run ! ddp-launch --ddp master_addr=192.0.2.1:29500 true
}

@test "off runs the command unchanged" {
  [ "$(ddp-launch --ddp off bash -c 'echo "[$RANK]"')" = "[]" ]
  [ "$(SLURM_DDP=off ddp-launch bash -c 'echo "[$RANK]"')" = "[]" ]
}

@test "mpirun: the ranks of a run agree on the port, and two runs have different ports" {
  command -v mpirun >/dev/null || skip "no mpirun on this machine"
  local mpirun="mpirun --allow-run-as-root --oversubscribe"
  $mpirun -n 3 ddp-launch rendezvous >out
  [ "$(grep -c 'of 3: sum 3' out)" -eq 3 ]
  local first second
  first=$($mpirun -n 2 ddp-launch printenv MASTER_PORT 2>/dev/null | sort -u)
  second=$($mpirun -n 2 ddp-launch printenv MASTER_PORT 2>/dev/null | sort -u)
  [ "$(wc -l <<<"$first")" -eq 1 ]
  [ "$first" != "$second" ]
}

# Runs the command as one of the two tasks of a step with one task per node. Rank 0 is on LEADER.
on_node() { # LEADER NUMBER COMMAND...
  local leader=$1 number=$2
  shift 2
  env SLURM_JOB_ID=4711 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=2 "SLURM_STEP_NODELIST=$leader,other.test" \
    "SLURM_STEP_TASKS_PER_NODE=1(x2)" "SLURM_PROCID=$number" SLURM_LOCALID=0 "SLURM_NODEID=$number" "SLURM_GTIDS=$number" "$@"
}

with_fake_dns() {
  local rc=0
  with-fake-dns "$@" || rc=$?
  ((rc != 75)) || skip "ordinary users cannot create namespaces here"
  return "$rc"
}

# bats test_tags=full
@test "a name server that loses the first packet of every query only delays the step" {
  both() {
    on_node lost.test 0 ddp-launch rendezvous & local first=$!
    on_node lost.test 1 ddp-launch rendezvous
    wait "$first"
  }
  export -f both on_node
  with_fake_dns bash -ec both >out 2>err
  cat out err
  [ "$(grep -c 'of 2: sum 1' out)" -eq 2 ]
  grep -q 'ddp: 2 ranks on 2 nodes; MASTER_ADDR=lost.test' err
  run ! grep -q 'name service' err
}

@test "a failing name server gives a note, and an unknown name is an error" {
  export SLURMD_NODENAME=other.test
  ask() { on_node "$1" 1 ddp-launch --ddp fabric=off printenv MASTER_ADDR; }
  export -f ask on_node
  with_fake_dns bash -c 'ask broken.test' >out 2>err
  [ "$(cat out)" = broken.test ]
  grep -q 'ddp: note: the name service of other.test did not answer for broken.test' err
  run with_fake_dns bash -c 'ask unknown.test'
  [ "$status" -eq 1 ]
  [[ $output == *"'unknown.test', is unknown to the name service on other.test"* ]]
}

@test "a full disk is an error, not an empty plan" {
  run bash -c 'ddp-launch explain >/dev/full'
  [ "$status" -eq 1 ]
  [[ $output == *"cannot write to standard output"* ]]
}
