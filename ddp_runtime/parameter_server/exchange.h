// SPDX-License-Identifier: Apache-2.0
// One exchange of this rank's worker with all servers: a request from the computing thread to the
// server's thread. Thread-safe.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <span>

#include "ddp_runtime/parameter_server/messages.h"

namespace ddp::parameter_server {

struct Exchange {
  Request request;
  std::span<const float> gradient;  // of all shards; empty if there is none
  std::span<float> values;          // of all shards: output
  std::span<float> velocity;        // of this rank's own shard: output, if not empty
};

class RequestSlot {
 public:
  // Called by the computing thread: submits an exchange and waits. Rethrows an error of the
  // server's thread. Returns the number of steps that every rank had completed.
  std::int64_t request(const Exchange& exchange);

  // Called by the server's thread: takes the submitted exchange. If `patient`, waits until one is
  // submitted or close() is called.
  std::optional<Exchange> take(bool patient);
  void finish(std::int64_t slowest);
  void fail(std::exception_ptr error);

  // Announces that no more exchanges will be submitted.
  void close();
  bool closed() const;

 private:
  enum class At : std::uint8_t { idle, handed_in, taken, finished };

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  At at_ = At::idle;
  Exchange exchange_;
  std::int64_t slowest_ = 0;
  std::exception_ptr error_;
  bool closed_ = false;
};

}  // namespace ddp::parameter_server
