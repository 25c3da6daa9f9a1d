// One end of a measurement between two GPUs by NCCL, as a process of its own: drivers and NCCL hang
// where nothing can interrupt them, and a process can be killed.
#pragma once

#include <cstdint>
#include <string>

#include "ddp_runtime/check/net/measure/exchange.h"
#include "ddp_runtime/check/net/measure/nccl_calls.h"
#include "ddp_runtime/check/net/measure/tcp.h"

namespace ddp::check {

struct NcclEnd {
  std::string nccl_library = kNcclLibrary;
  std::string cuda_library = kCudaLibrary;
  std::string host = {};       // the other end; empty: this one waits for a call
  std::uint16_t port = 0;      // where the end without a host listens
  std::uint64_t exchange = 0;  // number that both know
  std::string token = {};      // random; by it the ends know each other
  std::size_t bytes = 0;       // of memory on the GPU that is sent, over and over
  Faults faults = {};          // of this end: speed and corrupt
};

// The end with a host sends first. Over TCP the ends agree on NCCL's id and wait for each other.
// Throws RuntimeError when anything fails; may hang beyond the deadline inside the libraries.
ExchangeResult measure_by_nccl(const NcclEnd& end, Deadline deadline);

}  // namespace ddp::check
