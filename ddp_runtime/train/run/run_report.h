// SPDX-License-Identifier: Apache-2.0
// The part of a run's report that needs torch. run_outcome.h and run_reporter.h have the rest.
#pragma once

#include <cstdint>
#include <vector>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/parallel/replica/replica.h"
#include "ddp_runtime/train/report/run_outcome.h"
#include "ddp_runtime/train/state/divided_parameters.h"

namespace ddp::train {

// Checksum of the float32 values of all parameters, in name order.
std::uint32_t parameters_crc32c(std::vector<NamedTensor> parameters);
// Collective. The same if ranks have only rows of parameters, which are not gathered.
std::uint32_t parameters_crc32c(comm::Group& group, const std::vector<NamedTensor>& parameters,
                                const DividedParameters& divided);

}  // namespace ddp::train
