// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/guard/proc_file.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/file_descriptor.h"

namespace ddp::guard {
std::string read_proc_file(const std::string& path) {
  constexpr std::size_t kLimit = 1U << 16U;
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return "";
  std::string text(kLimit, '\0');
  std::size_t size = 0;
  while (size < kLimit) {
    const ssize_t count = read(file.get(), text.data() + size, kLimit - size);
    if (count <= 0) break;
    size += static_cast<std::size_t>(count);
  }
  text.resize(size);
  return text;
}

}  // namespace ddp::guard
