// SPDX-License-Identifier: Apache-2.0
// The plan of a run as a human-readable table, so that users notice a wrong option before training.
#pragma once

#include <cstdint>
#include <string>

#include "ddp_runtime/train/options/options.h"

namespace ddp::train {

struct RunHeader {
  std::string program;  // "ddp-train 0.1.0"
  std::string model;
  std::int64_t parameters = 0;
  std::string data;
  std::int64_t training_samples = 0;
  std::int64_t evaluation_samples = 0;
  int ranks = 1;
  std::string backend;
  int threads = 1;  // per rank
};

// One line per subject, with the names in one column; ends with a line break. Omits options that
// are off.
std::string run_table(const RunHeader& header, const TrainOptions& options);

// "1,234,567".
std::string with_commas(std::int64_t number);

}  // namespace ddp::train
