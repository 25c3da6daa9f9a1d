// SPDX-License-Identifier: Apache-2.0
// Ensures that only one run at a time saves to a directory.
//
// Note [Lease]
// ROOT/.owner names the run that saves there: job, restart, host, process, a random token, and a
// count that increases every few seconds. It works on any file system with hard links or rename,
// including NFS, and needs no locks. Clocks of two hosts are never compared: a process that finds
// another owner watches, by its own clock, whether the count increases. The owner that it finds
// decides:
//   a process on this machine that is gone            taken over immediately
//   an earlier restart of the same job                taken over immediately: SLURM has ended it
//   a live process, or a count that increases         refused
//   a count unchanged for long enough                 taken over
// An owner that lost its lease although it was only slow is fenced: before it gives a checkpoint
// its name, it finds another token, and stops. Two rules cover the short time between that check
// and the rename: the rename never replaces, and the new owner uses IfExists::set_aside.
#pragma once

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
#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/core/owner_tag.h"

namespace ddp::ckpt {

struct LeaseTimes {
  std::chrono::milliseconds beat{5000};      // between two increments of the count
  std::chrono::milliseconds silence{30000};  // after which an unreachable owner is considered dead
};

// Identifies a process uniquely, across hosts and reboots.
struct LeaseHolder {
  OwnerTag owner;
  std::string token;          // of the lease
  std::string machine;        // identifies one boot of one machine and one PID namespace
  std::uint64_t started = 0;  // start time of the process, in kernel ticks
  std::uint64_t beat = 0;

  bool operator==(const LeaseHolder&) const = default;

  static LeaseHolder of_this_process(const OwnerTag& owner);
  std::string text() const;  // one line; the same length for every count
  static std::optional<LeaseHolder> parse(std::string_view text);
  // "job 17 (restart 0) on node3, process 4242"
  std::string name() const;
};

enum class LeaseVerdict : std::uint8_t { take_over, watch, refuse };

// Decides whether `mine` may take over a lease held by `other`. Calls `lives` only for a process on
// the same machine; apart from that the function is pure.
LeaseVerdict judge_lease(const LeaseHolder& mine, const LeaseHolder& other,
                         const std::function<bool(const LeaseHolder&)>& lives);

// Another run saves to the directory, or nothing shows any more that this one does.
class LeaseError : public Error {
 public:
  using Error::Error;
};

// Created by LeaseClaim; the destructor removes the file if it still belongs to this holder.
class Lease {
 public:
  Lease(std::filesystem::path file, FileDescriptor fd, LeaseHolder mine, const LeaseTimes& times);
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  ~Lease();

  // Throws LeaseError if another run has taken the lease over or if its file is gone, IoError if
  // the file cannot be read.
  void require() const;

 private:
  void beat(const std::stop_token& stop, std::chrono::milliseconds interval);

  std::filesystem::path file_;
  FileDescriptor fd_;
  LeaseHolder mine_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::jthread thread_;  // last: stops first
};

// Acquires a lease in steps, because it may have to watch the current owner for a while.
class LeaseClaim {
 public:
  // ROOT must exist.
  LeaseClaim(const std::filesystem::path& root, const OwnerTag& owner, LeaseTimes times = {});

  // Works for about `at_most`. Returns the lease once this process holds it; until then returns
  // nullptr, and must be called again. Throws LeaseError if another run holds it, IoError if the
  // directory cannot be used.
  std::unique_ptr<Lease> advance(std::chrono::milliseconds at_most);

  // Returns the owner being watched, or the previous owner of a lease that was taken over.
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
  std::string seen_;  // text of the watched lease
  std::chrono::steady_clock::time_point since_;
};

}  // namespace ddp::ckpt
