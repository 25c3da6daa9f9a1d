// SPDX-License-Identifier: Apache-2.0
// Buffers in shared memory: each rank of a node can access the copies of all ranks of that node.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "ddp_runtime/comm/node/node_barrier.h"
#include "ddp_runtime/comm/node/node_map.h"
#include "ddp_runtime/comm/node/shared_memory.h"

namespace ddp::comm {

class Group;
class Link;

struct SharedRegion {
  std::vector<std::byte*> copies;  // copies of the ranks of this node, by place
  std::size_t bytes = 0;
  std::byte* mine = nullptr;
  // Keeps all copies mapped until the last rank is done with them.
  std::vector<SharedMemory> mappings;
  std::vector<std::shared_ptr<std::byte>> heap;
};

class NodeMemory {
 public:
  // Collective over `group`. `key` is the same on all ranks of one node and different on any other
  // node; ranks that are threads of one process (`one_process`) share their memory directly.
  NodeMemory(Group& group, const std::string& key, bool one_process);

  // Allocates zeroed memory. Collective over `group`, in the same order on all ranks. Returns
  // nullptr on all ranks if one of them cannot share memory (no room in /dev/shm).
  std::shared_ptr<SharedRegion> allocate(Group& group, std::size_t bytes);

  // Allocates zeroed memory that the ranks of each node have in common, with the same rules.
  std::shared_ptr<std::byte> allocate_common(Group& group, std::size_t bytes);

  const NodeMap& map() const noexcept { return map_; }
  // Returns when all ranks of this node have called it as often as this one. Throws as link.check()
  // does while a rank is missing. Used only by the communication thread.
  void wait_for_all(Link& link);
  // Whether ranks of this node can share memory at all.
  bool usable() const noexcept { return barrier_ != nullptr; }

 private:
  std::string name_of(int rank, std::size_t number) const;
  std::shared_ptr<SharedRegion> allocate_in_process(Group& group, std::size_t bytes);
  std::shared_ptr<SharedRegion> allocate_shared(Group& group, std::size_t bytes);

  NodeMap map_;
  bool one_process_;
  std::string token_;
  std::size_t allocations_ = 0;
  std::shared_ptr<SharedRegion> counters_;
  std::unique_ptr<NodeBarrier> barrier_;
};

}  // namespace ddp::comm
