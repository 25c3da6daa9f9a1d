// SPDX-License-Identifier: Apache-2.0
// Tests the findings about NVLinks and access between GPUs, with a fake of NVIDIA's library. None
// of these tests uses a real GPU.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <variant>

#include "ddp_runtime/check/node/gpu_judgment.h"
#include "ddp_runtime/check/node/nvml.h"

namespace ddp::check {
namespace {

NvmlFacts read_from_fake(const std::string& scenario) {
  setenv("FAKE_NVML", scenario.c_str(), 1);
  return nvml_facts_from(to_text(read_nvml(SLURM_DDP_FAKE_NVML)));
}

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

struct LinkCase {
  const char* scenario;
  const char* findings;
};

void PrintTo(const LinkCase& c, std::ostream* out) {
  *out << c.scenario;
}

class LinkTable : public testing::TestWithParam<LinkCase> {};

TEST_P(LinkTable, GivesTheExpectedFindings) {
  EXPECT_EQ(bad_links(evaluate_links(read_from_fake(GetParam().scenario))), GetParam().findings);
}

INSTANTIATE_TEST_SUITE_P(
    Table, LinkTable,
    testing::Values(LinkCase{"", ""}, LinkCase{"replays=99", ""}, LinkCase{"crc=99", ""},
                    LinkCase{"links=2", "CRITICAL gpu.nvlink 0000:02:00.0: 2 links are down: 2, 3"},
                    LinkCase{"replays=100",
                             "WARNING gpu.nvlink_errors 0000:02:00.0: link 1: 0 recoveries, 100 "
                             "replays, 0 CRC errors"},
                    LinkCase{"replays=50 crc=50",
                             "WARNING gpu.nvlink_errors 0000:02:00.0: link 1: 0 "
                             "recoveries, 50 replays, 50 CRC errors"},
                    LinkCase{"recoveries=1",
                             "WARNING gpu.nvlink_errors 0000:02:00.0: link 1: 1 recoveries, 0 "
                             "replays, 0 CRC errors"},
                    LinkCase{"recoveries=1 new_links=1", ""}));

class PeerTable : public testing::TestWithParam<LinkCase> {};

TEST_P(PeerTable, GivesTheExpectedFindings) {
  EXPECT_EQ(bad_links(evaluate_peers(read_from_fake(GetParam().scenario))), GetParam().findings);
}

INSTANTIATE_TEST_SUITE_P(
    Table, PeerTable,
    testing::Values(
        LinkCase{"gpus=4", ""}, LinkCase{"gpus=4 acs=1", ""}, LinkCase{"gpus=8 sockets=1", ""},
        LinkCase{
            "gpus=4 apart=23",
            "WARNING gpu.peers 0000:02:00.0-0000:03:00.0 no access to each other's memory: the "
            "topology does not support it; WARNING gpu.peers 0000:02:00.0-0000:03:00.0 no "
            "NVLink: the topology does not support it"},
        LinkCase{"gpus=4 alone=3",
                 "WARNING gpu.peers 0000:03:00.0 no access to each other's memory: with any other "
                 "GPU: the topology does not support it; WARNING gpu.peers 0000:03:00.0 no NVLink: "
                 "with any other GPU: the topology does not support it"},
        LinkCase{"gpus=4 unlinked=1",
                 "WARNING gpu.peers 0000:01:00.0 no NVLink: with any other GPU: the topology does "
                 "not support it"},
        LinkCase{"gpus=4 apart=23 no_topology=1", ""},  // pairs that cannot be compared
        LinkCase{"gpus=3 alone=3", ""},                 // perhaps a bridge between two of three
        LinkCase{"gpus=4 alone=2 mig=1", ""}, LinkCase{"gpus=1", ""}));

TEST(GpuPeers, PairsWithAccessAreCounted) {
  const auto findings = evaluate_peers(read_from_fake("gpus=4 apart=23"));
  ASSERT_FALSE(findings.empty());
  EXPECT_EQ(findings[0].value, Value(5.0));
  EXPECT_TRUE(evaluate_peers(read_from_fake("gpus=4 peer_error=3")).empty());
}

}  // namespace
}  // namespace ddp::check
