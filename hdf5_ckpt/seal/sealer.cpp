// SPDX-License-Identifier: Apache-2.0
#include "hdf5_ckpt/seal/sealer.h"

#include <sys/stat.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/seal/finish_marker.h"
#include "hdf5_ckpt/seal/newest.h"

namespace ddp::ckpt {
namespace {

namespace fs = std::filesystem;

// What other ranks write after the first one has written its marker, and clocks that differ.
constexpr std::int64_t kAfterMarker = 30'000'000'000;

constexpr auto kTryAgain = std::chrono::minutes(5);  // a disk may be full for a while

std::int64_t last_change(const fs::path& file) {
  struct stat status = {};
  if (::stat(file.c_str(), &status) != 0) return 0;
  return modified_ns(status);
}

// One that a program has sealed needs no marker.
bool is_sealed_since_its_save(const fs::path& checkpoint) {
  if (!is_sealed(checkpoint)) return false;
  const auto marker = finish_marker(checkpoint);
  return !marker || last_change(seal_of(checkpoint)) >= last_change(*marker);
}

std::int64_t youngest_ns(const FileTree& tree) {
  std::int64_t youngest = 0;
  for (const auto& [path, file] : tree.files) youngest = std::max(youngest, file.modified_ns);
  return youngest;
}

}  // namespace

bool Sealer::is_quiet(const fs::path& checkpoint, Clock::time_point now) {
  FileTree tree = read_file_tree(checkpoint, kMaxSealedFiles);
  const auto seen = seen_.find(checkpoint);
  if (seen != seen_.end() && seen->second.tree == tree) return now - seen->second.since >= quiet_;
  seen_[checkpoint] = {std::move(tree), now, std::nullopt};
  return false;
}

bool Sealer::has_finished(const fs::path& checkpoint) const {
  const auto marker = finish_marker(checkpoint);
  if (!marker || !is_complete_marker(*marker)) return false;
  return youngest_ns(seen_.at(checkpoint).tree) <= last_change(*marker) + kAfterMarker;
}

bool Sealer::may_try(const fs::path& checkpoint, Clock::time_point now) const {
  const auto failed = seen_.at(checkpoint).failed;
  return !failed || now - *failed >= kTryAgain;
}

Sealer::Outcome Sealer::seal(const fs::path& checkpoint) {
  const SealedContents contents = seal_checkpoint(checkpoint, options_);
  seen_.erase(checkpoint);
  return {checkpoint, contents, ""};
}

std::optional<Sealer::Outcome> Sealer::look_at(const fs::path& checkpoint, Clock::time_point now) {
  try {
    if (is_sealed_since_its_save(checkpoint)) {
      seen_.erase(checkpoint);
    } else if (!is_quiet(checkpoint, now)) {
      is_waiting_ = true;
    } else if (may_try(checkpoint, now) && has_finished(checkpoint)) {
      return seal(checkpoint);
    }
  } catch (const std::exception& error) {
    const bool is_news = !std::exchange(seen_[checkpoint].failed, now);
    if (is_news && fs::exists(checkpoint)) return Outcome{checkpoint, {}, error.what()};
  }
  return std::nullopt;
}

std::vector<Sealer::Outcome> Sealer::look(Clock::time_point now) {
  std::vector<Outcome> outcomes;
  const std::vector<fs::path> checkpoints = unsorted_checkpoints(root_);
  std::erase_if(seen_, [&](const auto& seen) {
    return std::ranges::find(checkpoints, seen.first) == checkpoints.end();
  });
  is_waiting_ = false;
  for (const fs::path& checkpoint : checkpoints) {
    if (is_of_this_project(checkpoint)) continue;
    if (auto outcome = look_at(checkpoint, now)) outcomes.push_back(std::move(*outcome));
  }
  return outcomes;
}

std::vector<fs::path> Sealer::unfinished() const {
  std::vector<fs::path> found = unsorted_checkpoints(root_);
  std::erase_if(found,
                [](const fs::path& path) { return is_of_this_project(path) || is_sealed(path); });
  std::ranges::sort(found);
  return found;
}

}  // namespace ddp::ckpt
