// Whether all ranks still have the same parameters.
//
// Note [Replicas that drift apart]
// All ranks begin with the same parameters and apply the same averaged gradients, so that they stay
// the same bitwise. Nothing makes them the same again, though, once one rank has left out an
// update, used another learning rate or written to a parameter: from then on each averages
// gradients of another model, and nothing fails. So every so many steps a checksum of the
// parameters travels with the step agreement, and one is compared before a checkpoint is taken from
// all ranks.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "ddp_runtime/comm/group.h"
#include "ddp_runtime/parallel/replica.h"

namespace ddp {

// Of the bytes of all tensors, in this order: not negative, different for different values but for
// an accident of one in 2^63. About as fast as memory is read.
std::int64_t checksum_of(std::span<const NamedTensor> tensors);

// Collective. Throws what throw_different_parameters() does if the ranks' checksums differ. `when`
// ends the sentence "the parameters are no longer the same on all ranks".
void require_same_parameters(comm::Group& group, std::span<const NamedTensor> parameters,
                             const std::string& when);

// Collective, for when they are known to differ: the same RuntimeError on all ranks, naming those
// that differ from most others, and the first parameter in which each does.
[[noreturn]] void throw_different_parameters(comm::Group& group,
                                             std::span<const NamedTensor> parameters,
                                             const std::string& when);

}  // namespace ddp
