// SPDX-License-Identifier: Apache-2.0
// The rule of Note [Lease], and the operations on the file: it is created, watched and taken over
// so that there are never two holders.

#include "hdf5_ckpt/directory/lease.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>
#include <system_error>

#include "hdf5_ckpt/core/json_fields.h"
#include "hdf5_ckpt/core/lineage.h"
#include "hdf5_ckpt/directory/layout.h"
#include "hdf5_ckpt/io/directories.h"
#include "hdf5_ckpt/io/posix_read.h"
#include "hdf5_ckpt/io/signals_blocked.h"

namespace ddp::ckpt {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxLeaseBytes = 4096;
constexpr std::uint64_t kMaxCount = 1ULL << 62;
constexpr std::uint64_t kFirstBeat =
    1'000'000'000'000'000'000;  // all counts have the same number of digits
constexpr auto kGlance = std::chrono::milliseconds(100);

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Returns the 22nd field of /proc/PID/stat, or 0 if there is none. The second field, a name, may
// contain any character.
std::uint64_t start_of(pid_t pid) {
  const std::string line = first_line(fmt::format("/proc/{}/stat", pid));
  const auto name_end = line.rfind(") ");
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(line.substr(name_end + 2));
  constexpr int kFieldsBetween = 19;
  std::string skipped;
  for (int i = 0; i < kFieldsBetween; ++i) fields >> skipped;
  std::uint64_t ticks = 0;
  fields >> ticks;
  return ticks;
}

// The boot and the PID namespace are part of the identity because a host name does not distinguish
// a container from its machine, or one boot from the next.
std::string this_machine() {
  std::error_code ignored;
  return first_line("/proc/sys/kernel/random/boot_id") + " " +
         fs::read_symlink("/proc/self/ns/pid", ignored).string();
}

bool process_lives(const LeaseHolder& holder) {
  return !has_ended(holder.owner.pid) && start_of(holder.owner.pid) == holder.started;
}

// Returns the text of a lease; nullopt if there is none. Opens the file by name each time, because
// the name decides who holds the lease, and because a network file system then asks its server.
std::optional<std::string> read_lease(const fs::path& file) {
  const FileDescriptor fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd) {
    if (errno == ENOENT) return std::nullopt;
    throw IoError("read the lease of the directory,", file, errno);
  }
  std::string text(kMaxLeaseBytes, '\0');
  const ReadResult result = read_fully(fd.get(), std::as_writable_bytes(std::span(text)), 0);
  if (result.code == ESTALE || result.code == ENOENT) return std::nullopt;
  if (result.code != 0) throw IoError("read the lease of the directory,", file, result.code);
  text.resize(result.bytes);
  return text;
}

// Returns the errno value if not everything was written.
int write_all(int fd, const std::string& text) {
  const ssize_t wrote = ::pwrite(fd, text.data(), text.size(), 0);
  if (wrote == static_cast<ssize_t>(text.size())) return 0;
  return wrote < 0 ? errno : ENOSPC;
}

std::string taken_text(const fs::path& root, const std::string& who) {
  return fmt::format(
      "'{}' is in use: {} saves to it; wait until it has ended, or choose another checkpoint "
      "directory",
      root.string(), who);
}

// A save creates a deleted directory again, so that only the file may be missing by now.
std::string vanished_text(const fs::path& file) {
  return fmt::format(
      "'{}' has vanished: this file, or the checkpoint directory with it, was deleted while this "
      "process saved there; it stops, because without the file another run could save there, too; "
      "run the same command to start again",
      file.string());
}

}  // namespace

LeaseHolder LeaseHolder::of_this_process(const OwnerTag& owner) {
  return {owner, new_run_name(), this_machine(), start_of(::getpid()), 0};
}

std::string LeaseHolder::text() const {
  return fmt::format(
      "{{\"owner\": {}, \"token\": {}, \"machine\": {}, \"started\": {}, \"beat\": {}}}\n",
      nlohmann::json(owner.text()).dump(), nlohmann::json(token).dump(),
      nlohmann::json(machine).dump(), started, kFirstBeat + beat);
}

std::optional<LeaseHolder> LeaseHolder::parse(std::string_view text) {
  try {
    const nlohmann::json document = parse_json(text);
    const JsonFields fields(document, "lease");
    const auto owner = OwnerTag::parse(fields.text("owner"));
    if (!owner) return std::nullopt;
    return LeaseHolder{*owner, fields.text("token"), fields.text("machine"),
                       fields.number("started", kMaxCount),
                       fields.number("beat", kMaxCount) - kFirstBeat};
  } catch (const DamagedError&) {
    return std::nullopt;
  }
}

std::string LeaseHolder::name() const {
  return fmt::format("job {} (restart {}) on {}, process {}", owner.job, owner.restart, owner.host,
                     owner.pid);
}

LeaseVerdict judge_lease(const LeaseHolder& mine, const LeaseHolder& other,
                         const std::function<bool(const LeaseHolder&)>& lives) {
  if (other.owner.job == mine.owner.job && other.owner.restart != mine.owner.restart)
    return other.owner.restart < mine.owner.restart ? LeaseVerdict::take_over
                                                    : LeaseVerdict::refuse;
  if (other.machine != mine.machine) return LeaseVerdict::watch;
  return lives(other) ? LeaseVerdict::refuse : LeaseVerdict::take_over;
}

Lease::Lease(fs::path file, FileDescriptor fd, LeaseHolder mine, const LeaseTimes& times)
    : file_(std::move(file)), fd_(std::move(fd)), mine_(std::move(mine)) {
  const SignalsBlocked blocked;  // the thread inherits it
  thread_ = std::jthread(
      [this, interval = times.beat](const std::stop_token& stop) { beat(stop, interval); });
}

void Lease::beat(const std::stop_token& stop, std::chrono::milliseconds interval) {
  LeaseHolder counting = mine_;
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    wake_.wait_for(lock, stop, interval, [] { return false; });
    ++counting.beat;
    static_cast<void>(write_all(fd_.get(), counting.text()));  // a failure counts as silence
  }
}

void Lease::require() const {
  auto text = read_lease(file_);
  if (!text) {
    // A process that takes the lease over removes the file just before it creates its own.
    std::this_thread::sleep_for(kGlance);
    text = read_lease(file_);
  }
  if (!text) throw LeaseError(vanished_text(file_));
  const auto holder = LeaseHolder::parse(*text);
  if (holder && holder->token == mine_.token) return;
  throw LeaseError(fmt::format(
      "'{}' was taken over by {}: this process stops, so that the two do not overwrite each other",
      file_.parent_path().string(), holder ? holder->name() : "another process"));
}

Lease::~Lease() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
  try {
    require();
    ::unlink(file_.c_str());
  } catch (const Error&) {
    // The lease belongs to another run.
  }
}

LeaseClaim::LeaseClaim(const fs::path& root, const OwnerTag& owner, LeaseTimes times)
    : file_(fs::absolute(root) / kLeaseName),
      draft_(fs::absolute(root) / lease_draft_name(owner)),
      mine_(LeaseHolder::of_this_process(owner)),
      times_(times) {}

std::unique_ptr<Lease> LeaseClaim::advance(std::chrono::milliseconds at_most) {
  const auto until = std::chrono::steady_clock::now() + at_most;
  while (true) {
    if (auto lease = look()) return lease;
    if (std::chrono::steady_clock::now() + kGlance >= until) return nullptr;
    std::this_thread::sleep_for(kGlance);
  }
}

std::unique_ptr<Lease> LeaseClaim::look() {
  const auto text = read_lease(file_);
  if (!text) return make();
  const auto now = std::chrono::steady_clock::now();
  const auto holder = LeaseHolder::parse(*text);
  const auto verdict = holder ? judge_lease(mine_, *holder, process_lives) : LeaseVerdict::watch;
  if (verdict == LeaseVerdict::refuse)
    throw LeaseError(taken_text(file_.parent_path(), holder->name()));
  if (verdict == LeaseVerdict::take_over) {
    other_ = holder;
    return remove(*text) ? make() : nullptr;
  }
  // An empty seen_ would not show this, because the file may be empty after a full disk or a loss
  // of power.
  const bool first = since_ == std::chrono::steady_clock::time_point{};
  if (first) {
    seen_ = *text;
    since_ = now;
    other_ = holder;
  } else if (seen_ != *text) {
    throw LeaseError(taken_text(file_.parent_path(), holder ? holder->name() : "another process"));
  }
  if (now - since_ < times_.silence) return nullptr;
  return remove(*text) ? make() : nullptr;
}

// Removes only the lease with the text `seen`: if another process has created a lease meanwhile,
// puts it back.
bool LeaseClaim::remove(const std::string& seen) {
  const fs::path away = file_.parent_path() / taken_lease_name(mine_.owner);
  if (::rename(file_.c_str(), away.c_str()) != 0) {
    if (errno == ENOENT) return true;
    throw IoError("take over", file_, errno);
  }
  const auto taken = read_lease(away);
  const bool right = !taken || *taken == seen;
  if (!right) static_cast<void>(::link(away.c_str(), file_.c_str()));
  ::unlink(away.c_str());
  return right;
}

// Returns nullptr if another process was faster.
std::unique_ptr<Lease> LeaseClaim::make() {
  ::unlink(draft_.c_str());
  FileDescriptor fd(::open(draft_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!fd) throw IoError("create", draft_, errno);
  // On a full disk the lease would be an empty file, which names no owner, and the run could not
  // save anyway.
  if (const int problem = write_all(fd.get(), mine_.text()); problem != 0) {
    ::unlink(draft_.c_str());
    throw IoError("write the lease of the directory,", draft_, problem);
  }
  int code = ::link(draft_.c_str(), file_.c_str()) == 0 ? 0 : errno;
  const bool no_links = code == EPERM || code == EOPNOTSUPP || code == ENOSYS || code == EMLINK;
  if (no_links) code = rename_no_replace(system_file_ops(), draft_, file_);
  ::unlink(draft_.c_str());
  if (code == EEXIST) return nullptr;
  if (code != 0) throw IoError("create", file_, code);
  return std::make_unique<Lease>(file_, std::move(fd), mine_, times_);
}

}  // namespace ddp::ckpt
