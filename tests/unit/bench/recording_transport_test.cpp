// SPDX-License-Identifier: Apache-2.0
// The recording transport records the messages of a schedule without changing the schedule.
#include "bench/recording_transport.h"

#include <gtest/gtest.h>

#include <array>

#include "ddp_runtime/comm/transport/in_process_transport.h"

namespace ddp::bench {
namespace {

TEST(RecordingTransport, RecordsBothEndsOfEveryMessage) {
  auto transports = comm::make_in_process_transports(2);
  RecordingTransport left(std::move(transports[0]));
  RecordingTransport right(std::move(transports[1]));
  const std::array<std::byte, 3> out{std::byte{1}, std::byte{2}, std::byte{3}};
  std::array<std::byte, 3> in{};
  for (int i = 0; i < 2; ++i) {
    const auto receive = right.post_receive(in, 0, i);
    const auto send = left.post_send(out, 1, i);
    while (!left.poll(send)) left.idle(0);
    while (!right.poll(receive)) right.idle(0);
  }
  EXPECT_EQ(in, out);
  ASSERT_EQ(left.messages().size(), 2U);
  ASSERT_EQ(right.messages().size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    const auto& sent = left.messages()[i];
    const auto& received = right.messages()[i];
    EXPECT_TRUE(sent.sent);
    EXPECT_EQ(sent.peer, 1);
    EXPECT_EQ(sent.bytes, 3U);
    EXPECT_FALSE(received.sent);
    EXPECT_EQ(received.peer, 0);
    EXPECT_GT(received.completed, sent.posted);
  }
  EXPECT_GT(left.messages()[1].posted, left.messages()[0].completed);
  left.forget();
  EXPECT_TRUE(left.messages().empty());
}

}  // namespace
}  // namespace ddp::bench
