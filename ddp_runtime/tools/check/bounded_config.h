// SPDX-License-Identifier: Apache-2.0
// Reads the file of --config with a limit, so that a device or an endless pipe is an error instead
// of an endless wait.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <istream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace ddp::tools {

class BoundedConfig : public CLI::ConfigBase {
 public:
  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    constexpr std::size_t kMaxConfigBytes = std::size_t{1} << 20;
    std::string text(kMaxConfigBytes + 1, '\0');
    input.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(input.gcount()));
    if (input.bad()) throw CLI::FileError("cannot read the file of --config");
    if (text.size() > kMaxConfigBytes) {
      throw CLI::FileError(
          "the file of --config is longer than 1 MiB, so it does not hold options; give a TOML or "
          "INI file");
    }
    std::istringstream bounded(std::move(text));
    return CLI::ConfigBase::from_config(bounded);
  }
};

}  // namespace ddp::tools
