# SPDX-License-Identifier: Apache-2.0
# Creates the network: a bridge inside the controller's namespace, and a veth pair from it to each
# node (eth0 there) and to the machine itself. The bridge is not in the machine's own namespace,
# because the machine's firewall often drops bridged traffic.
# shellcheck shell=bash

# Creates a veth pair. The far end appears as $2 in namespace $1 with address $3; the near end joins
# the bridge as $4.
plug_in() {
  ip -n "$CONTROLLER" link add name "$4" type veth peer name "$2" netns "$1"
  ip -n "$CONTROLLER" link set dev "$4" master bridge up
  ip -n "$1" address add "$3/24" dev "$2"
  ip -n "$1" link set dev "$2" up
  ip -n "$1" link set dev lo up
}

create_controller_network() {
  ip netns add "$CONTROLLER"
  ip -n "$CONTROLLER" link add name bridge type bridge
  ip -n "$CONTROLLER" address add "$(controller_address)/24" dev bridge
  ip -n "$CONTROLLER" link set dev bridge up
  ip -n "$CONTROLLER" link set dev lo up
  ip link add name "$HOST_LINK" type veth peer name machine netns "$CONTROLLER"
  ip -n "$CONTROLLER" link set dev machine master bridge up
  ip address add "$(host_address)/24" dev "$HOST_LINK"
  ip link set dev "$HOST_LINK" up
}

create_node_network() { # K
  local namespace=${NAMESPACE_PREFIX}node$1
  ip netns add "$namespace"
  plug_in "$namespace" eth0 "$(node_address "$1")" "node$1"
  # `ip netns exec` mounts these files over the machine's own.
  mkdir -p "/etc/netns/$namespace"
  cp "$STATE/hosts" "$STATE/resolv.conf" "/etc/netns/$namespace/"
}

remove_network() {
  local name
  for name in $(namespace_names); do
    ip netns delete "$name" 2>/dev/null || true
  done
  rm -rf "/etc/netns/$NAMESPACE_PREFIX"node[0-9]*
  rmdir /etc/netns 2>/dev/null || true
  # The link disappears with its peer's namespace only after some time, but the next cluster needs
  # the name now.
  ip link delete dev "$HOST_LINK" 2>/dev/null || true
}
