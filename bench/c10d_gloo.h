// PyTorch's process group over Gloo, for the peers that use it. Only where Gloo's headers are.
#pragma once

#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "ddp_runtime/comm/group.h"

namespace ddp::bench {

// Collective; connects by TCP over the interface that carries this host's name. Rank 0 listens on a
// port that the kernel chooses.
c10::intrusive_ptr<c10d::ProcessGroupGloo> connect_gloo(comm::Group& group);

}  // namespace ddp::bench
