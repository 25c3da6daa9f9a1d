// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/guard/python_path.h"

#include <gtest/gtest.h>

namespace ddp::guard {
namespace {

TEST(PythonPath, HasTheDirectoryFirstAndOnce) {
  EXPECT_EQ(with_python_directory("/lib/ddp-python", ""), "/lib/ddp-python");
  EXPECT_EQ(with_python_directory("/lib/ddp-python", "/home/a:/b"), "/lib/ddp-python:/home/a:/b");
  EXPECT_EQ(with_python_directory("/lib/ddp-python", ":/b"), "/lib/ddp-python::/b");
  EXPECT_EQ(with_python_directory("/lib/ddp-python", "/lib/ddp-python:/b"), "/lib/ddp-python:/b");
  EXPECT_EQ(with_python_directory("/a:b/ddp-python", "/b"), "/b");
}

}  // namespace
}  // namespace ddp::guard
