// SPDX-License-Identifier: Apache-2.0
// Interfaces that are candidates for a job's traffic, and interfaces that are traps.
#include "spank_plugin/fabric/choice/candidate.h"

#include <gtest/gtest.h>

#include <ostream>

namespace ddp::fabric {
namespace {

struct Kind {
  std::string name;
  InterfaceKind kind = InterfaceKind::physical;
  bool is_candidate = false;
  bool is_trap = false;
};

void PrintTo(const Kind& kind, std::ostream* out) {
  *out << kind.name;
}

class Candidate : public testing::TestWithParam<Kind> {};

TEST_P(Candidate, DependsOnKindAndName) {
  NetworkInterface interface;
  interface.name = GetParam().name;
  interface.kind = GetParam().kind;
  interface.up = true;
  interface.running = true;
  EXPECT_EQ(is_candidate(interface), GetParam().is_candidate);
  EXPECT_EQ(is_trap(interface), GetParam().is_trap);
  interface.running = false;  // no link
  EXPECT_FALSE(is_candidate(interface));
  interface.up = false;
  EXPECT_FALSE(is_trap(interface));
}

INSTANTIATE_TEST_SUITE_P(Table, Candidate,
                         testing::Values(Kind{"lo", InterfaceKind::loopback, false, false},
                                         Kind{"eth0", InterfaceKind::physical, true, false},
                                         Kind{"ib0", InterfaceKind::ipoib, true, false},
                                         Kind{"bond0", InterfaceKind::bond, true, false},
                                         Kind{"bond0.7", InterfaceKind::vlan, true, false},
                                         Kind{"br0", InterfaceKind::bridge, false, true},
                                         Kind{"veth1", InterfaceKind::veth, false, true},
                                         Kind{"tun0", InterfaceKind::tun, false, true},
                                         Kind{"wg0", InterfaceKind::tunnel, false, true},
                                         Kind{"mac0", InterfaceKind::macvlan, false, true},
                                         Kind{"dummy0", InterfaceKind::other, false, true},
                                         // Only the name decides, because virtual machines show
                                         // their hosts' networks as physical.
                                         Kind{"docker0", InterfaceKind::physical, false, true},
                                         Kind{"cali12ab", InterfaceKind::physical, false, true},
                                         Kind{"cni0", InterfaceKind::physical, false, true},
                                         Kind{"tunl0", InterfaceKind::physical, false, true},
                                         Kind{"br-5f2c1a9b", InterfaceKind::physical, false, true},
                                         Kind{"virbr0-nic", InterfaceKind::physical, false, true}));

TEST(CandidateRule, ExcludesWirelessAndBondMembers) {
  NetworkInterface interface;
  interface.name = "eth0";
  interface.kind = InterfaceKind::physical;
  interface.up = true;
  interface.running = true;
  interface.master = "bond0";
  EXPECT_FALSE(is_candidate(interface));
  interface.master.clear();
  EXPECT_TRUE(is_candidate(interface));
  interface.wireless = true;
  EXPECT_FALSE(is_candidate(interface));
  EXPECT_TRUE(is_trap(interface));
}

}  // namespace
}  // namespace ddp::fabric
