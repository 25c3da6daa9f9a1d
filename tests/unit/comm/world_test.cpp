// SPDX-License-Identifier: Apache-2.0
// Tests how a program in a world of one rank exits.
#include "ddp_runtime/comm/world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <string>

#include "base/descriptor_limit.h"

namespace ddp::comm {
namespace {

using testing::HasSubstr;

std::string said_by(const std::function<void(World&)>& body) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(run("program", {}, body), 1);
  return testing::internal::GetCapturedStderr();
}

TEST(World, ReportsAnyException) {
  EXPECT_THAT(said_by([](World&) { throw 42; }), HasSubstr("program: the program threw a value of "
                                                           "type int, which is not a "));
  EXPECT_THAT(said_by([](World&) { throw std::runtime_error("no more coffee"); }),
              HasSubstr("program: no more coffee"));
}

TEST(World, ReturnsTheExitCodeOfTheBodyUnlessItFails) {
  EXPECT_EQ(run("program", {}, [](World&) { return 75; }), 75);
  const auto fails = [](World& world) -> int {
    if (world.size() == 1) throw std::runtime_error("no more coffee");
    return 75;
  };
  testing::internal::CaptureStderr();
  EXPECT_EQ(run("program", {}, fails), 1);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("no more coffee"));
}

TEST(World, DescriptorLimitIsRaised) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit small{std::min<rlim_t>(256, limit.rlim_max), limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &small), 0);
  raise_descriptor_limit();
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(limit.rlim_cur, std::min<rlim_t>(limit.rlim_max, rlim_t{1} << 20));
}

}  // namespace
}  // namespace ddp::comm
