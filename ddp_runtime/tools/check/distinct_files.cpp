// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/tools/check/distinct_files.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>

#include "base/errors.h"

namespace ddp::tools {

void require_distinct(const std::vector<FileOfOption>& files) {
  std::map<std::string, std::string> option_of;
  for (const auto& [option, path] : files) {
    if (path.empty()) continue;
    const auto normal = std::filesystem::absolute(path).lexically_normal().string();
    if (normal.starts_with("/dev/")) continue;
    const auto [other, is_new] = option_of.try_emplace(normal, option);
    if (!is_new) {
      throw UsageError(fmt::format("{} and {} both write the file {}; give each its own",
                                   other->second, option, path));
    }
  }
}

}  // namespace ddp::tools
