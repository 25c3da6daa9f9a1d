// SPDX-License-Identifier: Apache-2.0
#include "base/socket.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <cerrno>
#include <chrono>

#include "base/wake_event.h"

namespace ddp {
namespace {

using namespace std::chrono_literals;

int connect_to_own(std::uint16_t port) {
  const AddressList own = find_addresses("127.0.0.1", port, AI_NUMERICHOST);
  const FileDescriptor socket = open_socket(*own);
  return connect_within(socket.get(), *own, Clock::now() + 60s);
}

TEST(Socket, ConnectsToAListener) {
  const Listener listener = open_listener(0);
  ASSERT_TRUE(listener.socket);
  EXPECT_GT(listener.port, 0);
  EXPECT_EQ(connect_to_own(listener.port), 0);
  EXPECT_TRUE(wait_for(listener.socket.get(), POLLIN, Clock::now() + 60s));
}

TEST(Socket, ReportsWhyItCannotConnect) {
  const std::uint16_t port = open_listener(0).port;
  EXPECT_EQ(connect_to_own(port), ECONNREFUSED);
}

TEST(Socket, PortInUseIsNotOpened) {
  const Listener listener = open_listener(0);
  errno = 0;
  EXPECT_FALSE(open_listener(listener.port).socket);
  EXPECT_EQ(errno, EADDRINUSE);
}

TEST(Socket, WaitEndsAtTheDeadline) {
  const Listener listener = open_listener(0);
  EXPECT_FALSE(wait_for(listener.socket.get(), POLLIN, Clock::now() + 20ms));
  EXPECT_FALSE(wait_for(listener.socket.get(), POLLIN, Clock::now() - 1h));
}

TEST(Addresses, AreNumeric) {
  for (const auto* text : {"192.0.2.7", "2001:db8::7"}) {
    EXPECT_EQ(numeric_address(find_addresses(text, 80, AI_NUMERICHOST)->ai_addr), text);
  }
  EXPECT_EQ(numeric_address(find_addresses("::ffff:192.0.2.7", 80, AI_NUMERICHOST)->ai_addr),
            "192.0.2.7");
  EXPECT_EQ(numeric_address(nullptr), "");
  EXPECT_EQ(find_addresses("no number", 80, AI_NUMERICHOST), nullptr);
}

TEST(Deadline, IsRoundedUpToMillisecondsForPoll) {
  EXPECT_EQ(milliseconds_until(Clock::now() - 1h), 0);
  EXPECT_EQ(milliseconds_until(Clock::now() + 48h), 86'400'000);
  EXPECT_GT(milliseconds_until(Clock::now() + 1h), 3'500'000);
}

TEST(WakeEvent, StaysReadableUntilItIsCleared) {
  const WakeEvent event;
  const auto rings = [&event] { return wait_for(event.fd(), POLLIN, Clock::now()); };
  EXPECT_FALSE(rings());
  event.notify();
  event.notify();
  EXPECT_TRUE(rings());
  event.clear();
  EXPECT_FALSE(rings());
}

}  // namespace
}  // namespace ddp
