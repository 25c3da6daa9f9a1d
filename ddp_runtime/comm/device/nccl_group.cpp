// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/device/nccl_group.h"

#include <fmt/format.h>

#include <exception>
#include <stdexcept>
#include <utility>

#include "ddp_runtime/comm/device/nccl_types.h"
#include "ddp_runtime/comm/group/call_record.h"
#include "ddp_runtime/comm/group/parts.h"

namespace ddp::comm {
namespace {

void require_known_to_nccl(const Buffer& data) {
  if (nccl_type(data.type) >= 0) return;
  throw std::invalid_argument(
      "NCCL has no 16-bit integers; communicate them as int32, or as bytes if they are only moved");
}

std::vector<Communicator::Message> messages_of_gather(const Buffer& data, const Starts& starts,
                                                      int me) {
  std::vector<Communicator::Message> messages;
  const Buffer mine = part_of(data, starts, me);
  for (int peer = 0; peer + 1 < static_cast<int>(starts.size()); ++peer) {
    const Buffer theirs = part_of(data, starts, peer);
    if (peer == me) continue;
    if (mine.count > 0) messages.push_back({true, mine, peer});
    if (theirs.count > 0) messages.push_back({false, theirs, peer});
  }
  return messages;
}

}  // namespace

NcclGroup::NcclGroup(Group& host, FailureState& failures, const NcclOptions& options)
    : NcclGroup(host, open(host, failures, options, start_nccl(host, failures, options)), {}) {}

NcclGroup::NcclGroup(Group& host, Device device, const std::optional<std::string>& channel)
    : DeviceGroup(host),
      device_(std::move(device)),
      channel_(channel.value_or(kMainChannel)),
      is_channel_(channel.has_value()) {}

NcclGroup::Device NcclGroup::open(Group& host, FailureState& failures, const NcclOptions& options,
                                  StartedNccl started) {
  Device device{.number = started.device,
                .libraries = started.communicator->libraries(),
                .word = started.word,
                .failures = &failures,
                .options = options};
  device.queue = std::make_shared<LaunchQueue>(
      std::move(started), host, failures,
      LaunchQueue::Settings{device.number, options.limits, options.watch_interval});
  device.arena = std::make_shared<Arena>(device.libraries, device.number, options.arena_bytes);
  return device;
}

NcclGroup::~NcclGroup() {
  parts_.clear();
  if (is_channel_) return;
  channels_.clear();
  // Other ranks may wait on their GPUs for this one until the error is reported, so this one may
  // not wait for them.
  if (std::uncaught_exceptions() > exceptions_) device_.queue->give_up();
  device_.queue->finish(
      [this](Communicator& communicator) { device_.arena->release(communicator); });
}

Group& NcclGroup::channel(const std::string& name) {
  const auto found = channels_.find(name);
  if (found != channels_.end()) return *found->second;
  std::unique_ptr<NcclGroup> opened(new NcclGroup(host().channel(name), device_, name));
  return *channels_.emplace(name, std::move(opened)).first->second;
}

Group* NcclGroup::split(int color, int key, const std::string& name) {
  Group* const part = host().split(color, key, name);
  if (part == nullptr) return nullptr;
  // Connecting may wait for kernels, which may wait for other ranks.
  device_.queue->wait_until_idle();
  Device device = open(*part, *device_.failures, device_.options,
                       start_nccl_of_part(*part, *device_.failures, device_.options,
                                          device_.libraries, device_.number));
  parts_.push_back(std::unique_ptr<NcclGroup>(new NcclGroup(*part, std::move(device), {})));
  return parts_.back().get();
}

std::size_t NcclGroup::device_memory() const {
  std::size_t bytes = device_.arena->bytes_in_use();
  for (const auto& part : parts_) bytes += part->device_memory();
  return bytes;
}

std::uint64_t NcclGroup::call_history() const {
  return hash_on(host().call_history(), fmt::format("{:x}", device_.queue->history()));
}

void NcclGroup::wait_until_idle() {
  device_.queue->wait_until_idle();
  for (const auto& part : parts_) part->wait_until_idle();
}

std::shared_ptr<std::byte> NcclGroup::allocate(std::size_t bytes) {
  device_.queue->wait_until_idle();  // so that memory which was released before is free
  return device_.arena->allocate(bytes, host(), [&](const char* what, LaunchQueue::Call call) {
    device_.queue
        ->launch({.channel = kMainChannel,
                  .name = what,
                  .label = {},
                  .signature = fmt::format("{} bytes", bytes),
                  .call = std::move(call),
                  .after = {},
                  .keep = {}})
        .wait_host();
  });
}

Work NcclGroup::launch(const char* name, const Buffer& buffer, const Call& call,
                       LaunchQueue::Call kernels) {
  require_known_to_nccl(buffer);
  return device_.queue->launch({.channel = channel_,
                                .name = name,
                                .label = call.label,
                                .signature = call.signature,
                                .call = std::move(kernels),
                                .after = buffer.stream,
                                .keep = call.keep});
}

Work NcclGroup::all_reduce_here(const Buffer& data, ReduceOp op, const Call& call) {
  return launch("all_reduce", data, call, [=](Communicator& nccl, DeviceStream stream) {
    nccl.all_reduce(data, op, stream);
  });
}

Work NcclGroup::reduce_scatter_here(const Buffer& input, const Buffer& output, ReduceOp op,
                                    const Call& call) {
  return launch("reduce_scatter", input, call, [=](Communicator& nccl, DeviceStream stream) {
    nccl.reduce_scatter(input, output, op, stream);
  });
}

Work NcclGroup::all_gather_here(const Buffer& input, const Buffer& output, const Call& call) {
  return launch("all_gather", input, call, [=](Communicator& nccl, DeviceStream stream) {
    nccl.all_gather(input, output, stream);
  });
}

// NCCL's own have parts of one size, and in place they would begin at another offset on each rank,
// which memory in a symmetric window must not (see Arena). So these two are an all-reduce
// and messages; with two buffers, NCCL's own are used.
Work NcclGroup::reduce_scatter_in_place(const Buffer& data, const Starts& /*starts*/, ReduceOp op,
                                        const Call& call) {
  return launch("reduce_scatter", data, call, [=](Communicator& nccl, DeviceStream stream) {
    nccl.all_reduce(data, op, stream);
  });
}

Work NcclGroup::all_gather_in_place(const Buffer& data, const Starts& starts, const Call& call) {
  return launch("all_gather", data, call,
                [messages = messages_of_gather(data, starts, rank())](Communicator& nccl,
                                                                      DeviceStream stream) {
                  if (!messages.empty()) nccl.exchange(messages, stream);
                });
}

Work NcclGroup::all_to_all_here(const Buffer& input, const Buffer& output, const PartSizes& sizes,
                                const Call& call) {
  const Parts parts = find_parts(input, output, sizes, rank(), size());
  return launch("all_to_all", input, call, [parts](Communicator& nccl, DeviceStream stream) {
    std::vector<Communicator::Message> messages;  // also to this rank itself
    for (std::size_t r = 0; r < parts.input.size(); ++r) {
      const int peer = static_cast<int>(r);
      if (parts.input[r].count > 0) messages.push_back({true, parts.input[r], peer});
      if (parts.output[r].count > 0) {
        messages.push_back({false, parts.output[r], peer});
      }
    }
    if (!messages.empty()) nccl.exchange(messages, stream);
  });
}

Work NcclGroup::broadcast_here(const Buffer& data, int root, const Call& call) {
  return launch("broadcast", data, call, [=](Communicator& nccl, DeviceStream stream) {
    nccl.broadcast(data, root, stream);
  });
}

Work NcclGroup::send_here(const Buffer& data, int peer, const Call& call) {
  require_known_to_nccl(data);
  return device_.queue->message(channel_, {true, data, peer}, call.label, call.keep);
}

Work NcclGroup::receive_here(const Buffer& data, int peer, const Call& call) {
  require_known_to_nccl(data);
  return device_.queue->message(channel_, {false, data, peer}, call.label, call.keep);
}

Work NcclGroup::barrier(std::string label) {
  return device_.queue->launch({.channel = channel_,
                                .name = "barrier",
                                .label = std::move(label),
                                .signature = "nothing",
                                .call =
                                    [word = device_.word](Communicator& nccl, DeviceStream stream) {
                                      nccl.all_reduce(
                                          {static_cast<std::byte*>(word.get()), 1, ElementType::u8},
                                          ReduceOp::max, stream);
                                    },
                                .after = {},
                                .blocks = true,
                                .keep = {}});
}

}  // namespace ddp::comm
