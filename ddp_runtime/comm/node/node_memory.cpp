// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/node/node_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/secret/random_token.h"
#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/comm/group/zeroed_bytes.h"
#include "ddp_runtime/comm/transport/link.h"

namespace ddp::comm {
namespace {

constexpr std::size_t kAlignment = 4096;

std::size_t in_whole_pages(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Whole pages, of about the same number for each of `count` ranks.
SharedMemory::Slice slice_of(std::size_t bytes, std::size_t place, std::size_t count) {
  const std::size_t pages = bytes / kAlignment;
  const std::size_t first = pages * place / count;
  return {first * kAlignment, (pages * (place + 1) / count - first) * kAlignment};
}

// Removes the name of a block when all have opened it, or after an error.
class RemovedName {
 public:
  explicit RemovedName(std::string name) : name_(std::move(name)) {}
  RemovedName(const RemovedName&) = delete;
  RemovedName& operator=(const RemovedName&) = delete;
  ~RemovedName() {
    if (!name_.empty()) SharedMemory::remove_name(name_);
  }

 private:
  std::string name_;
};

bool all_agree(Group& group, bool mine) {
  return group.all_reduce_value<std::int64_t>(mine ? 1 : 0, ReduceOp::min) == 1;
}

}  // namespace

NodeMemory::NodeMemory(Group& group, const std::string& key, bool one_process)
    : map_(map_nodes(group.all_gather_text(key), group.rank())),
      one_process_(one_process),
      token_(group.broadcast_text(random_token(), 0)) {
  if (map_.place == 0 && !one_process_) SharedMemory::remove_old_names("slurm-ddp-");
  bool any_node_shares = false;
  for (const auto& node : map_.nodes) any_node_shares |= node.size() > 1;
  if (!any_node_shares) return;
  counters_ = allocate(group, sizeof(ArrivalCounter));
  if (!counters_) return;
  std::vector<ArrivalCounter*> counters;
  for (std::byte* copy : counters_->copies) {
    counters.push_back(reinterpret_cast<ArrivalCounter*>(copy));
  }
  barrier_ = std::make_unique<NodeBarrier>(std::move(counters), map_.place);
}

void NodeMemory::wait_for_all(Link& link) {
  barrier_->wait([&](std::size_t place) { link.check(-1, map_.local()[place]); });
}

std::shared_ptr<SharedRegion> NodeMemory::allocate(Group& group, std::size_t bytes) {
  const std::size_t rounded = in_whole_pages(bytes);
  return one_process_ ? allocate_in_process(group, rounded) : allocate_shared(group, rounded);
}

std::shared_ptr<std::byte> NodeMemory::allocate_common(Group& group, std::size_t bytes) {
  const std::size_t rounded = std::max(in_whole_pages(bytes), kAlignment);
  if (one_process_) {
    auto region = allocate_in_process(group, map_.place == 0 ? rounded : 0);
    return region->heap.front();
  }
  const auto name = name_of(map_.local().front(), allocations_++);
  const auto mine = slice_of(rounded, map_.place, map_.local().size());
  std::optional<SharedMemory> memory;
  const RemovedName removed(map_.place == 0 ? name : std::string());
  if (map_.place == 0) memory = SharedMemory::create_slice(name, rounded, mine);
  bool mapped = all_agree(group, map_.place > 0 || memory.has_value());
  if (!mapped) return nullptr;
  if (map_.place > 0) memory = SharedMemory::open_slice(name, rounded, mine);
  mapped = all_agree(group, memory.has_value());  // now all have opened it
  if (!mapped) return nullptr;
  auto owner = std::make_shared<SharedMemory>(std::move(*memory));
  return {owner, owner->span().data()};
}

std::string NodeMemory::name_of(int rank, std::size_t number) const {
  return fmt::format("/slurm-ddp-{}-{}-{}", token_, number, rank);
}

// Ranks that are threads exchange pointers. No rank returns before all have copied the others'
// pointers, so that the pointers stay valid.
std::shared_ptr<SharedRegion> NodeMemory::allocate_in_process(Group& group, std::size_t bytes) {
  const std::shared_ptr<std::byte> own = zeroed_bytes(bytes, kAlignment);
  auto address = static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(&own));
  std::vector<std::int64_t> addresses(static_cast<std::size_t>(group.size()));
  group.all_gather(buffer_of(address), buffer_of(std::span(addresses)), "addresses").wait();

  auto region = std::make_shared<SharedRegion>();
  region->bytes = bytes;
  region->mine = own.get();
  for (const int rank : map_.local()) {
    const auto peer = static_cast<std::intptr_t>(addresses[static_cast<std::size_t>(rank)]);
    // NOLINTNEXTLINE(performance-no-int-to-ptr): another thread's pointer, sent as a number
    region->heap.push_back(*reinterpret_cast<const std::shared_ptr<std::byte>*>(peer));
    region->copies.push_back(region->heap.back().get());
  }
  group.barrier("exchanged pointers").wait();
  return region;
}

std::shared_ptr<SharedRegion> NodeMemory::allocate_shared(Group& group, std::size_t bytes) {
  const std::size_t number = allocations_++;
  auto region = std::make_shared<SharedRegion>();
  region->bytes = bytes;
  auto own = SharedMemory::create(name_of(group.rank(), number), bytes);
  bool mapped = all_agree(group, own.has_value());
  if (mapped) {
    region->mine = own->span().data();
    for (const int rank : map_.local()) {
      if (rank == group.rank()) {
        region->copies.push_back(region->mine);
        continue;
      }
      auto peer = SharedMemory::open(name_of(rank, number), bytes);
      mapped = mapped && peer.has_value();
      if (!peer) break;
      region->copies.push_back(peer->span().data());
      region->mappings.push_back(std::move(*peer));
    }
    mapped = all_agree(group, mapped);  // now all ranks have opened this rank's memory
  }
  if (own) {
    SharedMemory::remove_name(name_of(group.rank(), number));
    region->mappings.push_back(std::move(*own));
  }
  return mapped ? region : nullptr;
}

}  // namespace ddp::comm
