// SPDX-License-Identifier: Apache-2.0
// Tests the findings about NVLinks and access between GPUs, with a fake of NVIDIA's library. None
// of these tests uses a real GPU.
#include <gtest/gtest.h>

#include <string>
#include <variant>

#include "ddp_runtime/check/node/gpu/gpu_judgment.h"
#include "tests/unit/check/node/gpu/fake_gpus.h"

namespace ddp::check {
namespace {

// "severity device value: evidence; .." of the findings that are not OK.
std::string bad_links(const std::vector<Finding>& findings) {
  std::string text;
  for (const auto& finding : findings) {
    if (finding.severity == Severity::ok) continue;
    const auto* value = std::get_if<std::string>(&finding.value);
    text += (text.empty() ? "" : "; ") + std::string(name_of(finding.severity)) + " " +
            finding.check + " " + finding.device + (value == nullptr ? "" : " " + *value) + ": " +
            finding.evidence;
  }
  return text;
}

constexpr GpuCase kLinkCases[] = {
    {"", ""},
    {"replays=99", ""},
    {"crc=99", ""},
    {"links=2", "CRITICAL gpu.nvlink 0000:02:00.0: 2 links are down: 2, 3"},
    {"links=2 gpus=3", "CRITICAL gpu.nvlink 0000:02:00.0: 2 links are down: 2, 3"},
    {"links=0 gpus=3", ""},          // a bridge between the two others
    {"links=2 gpus=3 model=7", ""},  // another model
    {"links=0 gpus=3 switch=1 mig=1", ""},
    {"links=0 gpus=3 switch=1", "CRITICAL gpu.nvlink 0000:02:00.0: 4 links are down: 0, 1, 2, 3"},
    {"links=0 gpus=3 sxm=1", "CRITICAL gpu.nvlink 0000:02:00.0: 4 links are down: 0, 1, 2, 3"},
    {"replays=100",
     "WARNING gpu.nvlink_errors 0000:02:00.0: link 1: 0 recoveries, 100 "
     "replays, 0 CRC errors"},
    {"replays=50 crc=50",
     "WARNING gpu.nvlink_errors 0000:02:00.0: link 1: 0 "
     "recoveries, 50 replays, 50 CRC errors"},
    {"recoveries=1",
     "WARNING gpu.nvlink_errors 0000:02:00.0: link 1: 1 recoveries, 0 "
     "replays, 0 CRC errors"},
    {"recoveries=1 new_links=1", ""}};

constexpr GpuCase kPeerCases[] = {
    {"gpus=4", ""},
    {"gpus=4 acs=1", ""},
    {"gpus=8 sockets=1", ""},
    {"gpus=4 apart=23",
     "WARNING gpu.peers 0000:02:00.0-0000:03:00.0 no access to each other's memory: the "
     "topology does not support it; WARNING gpu.peers 0000:02:00.0-0000:03:00.0 no "
     "NVLink: the topology does not support it"},
    {"gpus=4 alone=3",
     "WARNING gpu.peers 0000:03:00.0 no access to each other's memory: with any other "
     "GPU: the topology does not support it; WARNING gpu.peers 0000:03:00.0 no NVLink: "
     "with any other GPU: the topology does not support it"},
    {"gpus=4 unlinked=1",
     "WARNING gpu.peers 0000:01:00.0 no NVLink: with any other GPU: the topology does "
     "not support it"},
    {"gpus=4 apart=23 no_topology=1", ""},  // pairs that cannot be compared
    {"gpus=3 alone=3", ""},                 // perhaps a bridge between two of three
    {"gpus=4 alone=2 mig=1", ""},
    {"gpus=1", ""}};

TEST(GpuLinks, EachFaultHasItsFindings) {
  for (const auto& [scenario, findings] : kLinkCases) {
    EXPECT_EQ(bad_links(evaluate_links(told(scenario))), findings) << scenario;
  }
}

TEST(GpuLinks, ACardWithoutABridgeSaysSo) {
  for (const auto& finding : evaluate_links(told("links=0 gpus=3"))) {
    const bool without = finding.check == "gpu.nvlink" && finding.device == "0000:02:00.0";
    EXPECT_EQ(finding.evidence,
              without ? "none of its links is up, as on a card without a bridge" : "");
  }
}

TEST(GpuPeers, EachFaultHasItsFindings) {
  for (const auto& [scenario, findings] : kPeerCases) {
    EXPECT_EQ(bad_links(evaluate_peers(told(scenario))), findings) << scenario;
  }
}

TEST(GpuPeers, PairsWithAccessAreCounted) {
  const auto findings = evaluate_peers(told("gpus=4 apart=23"));
  ASSERT_FALSE(findings.empty());
  EXPECT_EQ(findings[0].value, Value(5.0));
  EXPECT_TRUE(evaluate_peers(told("gpus=4 peer_error=3")).empty());
}

}  // namespace
}  // namespace ddp::check
