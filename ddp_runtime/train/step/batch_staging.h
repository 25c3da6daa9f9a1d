// SPDX-License-Identifier: Apache-2.0
// The way of batches to fixed memory of a device, from which the device may still read the previous
// one.
//
// Note [Staged batches]
// On the stream of the steps, the copy of a batch from the host would wait for the previous step,
// and the next step for the copy. So it has a stream of its own and goes to a second batch on the
// device, the staging memory, while the previous step computes: the program runs ahead of the
// device, so it enqueues the copy early enough. On the stream of the steps only a copy within the
// device remains, at the speed of the device's memory instead of that of the bus. Events order the
// two: the first copy follows the second one of the previous batch, which reads the staging memory,
// and the second one follows the first. The host does not wait.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <torch/torch.h>

#include "ddp_runtime/data/dataset.h"

namespace ddp::train {

class BatchStaging {
 public:
  explicit BatchStaging(torch::Device device);

  // Copies a batch of the host to `to`, of the device, on this thread's current stream as far as
  // other work of that stream can tell. All batches must have the same shapes and types. Does not
  // wait for the device if the batch is in pinned memory. Must not be called in a capture.
  void copy(const data::Batch& from, data::Batch& to);

 private:
  void allocate(const data::Batch& like, const c10::Stream& current);

  c10::Stream stream_;   // of copies from the host
  data::Batch staging_;  // undefined until the first batch
  c10::Event arrived_;   // in the staging memory
  c10::Event free_;      // the staging memory may be overwritten
};

}  // namespace ddp::train
