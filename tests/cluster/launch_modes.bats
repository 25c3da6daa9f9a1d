# SPDX-License-Identifier: Apache-2.0
# The modes and orders of `srun --ddp` on a real SLURM cluster of four nodes on two switches. Each
# node has two fake GPUs: device files that SLURM assigns as if they were GPUs, which is enough to
# check the variables of the tasks.

bats_require_minimum_version 1.5.0
load common

setup_file() {
  make_extra
  mknod "$extra/fakegpu0" c 1 3 && mknod "$extra/fakegpu1" c 1 3 # like /dev/null
  printf '%s\n' TaskPlugin=task/affinity TopologyPlugin=topology/tree GresTypes=gpu \
    "NodeName=DEFAULT Gres=gpu:2" >"$extra/slurm.conf"
  echo "Name=gpu File=$extra/fakegpu[0-1]" >"$extra/gres.conf"
  printf '%s\n' 'SwitchName=s1 Nodes=node[1,3]' 'SwitchName=s2 Nodes=node[2,4]' \
    'SwitchName=top Switches=s[1-2]' >"$extra/topology.conf"
  cluster_up 4 --cpus-per-node 2 --slurm-conf-extra "$extra"
  unset OMP_NUM_THREADS MASTER_ADDR MASTER_PORT "${!PET_@}"
}

teardown_file() { cluster_down; }

setup() {
  cd "$work" || return
  empty_records
}

teardown() { end_all_jobs; }

# Prints the command for torchrun, which in Debian's package is only a module.
torchrun() {
  echo "/usr/bin/python3 -m torch.distributed.run $(command -v torch-client)"
}

# Debian 13 and later build PyTorch without libuv, which its torchrun needs.
need_torchrun() {
  need_torch
  /usr/bin/python3 -c 'import torch.distributed as d; d.TCPStore("127.0.0.1", 0, 1, True)' 2> /dev/null ||
    skip "this PyTorch is built without libuv, which torchrun needs"
}

# The package's PyTorch 1.13 fails with the default values of --redirects and --tee under Python
# 3.11. For ranks below 9, these values have the same effect as the defaults.
without_the_bug() {
  export PET_REDIRECTS=9:1 PET_TEE=9:1
}

@test "torchrun with no options: one task per node, recognized automatically" {
  need_torchrun
  without_the_bug
  # shellcheck disable=SC2046
  PET_NPROC_PER_NODE=2 srun --ddp -N2 --ntasks-per-node=1 $(torchrun) >out 2>err
  four_ranks_reduced
  grep -q '^ddp: torchrun: 2 agents on 2 nodes, 2 workers each; MASTER_ADDR=node1' err
}

# bats test_tags=full
@test "torchrun with the c10d rendezvous, in arbitrary order" {
  need_torchrun
  without_the_bug
  printf 'node2\nnode1\n' >hosts
  # shellcheck disable=SC2046
  PET_NPROC_PER_NODE=2 SLURM_HOSTFILE=hosts srun --ddp=torchrun,rdzv=c10d -n2 $(torchrun) >out
  four_ranks_reduced
}

# agent_of NODE: prints the process of its torchrun.
agent_of() {
  local pid
  for pid in $(pgrep -f 'distributed.run .*elastic-torch-client'); do
    if tr '\0' '\n' <"/proc/$pid/environ" | grep -qx "SLURMD_NODENAME=$1" &&
      tr '\0' ' ' <"/proc/$pid/cmdline" | grep -q '^/usr/bin/python3 -m torch'; then
      echo "$pid" && return
    fi
  done
}

has_sizes() { [ "$(paste -sd' ' stop.sizes 2>/dev/null)" = "$1" ]; }

# bats test_tags=full
@test "torchrun loses the node of rank 0 and gets another one" {
  need_torchrun
  without_the_bug
  rm -f stop stop.sizes
  export PET_NPROC_PER_NODE=1 PET_MONITOR_INTERVAL=1
  cat >job.sh <<JOB
#!/bin/bash
/usr/bin/python3 -c "import time, torch.distributed as d
store = d.TCPStore('0.0.0.0', 29417, is_master=True, wait_for_workers=False)
time.sleep(300)" &
agent="--ddp=torchrun,nnodes=1:2,restarts=9,store=\$SLURMD_NODENAME:29417"
run="/usr/bin/python3 -m torch.distributed.run $(command -v elastic-torch-client) $PWD/stop"
srun -N2 -n2 -w node[2-3] --no-kill --kill-on-bad-exit=0 --wait=0 \$agent \$run &
until [ -e more ]; do sleep 0.2; done
srun --overlap -N1 -n1 -w node4 \$agent \$run &
wait %2 %3
kill %1
JOB
  rm -f more
  sbatch --no-kill -N4 --ntasks-per-node=1 --time=5 --output=log job.sh
  wait_until 60 has_sizes 2
  agent=$(agent_of node2)
  pkill -KILL -P "$agent" || true
  kill -KILL "$agent"
  wait_until 90 has_sizes "2 1" || { cat log && false; }
  touch more
  wait_until 90 has_sizes "2 1 2" || { cat log && false; }
  touch stop
  wait_until 60 no_jobs_left
}

@test "torchrun: one worker per GPU, and no ranks, not even inherited ones" {
  RANK=7 WORLD_SIZE=9 srun --ddp=torchrun -N2 --ntasks-per-node=1 --gpus-per-node=2 record-task
  [ "$(all_recorded PET_NPROC_PER_NODE)" = "2 2" ]
  [ "$(all_recorded PET_NODE_RANK)" = "0 1" ]
  [ "$(all_recorded PET_NNODES)" = "2 2" ]
  [ "$(all_recorded PET_RDZV_BACKEND)" = "static static" ]
  [ -z "$(all_recorded RANK)$(all_recorded WORLD_SIZE)" ]
}

@test "torchrun with two tasks on a node is rejected" {
  run srun --ddp=torchrun -N2 -n4 record-task
  [ "$status" -ne 0 ]
  [[ $output == *"it needs one task per node, but 4 tasks run on 2 nodes; use srun --ntasks-per-node=1"* ]]
  [ "$(grep -o 'error: ddp: node[1-4]: ' <<< "$output" | sort -u | wc -l)" -eq 2 ] # once on each node
  [ "$(grep -c 'error: ddp:' <<< "$output")" -eq 2 ]
  [ -z "$(ls "$RECORDS")" ]
}

@test "order=packed: a cyclic step is numbered node by node" {
  srun --ddp=order=packed -N2 -n4 -m cyclic record-task 2>err
  check-records "$RECORDS" 4
  local rank
  for rank in 0 1 2 3; do [ "$(recorded $rank NODE_RANK)" -eq $((rank / 2)) ]; done
  grep -q "note: RANK differs from SLURM's numbers" err
  srun --mpi=none --ddp=order=packed -N2 -n4 -m cyclic rendezvous >out
  [ "$(grep -c 'of 4: sum 6' out)" -eq 4 ]
}

@test "order=packed needs no hint in arbitrary order" {
  [ "$cluster_mode" = netns ] || skip "in plain mode the address is given"
  salloc -Q -n4 -w node1,node2 bash -c "srun --mpi=none --ddp=order=packed -n2 -m arbitrary -w node2,node1 record-task"
  check-records "$RECORDS" 2
  [ "$(recorded 0 SLURMD_NODENAME)" = node1 ]
}

@test "order=switch: neighbors in the ring share a switch" {
  srun --ddp=order=switch -N4 -n8 record-task 2>err
  check-records "$RECORDS" 8
  local rank nodes=""
  for rank in 0 2 4 6; do nodes+="$(recorded $rank SLURMD_NODENAME) "; done
  [ "$nodes" = "node1 node3 node2 node4 " ]
  [ "$(recorded 5 SLURM_DDP_SWITCHES)" = "top.s1=node[1,3];top.s2=node[2,4]" ]
  run ! grep 'SLURM_TOPOLOGY_ADDR' err # each node's own report agrees
  srun --ddp=order=switch -N4 -n4 rendezvous >out
  [ "$(grep -c 'of 4: sum 6' out)" -eq 4 ]
}

@test "ddp-run replaces a node by a spare of its switch" {
  printf '#!/bin/sh\n[ "$SLURMD_NODENAME" != node2 ] || { echo "the test makes it bad"; exit 2; }\n' >check
  printf '#!/bin/sh\n[ "$SLURMD_NODENAME" != node2 ]\n' >fails-on-node2
  chmod +x check fails-on-node2
  salloc -Q -N4 --no-kill ddp-run --nodes 2:2 --spares 2 --check "$work/check" --events events.jsonl -- "$work/fails-on-node2"
  [ "$(grep -o '"nodes":\[.*\]' events.jsonl | xargs)" = "nodes:[node1,node2] nodes:[node1,node4]" ] # node3 is next in order
}

@test "order=switch with an outdated map: the nodes report it" {
  mkdir bin
  printf '#!/bin/sh\necho "SwitchName=s9 Level=0 LinkSpeed=1 Nodes=node[1-4]"\n' >bin/scontrol
  chmod +x bin/scontrol
  PATH=$work/bin:$PATH srun --ddp=order=switch -N4 -n4 true 2>err
  rm -r bin
  grep -q "note: scontrol says that this node is at 's9.node1', but SLURM_TOPOLOGY_ADDR says 'top.s1.node1'" err
}

# bats test_tags=full
@test "order=switch fails early, and no program runs, if scontrol hangs or prints garbage" {
  mkdir bin
  local program
  for program in 'yes SwitchName=s Nodes=n' 'sleep 600' 'exec >&-; sleep 600'; do
    printf '#!/bin/sh\n%s\n' "$program" >bin/scontrol
    chmod +x bin/scontrol
    PATH=$work/bin:$PATH run timeout 60 srun --ddp=order=switch -N2 -n2 record-task
    [ "$status" -eq 1 ]
    [[ $output == *"order=switch needs to know the switches"* ]]
    [ -z "$(ls "$RECORDS")" ]
  done
  rm -r bin
}

@test "GPUs: each task sees all GPUs of its node" {
  srun --ddp -N1 -n2 --gpus-per-node=2 record-task 2>err
  [ "$(all_recorded CUDA_VISIBLE_DEVICES)" = "0,1 0,1" ]
  [ "$(all_recorded LOCAL_RANK)" = "0 1" ]
  [ -z "$(all_recorded JAX_LOCAL_DEVICE_IDS)" ]
  run ! grep GPU err
}

@test "GPUs: one per task gives a note, and device numbers are right" {
  srun --ddp -N1 -n2 --gpus-per-task=1 record-task 2>err
  [ "$(all_recorded CUDA_VISIBLE_DEVICES)" = "0 1" ]
  [ "$(all_recorded LOCAL_RANK)" = "0 1" ]
  [ "$(all_recorded JAX_LOCAL_DEVICE_IDS)" = "0 0" ]
  grep -q 'note: each task sees 1 of the 2 GPUs of its node' err
  rm "$RECORDS"/*
  srun --ddp=local_rank=device -N1 -n2 --gpus-per-node=2 --gpu-bind=single:1 record-task
  [ "$(all_recorded LOCAL_RANK)" = "0 0" ]
}

@test "GPUs: gpus=shared shows all of the node to each task" {
  srun --ddp=gpus=shared -N1 -n2 --gpus-per-task=1 record-task 2>err
  [ "$(all_recorded CUDA_VISIBLE_DEVICES)" = "0,1 0,1" ]
  run ! grep GPU err
}

@test "GPUs: fewer GPUs than tasks give a note" {
  srun --ddp -N1 -n2 --gpus-per-node=1 true 2>err
  grep -q 'note: 2 tasks on this node share 1 GPU.*Duplicate GPU' err
}

# gpus_of COMMAND...: runs it and prints the GPU of each rank that it starts, by the rule of the script in docs/launch.md.
gpus_of() {
  cat >which.py <<'PY'
import os
number = int(os.environ["LOCAL_RANK"]) % len(os.environ["CUDA_VISIBLE_DEVICES"].split(","))
chosen = {name for name in os.environ if name.startswith(("DDP_", "JAX_LOCAL", "UCX_NET"))}
line = f"gpu {os.environ['SLURM_NODEID']}.{number} {' '.join(chosen)}".strip() + "\n"
os.write(1, line.encode())  # in one piece
PY
  "$@" | grep ^gpu | sort | cut -c5- | paste -sd' '
}

@test "GPUs: each rank that a task starts has its own, whatever starts it" {
  need_torchrun
  without_the_bug
  local torchrun="/usr/bin/python3 -m torch.distributed.run" two=(--ntasks-per-node=1 --gpus-per-node=2)
  [ "$(gpus_of srun --ddp=ucx=bind -N2 "${two[@]}" bash -c "$torchrun which.py")" = "0.0 0.1 1.0 1.1" ]
  [ "$(gpus_of srun --ddp=rank -N1 "${two[@]}" bash -c "$torchrun --standalone --nproc_per_node=2 which.py")" = "0.0 0.1" ]
  [ "$(gpus_of srun --ddp=local_rank=device -N1 "${two[@]}" bash -c "ddp-launch $torchrun which.py")" = "0.0 0.1" ]
  local inner="srun --overlap -N1 -n2 -c1 --cpu-bind=none"
  [ "$(gpus_of srun --ddp -N1 -c2 "${two[@]}" bash -c "$inner --ddp --gpus-per-node=2 /usr/bin/python3 which.py")" = "0.0 0.1" ]
  # SLURM's own variables are all that a step without --ddp has.
  run --separate-stderr srun --ddp -N1 -c2 "${two[@]}" bash -c "$inner env | tee steps | grep -E '^(RANK|LOCAL_RANK|MASTER_ADDR|SLURM_DDP_SET)='"
  [ -z "$output" ] && [ "$(grep -c ^SLURM_PROCID= steps)" -eq 2 ]
}

@test "threads: one for each core of the task, unless the user sets the number" {
  srun --ddp -N1 -n2 record-task # bound to one CPU each
  [ "$(all_recorded own_cpus)" = "1 1" ]
  [ "$(all_recorded OMP_NUM_THREADS)" = "1 1" ]
  rm "$RECORDS"/*
  srun --ddp -N1 -n1 -c2 record-task
  [ "$(all_recorded OMP_NUM_THREADS)" = "$(lscpu -p=core | grep -v '^#' | sort -u | head -2 | wc -l)" ]
  rm "$RECORDS"/*
  OMP_NUM_THREADS=5 srun --ddp -N1 -n1 record-task
  [ "$(all_recorded OMP_NUM_THREADS)" = 5 ]
  rm "$RECORDS"/*
  srun --ddp=threads=off -N1 -n1 record-task
  [ -z "$(all_recorded OMP_NUM_THREADS)" ]
}

@test "threads: two unbound tasks share the cores" {
  srun --ddp --cpu-bind=none -N1 -n2 record-task
  [ "$(all_recorded OMP_NUM_THREADS)" = "1 1" ]
}

@test "JAX: one coordinator for all, on a separate port" {
  srun --ddp -N2 -n4 record-task
  [ "$(all_recorded JAX_PROCESS_ID)" = "0 1 2 3" ]
  [ "$(all_recorded JAX_NUM_PROCESSES)" = "4 4 4 4" ]
  [ "$(sed -n 's/^JAX_COORDINATOR_ADDRESS=//p' "$RECORDS"/* | sort -u | wc -l)" -eq 1 ]
  [ "$(recorded 0 JAX_COORDINATOR_ADDRESS)" = "$(recorded 0 MASTER_ADDR):$(($(recorded 0 MASTER_PORT) + 1))" ]
}

@test "TF_CONFIG lists each worker with the node of its rank" {
  srun --ddp=tf_config -N2 -n4 record-task
  python3 - "$RECORDS" <<'PY'
import json, pathlib, sys
records = [dict(l.split("=", 1) for l in p.read_text().splitlines()) for p in pathlib.Path(sys.argv[1]).iterdir()]
configs = [json.loads(r["TF_CONFIG"]) for r in records]
workers = configs[0]["cluster"]["worker"]
assert all(c["cluster"]["worker"] == workers for c in configs)
assert len(set(workers)) == 4, workers
for r, c in zip(records, configs):
    assert c["task"] == {"type": "worker", "index": int(r["RANK"])}
    host, port = workers[int(r["RANK"])].split(":")
    assert host == r["SLURMD_NODENAME"], (host, r)
    assert port != r["MASTER_PORT"]
PY
  run srun --ddp=tf_config -N2 -n4 -m cyclic record-task
  [ "$status" -ne 0 ]
  [[ $output == *"add order=packed"* ]]
}

@test "explain=json prints the plan of rank 0, or of every task to one file per task, and runs nothing" {
  srun --ddp=explain=json -N2 -n4 record-task >out
  [ "$(jq -r '"\(.schema) \(.rank)"' out)" = "slurm-ddp/plan/1 0" ]
  srun --ddp=explain=json,verbose -N2 -n4 --output=plan.%t record-task
  [ -z "$(ls "$RECORDS")" ]
  [ "$(cat plan.* | jq -r .schema | sort | uniq -c | tr -s ' ')" = " 4 slurm-ddp/plan/1" ]
  [ "$(cat plan.* | jq -r .rank | paste -sd' ')" = "0 1 2 3" ]
  [ "$(cat plan.* | jq -r '.variables[] | select(.source == "" or .rule == "") | .name')" = "" ]
}

@test "explain,verbose: the whole plan of every task, and its inputs" {
  srun --ddp=explain,verbose -N2 -n2 --gpus-per-node=2 record-task >out
  [ -z "$(ls "$RECORDS")" ]
  [ "$(grep -c '^VARIABLE ' out)" -eq 2 ]
  [ "$(grep -c '  setting  *auto (--ddp)' out)" -eq 2 ]
  [ "$(grep -c '  GPUs of the node  *CUDA_VISIBLE_DEVICES=0,1' out)" -eq 2 ]
}

# Inserts LINE before the plugin's line in plugstack.conf; without LINE, removes it.
plugstack_first() { # [LINE]
  rm -f "$state/plugstack.conf.d/pyxis.conf"
  [[ $# -eq 0 ]] || echo "$1" >"$state/plugstack.conf.d/pyxis.conf"
}

@test "after a container plugin: works without scontrol; ranks and rendezvous are the plan's, the rest is the image's" {
  gcc -shared -fPIC -Wall -o spank_pyxis.so "$project_root/tests/cluster/programs/pyxis_stand_in.c"
  plugstack_first "required $work/spank_pyxis.so $(command -v scontrol)"
  # The site's file is on the host; the "container" does not have one.
  [ -d /etc/slurm-ddp ] || { mkdir /etc/slurm-ddp && touch made; }
  [ ! -e /etc/slurm-ddp/fabric.conf ] || mv /etc/slurm-ddp/fabric.conf saved.conf
  printf '%s\n' '[preset rack7]' 'NCCL_IB_TC = 106' >/etc/slurm-ddp/fabric.conf
  local rc=0
  srun --ddp=fabric=rack7 -N2 -n4 bash -c 'env >"$RECORDS/task.$SLURM_PROCID"; [ ! -e /etc/passwd ] && ! scontrol --version 2>/dev/null' || rc=$?
  plugstack_first
  rm /etc/slurm-ddp/fabric.conf
  [ ! -e saved.conf ] || mv saved.conf /etc/slurm-ddp/fabric.conf
  [ ! -e made ] || rmdir /etc/slurm-ddp
  [ "$rc" -eq 0 ] # and the task was in the "container"
  [ "$(all_recorded RANK)" = "0 1 2 3" ]
  [ "$(all_recorded MASTER_ADDR)" = "node1 node1 node1 node1" ] || [ "$cluster_mode" = plain ]
  [ "$(sed -n 's/^MASTER_PORT=//p' "$RECORDS"/* | sort -u)" -gt 1000 ]
  [ "$(all_recorded OMP_NUM_THREADS)" = "7 7 7 7" ]
  [ "$(all_recorded NCCL_IB_TC)" = "106 106 106 106" ]
}

@test "a plugin built for another release: SLURM reports it and runs without it" {
  with-other-release "$build_dir/lib/slurm/ddp.so" other.so
  local line=$state/plugstack.conf.d/zz-ddp.conf
  cp "$line" saved
  echo "optional $work/other.so" >"$line"
  run srun -N1 -n1 echo ran
  cp saved "$line"
  [ "$status" -eq 0 ]
  [[ $output == *"ran"* ]]
  [[ $output == *[Ii]"ncompatible"*"version"*"99.11"* ]]
}
