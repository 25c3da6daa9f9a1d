// SPDX-License-Identifier: Apache-2.0
// Copies to any address, from any address and of any length, leaving adjacent bytes unchanged.
#include "hdf5_ckpt/io/streaming_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace ddp::ckpt {
namespace {

TEST(StreamingCopy, CopiesAllBytesAndNoOthers) {
  constexpr std::size_t kRoom = 80 << 10;
  constexpr std::byte kUntouched{0xee};
  std::mt19937 random(3);
  std::vector<std::byte> from(kRoom);
  std::generate(from.begin(), from.end(), [&] { return static_cast<std::byte>(random()); });
  for (const std::size_t size : {0, 1, 63, 16383, 16384, 16385, 16447, 65536, 70001})
    for (const std::size_t source : {0, 1, 16})
      for (const std::size_t target : {0, 1, 15, 16, 48, 63, 64}) {
        std::vector<std::byte> to(kRoom, kUntouched);
        streaming_copy(to.data() + target, std::span(from).subspan(source, size));
        std::vector<std::byte> expected(kRoom, kUntouched);
        std::copy_n(from.data() + source, size, expected.data() + target);
        ASSERT_EQ(to, expected) << size << " bytes from " << source << " to " << target;
      }
}

}  // namespace
}  // namespace ddp::ckpt
