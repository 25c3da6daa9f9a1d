# SPDX-License-Identifier: Apache-2.0
# Chooses the addresses of the cluster, a /24 to which this machine has no route yet.
# shellcheck shell=bash

# Containers try their own first, because the cluster of the machine may start at the same time.
readonly CANDIDATE_SUBNETS="${container:+10.215.$((container % 250)) }10.213.77 10.214.78 172.29.213 192.168.213"
subnet="" # the first three numbers of the /24

choose_subnet() {
  local candidate
  for candidate in $CANDIDATE_SUBNETS; do
    if ! grep -qF "$candidate." < <(ip -4 route show table all); then
      subnet=$candidate
      return
    fi
  done
  fail "all of $CANDIDATE_SUBNETS are already routed on this machine; no addresses are left for the nodes"
}

node_address() { # K
  if [[ $mode == netns ]]; then echo "$subnet.$1"; else echo 127.0.0.1; fi
}

controller_address() {
  if [[ $mode == netns ]]; then echo "$subnet.254"; else echo 127.0.0.1; fi
}

host_address() { echo "$subnet.253"; }

write_hosts_file() {
  local k
  {
    echo "127.0.0.1 localhost"
    echo "::1 localhost ip6-localhost"
    for ((k = 1; k <= node_count; k++)); do echo "$(node_address "$k") node$k"; done
    echo "$(controller_address) $CONTROLLER"
    echo "$(host_address) $HOST_LINK"
  } >"$STATE/hosts"
  # Nodes have no external network. Without name servers, an unknown name fails immediately and not
  # after a timeout.
  echo "# no name servers: see the hosts file" >"$STATE/resolv.conf"
}
