// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/optim/offload/windows.h"

#include <algorithm>

namespace ddp::optim {

void WindowStream::stage(Window& window, Slot& slot) const {
  std::size_t count = 0;
  for (const auto& range : window) count += range.count;
  slot.memory.resize(std::max(slot.memory.size(), count));
  slot.copies.clear();
  float* staged = slot.memory.data();
  for (const auto& range : window) {
    slot.copies.push_back({*range.values, staged, range.count});
    *range.values = staged;
    staged += range.count;
  }
}

void WindowStream::read(const Slot& slot) const {
  for (const auto& copy : slot.copies) {
    file_.read(copy.place, copy.staged, copy.count * sizeof(float));
  }
}

void WindowStream::write(const Slot& slot) const {
  for (const auto& copy : slot.copies) {
    file_.write(copy.staged, copy.place, copy.count * sizeof(float));
  }
}

void WindowStream::run(std::span<Window> windows,
                       const std::function<void(std::size_t window)>& compute) {
  const std::size_t first = next_;
  std::future<void> reading;
  // The slot is that of three windows before, which has been written: a write begins after the end
  // of the one before it.
  const auto begin_reading = [&](std::size_t window) {
    auto& into = slot(first + window);
    stage(windows[window], into);
    reading = std::async(std::launch::async, [this, &into] { read(into); });
  };
  if (!windows.empty()) begin_reading(0);
  for (std::size_t i = 0; i < windows.size(); ++i) {
    reading.get();
    if (i + 1 < windows.size()) begin_reading(i + 1);
    compute(i);
    finish();
    writing_ = std::async(std::launch::async, [this, &from = slot(first + i)] { write(from); });
    next_ = first + i + 1;
  }
}

void WindowStream::finish() {
  if (writing_.valid()) writing_.get();
}

}  // namespace ddp::optim
