// SPDX-License-Identifier: Apache-2.0
// PyTorch's Gloo process group, for the peers that use it. Built only if Gloo's headers are
// installed.
#pragma once

#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "ddp_runtime/comm/group/group.h"

namespace ddp::bench {

// Collective; connects by TCP over the interface that this host's name resolves to. Rank 0 listens
// on a port chosen by the kernel.
c10::intrusive_ptr<c10d::ProcessGroupGloo> connect_gloo(comm::Group& group);

}  // namespace ddp::bench
