// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/fabric/fake_sysfs.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

namespace ddp::test {
namespace {

namespace fs = std::filesystem;

// Uses memory if possible, because creating the hundreds of files of a node takes seconds on some
// disks.
fs::path parent_directory() {
  const fs::path memory = "/dev/shm";
  return fs::is_directory(memory) ? memory : fs::temp_directory_path();
}

std::string with_line_breaks(const std::string& text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_break = text.compare(i, 2, "\\n") == 0;
    result.push_back(is_break ? '\n' : text[i]);
    if (is_break) ++i;
  }
  return result;
}

void make_entry(const fs::path& root, const std::string& line) {
  const std::size_t link = line.find(" -> ");
  const std::size_t file = line.find(" = ");
  const fs::path path = root / line.substr(0, std::min(link, file));
  if (link == std::string::npos && file == std::string::npos) {
    fs::create_directories(path);
    return;
  }
  fs::create_directories(path.parent_path());
  if (link != std::string::npos) {
    fs::create_symlink(line.substr(link + 4), path);
  } else {
    std::ofstream(path) << with_line_breaks(line.substr(file + 3)) << '\n';
  }
}

}  // namespace

FakeSysfs::FakeSysfs(std::string_view tree) : directory_(parent_directory()) {
  std::istringstream lines{std::string(tree)};
  for (std::string line; std::getline(lines, line);) {
    line.erase(0, line.find_first_not_of(' '));
    if (line.empty() || line.front() == '#') continue;
    make_entry(directory_.path(), line);
  }
}

}  // namespace ddp::test
