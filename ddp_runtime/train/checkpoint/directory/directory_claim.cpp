// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/checkpoint/directory/directory_claim.h"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <utility>

#include "base/errors.h"
#include "hdf5_ckpt/directory/checkpoint_directory.h"
#include "hdf5_ckpt/directory/retention.h"

namespace ddp::train {
namespace {

// Rank 0's answer when it holds the lease. Any other text is an error; no text means "not yet".
constexpr const char* kHaveLease = "have";

}  // namespace

DirectoryClaim::DirectoryClaim(comm::Group& group, std::filesystem::path directory,
                               ckpt::OwnerTag owner, const RunLog& log)
    : group_(group), directory_(std::move(directory)), owner_(std::move(owner)), log_(log) {}

// Checks repeatedly and briefly: rank 0 may have to watch another owner for a while, and the other
// ranks must not block in one long wait.
void DirectoryClaim::claim() {
  if (claimed_ || directory_.empty()) return;
  std::optional<ckpt::LeaseClaim> claim;
  std::string said;
  while (said != kHaveLease) {
    const std::string mine = group_.rank() == 0 ? advance_on_leader(claim) : std::string();
    said = group_.broadcast_text(mine, 0);
    if (!said.empty() && said != kHaveLease) throw UsageError(said);
  }
  claimed_ = true;
  if (group_.rank() == 0) remove_leftovers(*claim);
}

std::string DirectoryClaim::advance_on_leader(std::optional<ckpt::LeaseClaim>& claim) {
  constexpr auto kLook = std::chrono::milliseconds(500);
  try {
    const bool first = !claim;
    if (first) claim.emplace(directory_, owner_);
    lease_ = claim->advance(first ? std::chrono::milliseconds(0) : kLook);
    if (!lease_ && first) {
      log_.line(fmt::format(
          "checkpoint: waiting for up to 30 s to see whether {} still saves to {}",
          claim->other() ? claim->other()->name() : "another process", directory_.string()));
    }
  } catch (const std::exception& e) {
    return e.what();
  }
  return lease_ ? kHaveLease : "";
}

// The directory is now this run's, so its previous writers are gone.
void DirectoryClaim::remove_leftovers(const ckpt::LeaseClaim& claim) const {
  const auto relative = ckpt::dead_relatives_of(owner_);
  const auto dead = [&](const ckpt::OwnerTag& owner) {
    return relative(owner) || (claim.other() && claim.other()->owner == owner && owner != owner_);
  };
  for (const auto& dir : ckpt::with_best_directory(directory_)) ckpt::remove_leftovers(dir, dead);
}

void DirectoryClaim::require() const {
  if (lease_) lease_->require();
}

}  // namespace ddp::train
