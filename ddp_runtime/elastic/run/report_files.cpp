// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/elastic/run/report_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <string_view>

#include "base/atomic_file.h"
#include "base/file_descriptor.h"
#include "base/json/bounded_json.h"

namespace ddp::elastic {
namespace {

using nlohmann::json;

constexpr off_t kMaxHistory = off_t{64} << 20;
constexpr off_t kMaxReport = off_t{64} << 20;
constexpr std::size_t kMaxEventLine = std::size_t{8} << 20;  // `start` names all nodes

struct RegularFile {
  FileDescriptor file;
  off_t size = 0;
};

RegularFile open_regular_file(const std::filesystem::path& path) {
  RegularFile opened{
      FileDescriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)), 0};
  struct stat facts {};
  if (!opened.file || fstat(opened.file.get(), &facts) != 0 || !S_ISREG(facts.st_mode)) return {};
  opened.size = facts.st_size;
  return opened;
}

// Calls `take` with each chunk until the end of the file, or `most` bytes.
template <class Take>
void read_chunks(int file, off_t most, Take take) {
  std::array<char, 65536> chunk{};
  while (most > 0) {
    const auto wanted = std::min<off_t>(most, static_cast<off_t>(chunk.size()));
    const ssize_t n = read(file, chunk.data(), static_cast<std::size_t>(wanted));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    most -= n;
    take(std::string_view(chunk.data(), static_cast<std::size_t>(n)));
  }
}

std::string text_of_section(const json& object) {
  return object.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace

void read_history(const std::filesystem::path& events_file, RunAccount& account) {
  const auto opened = open_regular_file(events_file);
  if (!opened.file) return;
  const auto from = std::max<off_t>(opened.size - kMaxHistory, 0);
  if (lseek(opened.file.get(), from, SEEK_SET) != from) return;
  std::string line;
  bool too_long = from > 0;  // the first line is not complete
  read_chunks(opened.file.get(), kMaxHistory, [&](std::string_view chunk) {
    while (!chunk.empty()) {
      const auto end = chunk.find('\n');
      const auto piece = chunk.substr(0, end);
      if (!too_long) line += piece;
      too_long = too_long || line.size() > kMaxEventLine;
      if (end == std::string_view::npos) return;
      if (!too_long) account.add_line(line);
      line.clear();
      too_long = false;
      chunk.remove_prefix(end + 1);
    }
  });
}

void write_resilience(const std::filesystem::path& file, const json& resilience) {
  replace_file(file, text_of_section(resilience));
}

void add_resilience(const std::filesystem::path& run_json, const json& resilience) {
  const auto opened = open_regular_file(run_json);
  if (!opened.file || opened.size > kMaxReport) return;
  std::string text;
  read_chunks(opened.file.get(), kMaxReport, [&](std::string_view chunk) { text += chunk; });
  auto report = parse_bounded_json_or_null(text);
  if (!report.is_object() || report.value("schema", json()) != "slurm-ddp/run/1") return;
  report["resilience"] = resilience;
  replace_file(run_json, text_of_section(report));
}

}  // namespace ddp::elastic
