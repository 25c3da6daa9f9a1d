// SPDX-License-Identifier: Apache-2.0
// Copies of the state in the memory of the nodes, for the next start of a program by ddp-run.
//
// Note [Copies in node memory]
// A copy costs one copying of the state, and no file system, so it can be made often. It is a save
// in a LocalStore (hdf5_ckpt/directory/local_store.h) whose directory is in a tmpfs: processes do
// not take it with them. If all ranks have the same state, the lowest rank of each node writes all
// of it, with rank 0's values of what differs between ranks, so that any node that is left has the
// state. Otherwise, each rank writes its part, and the nodes have a copy only together.
//
// A node holds two copies. The record of a file is written last, and the older copy goes only when
// all ranks have the newer one, so at any moment one copy is whole. A start restores the newest one
// that continues the newest checkpoint (memory_restore.h). Of one step, the checkpoint wins.
//
// A copy is never the last word: the end of a run saves a checkpoint, and then removes the copies.
// If ranks fail and ddp-run gives up, a last start saves the copy; see Note [The last start] in
// ddp_runtime/elastic/supervisor.h. Its files become the checkpoint, whatever the number of ranks.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/comm/ddp_run/run_memory.h"
#include "ddp_runtime/train/checkpoint/local/memory_restore.h"
#include "ddp_runtime/train/checkpoint/write/save_context.h"
#include "ddp_runtime/train/checkpoint/write/save_timer.h"
#include "ddp_runtime/train/state/state_array.h"
#include "hdf5_ckpt/core/array.h"
#include "hdf5_ckpt/directory/checkpoint_directory.h"
#include "hdf5_ckpt/directory/local_store.h"
#include "hdf5_ckpt/write/async_saver.h"

namespace ddp::train {

class MemoryCopies {
 public:
  explicit MemoryCopies(const SaveContext& context);
  MemoryCopies(const MemoryCopies&) = delete;
  MemoryCopies& operator=(const MemoryCopies&) = delete;

  // Collective, before resuming, when the directory is this run's. Without ddp-run, or if the
  // memory of a node cannot be used, one line says so, and there are no copies.
  void open();
  // Collective, then: what an earlier start of this run has left; see restore_from_memory().
  std::optional<MemoryCopy> restore(ckpt::CheckpointDirectory& directory);
  // Collective, instead of restore(), for a process that trains nothing: puts the newest copy that
  // continues the newest checkpoint in the directory, as its bytes are. Returns why that was not
  // possible, the same on all ranks; empty if it was, or if there is no such copy.
  std::string save(ckpt::CheckpointDirectory& directory);

  // Whether this rank's clock asks for a copy; only rank 0's does. Not collective.
  bool time_to_copy() const;
  void request() noexcept { requested_ = true; }
  // Whether a copy is due after this step; the same on all ranks.
  bool due(std::int64_t step) const;

  // Collective, if one is due. Returns as soon as `arrays` may change. `began`: when training
  // stopped for it. `info`: rank 0's.
  void start(std::int64_t step, const ckpt::CheckpointInfo& info,
             const std::vector<StateArray>& arrays, std::chrono::steady_clock::time_point began);
  // Whether this rank is still writing. Not collective.
  bool writing() const noexcept { return !saver_.idle(); }
  // Collective. `anyone_writing`: whether writing() is true on any rank.
  void poll(bool anyone_writing);
  // Training continues after a checkpoint, which is newer than all copies.
  void note_checkpoint();

  // When the last step is in a checkpoint: removes the copies. Call on all ranks.
  void remove() noexcept;

  // For run.json, on rank 0; null if there were no copies.
  nlohmann::json summary() const;

 private:
  struct Copy;

  NodeStores stores();
  std::string open_store();
  std::string room_problem(std::uint64_t mine) const;
  std::string prepare(std::uint64_t mine);
  std::vector<StateArray> share(std::vector<StateArray> arrays, Copy& copy);
  void take_values_of_leader(std::vector<StateArray>& arrays);
  void stage(const std::vector<StateArray>& share);
  void finish();
  void stop(const std::string& problem);
  void release() noexcept;

  const SaveContext context_;
  SaveTimer timer_;  // rank 0's
  std::optional<comm::RunMemory> memory_;
  std::optional<ckpt::LocalStore> store_;  // from the first copy on
  std::optional<ckpt::SaveId> restored_;   // of an earlier process, until this one has a copy
  std::shared_ptr<Copy> staging_;          // null on all ranks or on none
  std::shared_ptr<Copy> newest_;           // that all ranks have, and the one before it
  std::shared_ptr<Copy> older_;
  bool on_ = false;  // the same on all ranks; so are these
  bool requested_ = false;
  std::int64_t attempted_ = -1;
  std::int64_t copies_ = 0;
  double stalls_ = 0;  // of all copies, in seconds; rank 0
  std::uint64_t bytes_per_node_ = 0;
  ckpt::AsyncSaver saver_;  // last: its thread uses store_
};

}  // namespace ddp::train
