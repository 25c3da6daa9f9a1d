// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/guard/python_path.h"

#include "base/text.h"

namespace ddp::guard {

std::string with_python_directory(std::string_view directory, std::string_view path) {
  const bool is_first = split(path, ':', 1).front() == directory;
  if (is_first || directory.find(':') != directory.npos) return std::string(path);
  std::string value(directory);
  if (!path.empty()) value.append(":").append(path);
  return value;
}

}  // namespace ddp::guard
