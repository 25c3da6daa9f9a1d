// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/guard/node_record.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace ddp::guard {
namespace {

TEST(NodeRecord, KnowsTheFirstFailureOfAllProcesses) {
  const FileDescriptor file = make_node_record();
  ASSERT_TRUE(file);
  const pid_t child = fork();
  if (child == 0) _exit(NodeRecord(file.get()).is_first_failure() ? 1 : 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_FALSE(NodeRecord(file.get()).is_first_failure());
}

TEST(NodeRecord, LetsEachSpeakWithoutAFile) {
  EXPECT_TRUE(NodeRecord(-1).is_first_failure());
  EXPECT_TRUE(NodeRecord(-1).is_first_failure());
}

TEST(NodeRecord, LeavesAloneWhatIsTooSmallToBeARecord) {
  const FileDescriptor null(dup(STDIN_FILENO));
  NodeRecord record(null.get());
  EXPECT_TRUE(record.is_first_failure());
  EXPECT_TRUE(record.is_first_failure());
}

}  // namespace
}  // namespace ddp::guard
