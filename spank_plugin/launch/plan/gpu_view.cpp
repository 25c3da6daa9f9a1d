// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/launch/plan/gpu_view.h"

#include <algorithm>

#include "base/text.h"
#include "base/visible_devices.h"

namespace ddp::launch {
namespace {

constexpr std::uint32_t kMaxDevices = 4096;

const GpuList* find_list(const std::vector<GpuList>& lists, const std::string& variable) {
  const auto found = std::find_if(lists.begin(), lists.end(),
                                  [&](const GpuList& list) { return list.variable == variable; });
  return found == lists.end() ? nullptr : &*found;
}

bool is_slice(std::string_view device) noexcept {
  return device.starts_with("MIG-");
}

// Counts the matching elements of a list without allocating.
template <typename Predicate>
std::size_t count_if(std::string_view devices, Predicate predicate) noexcept {
  std::size_t count = 0;
  for (;;) {
    const auto end = devices.find(',');
    if (predicate(devices.substr(0, end))) ++count;
    if (end == std::string_view::npos) return count;
    devices.remove_prefix(end + 1);
  }
}

}  // namespace

std::optional<std::uint32_t> GpuView::device_of(std::uint32_t local_rank) const noexcept {
  if (!visible || *visible == 0) return std::nullopt;
  return local_rank % *visible;
}

std::uint32_t count_devices(std::string_view devices) {
  const auto visible = visible_devices(devices);
  const auto slices =
      static_cast<std::size_t>(std::count_if(visible.begin(), visible.end(), is_slice));
  return static_cast<std::uint32_t>(std::min<std::size_t>(
      visible.size() - slices + std::min<std::size_t>(slices, 1), kMaxDevices));
}

GpuView view_gpus(const TaskFacts& task, const NodeFacts& node) {
  GpuView view;
  view.on_node = task.gpus_on_node;
  if (!node.gpus.empty()) {
    view.on_node = std::max(view.on_node, count_devices(node.gpus.front().devices));
  }
  if (!task.gpus.empty()) {
    view.visible = count_devices(task.gpus.front().devices);
    view.slices = static_cast<std::uint32_t>(
        std::min<std::size_t>(count_if(task.gpus.front().devices, is_slice), kMaxDevices));
    view.source = task.gpus.front().variable;
  } else if (task.gpus_on_node != 0) {
    view.visible = task.gpus_on_node;  // without a list, all are visible
    view.source = "SLURM_GPUS_ON_NODE";
  }
  view.is_masked = view.visible && *view.visible < view.on_node;
  return view;
}

bool may_start_ranks(const GpuView& view, const TaskFacts& task) noexcept {
  const std::uint32_t sharing = view.is_masked ? 1 : task.local_task_count;
  return view.visible.value_or(0) > sharing;
}

std::vector<GpuList> unmasked_lists(const TaskFacts& task, const NodeFacts& node,
                                    GpuPolicy policy) {
  std::vector<GpuList> lists;
  if (policy != GpuPolicy::shared || task.hides_gpu_devices) return lists;
  for (const auto& whole : node.gpus) {
    if (count_if(whole.devices, is_slice) > 0) continue;
    const GpuList* own = find_list(task.gpus, whole.variable);
    if (own != nullptr && count_devices(own->devices) < count_devices(whole.devices))
      lists.push_back(whole);
  }
  return lists;
}

std::optional<std::string> own_gpu(const TaskFacts& task, const NodeFacts& node, GpuPolicy policy) {
  const bool is_unmasked = !unmasked_lists(task, node, policy).empty();
  const auto& lists = is_unmasked ? node.gpus : task.gpus;
  const std::string& numbers = is_unmasked ? node.gpu_numbers : task.gpu_numbers;
  if (lists.empty() || count_devices(lists.front().devices) == 0) return std::nullopt;
  const auto visible = visible_devices(lists.front().devices);
  const std::size_t place = is_slice(visible.front()) ? 0 : task.local_rank % visible.size();
  const std::string own(visible[place]);
  const bool counts_what_is_seen = parse_decimal(own, kMaxDevices).has_value();
  if (!counts_what_is_seen || numbers.empty()) return own;
  // A device cgroup hides the other GPUs, and CUDA numbers the remaining ones from 0.
  const auto on_node = split(numbers, ',');
  if (on_node.size() != visible.size()) return std::nullopt;
  return std::string(on_node[place]);
}

std::vector<std::string> gpu_notes(const GpuView& view, const TaskFacts& task, GpuPolicy policy) {
  std::vector<std::string> notes;
  // A task that sees no GPU runs on CPUs.
  if (view.visible.value_or(0) == 0 || task.local_task_count < 2) return notes;
  const auto number = [](std::uint32_t count) { return std::to_string(count); };
  if (view.slices > 0) {
    if (view.slices > 1) {
      notes.push_back("each task gets " + number(view.slices) +
                      " MIG devices, of which CUDA shows a process only the first: the " +
                      number(task.local_task_count) +
                      " tasks on this node would share one; give each its own with "
                      "--gpus-per-task=1");
    }
    return notes;
  }
  if (view.is_masked) {
    const std::string seen = "each task sees " + number(*view.visible) + " of the " +
                             number(view.on_node) + " GPUs of its node";
    if (policy == GpuPolicy::shared) {
      notes.push_back(seen + ", and gpus=shared cannot change that: " +
                      (task.hides_gpu_devices ? "the task may not open their device files"
                                              : "the list of all GPUs is unknown here"));
    } else {
      notes.push_back(
          seen +
          " (--gpus-per-task or --gpu-bind): NCCL may lose the direct path between them, "
          "and LOCAL_RANK is not a device number; request --gpus-per-node and "
          "--ntasks-per-node instead, or use --ddp=gpus=shared or local_rank=device");
    }
  } else if (*view.visible < task.local_task_count) {
    notes.push_back(number(task.local_task_count) + " tasks on this node share " +
                    number(*view.visible) +
                    " GPUs, which NCCL refuses (Duplicate GPU detected); start one task per GPU");
  } else if (*view.visible > task.local_task_count) {
    notes.push_back(number(task.local_task_count) + " tasks on this node leave " +
                    number(*view.visible - task.local_task_count) + " of its " +
                    number(*view.visible) + " GPUs idle; start one task per GPU");
  }
  return notes;
}

}  // namespace ddp::launch
