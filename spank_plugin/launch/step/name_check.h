// SPDX-License-Identifier: Apache-2.0
// Whether the name of a node of the step leads to that node, seen from one of its nodes. A name can
// lead elsewhere without an error: a name server that answers for every name, an outdated record, a
// line that was copied with /etc/hosts. SLURM's own address of the node shows it, because SLURM's
// daemons reach the node there.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "spank_plugin/launch/step/facts.h"

namespace ddp::launch {

// All addresses are numeric.
struct NameView {
  std::string name;
  NameLookup lookup = NameLookup::not_done;
  std::vector<std::string> addresses;  // of the name
  std::vector<std::string> slurms;     // of SLURM's address of the node
};

// What only the host knows.
struct HostQueries {
  std::function<bool(const std::string&)> is_own;
  // The source address of packets to an address; nullopt if there is no route.
  std::function<std::optional<std::string>(const std::string&)> source_towards;
  // True if one of SLURM's addresses of the step's nodes is this host's. Otherwise they are
  // translated (NAT), and show nothing about a name that has an address.
  std::function<bool()> has_slurms_address;
  // The addresses of another node's name. Called only if nothing else decides.
  std::function<std::vector<std::string>()> addresses_of_another;
};

// Returns "is unknown to the name service" or another phrase; empty if the name is usable.
std::string describe_lookup(NameLookup lookup);

// True if this host is the node, by SLURM's address.
bool is_here(const NameView& view, const HostQueries& host);

// Returns why SLURM's address must replace the name on this node ("node1 resolves to ..."); empty
// if the name is right, or if it may lead to another network of the node, which may be the faster
// one: then the way to it has another source address than the way to SLURM's. A node that resolves
// its own name to a loopback address keeps the name, because the other nodes' answers count.
std::string why_not_name(const NameView& view, const HostQueries& host);

}  // namespace ddp::launch
