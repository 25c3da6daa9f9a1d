// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/p2p/p2p_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <optional>
#include <utility>

#include "ddp_runtime/comm/group/awaited_work.h"
#include "ddp_runtime/comm/group/call_record.h"
#include "ddp_runtime/comm/group/peer_failure.h"
#include "ddp_runtime/comm/group/zeroed_bytes.h"
#include "ddp_runtime/comm/p2p/split_plan.h"
#include "ddp_runtime/comm/schedules/chain.h"
#include "ddp_runtime/comm/schedules/node_all_reduce.h"
#include "ddp_runtime/comm/schedules/node_broadcast.h"
#include "ddp_runtime/comm/schedules/node_parts.h"
#include "ddp_runtime/comm/transport/thread_settings.h"

namespace ddp::comm {
namespace {

// Smaller messages, such as flags, counts and times, are sent in as few steps as possible on any
// network.
constexpr std::size_t kCacheLine = 64;
constexpr std::size_t kTinyMessage = 4096;
constexpr int kCollectiveTags = 32767;  // from 0; messages between two ranks use the next tag
constexpr int kManyCalls = 1000;  // of Transport::idle(): naps have become as long as they get
constexpr int kPatience = 4;      // how much longer naps are while no thread waits

void require(bool condition, const char* what) {
  if (!condition) throw std::invalid_argument(what);
}

void require_host(const Buffer& data) {
  require(data.memory == Memory::host,
          "this group communicates host memory, but the buffer is in the memory of a device; set "
          "WorldOptions::gpus for tensors on GPUs");
}

void copy(const Buffer& from, const Buffer& to) {
  if (from.count > 0) std::memmove(to.data, from.data, from.bytes());
}

// If the network was measured already, the result holds for the parts of the group, too. They do
// not report it, because there may be many of them.
GroupOptions options_of_part(GroupOptions options,
                             const std::optional<schedules::Surroundings>& surroundings) {
  options.announce = nullptr;
  if (surroundings) {
    options.network = {.kind = NetworkSource::Kind::given, .model = surroundings->network};
  }
  return options;
}

std::vector<SplitRequest> gather_requests(Group& group, const SplitRequest& mine) {
  std::vector<std::int64_t> numbers{mine.color, mine.key};
  std::vector<std::int64_t> all(numbers.size() * static_cast<std::size_t>(group.size()));
  group.all_gather(buffer_of(std::span(numbers)), buffer_of(std::span(all)), "split").wait();
  const auto names = group.all_gather_text(mine.name);
  std::vector<SplitRequest> requests;
  for (std::size_t r = 0; r < names.size(); ++r) {
    requests.push_back({static_cast<int>(all[2 * r]), static_cast<int>(all[2 * r + 1]), names[r]});
  }
  return requests;
}

// The ranks of a part have been in the same parts of these ranks before, so they choose the same
// number.
GroupName add_part_name(FlightRecorder& recorder, const std::string& name,
                        std::span<const int> world_ranks) {
  for (int number = 1;; ++number) {
    GroupName found = name_of_part(name, world_ranks, number);
    if (recorder.add_group(found.channel)) return found;
  }
}

LinkLimits whole_elements(LinkLimits limits) {
  require(limits.segment_bytes > 0 && limits.window > 0,
          "segments must have at least one byte, and at least one must be in flight");
  // Segments are reduced one by one, so each must hold whole elements of any type.
  limits.segment_bytes = (limits.segment_bytes + 7) / 8 * 8;
  return limits;
}

}  // namespace

P2pGroup::P2pGroup(std::unique_ptr<Transport> transport, FailureState& failures,
                   const GroupOptions& options)
    : transport_(std::move(transport)),
      failures_(failures),
      options_(options),
      recorder_(std::make_shared<FlightRecorder>()),
      link_(*transport_, failures, whole_elements(options.limits)),
      messages_(*transport_, failures, options.limits, recorder_, name_.channel),
      everyone_(Subgroup::all(transport_->rank(), transport_->size())),
      costs_{options_.network.model, link_.segment_bytes()},
      thread_([this] { communicate(); }) {}

P2pGroup::P2pGroup(const P2pGroup& parent, Opened opened)
    : transport_(std::move(opened.transport)),
      failures_(parent.failures_),
      options_(std::move(opened.options)),
      name_(std::move(opened.name)),
      recorder_(parent.recorder_),
      link_(*transport_, failures_, whole_elements(options_.limits)),
      messages_(*transport_, failures_, options_.limits, recorder_, name_.channel),
      everyone_(Subgroup::all(transport_->rank(), transport_->size())),
      surroundings_(std::move(opened.surroundings)),
      costs_{surroundings_ ? surroundings_->network : options_.network.model,
             link_.segment_bytes()},
      thread_([this] { communicate(); }) {}

Group& P2pGroup::channel(const std::string& name) {
  const auto found = channels_.find(name);
  if (found != channels_.end()) return *found->second;
  auto transport = open_transport(fmt::format("channel {}", name));
  GroupName full_name = name_.of_channel(name);
  if (full_name.of_some_ranks) recorder_->add_group(full_name.channel);
  std::unique_ptr<P2pGroup> opened(
      new P2pGroup(*this, {std::move(transport), options_, std::move(full_name), surroundings_}));
  return *channels_.emplace(name, std::move(opened)).first->second;
}

Group* P2pGroup::split(int color, int key, const std::string& name) {
  const auto requests = gather_requests(*this, {color, key, name});
  require_short_names(requests);
  // Opening a transport has no time limit, but here all ranks have just called.
  const std::vector<int> members = members_of_part(requests, rank());
  auto transport = transport_->split(members);
  if (!transport) return nullptr;
  std::vector<int> world_ranks;
  world_ranks.reserve(members.size());
  for (const int member : members) world_ranks.push_back(world_rank(member));
  const std::string& chosen = requests[static_cast<std::size_t>(members.front())].name;
  std::unique_ptr<P2pGroup> part(
      new P2pGroup(*this, {std::move(transport), options_of_part(options_, surroundings_),
                           add_part_name(*recorder_, chosen, world_ranks), std::nullopt}));
  return parts_.emplace_back(std::move(part)).get();
}

PointToPointChannel& P2pGroup::point_to_point_channel(const std::string& name) {
  auto transport = open_transport(fmt::format("line {}", name));
  point_to_point_channels_.push_back(std::make_unique<PointToPointChannel>(
      PointToPointChannel{std::move(transport), &failures_, options_.limits, nullptr}));
  return *point_to_point_channels_.back();
}

std::unique_ptr<Transport> P2pGroup::open_transport(const std::string& what) {
  // Opening a transport has no time limit and does not detect failures. This barrier has a time
  // limit and detects failures.
  barrier(fmt::format("opening of {}", what)).wait();
  return transport_->split(everyone_.ranks);
}

std::uint64_t P2pGroup::call_history() const {
  const std::lock_guard lock(mutex_);
  return call_history_;
}

P2pGroup::~P2pGroup() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

Work P2pGroup::enqueue(std::string name, std::string label, std::string signature,
                       std::function<void()> run) {
  failures_.throw_if_failed();
  Operation operation{std::move(name), std::move(label), std::move(signature), std::move(run),
                      Work::make_state()};
  Work work(operation.state);
  {
    const std::lock_guard lock(mutex_);
    call_history_ = hash_on(hash_on(call_history_, operation.name), operation.signature);
    queue_.push_back(std::move(operation));
  }
  wake_.notify_one();
  return work;
}

Work P2pGroup::enqueue_message(Direction direction, Buffer data, int peer, const std::string& label,
                               std::shared_ptr<const void> keep) {
  require_host(data);
  failures_.throw_if_failed();
  const std::string name = direction == Direction::outgoing ? "send" : "receive";
  MessageRequest request{
      direction,
      peer,
      data.span(),
      name_.before + name + (label.empty() ? "" : " (" + label + ")") + name_.after,
      describe(data),
      std::move(keep),
      Work::make_state()};
  Work work(request.state);
  call_on_wait(*request.state, [this] { hurry(); });
  {
    const std::lock_guard lock(mutex_);
    new_messages_.push_back(std::move(request));
  }
  wake_.notify_one();
  return work;
}

// Waits for work, unless messages are in flight. Returns whether there is a collective. Sets `over`
// if there will be no further collective or message.
bool P2pGroup::take_queued(Operation& operation, bool& over) {
  std::unique_lock lock(mutex_);
  if (messages_.empty()) wake_.wait(lock, [this] { return stopping_ || has_requests(); });
  for (auto& message : new_messages_) messages_.post(std::move(message));
  new_messages_.clear();
  if (!queue_.empty()) {
    operation = std::move(queue_.front());
    queue_.pop_front();
    return true;
  }
  over = stopping_ && messages_.empty();
  return false;
}

void P2pGroup::communicate() {
  name_this_thread(name_.thread);
  sleep_precisely();
  wake_early();
  link_.set_meanwhile([this] { progress_messages(); });
  int idle_calls = 0;
  bool over = false;
  while (!over) {
    Operation operation;
    if (take_queued(operation, over)) {
      execute(operation);
    } else if (!messages_.empty()) {
      idle_calls = messages_.progress() ? 0 : idle_calls + 1;
      if (idle_calls > 0) idle(idle_calls - 1);
      continue;
    }
    idle_calls = 0;
  }
}

// Between two polls of messages. A new request ends the nap, because a peer may wait for it, and so
// does a thread that begins to wait here. Until then, polling only takes a core from threads that
// compute, so naps are longer, and begin at once if nothing is to be sent.
void P2pGroup::idle(int calls) {
  const bool awaited = messages_.awaited();
  auto nap = transport_->nap_after(awaited || messages_.outgoing() ? calls : kManyCalls);
  if (nap.count() == 0) return transport_->idle(calls);
  if (!awaited) nap *= kPatience;
  std::unique_lock lock(mutex_);
  wake_.wait_for(lock, nap, [this] { return has_requests() || hurried_; });
  hurried_ = false;
}

void P2pGroup::hurry() {
  {
    const std::lock_guard lock(mutex_);
    hurried_ = true;
  }
  wake_.notify_one();
}

// Called while a collective waits. Also drives messages that were requested after it began.
void P2pGroup::progress_messages() {
  {
    const std::lock_guard lock(mutex_);
    for (auto& message : new_messages_) messages_.post(std::move(message));
    new_messages_.clear();
  }
  if (!messages_.empty()) messages_.progress();
}

void P2pGroup::execute(Operation& operation) {
  std::exception_ptr error;
  std::optional<FlightRecorder::Handle> record;
  try {
    Work::begin(*operation.state);
    record = begin(operation);
    operation.run();
  } catch (const PeerFailure&) {
    error = std::current_exception();
  } catch (const BrokenCollective& e) {
    error = std::current_exception();
    failures_.fail({.rank = world_rank(rank()), .text = e.what(), .symptom = e.symptom()});
  } catch (const std::exception& e) {
    // This rank's message order is now broken, so all later operations must fail, too.
    error = std::current_exception();
    failures_.fail({world_rank(rank()), e.what()});
  }
  link_.end();
  if (record) recorder_->end(*record, error != nullptr);
  operation.run = nullptr;  // drop the references to buffers before the waiting thread continues
  Work::finish(*operation.state, error);
}

FlightRecorder::Handle P2pGroup::begin(const Operation& operation) {
  const std::string label = operation.label.empty() ? "" : fmt::format(" ({})", operation.label);
  const std::uint64_t number = sequence_++;
  const std::string what =
      fmt::format("{}{} #{}{}{}", name_.before, operation.name, number, label, name_.after);
  link_.begin(static_cast<int>(number % kCollectiveTags), what);
  return recorder_->begin(number, what, operation.name + ": " + operation.signature, name_.channel);
}

std::shared_ptr<std::byte> P2pGroup::allocate(std::size_t bytes) {
  if (size() > 1) {
    if (auto region = node_memory().usable() ? node_->allocate(*this, bytes) : nullptr) {
      regions_[region->mine] = region;
      return {region, region->mine};
    }
    warn_without_shared_memory(bytes);
  }
  return zeroed_bytes(bytes, kCacheLine);
}

// Once, if ranks of a machine could share memory.
void P2pGroup::warn_without_shared_memory(std::size_t bytes) {
  const bool could_share = node_->map().nodes.size() < static_cast<std::size_t>(size());
  if (!could_share || std::exchange(has_warned_, true)) return;
  if (rank() != 0 || !options_.announce) return;
  options_.announce(
      fmt::format("no room in /dev/shm for {} bytes of a rank, so that ranks of a node send each "
                  "other messages: "
                  "that is slower, and sums can differ in the last bits; make /dev/shm larger",
                  bytes));
}

std::shared_ptr<std::byte> P2pGroup::allocate_common(std::size_t bytes) {
  if (size() == 1) return zeroed_bytes(bytes, kCacheLine);
  return node_memory().allocate_common(*this, bytes);
}

// Collective when it is called for the first time.
NodeMemory& P2pGroup::node_memory() {
  if (!node_) {
    node_ = std::make_unique<NodeMemory>(*this, transport_->node_key(), transport_->one_process());
  }
  return *node_;
}

P2pGroup::Located P2pGroup::locate(const Buffer& data) {
  auto entry = regions_.upper_bound(data.data);
  if (entry == regions_.begin()) return {};
  --entry;
  auto region = entry->second.lock();
  if (!region) {
    regions_.erase(entry);
    return {};
  }
  const auto offset = static_cast<std::size_t>(data.data - region->mine);
  if (offset + data.bytes() > region->bytes) return {};
  return {std::move(region), offset};
}

const schedules::CostModel& P2pGroup::costs(std::size_t bytes) {
  if (surroundings_ || bytes <= kTinyMessage || size() == 1) return costs_;
  surroundings_ =
      schedules::survey(link_, everyone_, transport_->node_key(), options_.network, scratch_);
  costs_.network = surroundings_->network;
  if (rank() == 0 && options_.announce) {
    options_.announce(fmt::format("{} {}", to_string(options_.network.kind),
                                  schedules::describe(size(), costs_)));
  }
  return costs_;
}

void P2pGroup::reduce(const Located& place, Buffer data, ReduceOp op) {
  if (size() == 1 || data.count == 0) return;
  const bool in_order = options_.in_rank_order;
  const auto& model = costs(data.bytes());
  if (place.region && (!in_order || node_->map().in_rank_order)) {
    return schedules::node_all_reduce(link_, *node_, *place.region, place.offset, data, op,
                                      in_order, scratch_, model);
  }
  const auto all_reduce = in_order ? schedules::all_reduce_in_order : schedules::all_reduce;
  all_reduce(link_, everyone_, data, op, scratch_, model);
}

void P2pGroup::reduce_to_parts(const Located& place, Buffer data, const Starts& starts,
                               ReduceOp op) {
  if (size() == 1 || data.count == 0) return;
  const bool in_order = options_.in_rank_order;
  const auto& model = costs(data.bytes());
  if (place.region && (!in_order || node_->map().in_rank_order)) {
    return schedules::node_reduce_to_parts(link_, *node_, *place.region, place.offset, data, starts,
                                           op, in_order, scratch_, model);
  }
  if (in_order) {
    return schedules::reduce_to_parts_in_order(link_, everyone_, data, starts, op, scratch_);
  }
  schedules::reduce_to_parts(link_, everyone_, data, starts, op, scratch_, model);
}

void P2pGroup::gather_into(const Located& place, Buffer part, Buffer output, const Starts& starts) {
  if (size() > 1 && output.count > 0 && place.region && node_->map().nodes.size() == 1) {
    return schedules::node_gather_into(link_, *node_, *place.region, place.offset, output, starts);
  }
  copy(part, part_of(output, starts, rank()));
  gather_parts({}, output, starts);
}

void P2pGroup::gather_parts(const Located& place, Buffer data, const Starts& starts) {
  if (size() == 1 || data.count == 0) return;
  if (place.region && node_->map().nodes.size() == 1) {
    return schedules::node_gather_parts(link_, *node_, *place.region, place.offset, data, starts);
  }
  schedules::gather_parts(link_, everyone_, data, starts, costs(data.bytes()));
}

void P2pGroup::spread(Buffer data, int root) {
  const auto& model = costs(data.bytes());
  const std::size_t nodes = surroundings_ ? surroundings_->nodes.nodes.size() : 1;
  if (nodes > 1 && nodes < everyone_.ranks.size()) {
    return schedules::node_broadcast(link_, surroundings_->nodes, data, root, model);
  }
  schedules::broadcast(link_, everyone_, data, root, model);
}

Work P2pGroup::all_reduce(Buffer data, ReduceOp op, std::string label,
                          std::shared_ptr<const void> keep) {
  require_host(data);
  return enqueue(
      "all_reduce", std::move(label), fmt::format("{} of {}", to_string(op), describe(data)),
      [=, this, place = locate(data), keep = std::move(keep)] { reduce(place, data, op); });
}

Work P2pGroup::reduce_scatter(Buffer input, Buffer output, ReduceOp op, std::string label,
                              std::shared_ptr<const void> keep) {
  require_host(input);
  require_host(output);
  require(
      input.type == output.type && input.count == output.count * static_cast<std::size_t>(size()),
      "reduce_scatter: input must hold size() times the elements of output, of one type");
  return enqueue("reduce_scatter", std::move(label),
                 fmt::format("{} of {}", to_string(op), describe(input)),
                 [=, this, place = locate(input), starts = even_starts(input.count, size()),
                  keep = std::move(keep)] {
                   reduce_to_parts(place, input, starts, op);
                   copy(part_of(input, starts, rank()), output);
                 });
}

Work P2pGroup::reduce_scatter(Buffer data, Cut cut, ReduceOp op, std::string label,
                              std::shared_ptr<const void> keep) {
  require_host(data);
  return enqueue("reduce_scatter", std::move(label),
                 fmt::format("{} of {}", to_string(op), describe(data, cut)),
                 [=, this, place = locate(data), starts = starts_of(cut, data.count, size()),
                  keep = std::move(keep)] { reduce_to_parts(place, data, starts, op); });
}

Work P2pGroup::all_gather(Buffer input, Buffer output, std::string label,
                          std::shared_ptr<const void> keep) {
  require_host(input);
  require_host(output);
  require(
      input.type == output.type && output.count == input.count * static_cast<std::size_t>(size()),
      "all_gather: output must hold size() times the elements of input, of one type");
  return enqueue("all_gather", std::move(label), describe(input),
                 [=, this, place = locate(output), starts = even_starts(output.count, size()),
                  keep = std::move(keep)] {
                   copy(input, part_of(output, starts, rank()));
                   gather_parts(place, output, starts);
                 });
}

Work P2pGroup::all_gather(Buffer data, Cut cut, std::string label,
                          std::shared_ptr<const void> keep) {
  require_host(data);
  return enqueue("all_gather", std::move(label), describe(data, cut),
                 [=, this, place = locate(data), starts = starts_of(cut, data.count, size()),
                  keep = std::move(keep)] { gather_parts(place, data, starts); });
}

Work P2pGroup::all_gather(Buffer part, Buffer output, Cut cut, std::string label,
                          std::shared_ptr<const void> keep) {
  require_host(part);
  require_host(output);
  const Starts starts = starts_of(cut, output.count, size());
  require(part.type == output.type && part.count == part_of(output, starts, rank()).count,
          "all_gather: the part must have the size and type of this rank's part of the output");
  return enqueue("all_gather", std::move(label), describe(output, cut),
                 [=, this, place = locate(part), keep = std::move(keep)] {
                   gather_into(place, part, output, starts);
                 });
}

Work P2pGroup::all_to_all(Buffer input, Buffer output, PartSizes sizes, std::string label,
                          std::shared_ptr<const void> keep) {
  require_host(input);
  require_host(output);
  Parts parts = find_parts(input, output, sizes, rank(), size());
  // Ranks have different numbers of elements if their parts do.
  std::string signature =
      sizes.equal() ? describe(input) : fmt::format("parts of {}", to_string(input.type));
  return enqueue("all_to_all", std::move(label), std::move(signature),
                 [this, parts = std::move(parts), keep = std::move(keep)] {
                   schedules::all_to_all(link_, everyone_, parts);
                 });
}

Work P2pGroup::broadcast(Buffer data, int root, std::string label,
                         std::shared_ptr<const void> keep) {
  require_host(data);
  require(root >= 0 && root < size(), "broadcast: root is not a rank of the group");
  return enqueue("broadcast", std::move(label),
                 fmt::format("{} from rank {}", describe(data), world_rank(root)),
                 [=, this, keep = std::move(keep)] { spread(data, root); });
}

Work P2pGroup::send(Buffer data, int peer, std::string label, std::shared_ptr<const void> keep) {
  require(peer >= 0 && peer < size() && peer != rank(), "send: peer is not another rank");
  return enqueue_message(Direction::outgoing, data, peer, label, std::move(keep));
}

Work P2pGroup::receive(Buffer data, int peer, std::string label, std::shared_ptr<const void> keep) {
  require(peer >= 0 && peer < size() && peer != rank(), "receive: peer is not another rank");
  return enqueue_message(Direction::incoming, data, peer, label, std::move(keep));
}

Work P2pGroup::barrier(std::string label) {
  return enqueue("barrier", std::move(label), "nothing",
                 [this] { schedules::barrier(link_, everyone_); });
}

}  // namespace ddp::comm
