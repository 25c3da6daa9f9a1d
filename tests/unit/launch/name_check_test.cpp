// SPDX-License-Identifier: Apache-2.0
// The name of rank 0's node, node1, as seen from the nodes of a step. node1 has the addresses
// 10.0.0.1, by which SLURM reaches it, and 10.9.0.1 on a second network.
#include "spank_plugin/launch/step/name_check.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace ddp::launch {
namespace {

using Addresses = std::vector<std::string>;

struct Case {
  std::string title;
  Addresses own;        // of the node that asks
  NameLookup lookup;    // of node1
  Addresses addresses;  // of the name node1
  Addresses another;    // of the name of another node
  std::string problem;
  bool is_translated = false;  // this node does not have SLURM's address of it
};

// Routes: 10.9.0.0/16 by the second network if the node has it, the rest by the first address, but
// 203.0.113.0/24 by none.
std::string problem_of(const Case& c) {
  const auto source = [&c](const std::string& to) -> std::optional<std::string> {
    if (to.starts_with("203.")) return std::nullopt;
    return to.starts_with("10.9.") ? c.own.back() : c.own.front();
  };
  const auto is_own = [&c](const std::string& address) {
    return std::find(c.own.begin(), c.own.end(), address) != c.own.end();
  };
  return why_not_name(
      {"node1", c.lookup, c.addresses, {"10.0.0.1"}},
      {is_own, source, [&c] { return !c.is_translated; }, [&c] { return c.another; }});
}

constexpr auto kUsable = NameLookup::usable;

TEST(NameCheck, DecidesByTheAddressesOfTheNodeAndOfSlurm) {
  const Addresses peer = {"10.0.0.2"};
  const Addresses leader = {"10.0.0.1", "10.9.0.1"};
  const Addresses homed_twice = {"10.0.0.2", "10.9.0.2"};
  const std::vector<Case> cases = {
      {"right", peer, kUsable, {"10.9.0.1", "10.0.0.1"}, {}, ""},
      {"unknown", peer, NameLookup::unknown_name, {}, {}, "is unknown to the name service"},
      {"no answer", peer, NameLookup::timed_out, {}, {}, "got no answer from the name service"},
      {"loopback of a peer",
       peer,
       NameLookup::only_local,
       {},
       {},
       "resolves to a loopback or link-local address only"},
      {"loopback of the leader", leader, NameLookup::only_local, {}, {}, ""},
      {"the peer itself",
       peer,
       kUsable,
       peer,
       {},
       "resolves to 10.0.0.2, which is an address of this node"},
      {"the leader's other address", leader, kUsable, {"10.9.0.1"}, {}, ""},
      {"outdated, on the leader",
       leader,
       kUsable,
       {"10.0.0.7"},
       {},
       "resolves to 10.0.0.7, which is not an address of this node"},
      {"outdated, on a peer",
       peer,
       kUsable,
       {"10.0.0.7"},
       {},
       "resolves to 10.0.0.7, where SLURM does not reach that node"},
      {"no route",
       homed_twice,
       kUsable,
       {"203.0.113.1"},
       {},
       "resolves to 203.0.113.1, where SLURM does not reach that node"},
      {"the fast network", homed_twice, kUsable, {"10.9.0.1"}, {"10.9.0.3"}, ""},
      {"any name on the fast network",
       homed_twice,
       kUsable,
       {"10.9.0.5"},
       {"10.9.0.5"},
       "resolves to 10.9.0.5, as another node does"},
      {"private, where SLURM's is public", peer, kUsable, {"10.0.0.7"}, {"10.0.0.7"}, "", true},
      {"unknown, where SLURM's is public",
       peer,
       NameLookup::unknown_name,
       {},
       {},
       "is unknown to the name service",
       true},
      {"not looked up", peer, NameLookup::not_done, {}, {}, ""}};
  for (const auto& c : cases) {
    EXPECT_EQ(problem_of(c), c.problem.empty() ? "" : "node1 " + c.problem) << c.title;
  }
}

TEST(NameCheck, NeedsSlurmsAddress) {
  EXPECT_EQ(why_not_name({"node1", NameLookup::unknown_name, {}, {}}, {}), "");
}

}  // namespace
}  // namespace ddp::launch
