// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/device/device_group.h"

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

#include "ddp_runtime/comm/group/call_record.h"
#include "ddp_runtime/comm/group/parts.h"

namespace ddp::comm {
namespace {

void require_valid(bool condition, const char* what) {
  if (!condition) throw std::invalid_argument(what);
}

bool on_device(const Buffer& data) {
  return data.memory == Memory::device;
}

bool on_device(const Buffer& a, const Buffer& b) {
  require_valid(a.memory == b.memory && a.stream == b.stream,
                "both buffers of a collective must be in the same memory, on the same stream");
  return on_device(a);
}

// `what`: "send: peer is not another rank".
void require_peer(const Group& group, int peer, const char* what) {
  require_valid(peer >= 0 && peer < group.size() && peer != group.rank(), what);
}

}  // namespace

Work DeviceGroup::all_reduce(Buffer data, ReduceOp op, std::string label,
                             std::shared_ptr<const void> keep) {
  if (!on_device(data)) return host_.all_reduce(data, op, std::move(label), std::move(keep));
  auto signature = fmt::format("{} of {}", to_string(op), describe(data));
  return all_reduce_here(data, op, {std::move(signature), std::move(label), std::move(keep)});
}

Work DeviceGroup::reduce_scatter(Buffer input, Buffer output, ReduceOp op, std::string label,
                                 std::shared_ptr<const void> keep) {
  if (!on_device(input, output)) {
    return host_.reduce_scatter(input, output, op, std::move(label), std::move(keep));
  }
  require_valid(
      input.type == output.type && input.count == output.count * static_cast<std::size_t>(size()),
      "reduce_scatter: input must hold size() times the elements of output, of one type");
  auto signature = fmt::format("{} of {}", to_string(op), describe(input));
  return reduce_scatter_here(input, output, op,
                             {std::move(signature), std::move(label), std::move(keep)});
}

Work DeviceGroup::all_gather(Buffer input, Buffer output, std::string label,
                             std::shared_ptr<const void> keep) {
  if (!on_device(input, output)) {
    return host_.all_gather(input, output, std::move(label), std::move(keep));
  }
  require_valid(
      input.type == output.type && output.count == input.count * static_cast<std::size_t>(size()),
      "all_gather: output must hold size() times the elements of input, of one type");
  return all_gather_here(input, output, {describe(input), std::move(label), std::move(keep)});
}

Work DeviceGroup::reduce_scatter(Buffer data, Cut cut, ReduceOp op, std::string label,
                                 std::shared_ptr<const void> keep) {
  if (!on_device(data)) {
    return host_.reduce_scatter(data, std::move(cut), op, std::move(label), std::move(keep));
  }
  const Starts starts = starts_of(cut, data.count, size());  // throws if they do not fit
  auto signature = fmt::format("{} of {}", to_string(op), describe(data, cut));
  return reduce_scatter_in_place(data, starts, op,
                                 {std::move(signature), std::move(label), std::move(keep)});
}

Work DeviceGroup::all_gather(Buffer data, Cut cut, std::string label,
                             std::shared_ptr<const void> keep) {
  if (!on_device(data)) {
    return host_.all_gather(data, std::move(cut), std::move(label), std::move(keep));
  }
  const Starts starts = starts_of(cut, data.count, size());
  return all_gather_in_place(data, starts,
                             {describe(data, cut), std::move(label), std::move(keep)});
}

Work DeviceGroup::all_gather(Buffer part, Buffer output, Cut cut, std::string label,
                             std::shared_ptr<const void> keep) {
  return host_.all_gather(part, output, std::move(cut), std::move(label), std::move(keep));
}

Work DeviceGroup::broadcast(Buffer data, int root, std::string label,
                            std::shared_ptr<const void> keep) {
  if (!on_device(data)) return host_.broadcast(data, root, std::move(label), std::move(keep));
  require_valid(root >= 0 && root < size(), "broadcast: root is not a rank of the group");
  auto signature = fmt::format("{} from rank {}", describe(data), world_rank(root));
  return broadcast_here(data, root, {std::move(signature), std::move(label), std::move(keep)});
}

Work DeviceGroup::all_to_all(Buffer input, Buffer output, PartSizes sizes, std::string label,
                             std::shared_ptr<const void> keep) {
  if (!on_device(input, output)) {
    return host_.all_to_all(input, output, std::move(sizes), std::move(label), std::move(keep));
  }
  find_parts(input, output, sizes, rank(), size());  // throws if they do not fit
  std::string signature =
      sizes.equal() ? describe(input) : fmt::format("parts of {}", to_string(input.type));
  return all_to_all_here(input, output, sizes,
                         {std::move(signature), std::move(label), std::move(keep)});
}

Work DeviceGroup::send(Buffer data, int peer, std::string label, std::shared_ptr<const void> keep) {
  if (!on_device(data)) return host_.send(data, peer, std::move(label), std::move(keep));
  require_peer(*this, peer, "send: peer is not another rank");
  return send_here(data, peer, {"", std::move(label), std::move(keep)});
}

Work DeviceGroup::receive(Buffer data, int peer, std::string label,
                          std::shared_ptr<const void> keep) {
  if (!on_device(data)) return host_.receive(data, peer, std::move(label), std::move(keep));
  require_peer(*this, peer, "receive: peer is not another rank");
  return receive_here(data, peer, {"", std::move(label), std::move(keep)});
}

}  // namespace ddp::comm
