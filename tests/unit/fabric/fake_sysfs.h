// SPDX-License-Identifier: Apache-2.0
// A fake /sys tree in a temporary directory, created from one readable text. It replaces hardware
// that the test machine does not have. All trees in the tests are fakes.
#pragma once

#include <filesystem>
#include <string_view>

#include "tests/unit/temporary_directory.h"

namespace ddp::test {

class FakeSysfs {
 public:
  // One entry per line; empty lines and lines that begin with # are skipped:
  //   class/net/eth0/mtu = 1500                 a file; \n in the value is a line break
  //   class/net/eth0/master -> ../bond0         a symbolic link
  //   class/net/eth0/bridge/                    a directory
  explicit FakeSysfs(std::string_view tree);

  const std::filesystem::path& root() const noexcept { return directory_.path(); }

 private:
  TemporaryDirectory directory_;
};

}  // namespace ddp::test
