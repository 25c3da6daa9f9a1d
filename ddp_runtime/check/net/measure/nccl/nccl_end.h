// SPDX-License-Identifier: Apache-2.0
// One end of an NCCL measurement between two GPUs. It runs in a separate process, because hanging
// driver and NCCL calls cannot be interrupted, but a process can be killed.
#pragma once

#include <cstdint>
#include <string>

#include "ddp_runtime/check/net/measure/exchange.h"
#include "ddp_runtime/check/net/measure/nccl/nccl_calls.h"
#include "ddp_runtime/check/net/measure/tcp.h"

namespace ddp::check {

struct NcclEnd {
  std::string nccl_library = nccl::kLibrary;
  std::string cuda_library = cuda::kDriverLibrary;
  std::string host = {};       // the other end; empty: this end listens
  std::uint16_t port = 0;      // port of the listening end
  std::uint64_t exchange = 0;  // number of the exchange; the same at both ends
  std::string token = {};      // random; authenticates the ends to each other
  std::size_t bytes = 0;       // size of the GPU buffer that is sent repeatedly
  Faults faults = {};          // faults of this end: speed and corrupt
};

// The end with a host sends first. The ends agree on NCCL's id and synchronize over TCP. Throws
// RuntimeError if anything fails; may hang in the libraries beyond the deadline.
ExchangeResult measure_by_nccl(const NcclEnd& end, Deadline deadline);

}  // namespace ddp::check
