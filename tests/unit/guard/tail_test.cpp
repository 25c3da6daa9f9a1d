// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/guard/tail.h"

#include <gtest/gtest.h>

namespace ddp::guard {
namespace {

TEST(Tail, KeepsTheLastBytesOfPiecesOfAnySize) {
  std::string all;
  for (int i = 0; i < 300; ++i) all += std::to_string(i) + ",";
  for (const std::size_t piece : {1U, 3U, 9U, 10U, 11U, 25U, 2000U}) {
    Tail tail(10);
    for (std::size_t at = 0; at < all.size(); at += piece) {
      const std::string_view seen = std::string_view(all).substr(0, at + piece);
      tail.add(std::string_view(all).substr(at, piece));
      EXPECT_EQ(tail.view(), seen.substr(seen.size() - std::min<std::size_t>(seen.size(), 10)));
    }
  }
}

TEST(Tail, IsEmptyAtFirst) {
  EXPECT_EQ(Tail(10).view(), "");
}

}  // namespace
}  // namespace ddp::guard
