# SPDX-License-Identifier: Apache-2.0
# Finds and terminates the cluster's own processes. A process is ours if it runs in one of our
# network namespaces, or if its working directory or its environment contains our state directory.
# Processes are never found by program name alone, because other SLURM daemons may run on this
# machine.
# shellcheck shell=bash

# Runs $@ as a daemon's first process, without inherited files (the lock, a test runner's pipes) and
# with a small, fixed environment.
start_detached() {
  (
    local fd
    for fd in /proc/self/fd/*; do
      fd=${fd##*/}
      ((fd > 2)) && eval "exec $fd>&-" 2>/dev/null
    done
    exec </dev/null >>"$STATE/log/start.log" 2>&1
    cd /
    for fd in $(compgen -e); do [[ $fd == PATH ]] || unset "$fd"; done
    export SLURM_CONF=$STATE/slurm.conf
    "$@"
  )
}

namespace_names() { # prints this project's namespaces, in use or left over
  ip netns list 2>/dev/null | awk -v p="$NAMESPACE_PREFIX" 'index($1, p) == 1 { print $1 }'
}

namespace_processes() {
  local name
  for name in $(namespace_names); do ip netns pids "$name" 2>/dev/null || true; done
}

# Finds daemons by their working directory or by the files on their command line. Their environment
# proves nothing, because a user's shell and its children may also have our SLURM_CONF.
daemon_processes() {
  local path
  while read -r path; do
    case $(program_of "${path%/*}") in
      slurm* | munged) process_id "${path%/*}" ;;
    esac
  done < <(
    find /proc -maxdepth 2 -path '/proc/[0-9]*/cwd' -lname "$STATE/*" 2>/dev/null
    grep -lsF -- "$STATE/" /proc/[0-9]*/cmdline
  )
}

# Finds tasks of jobs, and clients that wait for them, by their environment, which in a task has a
# node's name.
job_processes() {
  local path
  while read -r path; do
    case $(program_of "${path%/*}") in
      srun | salloc | sbatch) process_id "${path%/*}" ;;
      slurm* | munged) ;;
      *) grep -qsz '^SLURMD_NODENAME=' "$path" && process_id "${path%/*}" ;;
    esac
  done < <(grep -lszE "^SLURM_CONF=$STATE/(.*/)?slurm[.]conf$" /proc/[0-9]*/environ)
}

program_of() { basename "$(readlink "$1/exe" 2>/dev/null)" 2>/dev/null || true; }

# Prints the id of a process, unless it is in a container: a cluster there has the same directories as ours.
process_id() { # /proc/ID
  [[ $(readlink "$1/ns/pid") != "$(readlink /proc/self/ns/pid)" ]] || echo "${1#/proc/}"
}

all_processes() {
  { namespace_processes; daemon_processes; job_processes; } | sort -un | grep -vx "$$" || true
}

# Sends TERM, waits two seconds and sends KILL. Searches again each time, because daemons start
# processes while they terminate.
end_processes() {
  local pids attempt signal
  for ((attempt = 0; attempt < 60; attempt++)); do
    pids=$(all_processes)
    [[ -n $pids ]] || return 0
    signal=KILL
    ((attempt > 0 && attempt < 20)) && signal=0
    ((attempt == 0)) && signal=TERM
    # shellcheck disable=SC2086  # a list of numbers
    kill -s "$signal" -- $pids 2>/dev/null || true
    sleep 0.1
  done
  fail "these processes of the cluster do not terminate: $(tr '\n' ' ' <<<"$pids")"
}
