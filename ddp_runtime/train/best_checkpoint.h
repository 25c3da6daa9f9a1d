// SPDX-License-Identifier: Apache-2.0
// The best checkpoint of a run, in a directory of its own below the run's. Used on rank 0 only.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "ddp_runtime/parallel/replica.h"
#include "ddp_runtime/train/directory_claim.h"
#include "hdf5_ckpt/checkpoint_directory.h"
#include "hdf5_ckpt/owner_tag.h"

namespace ddp::train {

class BestCheckpoint {
 public:
  // `directory`: the run's. `claim` must outlive this object.
  BestCheckpoint(const std::filesystem::path& directory, ckpt::OwnerTag owner,
                 const DirectoryClaim& claim);

  // Saves a checkpoint and then removes the previous one; durable on return. Throws on failure.
  void save(std::uint64_t step, const std::vector<NamedTensor>& arrays,
            const ckpt::CheckpointInfo& info);

  // Sets a best checkpoint of a later step than `step` aside: it belongs to an abandoned branch,
  // and would be taken for the newest one.
  void set_aside_after(std::uint64_t step) const;

  // The checkpoint that this process saved last; empty if none.
  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path directory_;
  ckpt::OwnerTag owner_;
  const DirectoryClaim& claim_;
  std::filesystem::path path_;
};

}  // namespace ddp::train
