// SPDX-License-Identifier: Apache-2.0
// What each rank costs rank 0's end of the error channel, in system calls. This program defines the
// calls itself, and counts them.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <string>

#include "ddp_runtime/comm/descriptor_limit.h"
#include "tests/unit/comm/channel_peers.h"

namespace {

std::atomic<long> calls = 0;     // on connections, and waits
std::atomic<long> reported = 0;  // descriptors that a wait was given or has reported

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

// A hub that looks at all ranks at each event would need more than this for 300 ranks.
constexpr long kMaxPerRank = 40;

TEST(HubCalls, EachRankCostsTheSameHoweverManyThereAre) {
  raise_descriptor_limit();
  for (const int ranks : {20, 300}) {
    Listener listener = listen_anywhere();
    const std::uint16_t port = listener.port;
    int answer[2];
    ASSERT_EQ(pipe(answer), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      listener.socket.close();
      const int told = test::play_ranks(ranks, port);
      [[maybe_unused]] const auto n = write(answer[1], &told, sizeof told);
      _exit(0);
    }
    close(answer[1]);
    FailureState failures;
    FlightRecorder recorder;
    ChannelOptions options;
    options.liveness.heartbeat = std::chrono::hours(1);  // a slow machine would count more of them
    calls = reported = 0;
    int told = 0;
    {
      const Hub hub(failures, recorder, std::move(listener), test::channel_key(), ranks, options);
      ASSERT_EQ(read(answer[0], &told, sizeof told), static_cast<ssize_t>(sizeof told));
    }
    waitpid(child, nullptr, 0);
    close(answer[0]);
    EXPECT_EQ(told, ranks - 1);
    EXPECT_GE(calls, 5 * ranks) << "the calls are not counted";
    EXPECT_LE(calls, kMaxPerRank * ranks);
    EXPECT_LE(reported, kMaxPerRank * ranks);
    RecordProperty("calls_of_" + std::to_string(ranks), std::to_string(calls));
    RecordProperty("reported_of_" + std::to_string(ranks), std::to_string(reported));
  }
}

}  // namespace
}  // namespace ddp::comm
