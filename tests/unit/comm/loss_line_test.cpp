// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/loss_line.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "base/file_descriptor.h"

namespace ddp::comm {
namespace {

const Failure kLost{.rank = 3, .text = "rank 3 (n1, process 7) exited", .lost = true};

std::string printed_by(const std::function<void(LossLine&)>& body) {
  LossLine line("program");
  testing::internal::CaptureStderr();
  body(line);
  return testing::internal::GetCapturedStderr();
}

TEST(LossLine, IsPrintedOnceAndAnAdditionIsNotLost) {
  const std::string first = "program: rank 3 (n1, process 7) exited\n";
  EXPECT_EQ(printed_by([](LossLine& line) {
              line.print_without_waiting(kLost);
              line.print_without_waiting(kLost);
              line.print(kLost, "");
            }),
            first);
  EXPECT_EQ(printed_by([](LossLine& line) {
              line.print_without_waiting(kLost);
              line.print(kLost, "; it ran stage 2");
            }),
            first + "program: rank 3 was lost; it ran stage 2\n");
  EXPECT_EQ(printed_by([](LossLine& line) {
              line.print(kLost, "; it ran stage 2");
              line.print_without_waiting(kLost);
            }),
            "program: rank 3 (n1, process 7) exited; it ran stage 2\n");
}

// Its reader is suspended, for example.
TEST(LossLine, ThreadDoesNotWaitForAReaderOfStderr) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  const FileDescriptor reading(ends[0]);
  const FileDescriptor writing(ends[1]);
  const int room = fcntl(writing.get(), F_GETPIPE_SZ);
  const std::vector<char> full(static_cast<std::size_t>(room), '.');
  ASSERT_EQ(write(writing.get(), full.data(), full.size()), room);
  const FileDescriptor stderr_before(dup(STDERR_FILENO));
  ASSERT_EQ(dup2(writing.get(), STDERR_FILENO), STDERR_FILENO);
  LossLine line("program");
  line.print_without_waiting(kLost);
  ASSERT_EQ(dup2(stderr_before.get(), STDERR_FILENO), STDERR_FILENO);
  testing::internal::CaptureStderr();
  line.print(kLost, "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "program: rank 3 (n1, process 7) exited\n");
}

}  // namespace
}  // namespace ddp::comm
