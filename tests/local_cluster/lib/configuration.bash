# SPDX-License-Identifier: Apache-2.0
# Writes the files of this SLURM, slurm.conf and its companions, to the state directory.
# shellcheck shell=bash

default_plugin() {
  [[ -n $plugin ]] || ! [[ -f $build_dir/lib/slurm/ddp.so ]] || plugin=$(readlink -f "$build_dir/lib/slurm/ddp.so")
}

# Prints the settings that must match for an existing cluster to be the requested one.
fingerprint() {
  echo "nodes=$node_count mode=$mode cpus=$cpus_per_node mpi=$mpi_default plugin=$plugin tmp=$tmp_size shm=$shm_size"
  [[ -z $slurm_conf_extra ]] || find "$slurm_conf_extra" -type f -exec sha256sum {} + | sort
}

write_plugstack() {
  mkdir -p "$STATE/plugstack.conf.d"
  echo "include $STATE/plugstack.conf.d/*.conf" >"$STATE/plugstack.conf"
  : >"$STATE/plugstack.conf.d/zz-ddp.conf"
  [[ -n $plugin ]] || return 0
  # In plain mode the node names do not resolve, but all nodes are this host.
  local arguments=""
  [[ $mode == netns ]] || arguments=" master_addr=127.0.0.1"
  echo "optional $plugin$arguments" >"$STATE/plugstack.conf.d/zz-ddp.conf"
}

# The delays are short, so that a test of a time limit or of a requeue takes seconds. cred_expire is
# also the delay before a requeued job starts again. Only the backfill scheduler starts jobs of
# several components.
write_base_options() {
  local controller=$CONTROLLER
  [[ $mode == netns ]] || controller=$(hostname -s)
  cat <<CONF
ClusterName=$CLUSTER_NAME
SlurmctldHost=$controller($(controller_address))
SlurmctldPort=$CONTROLLER_PORT
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$STATE/munge/munge.socket,cred_expire=10
CredType=cred/munge
StateSaveLocation=$STATE/controller
SlurmctldPidFile=$STATE/slurmctld.pid
SlurmctldLogFile=$STATE/log/slurmctld.log
SlurmdSpoolDir=$STATE/nodes/%n/spool
SlurmdPidFile=$STATE/nodes/%n/slurmd.pid
SlurmdLogFile=$STATE/log/%n.log
PlugStackConfig=$STATE/plugstack.conf
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=$mpi_default
MpiParams=ports=$RESERVED_PORTS
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
JobRequeue=1
KillWait=5
SlurmdTimeout=20
MessageTimeout=30
TCPTimeout=10
SchedulerParameters=sched_interval=5,bf_interval=1
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MailProg=/bin/true
CONF
}

# Leaves out base lines whose setting also occurs in the extra lines, because SLURM would complain
# about duplicates in every command.
without_settings_of() { # EXTRA; the base on standard input
  awk -v extra="$1" '
    function setting(line) { sub(/=.*/, "", line); return tolower(line) }
    BEGIN { while ((getline line < extra) > 0) replaced[setting(line)] = 1 }
    !(setting($0) in replaced)'
}

write_nodes() {
  local k port memory_mb
  memory_mb=$(awk '$1 == "MemTotal:" { print int($2 / 1024) }' /proc/meminfo)
  for ((k = 1; k <= node_count; k++)); do
    port=$NODE_PORT
    [[ $mode == netns ]] || port=$((NODE_PORT + k))
    echo "NodeName=node$k NodeHostname=$(node_hostname "$k") NodeAddr=$(node_address "$k") Port=$port" \
      "CPUs=$cpus_per_node Boards=1 SocketsPerBoard=1 CoresPerSocket=$cpus_per_node ThreadsPerCore=1" \
      "RealMemory=$memory_mb State=UNKNOWN"
  done
  echo "PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP"
}

node_hostname() { # K
  if [[ $mode == netns ]]; then echo "node$1"; else hostname -s; fi
}

copy_extra_files() {
  extra_lines=/dev/null
  [[ -n $slurm_conf_extra ]] || return 0
  if [[ -d $slurm_conf_extra ]]; then
    cp -r "$slurm_conf_extra/." "$STATE/"
    rm -f "$STATE/slurm.conf"
    [[ ! -f $slurm_conf_extra/slurm.conf ]] || extra_lines=$slurm_conf_extra/slurm.conf
  else
    extra_lines=$slurm_conf_extra
  fi
}

write_configuration() {
  local name extra_lines
  mkdir -p "$STATE/log" "$STATE/controller"
  for name in $(node_names "$node_count"); do mkdir -p "$STATE/nodes/$name/spool"; done
  # cgroup.conf requests cgroup/v1, because slurmd exits if it has to detect the version and finds
  # both or none. The plugins chosen here do not use cgroups.
  printf 'CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n' >"$STATE/cgroup.conf"
  write_plugstack
  copy_extra_files
  { write_base_options | without_settings_of "$extra_lines"; cat "$extra_lines"; echo; write_nodes; } >"$STATE/slurm.conf"
  fingerprint >"$STATE/fingerprint"
  printf 'node_count=%q mode=%q subnet=%q\n' "$node_count" "$mode" "$subnet" >"$STATE/settings"
}

# Without a private /tmp, each node needs a separate place for the directories of the PMIx plugin.
# A file beside slurm.conf sets it, so in plain mode each node has its own copy of the files.
write_plain_node_configuration() { # DIRECTORY
  local file
  for file in "$STATE"/*.conf; do ln -sf "$file" "$1/"; done
  mkdir -p "$1/tmp"
  chmod 1777 "$1/tmp"
  rm -f "$1/mpi.conf"
  echo "PMIxCliTmpDirBase=$1/tmp" >"$1/mpi.conf"
}
