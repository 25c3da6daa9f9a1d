// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/step/loss_watch.h"

#include <span>

namespace ddp::train {

void LossWatch::ask(bool finite) {
  flags_ = std::make_shared<std::vector<std::uint8_t>>(static_cast<std::size_t>(group_.size()));
  (*flags_)[static_cast<std::size_t>(group_.rank())] = finite ? 0 : 1;
  work_ = group_.all_reduce(comm::buffer_of(std::span(*flags_)), comm::ReduceOp::max,
                            "losses that are not finite", flags_);
}

std::vector<int> LossWatch::answer() {
  work_.wait();
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < flags_->size(); ++rank) {
    if ((*flags_)[rank] != 0) ranks.push_back(group_.world_rank(static_cast<int>(rank)));
  }
  return ranks;
}

}  // namespace ddp::train
