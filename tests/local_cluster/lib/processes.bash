# Which processes are the cluster's own, and ending them. A process is ours if it lives in one of
# our network namespaces, or if its working folder or its environment names our state folder.
# Nothing is ever looked up by program name alone: other SLURM daemons may run on this machine.
# shellcheck shell=bash

# Runs $@ as a daemon's first process: no inherited files (the lock, a test runner's pipes) and a
# small, known environment.
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

namespace_names() { # those of this project, up or left over
  ip netns list 2>/dev/null | awk -v p="$NAMESPACE_PREFIX" 'index($1, p) == 1 { print $1 }'
}

namespace_processes() {
  local name
  for name in $(namespace_names); do ip netns pids "$name" 2>/dev/null || true; done
}

# Daemons, by the folder they work in. (Some of them write their title over their environment.)
daemon_processes() {
  local link
  while read -r link; do
    case $(program_of "${link%/cwd}") in
      slurm* | munged) process_id "${link%/cwd}" ;;
    esac
  done < <(find /proc -maxdepth 2 -path '/proc/[0-9]*/cwd' -lname "$STATE/*" 2>/dev/null)
}

# Step daemons, tasks of jobs, and clients that wait for them, by environment. A person's shell
# may have our SLURM_CONF too: a program counts as a task only if a node's name is beside it.
job_processes() {
  local file
  while read -r file; do
    case $(program_of "${file%/environ}") in
      slurm* | munged | srun | salloc | sbatch) process_id "${file%/environ}" ;;
      *) grep -qz '^SLURMD_NODENAME=' "$file" 2>/dev/null && process_id "${file%/environ}" ;;
    esac
  done < <(grep -lszE "^SLURM_CONF=$STATE/(.*/)?slurm[.]conf$" /proc/[0-9]*/environ)
}

program_of() { basename "$(readlink "$1/exe" 2>/dev/null)" 2>/dev/null || true; }

process_id() { echo "${1#/proc/}"; }

all_processes() {
  { namespace_processes; daemon_processes; job_processes; } | sort -un | grep -vx "$$" || true
}

# TERM, two seconds, KILL; looks again each time, because daemons start processes while they end.
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
  fail "these processes of the cluster do not end: $(tr '\n' ' ' <<<"$pids")"
}
