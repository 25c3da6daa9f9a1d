// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/guard/error_relay.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <string>

namespace ddp::guard {
namespace {

struct Pipe {
  FileDescriptor out;
  FileDescriptor in;
};

Pipe make_pipe() {
  std::array<int, 2> ends{};
  EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

std::string read_some(int file) {
  std::string text(1U << 20U, '\0');
  const ssize_t count = read(file, text.data(), text.size());
  text.resize(count < 0 ? 0 : static_cast<std::size_t>(count));
  return text;
}

bool is_readable(int file) {
  pollfd wait{file, POLLIN, 0};
  return poll(&wait, 1, 0) == 1;
}

TEST(ErrorRelay, PassesOnBytesAndKeepsThem) {
  Pipe task = make_pipe();
  Pipe launcher = make_pipe();
  ErrorRelay relay(std::move(task.out), launcher.in.get());
  EXPECT_FALSE(relay.receive());
  const std::string text("half a line\0\xff", 13);
  ASSERT_TRUE(write_all(task.in.get(), text));
  EXPECT_TRUE(relay.receive());
  relay.send();
  EXPECT_EQ(read_some(launcher.out.get()), text);
  EXPECT_EQ(relay.tail(), text);
}

TEST(ErrorRelay, WaitsForEitherSideButNotForBoth) {
  Pipe task = make_pipe();
  Pipe launcher = make_pipe();
  const int source = task.out.get();
  ErrorRelay relay(std::move(task.out), launcher.in.get());
  EXPECT_EQ(relay.source(), source);
  EXPECT_EQ(relay.target(), -1);
  ASSERT_TRUE(write_all(task.in.get(), "x"));
  ASSERT_TRUE(relay.receive());
  EXPECT_EQ(relay.source(), -1);
  EXPECT_EQ(relay.target(), launcher.in.get());
}

TEST(ErrorRelay, DoesNotBlockOnASlowReader) {
  Pipe task = make_pipe();
  Pipe launcher = make_pipe();
  fcntl(launcher.in.get(), F_SETPIPE_SZ, 4096);
  ErrorRelay relay(std::move(task.out), launcher.in.get());
  ASSERT_TRUE(write_all(task.in.get(), std::string(20'000, 'x')));
  ASSERT_TRUE(relay.receive());
  std::size_t seen = 0;
  while (seen < 20'000) {  // one piece fits at a time; a longer one would block forever
    relay.send();
    ASSERT_TRUE(is_readable(launcher.out.get()));
    seen += read_some(launcher.out.get()).size();
  }
  EXPECT_EQ(relay.target(), -1);
}

TEST(ErrorRelay, KnowsWhetherALineFits) {
  Pipe task = make_pipe();
  Pipe launcher = make_pipe();
  fcntl(launcher.in.get(), F_SETPIPE_SZ, 4096);
  ErrorRelay relay(std::move(task.out), launcher.in.get());
  EXPECT_TRUE(relay.takes_a_line());
  ASSERT_TRUE(write_all(task.in.get(), std::string(4096, 'x')));
  ASSERT_TRUE(relay.receive());
  EXPECT_FALSE(relay.takes_a_line()) << "something is under way";
  relay.send();
  EXPECT_FALSE(relay.takes_a_line()) << "the reader has not taken it";
  read_some(launcher.out.get());
  EXPECT_TRUE(relay.takes_a_line());
}

TEST(ErrorRelay, AddsALineAfterTheEndOfAnother) {
  Pipe task = make_pipe();
  Pipe launcher = make_pipe();
  ErrorRelay relay(std::move(task.out), launcher.in.get());
  relay.add_line("at the start");
  ASSERT_TRUE(write_all(task.in.get(), "progress 30 %"));
  ASSERT_TRUE(relay.receive());
  relay.add_line("lost: the reader has not taken what came before");
  relay.send();
  relay.add_line("in a line");
  relay.add_line("again");
  ASSERT_TRUE(write_all(task.in.get(), "\rdone\n"));
  ASSERT_TRUE(relay.receive());
  relay.send();
  relay.add_line("at the end");
  EXPECT_EQ(read_some(launcher.out.get()),
            "at the start\nprogress 30 %\nin a line\nagain\n\rdone\nat the end\n");
  EXPECT_EQ(relay.received(), 19U);
}

TEST(ErrorRelay, KeepsReadingWhenTheDiskIsFull) {
  Pipe task = make_pipe();
  const FileDescriptor full(open("/dev/full", O_WRONLY | O_CLOEXEC));
  ErrorRelay relay(std::move(task.out), full.get());
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(write_all(task.in.get(), "x"));
    ASSERT_TRUE(relay.receive());
    relay.send();
    EXPECT_EQ(relay.target(), -1);
  }
  EXPECT_EQ(relay.tail(), "xx");
}

TEST(ErrorRelay, GivesTheTaskTheErrorOfAPipeWithoutReader) {
  signal(SIGPIPE, SIG_IGN);
  Pipe task = make_pipe();
  Pipe launcher = make_pipe();
  ErrorRelay relay(std::move(task.out), launcher.in.get());
  launcher.out.close();
  ASSERT_TRUE(write_all(task.in.get(), "x"));
  ASSERT_TRUE(relay.receive());
  relay.send();
  EXPECT_EQ(relay.source(), -1);
  EXPECT_FALSE(write_all(task.in.get(), "x"));
  EXPECT_EQ(errno, EPIPE);
}

TEST(ErrorRelay, DoesNothingWithoutAPipe) {
  ErrorRelay relay(FileDescriptor{}, STDERR_FILENO);
  EXPECT_EQ(relay.source(), -1);
  EXPECT_EQ(relay.target(), -1);
  EXPECT_FALSE(relay.receive());
  EXPECT_EQ(relay.tail(), "");
}

}  // namespace
}  // namespace ddp::guard
