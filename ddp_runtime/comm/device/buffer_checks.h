// SPDX-License-Identifier: Apache-2.0
// What groups that communicate device memory require of their callers' buffers.
#pragma once

#include <stdexcept>

#include "ddp_runtime/comm/group/buffer.h"
#include "ddp_runtime/comm/group/group.h"

namespace ddp::comm {

inline void require_valid(bool condition, const char* what) {
  if (!condition) throw std::invalid_argument(what);
}

inline bool on_device(const Buffer& a) {
  return a.memory == Memory::device;
}

// Whether both are in device memory, on one stream.
inline bool on_device(const Buffer& a, const Buffer& b) {
  require_valid(a.memory == b.memory && a.stream == b.stream,
                "both buffers of a collective must be in the same memory, on the same stream");
  return on_device(a);
}

inline void require_reduce_scatter(const Group& group, const Buffer& input, const Buffer& output) {
  require_valid(input.type == output.type &&
                    input.count == output.count * static_cast<std::size_t>(group.size()),
                "reduce_scatter: input must hold size() times the elements of output, of one type");
}

inline void require_all_gather(const Group& group, const Buffer& input, const Buffer& output) {
  require_valid(input.type == output.type &&
                    output.count == input.count * static_cast<std::size_t>(group.size()),
                "all_gather: output must hold size() times the elements of input, of one type");
}

inline void require_root(const Group& group, int root) {
  require_valid(root >= 0 && root < group.size(), "broadcast: root is not a rank of the group");
}

// `what`: "send: peer is not another rank".
inline void require_peer(const Group& group, int peer, const char* what) {
  require_valid(peer >= 0 && peer < group.size() && peer != group.rank(), what);
}

}  // namespace ddp::comm
