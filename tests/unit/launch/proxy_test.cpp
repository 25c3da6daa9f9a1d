// SPDX-License-Identifier: Apache-2.0
// Exceptions to a site's proxy settings, so that gRPC in JAX and TensorFlow reaches the other nodes
// directly.
#include <gtest/gtest.h>

#include "fake_environment.h"
#include "spank_plugin/launch/plan/proxy_exceptions.h"

namespace ddp::launch {
namespace {

std::string exceptions(const Variables& more, const std::string& spec = "") {
  const Plan plan = slurm_plan(merged(two_by_two(), more), asked(spec));
  const PlanEntry* entry = plan.find("no_grpc_proxy");
  if (entry == nullptr) return "not set";
  return (entry->kept ? "kept " : "") + entry->value;
}

TEST(ProxyExceptions, ListTheHostsThatGrpcMustReach) {
  const Variables proxy = {{"http_proxy", "http://proxy:3128"}};
  const auto with = [&](const Variables& more, const char* spec = "") {
    return exceptions(merged(proxy, more), spec);
  };
  EXPECT_EQ(exceptions({}), "not set") << "no proxy";
  EXPECT_EQ(with({}), "p1");
  EXPECT_EQ(exceptions({{"grpc_proxy", "proxy:1"}}), "p1");
  EXPECT_EQ(with({{"no_proxy", "localhost,.site.example"}}), "localhost,.site.example,p1");
  EXPECT_EQ(with({{"no_proxy", "localhost, P1 "}}), "not set") << "no_proxy already has it";
  EXPECT_EQ(with({{"no_proxy", ".site.example"}, {"MASTER_ADDR", "p1.site.example"}}), "not set");
  EXPECT_EQ(with({{"MASTER_ADDR", "fd00::1"}}), "fd00::1");
  EXPECT_EQ(with({{"no_grpc_proxy", "mine"}}), "kept mine");
  EXPECT_EQ(with({}, "tf_config"), "p1,p2") << "TensorFlow's workers reach each other";
  EXPECT_EQ(with({{"SLURM_STEP_NUM_NODES", "1"},
                  {"SLURM_STEP_NODELIST", "p1"},
                  {"SLURM_STEP_TASKS_PER_NODE", "4"},
                  {"SLURM_NODEID", "0"},
                  {"SLURM_GTIDS", "0,1,2,3"},
                  {"SLURM_LOCALID", "2"},
                  {"SLURMD_NODENAME", "p1"}}),
            "not set")
      << "one node";
  EXPECT_EQ(with({{"no_proxy", std::string(127'000, 'x')}}), "not set") << "no room for more";
}

TEST(ProxyExceptions, OfAnEnclosingStepAreReplaced) {
  EXPECT_EQ(exceptions({{"http_proxy", "http://proxy:3128"},
                        {"no_grpc_proxy", "n9"},
                        {variable::kMarker, "99.0:no_grpc_proxy=" + hash_for_marker("n9") + ":"}}),
            "p1");
}

TEST(ProxyExceptions, MatchBySuffix) {
  EXPECT_TRUE(is_proxy_exception("n1.site", "a,.SITE"));
  EXPECT_TRUE(is_proxy_exception("n1", "n1"));
  EXPECT_FALSE(is_proxy_exception("n1", "cn1"));
  EXPECT_FALSE(is_proxy_exception("n1", ""));
  EXPECT_FALSE(is_proxy_exception("n1", ",, ,"));
  EXPECT_FALSE(is_proxy_exception("", "a"));
}

}  // namespace
}  // namespace ddp::launch
