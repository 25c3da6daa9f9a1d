// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/node/storage_check.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <future>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/file_descriptor.h"
#include "ddp_runtime/check/findings/byte_units.h"
#include "ddp_runtime/check/findings/within.h"
#include "ddp_runtime/check/node/running_jobs.h"

namespace ddp::check {
namespace {

constexpr std::size_t kProbeBytes = std::size_t{1} << 20;

// Uses O_TMPFILE if the file system supports it, otherwise unlinks the file immediately.
FileDescriptor open_nameless(const std::string& directory) {
  FileDescriptor file(::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (file || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return file;
  std::string name = directory + "/ddp-check-XXXXXX";
  file = FileDescriptor(mkostemp(name.data(), O_CLOEXEC));
  if (file) ::unlink(name.c_str());
  return file;
}

// The types of file systems that belong to the node alone. All others may be behind a server or
// shared with other nodes: there are too many to list, and most are programs (fuse.NAME).
constexpr auto kOwn = std::to_array<std::string_view>(
    {"ext2",   "ext3",  "ext4",  "xfs",    "btrfs",    "bcachefs",  "zfs",     "f2fs", "jfs",
     "nilfs2", "tmpfs", "ramfs", "rootfs", "devtmpfs", "hugetlbfs", "overlay", "aufs", "vfat",
     "exfat",  "msdos", "ntfs",  "ntfs3",  "squashfs", "erofs",     "reiserfs"});

// Mountinfo writes spaces as "\\040".
std::string unescaped(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    int code = 0;
    const bool escape = text[i] == '\\' && i + 3 < text.size() &&
                        std::from_chars(text.data() + i + 1, text.data() + i + 4, code, 8).ptr ==
                            text.data() + i + 4;
    result.push_back(escape ? static_cast<char>(code) : text[i]);
    if (escape) i += 3;
  }
  return result;
}

bool is_below(const std::string& path, const std::string& dir) {
  return dir == "/" || path == dir || path.starts_with(dir + "/");
}

std::string mountinfo() {
  std::ifstream file("/proc/self/mountinfo");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

struct WriteFailure {
  std::string words;  // empty on success
  int code = 0;       // errno
};

WriteFailure failed(const char* what) {
  const int code = errno;
  return {fmt::format("{} failed: {}", what, std::strerror(code)), code};
}

bool write_all(int fd, const std::vector<char>& bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::write(fd, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno != EINTR) return false;
    if (n > 0) done += static_cast<std::size_t>(n);
  }
  return true;
}

bool read_all(int fd, std::vector<char>& bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const auto offset = static_cast<off_t>(done);
    const ssize_t n = ::pread(fd, bytes.data() + done, bytes.size() - done, offset);
    if (n == 0 || (n < 0 && errno != EINTR)) return false;
    if (n > 0) done += static_cast<std::size_t>(n);
  }
  return true;
}

WriteFailure try_writing(const std::string& directory) {
  const FileDescriptor file = open_nameless(directory);
  if (!file) return failed("creating a file");
  std::vector<char> written(kProbeBytes);
  for (std::size_t i = 0; i < written.size(); ++i)
    written[i] = static_cast<char>(i * 131 + i / 251);
  if (!write_all(file.get(), written)) return failed("writing 1 MiB");
  if (::fsync(file.get()) != 0) return failed("flushing 1 MiB");
  std::vector<char> read(kProbeBytes);
  if (!read_all(file.get(), read)) return failed("reading back 1 MiB");
  if (read != written) return {"the data read back differ from the data written"};
  return {};
}

StorageFacts probe_now(const std::string& directory) {
  StorageFacts facts;
  struct statvfs sizes {};
  if (::statvfs(directory.c_str(), &sizes) == 0 && sizes.f_blocks > 0) {
    facts.sizes_known = true;
    facts.total_bytes = std::uint64_t{sizes.f_blocks} * sizes.f_frsize;
    facts.free_bytes = std::uint64_t{sizes.f_bavail} * sizes.f_frsize;
  }
  const auto start = Clock::now();
  const WriteFailure failure = try_writing(directory);
  facts.error = failure.words;
  facts.error_code = failure.code;
  facts.seconds = seconds_since(start);
  return facts;
}

double in_mib(std::uint64_t bytes) {
  return static_cast<double>(bytes) / static_cast<double>(kMiB);
}

void judge_failure(Finding& finding, const StorageFacts& facts) {
  finding.severity = Severity::critical;
  finding.evidence = facts.error;
  finding.action = facts.timed_out ? "check the server behind this file system"
                                   : "check permissions, quota and mount";
  if (facts.server.empty()) return;
  finding.check = "storage.shared";
  finding.severity = Severity::unknown;
  finding.evidence = fmt::format("{}, on {}", facts.error, facts.server);
  finding.action = "check the server first, and whether other nodes report the same error";
}

void judge_space(Finding& finding, const StorageFacts& facts, const StorageRule& rule) {
  // Some servers, such as object stores, report no size.
  if (!facts.sizes_known || facts.free_bytes >= rule.warn_below) {
    finding.evidence =
        fmt::format("1 MiB was written, flushed and read back in {:.0f} ms", 1e3 * facts.seconds);
    return;
  }
  finding.severity =
      facts.free_bytes < rule.critical_below ? Severity::critical : Severity::warning;
  finding.evidence = fmt::format("out of {:.0f} MiB", in_mib(facts.total_bytes));
  finding.action = "free some space, or enlarge the file system";
  if (facts.server.empty()) return;
  finding.severity = Severity::warning;
  finding.evidence += ", on " + facts.server;
}

// Whether programs that use the file system can be the cause: they fill it, or keep it busy.
bool may_be_use(const Finding& finding, const StorageFacts& facts) {
  if (finding.severity != Severity::warning && finding.severity != Severity::critical) return false;
  constexpr std::array kFull{ENOSPC, EDQUOT, ENOMEM};
  return facts.error.empty() || facts.timed_out ||
         std::find(kFull.begin(), kFull.end(), facts.error_code) != kFull.end();
}

}  // namespace

std::string server_of(std::string_view mountinfo, const std::string& path) {
  std::istringstream lines{std::string(mountinfo)};
  std::string deepest;
  std::string server;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word;
    std::string dir;
    for (int i = 0; i < 5 && words >> word; ++i) dir = unescaped(word);
    while (words >> word && word != "-") continue;
    std::string type;
    std::string source;
    if (!(words >> type >> source) || !is_below(path, dir)) continue;
    if (dir.size() < deepest.size())
      continue;  // for equal paths, the later mount covers the earlier one
    deepest = dir;
    const bool own = std::find(kOwn.begin(), kOwn.end(), type) != kOwn.end();
    server = own ? "" : type + " " + unescaped(source);
  }
  return server;
}

std::string server_behind(std::string_view mountinfo, const std::filesystem::path& path) {
  constexpr int kMaxLinks = 40;  // as the kernel
  std::filesystem::path reached = "/";
  std::deque<std::filesystem::path> rest(path.begin(), path.end());
  for (int links = 0; !rest.empty();) {
    const std::filesystem::path next = (reached / rest.front()).lexically_normal();
    rest.pop_front();
    std::error_code not_a_link;
    std::filesystem::path target;
    if (links < kMaxLinks && server_of(mountinfo, next.string()).empty()) {
      target = std::filesystem::read_symlink(next, not_a_link);
    }
    if (target.empty()) {
      reached = next;
      continue;
    }
    ++links;
    rest.insert(rest.begin(), target.begin(), target.end());
  }
  return server_of(mountinfo, reached.string());
}

StorageFacts probe_storage(const std::string& directory, std::chrono::milliseconds timeout) {
  const std::filesystem::path path = std::filesystem::absolute(directory);
  std::promise<std::string> found;
  const auto server = found.get_future().share();
  const auto facts = run_within(timeout, [directory, path, found = std::move(found)]() mutable {
    found.set_value(server_behind(mountinfo(), path));
    return probe_now(directory);
  });
  const bool known = server.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  StorageFacts result = facts.value_or(StorageFacts());
  result.server = known ? server.get() : "";
  if (facts) return result;
  result.timed_out = true;
  result.error = fmt::format("the file system did not answer within {} ms", timeout.count());
  return result;
}

Finding evaluate_storage(const StorageFacts& facts, const StorageRule& rule, bool a_job_runs) {
  Finding finding{.check = rule.check,
                  .severity = Severity::ok,
                  .device = rule.directory,
                  .unit = "MiB free",
                  .rule = rule.why};
  finding.expected = fmt::format("at least {:.0f} MiB free, and writable", in_mib(rule.warn_below));
  if (facts.sizes_known) finding.value = in_mib(facts.free_bytes);
  if (!facts.error.empty()) {
    judge_failure(finding, facts);
  } else if (!facts.sizes_known && facts.server.empty()) {
    finding.severity = Severity::unknown;
    finding.evidence = "writable, but its size is unknown";
    finding.action = "check it manually";
  } else {
    judge_space(finding, facts, rule);
  }
  const bool too_small = facts.sizes_known && facts.total_bytes < rule.critical_below;
  if (a_job_runs && may_be_use(finding, facts) && !too_small) excuse_for_a_job(finding);
  return finding;
}

}  // namespace ddp::check
