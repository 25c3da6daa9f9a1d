// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/elastic/accounting/step_pieces.h"

#include <utility>

namespace ddp::elastic {
namespace {

// The part of `time` that belongs to `part` of `whole` steps.
Micros share_of_time(Micros time, std::int64_t part, std::int64_t whole) {
  return static_cast<Micros>(static_cast<double>(time) * static_cast<double>(part) /
                             static_cast<double>(whole));
}

}  // namespace

void StepPieces::add(const Piece& piece) {
  // Further time of the last step.
  if (!pieces_.empty() && piece.to == pieces_.back().to &&
      piece.generation == pieces_.back().generation) {
    pieces_.back().productive += piece.productive;
    pieces_.back().degraded += piece.degraded;
    return;
  }
  pieces_.push_back(piece);
  if (pieces_.size() == kMaxPieces) merge_neighbors();
}

// Those of different generations stay apart, because each has an account of its own; if there are
// too many of these, the older one gets it all.
void StepPieces::merge_neighbors() {
  std::vector<Piece> merged;
  merged.reserve(kMaxPieces);
  for (const bool across : {false, true}) {
    merged.clear();
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      merged.push_back(pieces_[i]);
      if (i + 1 == pieces_.size()) break;
      const auto& next = pieces_[i + 1];
      if (!across && next.generation != pieces_[i].generation) continue;
      merged.back().to = next.to;
      merged.back().productive += next.productive;
      merged.back().degraded += next.degraded;
      ++i;
    }
    std::swap(pieces_, merged);
    if (pieces_.size() < kMaxPieces * 3 / 4) return;
  }
}

void StepPieces::take_after(std::int64_t step, const std::function<void(const Piece&)>& take) {
  while (!pieces_.empty() && pieces_.back().to > step) {
    auto& last = pieces_.back();
    if (last.from >= step) {
      take(last);
      pieces_.pop_back();
      continue;
    }
    Piece later = last;
    later.from = step;
    later.productive = share_of_time(last.productive, last.to - step, last.to - last.from);
    later.degraded = share_of_time(last.degraded, last.to - step, last.to - last.from);
    last.to = step;
    last.productive -= later.productive;
    last.degraded -= later.degraded;
    take(later);
  }
}

}  // namespace ddp::elastic
