// SPDX-License-Identifier: Apache-2.0
// The operators that a capture has recorded; see Note [Graphs of the fake device]. Internal to the
// fake device.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/unit/fake_device/fake_device.h"

namespace ddp::fake_device {

struct RecordedKernel {
  std::string name;
  std::vector<fake::Range> reads;
  std::vector<fake::Range> writes;
  std::function<void()> run;  // on the real memory
};

class Recording {
 public:
  void add(RecordedKernel kernel);
  void cut();
  // Memory that was allocated in the capture, which lives as long as the recording.
  void own(std::shared_ptr<c10::DataPtr> memory, std::size_t bytes);
  // Where an operator reads or writes while it is recorded: memory of the capture itself, or, for
  // memory that the capture writes but does not own, a copy of it.
  void* place_of(const c10::Storage& storage, bool writes);
  // Throws, and makes the capture invalid.
  [[noreturn]] void refuse(const std::string& what);

  bool valid();
  // Overwrites the memory of the capture, whose values no program may use before a replay.
  void poison();
  std::size_t parts() const { return kernels_.size(); }
  const std::vector<RecordedKernel>& kernels(std::size_t part) const { return kernels_.at(part); }

 private:
  struct Owned {
    std::shared_ptr<c10::DataPtr> memory;
    std::size_t bytes;
  };

  std::mutex mutex_;
  std::vector<std::vector<RecordedKernel>> kernels_{1};  // by part
  std::vector<Owned> owned_;
  std::map<const void*, std::vector<char>> copies_;  // by the address of the original
  bool valid_ = true;
};

// The recording of work on this stream; null unless it is captured.
std::shared_ptr<Recording> recording_of(const c10::Stream& stream);
// A recording of any stream of the device; null if none is captured.
std::shared_ptr<Recording> recording_on(int device_index);

// An event was recorded, in a capture or not, or destroyed. The program must not ask for one of a
// capture.
void note_event(void* event, bool captured);
bool is_captured(void* event);

}  // namespace ddp::fake_device
