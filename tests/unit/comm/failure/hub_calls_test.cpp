// SPDX-License-Identifier: Apache-2.0
// Tests the number of system calls that rank 0's end of the error channel makes for each rank. This
// program defines the calls itself, and counts them.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <string>

#include "base/descriptor_limit.h"
#include "tests/unit/comm/failure/channel_peers.h"

namespace {

std::atomic<long> calls = 0;     // calls on connections, and waits
std::atomic<long> reported = 0;  // descriptors passed to a wait or reported by it

}  // namespace

extern "C" {

ssize_t recv(int fd, void* data, size_t size, int flags) {
  ++calls;
  return syscall(SYS_recvfrom, fd, data, size, flags, nullptr, nullptr);
}

ssize_t send(int fd, const void* data, size_t size, int flags) {
  ++calls;
  return syscall(SYS_sendto, fd, data, size, flags, nullptr, 0);
}

int accept4(int fd, sockaddr* address, socklen_t* length, int flags) {
  ++calls;
  return static_cast<int>(syscall(SYS_accept4, fd, address, length, flags));
}

int epoll_ctl(int queue, int operation, int fd, epoll_event* event) noexcept {
  ++calls;
  return static_cast<int>(syscall(SYS_epoll_ctl, queue, operation, fd, event));
}

int epoll_wait(int queue, epoll_event* events, int most, int milliseconds) {
  ++calls;
  const auto count = syscall(SYS_epoll_pwait, queue, events, most, milliseconds, nullptr, 0);
  if (count > 0) reported += count;
  return static_cast<int>(count);
}

int poll(pollfd* entries, nfds_t count, int milliseconds) {
  ++calls;
  reported += static_cast<long>(count);
  timespec limit{milliseconds / 1000, milliseconds % 1000 * 1'000'000L};
  return static_cast<int>(
      syscall(SYS_ppoll, entries, count, milliseconds < 0 ? nullptr : &limit, nullptr, 0));
}

}  // extern "C"

namespace ddp::comm {
namespace {

// A hub that checks all ranks at each event would exceed this with 300 ranks.
constexpr long kMaxPerRank = 40;

TEST(HubCalls, CallsPerRankAreBoundedForAnyNumberOfRanks) {
  raise_descriptor_limit();
  for (const int ranks : {20, 300}) {
    Listener listener = listen_anywhere();
    test::PlayedRanks others(ranks, listener);
    FailureState failures;
    FlightRecorder recorder;
    ChannelOptions options;
    // No heartbeats, of which a slow machine would send more.
    options.liveness.heartbeat = std::chrono::hours(1);
    calls = reported = 0;
    {
      const Hub hub(failures, recorder, std::move(listener), test::channel_key(), ranks, options);
      EXPECT_EQ(others.notified(), ranks - 1);
    }
    EXPECT_GE(calls, 5 * ranks) << "the calls are not counted";
    EXPECT_LE(calls, kMaxPerRank * ranks);
    EXPECT_LE(reported, kMaxPerRank * ranks);
    RecordProperty("calls_of_" + std::to_string(ranks), std::to_string(calls));
    RecordProperty("reported_of_" + std::to_string(ranks), std::to_string(reported));
  }
}

}  // namespace
}  // namespace ddp::comm
