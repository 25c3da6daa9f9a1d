// SPDX-License-Identifier: Apache-2.0
// Messages between workers and servers. A worker and a server have only one exchange at a time, so
// both know the length of a message before it arrives:
//
//   worker to server   Request      then, for a push with a gradient, its slice for that shard
//   server to worker   Answer, and the shard's values; nothing after a shutdown
#pragma once

#include <cstdint>

namespace ddp::parameter_server {

inline constexpr int kRequestTag = 0;
inline constexpr int kGradientTag = 1;
inline constexpr int kAnswerTag = 2;
inline constexpr int kValuesTag = 3;

enum class RequestType : std::int64_t { push_and_pull, push_nothing_and_pull, pull, shutdown };

struct Request {
  RequestType type = RequestType::pull;
  std::int64_t step = 0;   // step number of a push, starting at 1
  std::int64_t needs = 0;  // answer when every rank has completed this many steps
  double learning_rate = 0;
};

struct Answer {
  std::int64_t slowest = 0;  // steps that every rank has completed
};

}  // namespace ddp::parameter_server
