// SPDX-License-Identifier: Apache-2.0
// Chooses the checkpoints to delete, and deletes them.

#include "hdf5_ckpt/directory/retention.h"

#include <fmt/format.h>

#include <fstream>
#include <sstream>

#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/directory/layout.h"
#include "hdf5_ckpt/io/directories.h"
#include "hdf5_ckpt/io/posix_read.h"

namespace ddp::ckpt {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxNotes = 1 << 20;  // bytes; a checkpoint needs about twenty

struct Stopped {};

// Returns the recorded notes; empty if there are none or if the file is not valid.
std::string notes_in(const fs::path& root) {
  try {
    const fs::path path = root / kVerifiedName;
    return text_of(open_regular_file(path), path.string(), kMaxNotes);
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

Retention::Retention(const fs::path& root, OwnerTag owner, FileOps& ops)
    : root_(fs::absolute(root)), owner_(std::move(owner)), ops_(&ops) {}

void Retention::remember_verified(const Checkpoint& checkpoint) {
  remember_verified(checkpoint.manifest());
}

void Retention::remember_verified(const Manifest& manifest) {
  verified_[manifest.step] = manifest.crc32c;
  if (manifest.permanent)
    permanent_.insert(manifest.step);
  else
    permanent_.erase(manifest.step);
  write_notes();
}

void Retention::remember_across_restarts() {
  keeps_notes_ = true;
  std::istringstream notes(notes_in(root_));
  std::uint64_t step = 0;
  std::uint32_t crc = 0;
  while (notes >> std::dec >> step >> std::hex >> crc) verified_.emplace(step, crc);
}

// Failures are ignored, because without the notes checkpoints are only read again.
void Retention::write_notes() const {
  if (!keeps_notes_) return;
  const fs::path draft = root_ / notes_draft_name(owner_);
  std::string text;
  for (const auto& [step, crc] : verified_) text += fmt::format("{} {:08x}\n", step, crc);
  ops_->unlink(draft.c_str());
  std::ofstream(draft) << text;
  if (ops_->rename(draft.c_str(), (root_ / kVerifiedName).c_str(), 0) != 0)
    ops_->unlink(draft.c_str());
}

bool Retention::is_permanent(const Candidate& candidate) {
  if (permanent_.contains(candidate.step)) return true;
  try {
    if (!Checkpoint::open(candidate.path).manifest().permanent) return false;
  } catch (const Error&) {
    return false;  // is_whole() reports the reason
  }
  permanent_.insert(candidate.step);
  return true;
}

bool Retention::is_whole(const Candidate& candidate, const ReadOptions& options,
                         RetentionReport& report) {
  try {
    const Checkpoint checkpoint = Checkpoint::open(candidate.path);
    if (checkpoint.manifest().step != candidate.step)
      throw DamagedError(fmt::format("checkpoint '{}': its manifest says step {}",
                                     candidate.path.string(), checkpoint.manifest().step));
    const auto known = verified_.find(candidate.step);
    if (known != verified_.end() && known->second == checkpoint.manifest().crc32c) return true;
    checkpoint.verify(options);
    remember_verified(checkpoint);
    return true;
  } catch (const DamagedError& error) {
    // If another process removed the checkpoint meanwhile, there is nothing to report.
    if (is_there(*ops_, candidate.path))
      report.notes.push_back(fmt::format("not counted and not deleted: {}", error.what()));
    return false;
  } catch (const UnreadableError& error) {
    report.notes.push_back(fmt::format("not read and not deleted: {}", error.what()));
    return false;
  }
}

void Retention::remove(const Candidate& candidate, RetentionReport& report) {
  const fs::path trash = root_ / owned_directory_name(kDeleting, candidate.step, owner_);
  if (const int code = rename_no_replace(*ops_, candidate.path, trash); code != 0) {
    report.notes.emplace_back(IoError("set aside for deletion", candidate.path, code).what());
    return;
  }
  try {
    // The removal of the name must be durable before the content is deleted.
    sync_directory(*ops_, root_);
  } catch (const IoError& error) {
    report.notes.emplace_back(error.what());
    return;
  }
  report.removed.push_back(candidate.step);
  verified_.erase(candidate.step);
  if (const int code = remove_directory(*ops_, trash); code != 0)
    report.notes.emplace_back(IoError("remove", trash, code).what());
}

RetentionReport Retention::apply(const RetentionPolicy& policy, const ReadOptions& options) {
  if (policy.keep_last == 0) throw Error("keep_last must be at least 1");
  RetentionReport report;
  ReadOptions reading = options;
  if (policy.stop)
    reading.progress = [&policy, told = options.progress](std::uint64_t done, std::uint64_t all) {
      if (policy.stop()) throw Stopped{};
      if (told) told(done, all);
    };
  try {
    apply(policy, reading, report);
  } catch (const Stopped&) {
    report.notes.emplace_back("old checkpoints were not removed: the process is about to exit");
  }
  return report;
}

void Retention::apply(const RetentionPolicy& policy, const ReadOptions& options,
                      RetentionReport& report) {
  std::vector<Candidate> surplus;
  std::size_t kept = 0;
  for (const Candidate& candidate : CheckpointDirectory(root_, {}, *ops_).candidates()) {
    if (policy.newest && candidate.step > *policy.newest) continue;
    if (policy.stop && policy.stop()) throw Stopped{};
    const bool enough = kept >= policy.keep_last;
    if (enough && policy.in_use && policy.in_use(candidate.step)) continue;
    if (enough && is_permanent(candidate)) continue;
    if (is_whole(candidate, options, report) && ++kept > policy.keep_last)
      surplus.push_back(candidate);
  }
  remove_all(surplus, report);
}

// Deletes the last first, so that an interruption leaves the more important ones.
void Retention::remove_all(const std::vector<Candidate>& surplus, RetentionReport& report) {
  for (auto candidate = surplus.rbegin(); candidate != surplus.rend(); ++candidate)
    remove(*candidate, report);
}

std::vector<std::string> remove_leftovers(const fs::path& root, const OwnerIsDead& is_dead,
                                          FileOps& ops) {
  std::vector<fs::path> found;
  for (const std::string& name : names_in_directory(ops, root)) {
    const auto owner = owner_of_leftover(name);
    if (owner && is_dead(*owner)) found.push_back(root / name);
  }
  std::vector<std::string> notes;
  for (const fs::path& path : found) {
    const int code = remove_directory(ops, path);
    notes.push_back(code != 0 ? std::string(IoError("remove the leftover", path, code).what())
                              : fmt::format("removed the leftover '{}'", path.string()));
  }
  return notes;
}

}  // namespace ddp::ckpt
