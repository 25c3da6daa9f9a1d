// SPDX-License-Identifier: Apache-2.0
// Gives units their whole parameters, and takes the memory back. When that happens is decided by
// UnitGathers.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/parallel/sharded/memory/flat_shard.h"
#include "ddp_runtime/parallel/sharded/memory/whole_memory.h"
#include "ddp_runtime/parallel/sharded/units/sharded_units.h"
#include "ddp_runtime/profile/step_recorder.h"

namespace ddp {

class WholeUnits {
 public:
  // `sharing` are the ranks that divide. Both must outlive this object.
  WholeUnits(comm::Group& sharing, FlatShard::Kept kept, ShardedUnits& units)
      : sharing_(sharing), kept_(kept), units_(units) {}

  // Whether the unit has its values, or will have them after wait().
  bool is_whole(std::size_t unit) const;
  // Collective, unless is_whole().
  void start_gather(std::size_t unit);
  void wait_for(std::size_t unit);
  // Nothing happens between enter() and leave(), and while parameters are whole on request.
  void release(std::size_t unit);
  void enter(std::size_t unit) { ++units_.all[unit].entered; }
  void leave(std::size_t unit) { --units_.all[unit].entered; }
  void release_each();
  // After an error, also of those that are in use.
  void forget_all();

  // Which units were gathered in this step, and when.
  void begin_step();
  void end_step() noexcept { in_step_ = false; }
  const std::vector<std::size_t>& gathered() const noexcept { return gathered_; }
  std::vector<profile::CommunicationSpan> take_spans() { return std::exchange(spans_, {}); }

  // For WholeParameters. All three are collective but for the last one.
  void gather_on_request();
  void keep_changes();
  void release_on_request() noexcept;
  // A whole copy would not have the values of the next update: throws UsageError, which begins with
  // `what`, while there are any.
  void require_not_requested(const char* what) const;

  // Around an update. Both are collective. Whole parameters get the updated values of all ranks;
  // divided ones, with the next gather.
  void begin_update();
  void end_update();
  // Throws UsageError if common parameters were changed otherwise: see Note [Common memory].
  void require_unchanged() const;

 private:
  void note(FlatShard& flat, const std::string& unit);

  comm::Group& sharing_;
  FlatShard::Kept kept_;
  ShardedUnits& units_;
  WholeMemory memory_;
  int requests_ = 0;  // that last
  bool in_step_ = false;
  std::vector<std::size_t> gathered_;
  std::vector<profile::CommunicationSpan> spans_;
};

}  // namespace ddp
