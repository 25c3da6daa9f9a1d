// SPDX-License-Identifier: Apache-2.0
// Work on values in a file, a window after the other: the next one is read and the one before is
// written while one is computed.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <future>
#include <span>
#include <vector>

#include "ddp_runtime/optim/offload/scratch_file.h"

namespace ddp::optim {

// Values that a window needs.
struct StagedRange {
  // Points to the values: in memory of the file, and while the window is computed in ordinary
  // memory, a copy. Written after it was computed.
  float** values;
  std::size_t count;
};
using Window = std::vector<StagedRange>;

// Keeps the memory of three windows.
class WindowStream {
 public:
  // One is read, one is computed, and one is written.
  static constexpr std::size_t kSlots = 3;

  // `file` must outlive this object.
  explicit WindowStream(const ScratchFile& file) : file_(file) {}

  // Calls `compute` with the number of each window, in order, on this thread. No values may be in
  // two windows since the last finish(). Throws what `compute` and the file throw, also about
  // earlier windows; then some windows have new values.
  void run(std::span<Window> windows, const std::function<void(std::size_t window)>& compute);
  // Waits until all values are in the file. Throws what the file throws.
  void finish();

 private:
  struct Copy {
    float* place;  // in the file's memory
    float* staged;
    std::size_t count;
  };
  struct Slot {
    std::vector<float> memory;
    std::vector<Copy> copies;
  };

  Slot& slot(std::size_t number) { return slots_[number % kSlots]; }
  void stage(Window& window, Slot& slot) const;
  void read(const Slot& slot) const;
  void write(const Slot& slot) const;

  const ScratchFile& file_;
  std::array<Slot, kSlots> slots_;
  std::size_t next_ = 0;       // number of the next window
  std::future<void> writing_;  // of the last window; its destructor waits
};

}  // namespace ddp::optim
