// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/optim/parallel_ranges.h"

#include <ATen/TensorIterator.h>
#include <torch/torch.h>

#include <algorithm>

namespace ddp::optim {

// An iteration over a tensor with one byte for each `grain` elements: libtorch divides it among its
// threads, and a byte's place tells which elements it stands for. Nobody reads or writes the bytes.
void for_ranges(std::int64_t count, std::int64_t grain,
                const std::function<void(std::int64_t first, std::int64_t end)>& body) {
  if (count <= 0) return;
  if (count <= grain) return body(0, count);
  const std::int64_t parts = (count + grain - 1) / grain;
  const auto places = at::empty({parts}, torch::kUInt8);
  const auto* const first_place = static_cast<const char*>(places.data_ptr());
  auto iteration = at::TensorIteratorConfig()
                       .add_borrowed_output(places)
                       .check_all_same_dtype(false)  // there is no input to take the type from
                       .resize_outputs(false)
                       .build();
  iteration.for_each(
      [&](char** data, const std::int64_t* /*strides*/, std::int64_t length) {
        const std::int64_t part = data[0] - first_place;
        body(part * grain, std::min(count, (part + length) * grain));
      },
      /*grain_size=*/1);
}

}  // namespace ddp::optim
