// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/guard/guard_options.h"

#include <gtest/gtest.h>

namespace ddp::guard {
namespace {

std::vector<std::string_view> views(const std::vector<std::string>& words) {
  return {words.begin(), words.end()};
}

const GuardArguments kArguments{4711,
                                9,
                                {5,
                                 8,
                                 1,
                                 4,
                                 true,
                                 false,
                                 std::chrono::seconds(90),
                                 true,
                                 false,
                                 "node2",
                                 7,
                                 {{"10.0.0.1", "fd00::1"}, {4711, 4712}}}};

TEST(GuardOptions, SurviveTheArgumentsOfTheProgram) {
  auto parsed = parse_arguments(views(format_arguments(kArguments)));
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->child, 4711);
  EXPECT_EQ(parsed->errors, 9);
  EXPECT_EQ(parsed->options.rank, 5U);
  EXPECT_EQ(parsed->options.task_count, 8U);
  EXPECT_EQ(parsed->options.local_rank, 1U);
  EXPECT_EQ(parsed->options.local_task_count, 4U);
  EXPECT_TRUE(parsed->options.is_agent);
  EXPECT_FALSE(parsed->options.launcher_reaches_all);
  EXPECT_EQ(parsed->options.stall, std::chrono::seconds(90));
  EXPECT_TRUE(parsed->options.ends_on_failure);
  EXPECT_FALSE(parsed->options.ends_on_stall);
  EXPECT_EQ(parsed->options.node, "node2");
  EXPECT_EQ(parsed->options.node_record, 7);
  EXPECT_EQ(parsed->options.hub.addresses, kArguments.options.hub.addresses);
  EXPECT_EQ(parsed->options.hub.ports, kArguments.options.hub.ports);
  GuardArguments other = kArguments;
  other.errors = -1;
  other.options.node_record = -1;
  other.options.launcher_reaches_all = true;
  other.options.is_agent = false;
  other.options.ends_on_failure = false;
  other.options.ends_on_stall = true;
  other.options.hub = {};
  parsed = parse_arguments(views(format_arguments(other)));
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->errors, -1);
  EXPECT_EQ(parsed->options.node_record, -1);
  EXPECT_TRUE(parsed->options.launcher_reaches_all);
  EXPECT_FALSE(parsed->options.is_agent);
  EXPECT_FALSE(parsed->options.ends_on_failure);
  EXPECT_TRUE(parsed->options.ends_on_stall);
  EXPECT_TRUE(parsed->options.hub.addresses.empty());
  EXPECT_TRUE(parsed->options.hub.ports.empty());
}

TEST(GuardOptions, RefuseArgumentsThatAreNotTheirs) {
  const auto words = format_arguments(kArguments);
  for (const std::size_t place : {0U, 1U, 3U, 11U, 12U}) {
    auto wrong = words;
    wrong[place] = "x";
    EXPECT_FALSE(parse_arguments(views(wrong))) << place;
  }
  for (const std::string child : {"-", "0", "1", "-1"}) {
    auto wrong = words;
    wrong[0] = child;  // kill(2) would reach other processes
    EXPECT_FALSE(parse_arguments(views(wrong))) << child;
  }
  auto short_one = words;
  short_one.pop_back();
  EXPECT_FALSE(parse_arguments(views(short_one)));
  EXPECT_FALSE(parse_arguments({}));
}

TEST(GuardOptions, NameTheTaskAndItsPeers) {
  GuardOptions options;
  options.rank = 5;
  EXPECT_EQ(options.who(), "rank 5");
  EXPECT_EQ(options.peers(), Peers::none);
  options.task_count = 8;
  EXPECT_EQ(options.peers(), Peers::other_ranks);
  options.is_agent = true;
  EXPECT_EQ(options.who(), "torchrun's agent 5");
  EXPECT_EQ(options.peers(), Peers::own_workers);
}

}  // namespace
}  // namespace ddp::guard
