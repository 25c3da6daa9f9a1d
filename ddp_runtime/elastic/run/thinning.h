// SPDX-License-Identifier: Apache-2.0
// Which entries are written to events.jsonl. Of those that say how far the program is, the newest
// one says all, so most are left out, and the log of a week stays small. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "ddp_runtime/elastic/events.h"

namespace ddp::elastic {

class Thinning {
 public:
  static constexpr Seconds kProgressEvery = 30;
  static constexpr Seconds kKeptEvery = 1;  // after the first one of a generation

  // The entries to write now, in their order: `entry`, or those that it was waiting for, or none.
  std::vector<nlohmann::json> pass(nlohmann::json entry, Seconds now);
  // Those that have waited long enough.
  std::vector<nlohmann::json> due(Seconds now);

 private:
  std::optional<nlohmann::json> progress_;  // that are not written yet
  std::optional<nlohmann::json> kept_;
  Seconds progress_written_ = -kProgressEvery;
  Seconds kept_written_ = -kKeptEvery;
};

}  // namespace ddp::elastic
