// SPDX-License-Identifier: Apache-2.0
// Verifies that all ranks still have the same parameters.
//
// Note [Replicas that drift apart]
// All ranks begin with the same parameters and apply the same averaged gradients, so they stay
// bitwise the same. But once one rank has skipped an update, used a different learning rate or
// written to a parameter, nothing corrects that: from then on each rank averages gradients of a
// different model, and no error is raised. So at regular intervals, the step agreement carries a
// checksum of the parameters. The ranks also compare a checksum before they save a checkpoint.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/parallel/replica/replica.h"

namespace ddp {

// Checksum of the bytes of all tensors, in this order: not negative. Different values have the same
// checksum only with a probability of 2^-63. About as fast as reading the memory.
std::int64_t checksum_of(std::span<const NamedTensor> tensors);

// Collective. Throws as throw_different_parameters() does if the ranks' checksums differ. `when`
// completes the sentence "the parameters are no longer the same on all ranks".
void require_same_parameters(comm::Group& group, std::span<const NamedTensor> parameters,
                             const std::string& when);

// Collective, for parameters that are known to differ: throws the same RuntimeError on all ranks,
// naming the ranks that differ from the majority, and the first differing parameter of each.
[[noreturn]] void throw_different_parameters(comm::Group& group,
                                             std::span<const NamedTensor> parameters,
                                             const std::string& when);

}  // namespace ddp
