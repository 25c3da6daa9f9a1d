// SPDX-License-Identifier: Apache-2.0
#include <ATen/CPUGeneratorImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <utility>

#include "tests/unit/comm/fake_gpu/machine.h"
#include "tests/unit/fake_device/generator.h"
#include "tests/unit/fake_device/recording.h"
#include "tests/unit/fake_device/streams.h"

namespace ddp::fake_device {
namespace {

// Streams that are captured, and the events that were last recorded in a capture.
struct Captures {
  std::mutex mutex;
  std::set<void*> events;
  std::vector<std::pair<c10::Stream, std::shared_ptr<Recording>>> all;
};

Captures& captures() {
  static Captures of_process;
  return of_process;
}

template <class Matches>
std::shared_ptr<Recording> find_capture(const Matches& matches) {
  const std::lock_guard lock(captures().mutex);
  for (const auto& [stream, recording] : captures().all) {
    if (matches(stream)) return recording;
  }
  return nullptr;
}

// Whether the ranges are still in memory of the fake. A graph does not keep memory that it does not
// own.
bool exist(const std::vector<fake::Range>& ranges) {
  auto& machine = fake::Machine::get();
  const std::lock_guard lock(machine.mutex);
  return std::all_of(ranges.begin(), ranges.end(), [&](const fake::Range& range) {
    return machine.find(reinterpret_cast<std::uintptr_t>(range.data), range.bytes) != nullptr;
  });
}

class Graph final : public DeviceGraph {
 public:
  explicit Graph(int device_index) : device_index_(device_index) {}
  ~Graph() override { leave(); }

  void begin_capture() override {
    const auto stream = current_stream(device_index_);
    TORCH_CHECK(stream.id() != 0, "the default stream cannot be captured");
    TORCH_CHECK(!recording_, "this graph has a capture already");
    recording_ = std::make_shared<Recording>();
    for (auto& generator : generators_) {
      random_states_.push_back(generator.get_state().clone());
    }
    fake::begin_capture();
    const std::lock_guard lock(captures().mutex);
    captures().all.emplace_back(stream, recording_);
  }

  void end_capture() override {
    const bool no_call_refused = leave();
    for (std::size_t i = 0; i < random_states_.size(); ++i) {
      generators_[i].set_state(random_states_[i]);
    }
    TORCH_CHECK(recording_->valid() && no_call_refused,
                "operation failed due to a previous error during capture");
    recording_->poison();
    captured_ = true;
  }

  void cut() override {
    TORCH_CHECK(recording_of(current_stream(device_index_)) == recording_,
                "the current stream is not the one that this graph captures");
    recording_->cut();
  }

  void replay(std::size_t part) override {
    TORCH_CHECK(captured_, "this graph has no valid capture");
    const auto stream = current_stream(device_index_);
    TORCH_CHECK(!recording_of(stream), "a graph is replayed in a capture");
    count_launch();
    require_working(device_index_);
    drain(stream);
    TORCH_CHECK(part == next_part_, "part ", part, " of a graph is replayed, but ", next_part_,
                " is the next one");
    next_part_ = (part + 1) % recording_->parts();
    for (const auto& kernel : recording_->kernels(part)) {
      TORCH_CHECK(exist(kernel.reads) && exist(kernel.writes), "the replay of ", kernel.name,
                  " uses memory that has been freed since the capture");
      kernel.run();
      launch(stream, kernel.name, kernel.reads, kernel.writes);
    }
  }

 private:
  // Ends the capture, if there is one. Returns whether no call was refused in it.
  bool leave() {
    const std::lock_guard lock(captures().mutex);
    const auto removed = std::erase_if(
        captures().all, [&](const auto& entry) { return entry.second == recording_; });
    return removed == 0 || fake::end_capture();
  }

  int device_index_;
  std::shared_ptr<Recording> recording_;
  // A capture draws no random numbers. Operators that take no generator use the CPU's.
  std::array<at::Generator, 2> generators_ = {host_generator(device_index_),
                                              at::detail::getDefaultCPUGenerator()};
  std::vector<at::Tensor> random_states_;
  bool captured_ = false;
  std::size_t next_part_ = 0;
};

}  // namespace

void Recording::add(RecordedKernel kernel) {
  const std::lock_guard lock(mutex_);
  kernels_.back().push_back(std::move(kernel));
}

void Recording::cut() {
  const std::lock_guard lock(mutex_);
  kernels_.emplace_back();
}

void Recording::own(std::shared_ptr<c10::DataPtr> memory, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  owned_.push_back({std::move(memory), bytes});
}

void* Recording::place_of(const c10::Storage& storage, bool writes) {
  const std::lock_guard lock(mutex_);
  void* const original = const_cast<void*>(storage.data());
  const bool owned = std::ranges::any_of(
      owned_, [&](const Owned& mine) { return mine.memory->get() == original; });
  if (owned || original == nullptr) return original;
  const auto copy = copies_.find(original);
  if (copy != copies_.end()) return copy->second.data();
  if (!writes) return original;
  const auto* const begin = static_cast<const char*>(original);
  return (copies_[original] = std::vector<char>(begin, begin + storage.nbytes())).data();
}

void Recording::refuse(const std::string& what) {
  {
    const std::lock_guard lock(mutex_);
    valid_ = false;
  }
  TORCH_CHECK(false, "the fake GPU cannot ", what,
              ": operation not permitted when stream is capturing");
}

bool Recording::valid() {
  const std::lock_guard lock(mutex_);
  return valid_;
}

void Recording::poison() {
  constexpr int kNaN = 0xff;  // in each byte
  const std::lock_guard lock(mutex_);
  for (const auto& memory : owned_) std::memset(memory.memory->get(), kNaN, memory.bytes);
  copies_.clear();
}

std::shared_ptr<Recording> recording_of(const c10::Stream& stream) {
  return find_capture([&](const c10::Stream& captured) { return captured == stream; });
}

std::shared_ptr<Recording> recording_on(int device_index) {
  return find_capture(
      [&](const c10::Stream& captured) { return captured.device_index() == device_index; });
}

void note_event(void* event, bool captured) {
  const std::lock_guard lock(captures().mutex);
  captured ? static_cast<void>(captures().events.insert(event))
           : static_cast<void>(captures().events.erase(event));
}

bool is_captured(void* event) {
  const std::lock_guard lock(captures().mutex);
  return captures().events.contains(event);
}

std::unique_ptr<DeviceGraph> make_graph(torch::Device of) {
  TORCH_CHECK(of.type() == kType, of, " is not a fake GPU");
  return std::make_unique<Graph>(of.has_index() ? of.index() : 0);
}

}  // namespace ddp::fake_device
