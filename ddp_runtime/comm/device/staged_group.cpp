// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/device/staged_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "ddp_runtime/comm/device/gpu_survey.h"
#include "ddp_runtime/comm/group/call_record.h"
#include "ddp_runtime/comm/group/parts.h"

namespace ddp::comm {
namespace {

// A buffer that does not fit into the memory is sent in this many pieces per memory, so that some
// are copied while others travel.
constexpr std::size_t kPiecesInMemory = 4;

Buffer on_host(std::byte* memory, std::size_t count, ElementType type) {
  return {memory, count, type};
}

// One contiguous range of device memory at the start of the host memory.
StagingQueue::Copy copy_of(const Buffer& part) {
  return {part.data, 0, part.bytes()};
}

std::vector<StagingQueue::Copy> copies_of(const Buffer& part) {
  if (part.count == 0) return {};
  return {copy_of(part)};
}

// The part of `rank`, at its place in the host memory of the whole.
std::vector<StagingQueue::Copy> copies_of_part(const Buffer& whole, const Starts& starts,
                                               int rank) {
  const Buffer part = part_of(whole, starts, rank);
  auto copies = copies_of(part);
  for (auto& copy : copies) copy.offset = static_cast<std::size_t>(part.data - whole.data);
  return copies;
}

// Where the parts begin in elements [first, first + count) of the whole.
Starts starts_in_piece(Starts starts, std::size_t first, std::size_t count) {
  for (auto& start : starts) start = std::clamp(start, first, first + count) - first;
  return starts;
}

Cut cut_at(const Starts& starts) {
  Cut cut;
  for (std::size_t r = 1; r < starts.size(); ++r) {
    cut.sizes.push_back(starts[r] - starts[r - 1]);
  }
  return cut;
}

// Elements [first, first + count) of each rank's share of `buffer`, one behind the other at
// `offset` in the host memory.
std::vector<StagingQueue::Copy> copies_of_shares(const Buffer& buffer, int ranks, std::size_t first,
                                                 std::size_t count, std::size_t offset) {
  std::vector<StagingQueue::Copy> copies;
  const std::size_t share = buffer.count / static_cast<std::size_t>(ranks);
  if (count == share && count > 0) return {{buffer.data, offset, buffer.bytes()}};
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks) && count > 0; ++rank) {
    const Buffer part = buffer.slice(rank * share + first, count);
    copies.push_back({part.data, offset + rank * part.bytes(), part.bytes()});
  }
  return copies;
}

}  // namespace

StagedGroup::StagedGroup(Group& host, FailureState& failures, const NcclOptions& gpu,
                         const StagingOptions& staging)
    : StagedGroup(host, open(host, failures, gpu, staging), kMainChannel) {}

StagedGroup::StagedGroup(Group& host, SharedPtr shared, const std::string& name)
    : DeviceGroup(host),
      shared_(std::move(shared)),
      carrier_(shared_->main.channel(name == kMainChannel ? "GPU" : name + " on GPUs")) {
  try {
    queue_ = std::make_unique<StagingQueue>(
        shared_->events, shared_->failures,
        StagingQueue::Settings{world_rank(host.rank()), shared_->device, shared_->gpu,
                               "ddp-staging", shared_->limits, shared_->memory_bytes});
  } catch (const std::exception& e) {
    shared_->failures.fail(
        {world_rank(host.rank()), e.what()});  // the others do not wait for an answer
    throw;
  }
}

StagedGroup::SharedPtr StagedGroup::open(Group& host, FailureState& failures,
                                         const NcclOptions& gpu, const StagingOptions& staging) {
  const ThisGpu mine = find_this_gpu(host, gpu);
  throw_if(find_gpu_error(exchange_facts(host, mine.facts), "the MPI backend cannot use GPUs"));
  // Buffers must be divided into the same pieces on all ranks.
  const auto memory =
      host.all_reduce_value(static_cast<std::int64_t>(staging.memory_bytes), ReduceOp::min);
  return std::make_shared<Shared>(
      Shared{.main = host,
             .failures = failures,
             .device = mine.device,
             .gpu = mine.facts.gpu,
             .limits = gpu.limits,
             .memory_bytes = static_cast<std::size_t>(memory),
             .events = std::make_shared<EventPool>(mine.calls, mine.device)});
}

StagedGroup::~StagedGroup() {
  parts_.clear();
  channels_.clear();
  // Other ranks may wait for this one until the error is reported, so this one may not wait for
  // them.
  if (std::uncaught_exceptions() > exceptions_) queue_->give_up();
}

Group& StagedGroup::channel(const std::string& name) {
  const auto found = channels_.find(name);
  if (found != channels_.end()) return *found->second;
  std::unique_ptr<StagedGroup> opened(new StagedGroup(host().channel(name), shared_, name));
  return *channels_.emplace(name, std::move(opened)).first->second;
}

Group* StagedGroup::split(int color, int key, const std::string& name) {
  Group* const part = host().split(color, key, name);
  if (part == nullptr) return nullptr;
  auto shared = std::make_shared<Shared>(Shared{.main = *part,
                                                .failures = shared_->failures,
                                                .device = shared_->device,
                                                .gpu = shared_->gpu,
                                                .limits = shared_->limits,
                                                .memory_bytes = shared_->memory_bytes,
                                                .events = shared_->events});
  std::unique_ptr<StagedGroup> opened(new StagedGroup(*part, std::move(shared), kMainChannel));
  return parts_.emplace_back(std::move(opened)).get();
}

std::size_t StagedGroup::device_memory() const {
  std::size_t bytes = *shared_->allocated;
  for (const auto& part : parts_) bytes += part->device_memory();
  return bytes;
}

std::uint64_t StagedGroup::call_history() const {
  const std::lock_guard lock(mutex_);
  return hash_on(host().call_history(), fmt::format("{:x}", history_));
}

std::shared_ptr<std::byte> StagedGroup::allocate(std::size_t bytes) {
  const cuda::Runtime& calls = shared_->events->calls();
  void* memory = nullptr;
  std::string error;
  {
    const cuda::DeviceScope scope(calls, shared_->device);
    const int code = calls.allocate(&memory, std::max<std::size_t>(bytes, 1));
    if (code != cuda::kSuccess) {
      error = fmt::format("cannot allocate {} bytes on the GPU for communication: {}", bytes,
                          calls.error_string(code));
    } else {
      *shared_->allocated += bytes;
    }
  }
  std::shared_ptr<std::byte> owned(
      static_cast<std::byte*>(memory),
      [calls, bytes, device = shared_->device, allocated = shared_->allocated](std::byte* p) {
        if (p == nullptr) return;
        const cuda::DeviceScope scope(calls, device);
        calls.free(p);
        *allocated -= bytes;
      });
  const auto errors = host().all_gather_text(error);
  for (std::size_t rank = 0; rank < errors.size(); ++rank) {
    if (!errors[rank].empty()) {
      throw RuntimeError(
          fmt::format("rank {} {}", world_rank(static_cast<int>(rank)), errors[rank]));
    }
  }
  queue_->fill_with_zeros(owned.get(), bytes);
  return owned;
}

std::vector<StagingQueue::Piece> StagedGroup::in_pieces(std::size_t count, std::size_t bytes_each,
                                                        const std::string& label,
                                                        const MakePiece& make) const {
  const std::size_t memory = shared_->memory_bytes;
  if (count * bytes_each <= memory) {
    std::vector<StagingQueue::Piece> one;
    one.push_back(make(0, count, label));
    return one;
  }
  const std::size_t most = std::max<std::size_t>(memory / kPiecesInMemory / bytes_each, 1);
  const std::size_t number = (count + most - 1) / most;
  std::vector<StagingQueue::Piece> pieces;
  for (std::size_t i = 0; i < number; ++i) {
    const std::size_t first = i * most;
    pieces.push_back(
        make(first, std::min(most, count - first),
             fmt::format("{}{}piece {} of {}", label, label.empty() ? "" : ", ", i + 1, number)));
  }
  return pieces;
}

Work StagedGroup::submit(const std::string& name, const Call& call, StagingQueue::Call staged) {
  const std::string label = call.label.empty() ? "" : fmt::format(" ({})", call.label);
  staged.keep = call.keep;
  if (staged.is_message) {
    staged.what = name + this->name().after + label;
    return queue_->submit(std::move(staged));
  }
  const std::lock_guard lock(mutex_);  // calls of two threads get numbers in their order
  staged.what = fmt::format("{} #{}{}{}", name, next_number_, this->name().after, label);
  Work work = queue_->submit(std::move(staged));
  ++next_number_;
  history_ = hash_on(hash_on(history_, name), call.signature);
  return work;
}

Work StagedGroup::all_reduce_here(const Buffer& data, ReduceOp op, const Call& call) {
  const auto piece = [&](std::size_t first, std::size_t count, const std::string& name) {
    const Buffer part = data.slice(first, count);
    return StagingQueue::Piece{part.bytes(), copies_of(part), copies_of(part),
                               [=, this, type = data.type](std::byte* memory) {
                                 return carrier_.all_reduce(on_host(memory, count, type), op, name);
                               }};
  };
  auto pieces = in_pieces(data.count, size_of(data.type), call.label, piece);
  if (size() == 1) pieces = {StagingQueue::Piece()};  // the data stays as it is
  return submit("all_reduce", call, {.pieces = std::move(pieces), .stream = data.stream});
}

Work StagedGroup::reduce_scatter_here(const Buffer& input, const Buffer& output, ReduceOp op,
                                      const Call& call) {
  const int ranks = size();
  const auto piece = [&](std::size_t first, std::size_t count, const std::string& name) {
    const Buffer part = output.slice(first, count);
    const std::size_t all = count * static_cast<std::size_t>(ranks);
    const std::size_t behind = all * size_of(input.type);
    auto back = copies_of(part);
    for (auto& copy : back) copy.offset = behind;
    return StagingQueue::Piece{
        behind + part.bytes(), copies_of_shares(input, ranks, first, count, 0), std::move(back),
        [=, this, type = input.type](std::byte* memory) {
          return carrier_.reduce_scatter(on_host(memory, all, type),
                                         on_host(memory + behind, count, type), op, name);
        }};
  };
  const std::size_t bytes_each = size_of(input.type) * static_cast<std::size_t>(ranks + 1);
  return submit(
      "reduce_scatter", call,
      {.pieces = in_pieces(output.count, bytes_each, call.label, piece), .stream = input.stream});
}

Work StagedGroup::all_gather_here(const Buffer& input, const Buffer& output, const Call& call) {
  const int ranks = size();
  const auto piece = [&](std::size_t first, std::size_t count, const std::string& name) {
    const Buffer part = input.slice(first, count);
    const std::size_t all = count * static_cast<std::size_t>(ranks);
    const std::size_t behind = part.bytes();
    return StagingQueue::Piece{behind + all * size_of(input.type), copies_of(part),
                               copies_of_shares(output, ranks, first, count, behind),
                               [=, this, type = input.type](std::byte* memory) {
                                 return carrier_.all_gather(on_host(memory, count, type),
                                                            on_host(memory + behind, all, type),
                                                            name);
                               }};
  };
  const std::size_t bytes_each = size_of(input.type) * static_cast<std::size_t>(ranks + 1);
  return submit(
      "all_gather", call,
      {.pieces = in_pieces(input.count, bytes_each, call.label, piece), .stream = input.stream});
}

// Every rank has the same pieces for any cut, and so has an all_reduce of the same data.
Work StagedGroup::reduce_scatter_in_place(const Buffer& data, const Starts& starts, ReduceOp op,
                                          const Call& call) {
  const auto piece = [&](std::size_t first, std::size_t count, const std::string& name) {
    const Buffer part = data.slice(first, count);
    const Starts in_piece = starts_in_piece(starts, first, count);
    return StagingQueue::Piece{
        part.bytes(), copies_of(part), copies_of_part(part, in_piece, rank()),
        [=, this, type = data.type](std::byte* memory) {
          return carrier_.reduce_scatter(on_host(memory, count, type), cut_at(in_piece), op, name);
        }};
  };
  return submit("reduce_scatter", call,
                {.pieces = in_pieces(data.count, size_of(data.type), call.label, piece),
                 .stream = data.stream});
}

Work StagedGroup::all_gather_in_place(const Buffer& data, const Starts& starts, const Call& call) {
  const auto piece = [&](std::size_t first, std::size_t count, const std::string& name) {
    const Buffer part = data.slice(first, count);
    const Starts in_piece = starts_in_piece(starts, first, count);
    return StagingQueue::Piece{part.bytes(), copies_of_part(part, in_piece, rank()),
                               copies_of(part), [=, this, type = data.type](std::byte* memory) {
                                 return carrier_.all_gather(on_host(memory, count, type),
                                                            cut_at(in_piece), name);
                               }};
  };
  return submit("all_gather", call,
                {.pieces = in_pieces(data.count, size_of(data.type), call.label, piece),
                 .stream = data.stream});
}

// The whole is one piece, because ranks whose parts differ would not agree on the number of pieces.
Work StagedGroup::all_to_all_here(const Buffer& input, const Buffer& output, const PartSizes& sizes,
                                  const Call& call) {
  const std::string label = call.label;
  const std::size_t behind = input.bytes();
  auto back = copies_of(output);
  for (auto& copy : back) copy.offset = behind;
  std::vector<StagingQueue::Piece> whole;
  whole.push_back(
      {behind + output.bytes(), copies_of(input), std::move(back),
       [=, this, in = input.count, out = output.count, type = input.type](std::byte* memory) {
         return carrier_.all_to_all(on_host(memory, in, type), on_host(memory + behind, out, type),
                                    sizes, label);
       }});
  return submit("all_to_all", call, {.pieces = std::move(whole), .stream = input.stream});
}

Work StagedGroup::broadcast_here(const Buffer& data, int root, const Call& call) {
  const bool is_root = rank() == root;
  const auto piece = [&](std::size_t first, std::size_t count, const std::string& name) {
    const Buffer part = data.slice(first, count);
    StagingQueue::Piece made{part.bytes(), {}, {}, [=, this, type = data.type](std::byte* memory) {
                               return carrier_.broadcast(on_host(memory, count, type), root, name);
                             }};
    (is_root ? made.out : made.back) = copies_of(part);
    return made;
  };
  auto pieces = in_pieces(data.count, size_of(data.type), call.label, piece);
  if (size() == 1) pieces = {StagingQueue::Piece()};
  return submit("broadcast", call,
                {.pieces = std::move(pieces), .stream = data.stream, .only_reads = is_root});
}

Work StagedGroup::send_here(const Buffer& data, int peer, const Call& call) {
  const std::string label = call.label;
  std::vector<StagingQueue::Piece> whole;
  whole.push_back({data.bytes(), copies_of(data), {}, [=, this](std::byte* memory) {
                     return carrier_.send(on_host(memory, data.count, data.type), peer, label);
                   }});
  return submit(
      fmt::format("send to rank {} of {}", world_rank(peer), describe(data)), call,
      {.pieces = std::move(whole), .stream = data.stream, .is_message = true, .only_reads = true});
}

Work StagedGroup::receive_here(const Buffer& data, int peer, const Call& call) {
  const std::string label = call.label;
  std::vector<StagingQueue::Piece> whole;
  whole.push_back({data.bytes(), {}, copies_of(data), [=, this](std::byte* memory) {
                     return carrier_.receive(on_host(memory, data.count, data.type), peer, label);
                   }});
  return submit(fmt::format("receive from rank {} of {}", world_rank(peer), describe(data)), call,
                {.pieces = std::move(whole), .stream = data.stream, .is_message = true});
}

Work StagedGroup::barrier(std::string label) {
  std::vector<StagingQueue::Piece> nothing;
  nothing.push_back({0, {}, {}, [=, this](std::byte*) { return carrier_.barrier(label); }});
  return submit("barrier", {"nothing", label, {}}, {.pieces = std::move(nothing), .blocks = true});
}

}  // namespace ddp::comm
