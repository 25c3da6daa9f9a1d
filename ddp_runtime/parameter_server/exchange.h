// One exchange of this rank's worker with all servers: what the computing thread asks of the
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
  std::span<float> values;          // of all shards: filled
  std::span<float> velocity;        // of this rank's own shard: filled, unless empty
};

class RequestSlot {
 public:
  // The computing thread: hands one in and waits. Throws what the server's thread failed with.
  // Returns the number of steps that every rank had done.
  std::int64_t request(const Exchange& exchange);

  // The server's thread: takes what has been handed in. If `patient`, waits for it, or for close().
  std::optional<Exchange> take(bool patient);
  void finish(std::int64_t slowest);
  void fail(std::exception_ptr error);

  // No more will be handed in.
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
