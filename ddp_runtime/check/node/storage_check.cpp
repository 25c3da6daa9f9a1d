#include "ddp_runtime/check/node/storage_check.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "ddp_runtime/check/byte_units.h"
#include "ddp_runtime/check/within.h"
#include "ddp_runtime/comm/failure/file_descriptor.h"

namespace ddp::check {
namespace {

using comm::FileDescriptor;

constexpr std::size_t kProbeBytes = std::size_t{1} << 20;

// O_TMPFILE where the file system has it, a file that is unlinked at once elsewhere.
FileDescriptor open_nameless(const std::string& directory) {
  FileDescriptor file(::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (file || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return file;
  std::string name = directory + "/ddp-check-XXXXXX";
  file = FileDescriptor(mkostemp(name.data(), O_CLOEXEC));
  if (file) ::unlink(name.c_str());
  return file;
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

// What went wrong when writing; empty if nothing did.
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
  return read == written ? "" : "what was read back differs from what was written";
}

StorageFacts probe_now(const std::string& directory) {
  StorageFacts facts;
  struct statvfs sizes {};
  if (::statvfs(directory.c_str(), &sizes) == 0) {
    facts.sizes_known = true;
    facts.total_bytes = std::uint64_t{sizes.f_blocks} * sizes.f_frsize;
    facts.free_bytes = std::uint64_t{sizes.f_bavail} * sizes.f_frsize;
  }
  facts.error = try_writing(directory);
  return facts;
}

}  // namespace

StorageFacts probe_storage(const std::string& directory, std::chrono::milliseconds patience) {
  const auto facts = run_within(patience, [directory] { return probe_now(directory); });
  if (facts) return *facts;
  StorageFacts silent;
  silent.timed_out = true;
  silent.error = fmt::format("the file system did not answer within {} ms", patience.count());
  return silent;
}

Finding judge_storage(const StorageFacts& facts, const StorageRule& rule) {
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
    finding.action = facts.timed_out ? "check the server behind this file system"
                                     : "check permissions, quota and mount";
    return finding;
  }
  if (!facts.sizes_known) {
    finding.severity = Severity::unknown;
    finding.evidence = "writable, but its size is not known";
    finding.action = "check it by hand";
    return finding;
  }
  if (facts.free_bytes >= rule.warn_below) return finding;
  finding.severity =
      facts.free_bytes < rule.critical_below ? Severity::critical : Severity::warning;
  finding.evidence = fmt::format(
      "of {:.0f} MiB in all", static_cast<double>(facts.total_bytes) / static_cast<double>(kMiB));
  finding.action = "free some space, or make it larger";
  return finding;
}

}  // namespace ddp::check
