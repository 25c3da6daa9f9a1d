// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/launch/step/name_check.h"

#include <algorithm>

namespace ddp::launch {
namespace {

using Addresses = std::vector<std::string>;

bool share_an_address(const Addresses& first, const Addresses& second) {
  return std::find_first_of(first.begin(), first.end(), second.begin(), second.end()) !=
         first.end();
}

// True if packets to all of these addresses leave like those to SLURM's, so that no other network
// of the node is lost without the name.
bool go_the_same_way(const NameView& view, const HostQueries& host) {
  const auto way = host.source_towards(view.slurms.front());
  return way && std::all_of(view.addresses.begin(), view.addresses.end(), [&](const auto& address) {
           const auto source = host.source_towards(address);
           return !source || source == way;
         });
}

// For a name with addresses that SLURM's are not among.
std::string why_not_addresses(const NameView& view, const HostQueries& host) {
  const auto& addresses = view.addresses;
  if (is_here(view, host)) {
    const bool any = std::any_of(addresses.begin(), addresses.end(), host.is_own);
    return any ? "" : ", which is not an address of this node";
  }
  if (!host.has_slurms_address()) return {};
  if (std::all_of(addresses.begin(), addresses.end(), host.is_own))
    return ", which is an address of this node";
  if (go_the_same_way(view, host)) return ", where SLURM does not reach that node";
  if (share_an_address(addresses, host.addresses_of_another())) return ", as another node does";
  return {};
}

}  // namespace

std::string describe_lookup(NameLookup lookup) {
  switch (lookup) {
    case NameLookup::only_local:
      return "resolves to a loopback or link-local address only";
    case NameLookup::elsewhere:
      return "resolves to an address that this node does not have";
    case NameLookup::no_answer:
    case NameLookup::timed_out:
      return "got no answer from the name service";
    case NameLookup::unknown_name:
      return "is unknown to the name service";
    case NameLookup::not_done:
    case NameLookup::usable:
      break;
  }
  return {};
}

bool is_here(const NameView& view, const HostQueries& host) {
  return std::any_of(view.slurms.begin(), view.slurms.end(), host.is_own);
}

std::string why_not_name(const NameView& view, const HostQueries& host) {
  if (view.slurms.empty()) return {};
  if (view.lookup == NameLookup::only_local && is_here(view, host)) return {};
  const std::string problem = describe_lookup(view.lookup);
  if (!problem.empty()) return view.name + " " + problem;
  if (view.addresses.empty() || share_an_address(view.addresses, view.slurms)) return {};
  const std::string elsewhere = why_not_addresses(view, host);
  if (elsewhere.empty()) return {};
  return view.name + " resolves to " + view.addresses.front() + elsewhere;
}

}  // namespace ddp::launch
