// SPDX-License-Identifier: Apache-2.0
// Child processes that answer, have exited, do not exist, or ignore their input.
#include "bench/child_process.h"

#include <gmock/gmock.h>
#include <signal.h>

#include <string>

#include "tests/unit/error_of.h"

namespace ddp::bench {
namespace {

using ::testing::HasSubstr;

TEST(ChildProcess, ReadsWholeLines) {
  ChildProcess child({"/bin/cat"});
  child.write_line("first");
  child.write_line("");
  child.write_line(std::string(100000, 'x'));
  EXPECT_EQ(child.read_line(), "first");
  EXPECT_EQ(child.read_line(), "");
  EXPECT_EQ(child.read_line(), std::string(100000, 'x'));
}

TEST(ChildProcess, ReportsThatTheChildExited) {
  ChildProcess child({"/bin/true"});
  EXPECT_THAT(error_of([&] { child.read_line(); }), HasSubstr("/bin/true exited unexpectedly"));
  EXPECT_THAT(error_of([&] { child.write_line("into nothing"); }),
              HasSubstr("exited unexpectedly"));
}

TEST(ChildProcess, ReportsAMissingProgram) {
  EXPECT_THAT(error_of([] { const ChildProcess child({"/no/such/program"}); }),
              HasSubstr("cannot start /no/such/program: No such file"));
}

TEST(ChildProcess, IsKilledWithTheObjectEvenIfItIgnoresInput) {
  pid_t pid = 0;
  {
    ChildProcess child({"/bin/sh", "-c", "echo $$; exec sleep 1000"});
    pid = static_cast<pid_t>(std::stol(child.read_line()));
    ASSERT_EQ(kill(pid, 0), 0);
  }
  EXPECT_EQ(kill(pid, 0), -1);
}

}  // namespace
}  // namespace ddp::bench
