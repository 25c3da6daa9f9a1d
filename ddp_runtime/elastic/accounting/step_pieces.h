// SPDX-License-Identifier: Apache-2.0
// When which steps were made, and how long they took: if the program resumes from an older state,
// the later ones are done again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "ddp_runtime/elastic/accounting/uses.h"

namespace ddp::elastic {

class StepPieces {
 public:
  // Of this many, neighbors become one, the oldest ones first to be long.
  static constexpr std::size_t kMaxPieces = 4096;

  struct Piece {
    std::int64_t from = 0;  // the step before the first one
    std::int64_t to = 0;
    Micros productive = 0;
    Micros degraded = 0;
    std::int64_t generation = 0;  // in which they were made
  };

  // `piece` continues where the last one has ended.
  void add(const Piece& piece);
  // Removes the time of the steps after `step`, and calls `take` with each piece of it. A piece
  // with steps on both sides is divided as if they took equally long.
  void take_after(std::int64_t step, const std::function<void(const Piece&)>& take);

  std::size_t size() const noexcept { return pieces_.size(); }

 private:
  void merge_neighbors();

  std::vector<Piece> pieces_;  // in the order of their steps
};

}  // namespace ddp::elastic
