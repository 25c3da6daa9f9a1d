// SPDX-License-Identifier: Apache-2.0
// Warnings about NVLink between nodes, given only if the GPUs have it but it cannot be used.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/fabric/machine.h"
#include "tests/unit/fabric/node_values.h"

namespace ddp::fabric {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

Node gb200(const std::string& channels) {
  std::string text = test::machine_text("gb200");
  const std::string channel = "dev/nvidia-caps-imex-channels/channel0 = ";
  text.replace(text.find(channel), channel.size(), channels);
  return test::Machine(text).read();
}

Plan plan_for(const Node& node, std::map<std::string, std::string> user = {}) {
  return make_plan(node, test::two_nodes("10.1.0.70"), test::variables(std::move(user)));
}

TEST(NvlinkDomain, NoWarningWithAChannelOrWithoutNvlinkBetweenNodes) {
  const Plan plan = plan_for(gb200("dev/nvidia-caps-imex-channels/channel7 = "));
  EXPECT_THAT(plan.warnings, Not(Contains(HasSubstr("IMEX"))));
  EXPECT_THAT(plan.notes, Contains(HasSubstr("may open an IMEX channel")));
  Node node = gb200("");
  for (Gpu& gpu : node.gpus) gpu.model = "NVIDIA H100 80GB HBM3";
  EXPECT_THAT(plan_for(node).warnings, Not(Contains(HasSubstr("IMEX"))));
}

TEST(NvlinkDomain, MissingChannelGivesAWarning) {
  EXPECT_THAT(plan_for(gb200("")).warnings,
              Contains(AllOf(HasSubstr("no IMEX channel in /dev/nvidia-caps-imex-channels"),
                             HasSubstr("'NVIDIA GB200'"))));
  EXPECT_THAT(plan_for(gb200("dev/nvidia-caps-imex-channels/")).warnings,
              Contains(HasSubstr("no IMEX channel")));
  Node node = gb200("dev/nvidia-caps-imex-channels/channel0 = ");
  node.can_use_imex = false;  // the tests may run as root, which may open everything
  EXPECT_THAT(plan_for(node).warnings,
              Contains(HasSubstr("cannot open any of the 1 IMEX channels")));
}

TEST(NvlinkDomain, NeedsNoChannelIfTurnedOff) {
  for (const auto* const name : {"NCCL_MNNVL_ENABLE", "NCCL_CUMEM_ENABLE"}) {
    EXPECT_THAT(plan_for(gb200(""), {{name, "0"}}).warnings, Not(Contains(HasSubstr("IMEX"))));
  }
}

TEST(NvlinkDomain, NeedsNoChannelOnOneNode) {
  const Plan plan = make_plan(gb200(""), Request(), {});
  EXPECT_THAT(plan.warnings, Not(Contains(HasSubstr("IMEX"))));
}

}  // namespace
}  // namespace ddp::fabric
