// SPDX-License-Identifier: Apache-2.0
// The stream of a run whose steps are captured as a graph.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/torch.h>

namespace ddp::train {

// The default stream of a device cannot be captured. While this object lives, another stream of the
// device is current for this thread. It follows what was on the previous one, and the previous one
// follows it afterwards. Must be destroyed on the same thread.
class TrainingStream {
 public:
  explicit TrainingStream(torch::Device device)
      : guard_(device.type()),
        before_(guard_.getStream(device)),
        stream_(guard_.getStreamFromGlobalPool(device, /*isHighPriority=*/false)) {
    follow(stream_, before_);
    guard_.exchangeStream(stream_);
  }
  ~TrainingStream() {
    follow(before_, stream_);
    guard_.exchangeStream(before_);
  }
  TrainingStream(const TrainingStream&) = delete;
  TrainingStream& operator=(const TrainingStream&) = delete;

 private:
  // An error of the device is reported by the work that it breaks.
  static void follow(const c10::Stream& later, const c10::Stream& earlier) noexcept {
    try {
      c10::Event event(earlier.device_type());
      event.record(earlier);
      event.block(later);
    } catch (const c10::Error&) {
    }
  }

  c10::impl::VirtualGuardImpl guard_;
  c10::Stream before_;
  c10::Stream stream_;
};

}  // namespace ddp::train
