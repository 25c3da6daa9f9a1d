// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/step/batch_staging.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstddef>

namespace ddp::train {
namespace {

void copy_all(const data::Batch& from, data::Batch& to) {
  to.inputs.copy_(from.inputs, /*non_blocking=*/true);
  to.targets.copy_(from.targets, /*non_blocking=*/true);
  for (std::size_t i = 0; i < from.more.size(); ++i) {
    to.more[i].copy_(from.more[i], /*non_blocking=*/true);
  }
}

// The stream of the steps is of low priority, so it is not this one.
c10::Stream stream_of_copies(torch::Device device) {
  return c10::impl::VirtualGuardImpl(device.type())
      .getStreamFromGlobalPool(device, /*isHighPriority=*/true);
}

}  // namespace

BatchStaging::BatchStaging(torch::Device device)
    : stream_(stream_of_copies(device)), arrived_(device.type()), free_(device.type()) {}

void BatchStaging::copy(const data::Batch& from, data::Batch& to) {
  const torch::NoGradGuard no_grad;
  const auto current =
      c10::impl::VirtualGuardImpl(stream_.device_type()).getStream(stream_.device());
  if (!staging_.inputs.defined()) allocate(to, current);
  free_.block(stream_);
  {
    const c10::StreamGuard guard(stream_);
    copy_all(from, staging_);
  }
  arrived_.record(stream_);
  arrived_.block(current);
  copy_all(staging_, to);
  free_.record(current);
}

void BatchStaging::allocate(const data::Batch& like, const c10::Stream& current) {
  staging_ = data::for_each_tensor(like, [&](const torch::Tensor& tensor) {
    auto place = torch::empty_like(tensor);
    // An error may end the run between the two copies.
    place.record_stream(stream_);
    return place;
  });
  // Earlier work on the stream may use this memory, which others have freed.
  free_.record(current);
}

}  // namespace ddp::train
