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
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/file_descriptor.h"
#include "ddp_runtime/check/byte_units.h"
#include "ddp_runtime/check/within.h"

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

constexpr std::array<std::string_view, 19> kShared{
    "nfs",   "nfs4", "lustre",   "beegfs",   "gpfs",      "ceph",      "fuse.ceph",
    "cifs",  "smb3", "afs",      "panfs",    "wekafs",    "glusterfs", "fuse.glusterfs",
    "pvfs2", "9p",   "virtiofs", "orangefs", "fuse.sshfs"};

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

std::string failed(const char* what) {
  return fmt::format("{} failed: {}", what, std::strerror(errno));
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

// The error of the write test; empty on success.
std::string try_writing(const std::string& directory) {
  const FileDescriptor file = open_nameless(directory);
  if (!file) return failed("creating a file");
  std::vector<char> written(kProbeBytes);
  for (std::size_t i = 0; i < written.size(); ++i)
    written[i] = static_cast<char>(i * 131 + i / 251);
  if (!write_all(file.get(), written)) return failed("writing 1 MiB");
  if (::fsync(file.get()) != 0) return failed("flushing 1 MiB");
  std::vector<char> read(kProbeBytes);
  if (!read_all(file.get(), read)) return failed("reading back 1 MiB");
  return read == written ? "" : "the data read back differ from the data written";
}

StorageFacts probe_now(const std::string& directory) {
  StorageFacts facts;
  struct statvfs sizes {};
  if (::statvfs(directory.c_str(), &sizes) == 0) {
    facts.sizes_known = true;
    facts.total_bytes = std::uint64_t{sizes.f_blocks} * sizes.f_frsize;
    facts.free_bytes = std::uint64_t{sizes.f_bavail} * sizes.f_frsize;
  }
  const auto start = Clock::now();
  facts.error = try_writing(directory);
  facts.seconds = seconds_since(start);
  return facts;
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
    const bool shared = std::find(kShared.begin(), kShared.end(), type) != kShared.end();
    server = shared ? type + " " + unescaped(source) : "";
  }
  return server;
}

StorageFacts probe_storage(const std::string& directory, std::chrono::milliseconds timeout) {
  const std::string path = std::filesystem::absolute(directory).lexically_normal().string();
  const std::string server = server_of(mountinfo(), path);
  const auto facts = run_within(timeout, [directory] { return probe_now(directory); });
  if (facts) {
    StorageFacts answered = *facts;
    answered.server = server;
    return answered;
  }
  StorageFacts silent;
  silent.server = server;
  silent.timed_out = true;
  silent.error = fmt::format("the file system did not answer within {} ms", timeout.count());
  return silent;
}

Finding evaluate_storage(const StorageFacts& facts, const StorageRule& rule) {
  Finding finding{.check = rule.check,
                  .severity = Severity::ok,
                  .device = rule.directory,
                  .unit = "MiB free",
                  .rule = rule.why};
  finding.expected = fmt::format("at least {:.0f} MiB free, and writable",
                                 static_cast<double>(rule.warn_below) / static_cast<double>(kMiB));
  if (facts.sizes_known)
    finding.value = static_cast<double>(facts.free_bytes) / static_cast<double>(kMiB);
  if (!facts.error.empty()) {
    finding.severity = Severity::critical;
    finding.evidence = facts.error;
    if (!facts.server.empty()) {
      finding.check = "storage.shared";
      finding.severity = Severity::unknown;
      finding.evidence = fmt::format("{}, on {}", facts.error, facts.server);
      finding.action = "check the server first, and whether other nodes report the same error";
      return finding;
    }
    finding.action = facts.timed_out ? "check the server behind this file system"
                                     : "check permissions, quota and mount";
    return finding;
  }
  if (!facts.sizes_known) {
    finding.severity = Severity::unknown;
    finding.evidence = "writable, but its size is unknown";
    finding.action = "check it manually";
    return finding;
  }
  if (facts.free_bytes >= rule.warn_below) {
    finding.evidence =
        fmt::format("1 MiB was written, flushed and read back in {:.0f} ms", 1e3 * facts.seconds);
    return finding;
  }
  finding.severity =
      facts.free_bytes < rule.critical_below ? Severity::critical : Severity::warning;
  finding.evidence = fmt::format(
      "out of {:.0f} MiB", static_cast<double>(facts.total_bytes) / static_cast<double>(kMiB));
  finding.action = "free some space, or enlarge the file system";
  return finding;
}

}  // namespace ddp::check
