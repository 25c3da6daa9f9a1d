// SPDX-License-Identifier: Apache-2.0
// Tests which RDMA port of one node is measured against which of another, and what is reported
// about nodes with other ports than most and about rails that are slow everywhere.
#include "ddp_runtime/check/net/rdma_rails.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "ddp_runtime/check/findings/verdict.h"
#include "ddp_runtime/check/net/rail_speeds.h"
#include "tests/unit/check/complaints.h"

namespace ddp::check {
namespace {

constexpr int kProcessors = 192;

// Ports named m0:1, m1:1, .. at the PCI addresses 0, 1, .. from those numbers.
std::vector<RdmaPort> ports(const std::vector<int>& numbers) {
  std::vector<RdmaPort> list;
  for (const int i : numbers) list.push_back({fmt::format("m{}:1", i), fmt::format("{}", i), 5e10});
  return list;
}

Hello node(const std::string& name, std::vector<RdmaPort> list, int processors = kProcessors) {
  Hello hello;
  hello.node = name;
  hello.rdma_ports = std::move(list);
  hello.processors = processors;
  return hello;
}

std::map<int, Hello> step_of(const std::vector<Hello>& hellos) {
  std::map<int, Hello> present;
  for (const auto& hello : hellos) present.emplace(static_cast<int>(present.size()), hello);
  return present;
}

// "m0:1[n1=m0:1 n2=m0:1] m1:1[..]"
std::string text_of(const RdmaRails& found) {
  std::string text;
  for (const auto& rail : found.rails) {
    std::string members;
    for (const auto& [name, port] : rail.ports) {
      members += (members.empty() ? "" : " ") + name + "=" + port.name;
    }
    text += (text.empty() ? "" : " ") + rail.name + "[" + members + "]";
  }
  return text;
}

TEST(RdmaRails, AreThePortsAtOnePositionOfThePciOrder) {
  const auto found =
      find_rdma_rails(step_of({node("n1", ports({0, 1})), node("n1", ports({0, 1})),  // two tasks
                               node("n2", ports({0, 1})), node("n3", {})}));
  EXPECT_EQ(text_of(found), "m0:1[n1=m0:1 n2=m0:1] m1:1[n1=m1:1 n2=m1:1]");
  EXPECT_EQ(complaints(found.findings), "");
  ASSERT_EQ(found.findings.size(), 1U);
  EXPECT_EQ(line_of(found.findings.front()), "OK verbs.ports: 2 compute ports: m0:1 m1:1");
  EXPECT_TRUE(found.notes.empty());
  EXPECT_TRUE(find_rdma_rails(step_of({node("n1", ports({0}))})).rails.empty());
  EXPECT_TRUE(find_rdma_rails({}).findings.empty());
}

TEST(RdmaRails, OtherNamesAtTheSamePositionAreOnlyNoted) {
  const std::vector<RdmaPort> other{{"x:1", "0", {}}, {"m0:1", "1", {}}};
  const auto found = find_rdma_rails(
      step_of({node("n1", ports({0, 1})), node("n2", other), node("n3", ports({0, 1}))}));
  EXPECT_EQ(text_of(found), "m0:1[n1=m0:1 n2=x:1 n3=m0:1] m1:1[n1=m1:1 n2=m0:1 n3=m1:1]");
  EXPECT_EQ(complaints(found.findings), "");
  EXPECT_EQ(found.notes, (std::vector<std::string>{"compute ports have other names on n2: m0:1 is "
                                                   "x:1, m1:1 is m0:1"}));
}

TEST(RdmaRails, NodesOfAnotherMakeArePairedByPosition) {
  const std::vector<RdmaPort> other{{"a:1", "7", {}}, {"b:1", "8", {}}};
  EXPECT_EQ(text_of(find_rdma_rails(step_of(
                {node("n1", ports({0, 1})), node("n2", other), node("n3", ports({0, 1}))}))),
            "m0:1[n1=m0:1 n2=a:1 n3=m0:1] m1:1[n1=m1:1 n2=b:1 n3=m1:1]");
}

TEST(RdmaRails, NodeThatLostAPortIsNamedAndItsOtherPortsKeepTheirRails) {
  auto hurt = node("n2", ports({0, 2}));
  hurt.rdma_untested = "m1:1: no RoCE v2 address";
  const auto found =
      find_rdma_rails(step_of({node("n1", ports({0, 1, 2})), hurt, node("n3", ports({0, 1, 2}))}));
  EXPECT_EQ(text_of(found),
            "m0:1[n1=m0:1 n2=m0:1 n3=m0:1] m1:1[n1=m1:1 n3=m1:1] m2:1[n1=m2:1 n2=m2:1 n3=m2:1]");
  ASSERT_EQ(found.findings.size(), 1U);
  EXPECT_EQ(line_of(found.findings.front()),
            "CRITICAL n2 verbs.ports: 2 of 3 compute ports, expected 3, as on most nodes: without "
            "m1:1; m1:1: no RoCE v2 address; see `ddp-check node`, ibstat and lspci on this node");
}

TEST(RdmaRails, ManyMissingPortsAreCounted) {
  const auto all = ports({0, 1, 2, 3, 4, 5, 6, 7, 8});
  const auto findings =
      find_rdma_rails(step_of({node("n1", all), node("n2", ports({8})), node("n3", all)})).findings;
  EXPECT_EQ(findings.front().evidence, "without m0:1 m1:1 m2:1 m3:1 and 4 more");
}

TEST(RdmaRails, NodesThatLostDifferentPortsAreAllNamed) {
  const auto first = node("n1", ports({0, 1, 3}));
  const auto second = node("n2", ports({0, 2, 3}));
  const auto two = find_rdma_rails(step_of({first, second}));
  EXPECT_EQ(text_of(two),
            "m0:1[n1=m0:1 n2=m0:1] m1:1[n1=m1:1] m2:1[n2=m2:1] m3:1[n1=m3:1 n2=m3:1]");
  EXPECT_EQ(complaints(two.findings), "verbs.ports n1=WARNING, verbs.ports n2=WARNING");
  EXPECT_EQ(two.findings.front().expected, "4, because other nodes have these");
  const auto three = find_rdma_rails(step_of({first, second, node("n3", ports({0, 1, 2, 3}))}));
  EXPECT_EQ(complaints(three.findings), "verbs.ports n1=WARNING, verbs.ports n2=WARNING");
  EXPECT_TRUE(three.notes.empty());
}

TEST(RdmaRails, PortInAnotherSlotIsOnTheSameRail) {
  const auto found = find_rdma_rails(
      step_of({node("n1", ports({0, 1})), node("n2", {{"m0:1", "0", {}}, {"m1:1", "9", {}}})}));
  EXPECT_EQ(text_of(found), "m0:1[n1=m0:1 n2=m0:1] m1:1[n1=m1:1 n2=m1:1]");
  EXPECT_EQ(complaints(found.findings), "");
}

TEST(RdmaRails, TwoPortsOfOneDeviceAreTwoRails) {
  const std::vector<RdmaPort> both{{"m0:1", "0", {}}, {"m0:2", "0", {}}};
  const auto found = find_rdma_rails(
      step_of({node("n1", both), node("n2", both), node("n3", {{"m0:2", "0", {}}})}));
  EXPECT_EQ(text_of(found), "m0:1[n1=m0:1 n2=m0:1] m0:2[n1=m0:2 n2=m0:2 n3=m0:2]");
}

TEST(RdmaRails, PortsWithoutAddressesArePairedByName) {
  const std::vector<RdmaPort> few{{"m2:1", "", {}}};
  const std::vector<RdmaPort> all{{"m1:1", "", {}}, {"m2:1", "", {}}};
  EXPECT_EQ(text_of(find_rdma_rails(step_of({node("n1", all), node("n2", few), node("n3", all)}))),
            "m1:1[n1=m1:1 n3=m1:1] m2:1[n1=m2:1 n2=m2:1 n3=m2:1]");
}

TEST(RdmaRails, AnotherKindOfNodeAndAMissingMajorityAreWarnings) {
  const auto all = ports({0, 1, 2, 3});
  EXPECT_EQ(complaints(find_rdma_rails(step_of({node("n1", all), node("n2", all),
                                                node("n3", ports({0}), kProcessors / 2)}))
                           .findings),
            "verbs.ports n3=WARNING");
  EXPECT_EQ(
      complaints(find_rdma_rails(step_of({node("n1", ports({0})), node("n2", all)})).findings),
      "verbs.ports n1=WARNING");
}

TEST(RdmaRails, ManyNodesWithAsFewPortsMayBeAnotherKindOfNode) {
  std::vector<Hello> hellos;
  for (int i = 1; i <= 6; ++i) hellos.push_back(node(fmt::format("a{}", i), ports({0, 1, 2, 3})));
  hellos.push_back(node("b1", ports({0, 1})));
  hellos.push_back(node("b2", ports({0, 1})));
  EXPECT_EQ(complaints(find_rdma_rails(step_of(hellos)).findings),
            "verbs.ports b1=CRITICAL, verbs.ports b2=CRITICAL");
  hellos.push_back(node("b3", ports({0, 1})));
  const auto findings = find_rdma_rails(step_of(hellos)).findings;
  EXPECT_EQ(complaints(findings),
            "verbs.ports b1=WARNING, verbs.ports b2=WARNING, verbs.ports b3=WARNING");
  EXPECT_EQ(findings.front().evidence,
            "without m2:1 m3:1; 3 nodes have as few, so they may be another kind of node");
}

TEST(RdmaRails, NodesThatCannotBePairedAreNotedAndNotesAreFew) {
  std::vector<Hello> hellos;
  for (int i = 1; i <= 9; ++i) hellos.push_back(node(fmt::format("a{}", i), ports({0, 1, 2})));
  for (int i = 1; i <= 7; ++i) hellos.push_back(node(fmt::format("b{}", i), ports({7, 8})));
  hellos.push_back(node("c", ports({0, 1, 2, 3})));
  const auto found = find_rdma_rails(step_of(hellos));
  EXPECT_FALSE(found.rails.front().ports.contains("b1"));
  ASSERT_EQ(found.notes.size(), 5U);
  EXPECT_EQ(found.notes.front(),
            "RDMA was not tested on b1: its compute ports m7:1 m8:1 are none of those that most "
            "nodes have");
  EXPECT_EQ(found.notes.back(), "compute ports of 4 more nodes differ from those of most nodes");
}

// A task may report anything.
TEST(RdmaRails, InvalidPortsDoNoHarm) {
  const std::vector<RdmaPort> twice{{"m0:1", "0", {}}, {"m0:1", "0", {}}, {"", "", {}}};
  const auto found = find_rdma_rails(step_of({node("n1", twice), node("n2", ports({0, 1, 2})),
                                              node("n3", ports({0})), node("n4", twice)}));
  EXPECT_EQ(found.rails.size(), 3U);
}

TEST(RdmaRails, HellosHoldFewAndShortPorts) {
  Hello hello;
  for (int i = 0; i < 100; ++i) {
    hello.rdma_ports.push_back({std::string(1000, 'x'), std::string(1000, 'y'), 5e10});
  }
  hello.rdma_untested = "m0:1: no RoCE v2 address";
  const Hello heard = hello_from(to_message(hello));
  EXPECT_EQ(heard.rdma_ports.size(), kMaxRdmaPorts);
  EXPECT_EQ(heard.rdma_ports.back().name, std::string(kMaxRdmaPortText, 'x'));
  EXPECT_EQ(heard.rdma_ports.back().bus_address, std::string(kMaxRdmaPortText, 'y'));
  EXPECT_EQ(heard.rdma_ports.back().bytes_per_second, 5e10);
  EXPECT_EQ(heard.rdma_untested, hello.rdma_untested);
}

RailSpeed speed(const std::string& rail, std::optional<double> rate, double median, double lowest) {
  return {rail, rate, {3, median, lowest, 0}};
}

TEST(RailSpeeds, ARailThatIsSlowOnAllNodesIsAWarning) {
  EXPECT_EQ(complaints(evaluate_rail_speeds({speed("m0:1", 5e10, 48e9, 47e9),
                                             speed("m1:1", 5e10, 47e9, 47e9),
                                             speed("m2:1", 5e10, 24e9, 23e9)})),
            "verbs.rail m2:1=WARNING");
}

TEST(RailSpeeds, RailsWithOtherRatesAndFewRailsAreNotCompared) {
  EXPECT_EQ(complaints(evaluate_rail_speeds({speed("m0:1", 5e10, 48e9, 47e9),
                                             speed("m1:1", 5e10, 47e9, 47e9),
                                             speed("m2:1", 25e9, 24e9, 23e9)})),
            "");
  EXPECT_EQ(complaints(evaluate_rail_speeds(
                {speed("m0:1", 5e10, 48e9, 47e9), speed("m1:1", 5e10, 24e9, 24e9), {}})),
            "");
}

TEST(RailSpeeds, TheTextNamesThePortsAndTheSlowest) {
  EXPECT_EQ(rail_speeds_text({speed("m0:1", {}, 24.4e9, 24.1e9)}),
            "; RDMA 24.4 GB/s over m0:1 (lowest 24.1)");
  EXPECT_EQ(
      rail_speeds_text(
          {speed("m0:1", {}, 24.4e9, 24.1e9), {"dead:1", {}, {}}, speed("m2:1", {}, 24.4e9, 12e9)}),
      "; RDMA 24.4 GB/s over each of m0:1 m2:1 (lowest 12 over m2:1)");
  EXPECT_EQ(rail_speeds_text({{"dead:1", {}, {}}}), "");
}

TEST(RailSpeeds, ARailHasARateIfAllItsPortsHaveIt) {
  EXPECT_EQ(rate_of({"m0:1", {{"n1", {"m0:1", "", 5e10}}, {"n2", {"m0:1", "", 5e10}}}}), 5e10);
  EXPECT_EQ(rate_of({"m0:1", {{"n1", {"m0:1", "", 5e10}}, {"n2", {"m0:1", "", 25e9}}}}),
            std::nullopt);
  EXPECT_EQ(rate_of({"m0:1", {}}), std::nullopt);
}

}  // namespace
}  // namespace ddp::check
