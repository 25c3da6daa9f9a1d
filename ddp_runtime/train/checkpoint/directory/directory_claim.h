// SPDX-License-Identifier: Apache-2.0
// The claim of a run on its checkpoint directory, to which only one run at a time saves.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/run_log.h"
#include "ddp_runtime/comm/group/group.h"
#include "hdf5_ckpt/core/owner_tag.h"
#include "hdf5_ckpt/directory/lease.h"

namespace ddp::train {

class DirectoryClaim {
 public:
  // An empty directory is never claimed. `group` and `log` must outlive this object.
  DirectoryClaim(comm::Group& group, std::filesystem::path directory, ckpt::OwnerTag owner,
                 const RunLog& log);
  DirectoryClaim(const DirectoryClaim&) = delete;
  DirectoryClaim& operator=(const DirectoryClaim&) = delete;

  // Collective. The first call claims the directory until this object is destroyed (Note [Lease]),
  // and removes the leftovers of its previous writers; later calls do nothing. Throws UsageError on
  // all ranks if another run saves there.
  void claim();

  // Throws LeaseError if another process has taken the directory over since claim(). Only rank 0
  // can notice that. May be called from any thread.
  void require() const;

 private:
  std::string advance_on_leader(std::optional<ckpt::LeaseClaim>& claim);
  void remove_leftovers(const ckpt::LeaseClaim& claim) const;

  comm::Group& group_;
  std::filesystem::path directory_;
  ckpt::OwnerTag owner_;
  const RunLog& log_;
  std::unique_ptr<ckpt::Lease> lease_;  // rank 0
  bool claimed_ = false;
};

}  // namespace ddp::train
