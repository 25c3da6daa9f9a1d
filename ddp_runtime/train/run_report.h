// What a report says of a model, and the report itself: see run_reporter.h, which needs no torch.
#pragma once

#include <cstdint>
#include <vector>

#include "ddp_runtime/parallel/replica.h"
#include "ddp_runtime/train/evaluation.h"
#include "ddp_runtime/train/run_reporter.h"

namespace ddp::train {

// Of the float32 values of all parameters, in name order.
std::uint32_t parameters_crc32c(std::vector<NamedTensor> parameters);

}  // namespace ddp::train
