#pragma once
// One run at a time saves to a directory.
//
// Note [Lease]
// ROOT/.owner says who saves there: job, restart, host, process, a random token, and a count that
// goes up every few seconds. It works on any file system that can make a hard link or rename, NFS
// among them, and asks for no locks. Clocks of two hosts are never compared: whoever finds another
// owner watches, by its own clock, whether the count moves.
//   a process on this machine that is gone            its directory is taken over at once
//   an earlier restart of the same job                likewise: SLURM has given up on it
//   a process that lives, or a count that moves       refused
//   a count that has stood still for long enough      taken over
// Whoever was taken over wrongly (it was only slow) is fenced: it sees another token before it
// gives a checkpoint its name, and stops. The last instant, between that look and the rename, is
// covered by the rename itself, which never replaces, and by IfExists::set_aside of the new owner.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>

#include "base/file_descriptor.h"
#include "hdf5_ckpt/error.h"
#include "hdf5_ckpt/owner_tag.h"

namespace ddp::ckpt {

struct LeaseTimes {
  std::chrono::milliseconds beat{5000};      // between two counts
  std::chrono::milliseconds silence{30000};  // after which an owner that cannot be seen is gone
};

// A process, told from all others that ever were.
struct LeaseHolder {
  OwnerTag owner;
  std::string token;          // of the lease
  std::string machine;        // one boot of one machine, and one set of process ids on it
  std::uint64_t started = 0;  // when the process was started, in the kernel's ticks
  std::uint64_t beat = 0;

  bool operator==(const LeaseHolder&) const = default;

  static LeaseHolder of_this_process(const OwnerTag& owner);
  std::string text() const;  // one line; as long for every beat
  static std::optional<LeaseHolder> parse(std::string_view text);
  // "job 17 (restart 0) on node3, process 4242"
  std::string name() const;
};

enum class LeaseVerdict : std::uint8_t { take_over, watch, refuse };

// What `mine` may do about a lease of `other`. `lives` is asked only for a process on the same
// machine. Pure but for that.
LeaseVerdict judge_lease(const LeaseHolder& mine, const LeaseHolder& other,
                         const std::function<bool(const LeaseHolder&)>& lives);

// Somebody else saves to the directory.
class LeaseError : public Error {
 public:
  using Error::Error;
};

// Held from its making by LeaseClaim to its end, which removes the file if it is still this one's.
class Lease {
 public:
  Lease(std::filesystem::path file, FileDescriptor fd, LeaseHolder mine, const LeaseTimes& times);
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  ~Lease();

  // Throws LeaseError if somebody has taken it over, and if it cannot be read.
  void require() const;

 private:
  void beat(const std::stop_token& stop, std::chrono::milliseconds interval);

  std::filesystem::path file_;
  FileDescriptor fd_;
  LeaseHolder mine_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::jthread thread_;  // last: it ends first
};

// The way to a lease, in steps, since it may have to watch for a while.
class LeaseClaim {
 public:
  // ROOT must exist.
  LeaseClaim(const std::filesystem::path& root, const OwnerTag& owner, LeaseTimes times = {});

  // Goes on for about `at_most`. The lease, once it is this process's; nothing: go on. Throws
  // LeaseError if somebody else has it, IoError if the directory cannot be used.
  std::unique_ptr<Lease> advance(std::chrono::milliseconds at_most);

  // Whom it watches, or took it over from.
  const std::optional<LeaseHolder>& other() const noexcept { return other_; }

 private:
  std::unique_ptr<Lease> look();
  std::unique_ptr<Lease> make();
  bool remove(const std::string& seen);

  std::filesystem::path file_;
  std::filesystem::path draft_;
  LeaseHolder mine_;
  LeaseTimes times_;
  std::optional<LeaseHolder> other_;
  std::string seen_;  // its text
  std::chrono::steady_clock::time_point since_;
};

}  // namespace ddp::ckpt
