// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/run_report.h"

#include <algorithm>
#include <cstddef>

#include "hdf5_ckpt/crc32c.h"

namespace ddp::train {

std::uint32_t parameters_crc32c(std::vector<NamedTensor> parameters) {
  std::sort(parameters.begin(), parameters.end(),
            [](const NamedTensor& a, const NamedTensor& b) { return a.name < b.name; });
  std::uint32_t crc = 0;
  for (const auto& [name, tensor] : parameters) {
    const auto values = tensor.detach().to(torch::kCPU, torch::kFloat32).contiguous();
    crc = ckpt::crc32c({static_cast<const std::byte*>(values.data_ptr()), values.nbytes()}, crc);
  }
  return crc;
}

}  // namespace ddp::train
