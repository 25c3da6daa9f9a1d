// SPDX-License-Identifier: Apache-2.0
// Tests what all_to_all refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "ddp_runtime/comm/group/parts.h"
#include "tests/unit/comm/ranks.h"
#include "tests/unit/error_of.h"

namespace ddp::comm {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using namespace std::chrono_literals;

TEST(AllToAll, RefusesSizesThatDoNotFit) {
  std::vector<float> values(6);
  std::vector<double> others(6);
  const Buffer six = buffer_of(std::span(values));
  const auto error = [&](const Buffer& input, const Buffer& output, const PartSizes& sizes) {
    return error_of([&] { find_parts(input, output, sizes, 0, 2); });
  };
  EXPECT_EQ(error(six, six, {}), "");
  EXPECT_EQ(error(six, six, {{2, 4}, {2, 4}}), "");
  EXPECT_EQ(error(six, six.slice(0, 2), {{2, 4}, {2, 0}}), "");
  EXPECT_THAT(error(six, buffer_of(std::span(others)), {}), HasSubstr("one type"));
  EXPECT_THAT(error(six.slice(0, 5), six.slice(0, 5), {}), HasSubstr("a multiple of size()"));
  EXPECT_THAT(error(six, six, {{6}, {3, 3}}), HasSubstr("one part per rank"));
  EXPECT_THAT(error(six, six, {{3, 2}, {3, 3}}), HasSubstr("add up"));
  EXPECT_THAT(error(six, six, {{2, 4}, {3, 3}}), HasSubstr("a rank for itself"));
}

TEST(AllToAll, NamesTheRankWithAnotherSize) {
  const auto text = error_of([] {
    test::run_ranks(
        3,
        [](Group& group) {
          PartSizes sizes{{4, 4, 4}, {4, 4, 4}};
          if (group.rank() == 1) sizes.input[2] = 9;  // more than rank 2 expects
          std::vector<std::int32_t> input(group.rank() == 1 ? 17 : 12);
          std::vector<std::int32_t> output(12);
          group.all_to_all(buffer_of(std::span(input)), buffer_of(std::span(output)), sizes).wait();
        },
        {.limits = {.timeout = 5s}});
  });
  EXPECT_THAT(text, ContainsRegex("rank 2 expected a message of 16 bytes from rank 1"));
}

}  // namespace
}  // namespace ddp::comm
