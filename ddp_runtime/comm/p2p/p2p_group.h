// SPDX-License-Identifier: Apache-2.0
// A Group whose collectives are schedules of messages over a Transport. A communication thread runs
// them one after the other and also drives the messages between two ranks. It is a separate thread
// because MPI's non-blocking collectives and the transports make progress only inside their
// functions, and the callers are busy computing.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ddp_runtime/comm/failure/state/failure_state.h"
#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/comm/group/group_name.h"
#include "ddp_runtime/comm/group/subgroup.h"
#include "ddp_runtime/comm/node/node_memory.h"
#include "ddp_runtime/comm/p2p/group_options.h"
#include "ddp_runtime/comm/schedules/choice.h"
#include "ddp_runtime/comm/schedules/schedules.h"
#include "ddp_runtime/comm/schedules/survey.h"
#include "ddp_runtime/comm/transport/link.h"
#include "ddp_runtime/comm/transport/messages.h"
#include "ddp_runtime/comm/transport/point_to_point_channel.h"
#include "ddp_runtime/comm/transport/transport.h"

namespace ddp::comm {

class P2pGroup final : public Group {
 public:
  // `failures` must outlive the group and is shared with all code that reports failures.
  P2pGroup(std::unique_ptr<Transport> transport, FailureState& failures,
           const GroupOptions& options = {});
  // Finishes the queued operations, unless a rank has failed.
  ~P2pGroup() override;

  int rank() const noexcept override { return transport_->rank(); }
  int size() const noexcept override { return transport_->size(); }
  int world_rank(int rank) const noexcept override { return transport_->world_rank(rank); }
  const GroupName& name() const noexcept override { return name_; }
  std::string_view backend() const noexcept override { return transport_->name(); }
  FlightRecorder& flight_recorder() noexcept override { return *recorder_; }

  Group& channel(const std::string& name) override;
  std::uint64_t call_history() const override;
  PointToPointChannel& point_to_point_channel(const std::string& name) override;
  Group* split(int color, int key, const std::string& name) override;

  std::shared_ptr<std::byte> allocate(std::size_t bytes) override;
  std::shared_ptr<std::byte> allocate_common(std::size_t bytes) override;
  std::string machine_key() const override { return transport_->node_key(); }
  Work all_reduce(Buffer data, ReduceOp op, std::string label,
                  std::shared_ptr<const void> keep) override;
  Work reduce_scatter(Buffer input, Buffer output, ReduceOp op, std::string label,
                      std::shared_ptr<const void> keep) override;
  Work all_gather(Buffer input, Buffer output, std::string label,
                  std::shared_ptr<const void> keep) override;
  Work reduce_scatter(Buffer data, Cut cut, ReduceOp op, std::string label,
                      std::shared_ptr<const void> keep) override;
  Work all_gather(Buffer data, Cut cut, std::string label,
                  std::shared_ptr<const void> keep) override;
  Work all_gather(Buffer part, Buffer output, Cut cut, std::string label,
                  std::shared_ptr<const void> keep) override;
  Work broadcast(Buffer data, int root, std::string label,
                 std::shared_ptr<const void> keep) override;
  Work all_to_all(Buffer input, Buffer output, PartSizes parts, std::string label,
                  std::shared_ptr<const void> keep) override;
  Work send(Buffer data, int peer, std::string label, std::shared_ptr<const void> keep) override;
  Work receive(Buffer data, int peer, std::string label, std::shared_ptr<const void> keep) override;
  Work barrier(std::string label) override;

 private:
  // A channel of `parent`, or a group of some of its ranks.
  struct Opened {
    std::unique_ptr<Transport> transport;
    GroupOptions options;
    GroupName name;
    std::optional<schedules::Surroundings> surroundings;  // if they are those of the parent
  };
  P2pGroup(const P2pGroup& parent, Opened opened);

  // Collectives are numbered identically on all ranks, so that if a rank skips one, its next
  // collective is not mistaken for it.
  struct Operation {
    std::string name;
    std::string label;
    std::string signature;  // see OperationRecord
    std::function<void()> run;
    std::shared_ptr<Work::State> state;
  };

  // A buffer in memory from allocate().
  struct Located {
    std::shared_ptr<SharedRegion> region;
    std::size_t offset = 0;
  };
  Located locate(const Buffer& data);
  void reduce(const Located& place, Buffer data, ReduceOp op);
  void reduce_to_parts(const Located& place, Buffer data, const Starts& starts, ReduceOp op);
  void gather_into(const Located& place, Buffer part, Buffer output, const Starts& starts);
  void gather_parts(const Located& place, Buffer data, const Starts& starts);
  void spread(Buffer data, int root);
  // The cost model for a collective of `bytes` bytes. The communication threads of all ranks call
  // this for the same collective, because the first large collective triggers a survey of the
  // network.
  const schedules::CostModel& costs(std::size_t bytes);

  Work enqueue(std::string name, std::string label, std::string signature,
               std::function<void()> run);
  NodeMemory& node_memory();
  void warn_without_shared_memory(std::size_t bytes);
  std::unique_ptr<Transport> open_transport(const std::string& what);
  Work enqueue_message(Direction direction, Buffer data, int peer, const std::string& label,
                       std::shared_ptr<const void> keep);
  void communicate();
  void idle(int calls);
  void hurry();
  bool has_requests() const noexcept { return !queue_.empty() || !new_messages_.empty(); }
  void progress_messages();
  bool take_queued(Operation& operation, bool& over);
  void execute(Operation& operation);
  FlightRecorder::Handle begin(const Operation& operation);

  std::unique_ptr<Transport> transport_;
  FailureState& failures_;
  GroupOptions options_;
  GroupName name_;
  std::shared_ptr<FlightRecorder>
      recorder_;  // shared by all channels and parts: their operations belong to one timeline
  Link link_;
  Messages messages_;  // in flight
  Subgroup everyone_;
  bool has_warned_ = false;
  std::unique_ptr<NodeMemory> node_;  // see node_memory()
  std::map<const std::byte*, std::weak_ptr<SharedRegion>>
      regions_;  // used only by the calling thread
  schedules::Scratch scratch_;
  std::optional<schedules::Surroundings> surroundings_;  // set by the first large collective
  schedules::CostModel costs_;
  std::uint64_t sequence_ = 0;  // number of the next collective

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Operation> queue_;
  std::deque<MessageRequest> new_messages_;
  std::uint64_t call_history_ = 0;
  bool stopping_ = false;
  bool hurried_ = false;  // see idle()
  std::thread thread_;    // uses everything above

  // Used only by the calling thread.
  std::map<std::string, std::unique_ptr<P2pGroup>> channels_;
  std::vector<std::unique_ptr<PointToPointChannel>> point_to_point_channels_;
  std::vector<std::unique_ptr<P2pGroup>> parts_;
};

}  // namespace ddp::comm
