// SPDX-License-Identifier: Apache-2.0
// The memory that a training has taken on the fake device.
#include <gtest/gtest.h>

#include "ddp_runtime/comm/device/device_memory.h"
#include "ddp_runtime/train/memory/device_memory.h"
#include "tests/unit/comm/device/gpu_ranks.h"
#include "tests/unit/comm/device/staged_ranks.h"
#include "tests/unit/fake_device/fake_device_fixture.h"

namespace ddp::fake_device {
namespace {

using comm::test::GpuRank;

constexpr std::int64_t kKiB = 1024;
const std::vector<std::string> kNoErrors(2);

class MemoryOfTheDevice : public FakeDeviceTest {};

torch::Tensor kibibytes(std::int64_t count, const torch::Device& where) {
  return torch::zeros({count * kKiB}, torch::dtype(torch::kInt8).device(where));
}

// `taken`: bytes that the group takes for a buffer of 16 KiB.
void expect_peak(const GpuRank& r, std::int64_t taken) {
  const auto where = device(r.rank);
  const auto there = kibibytes(256, where);
  const auto model = kibibytes(32, where);
  const train::DeviceMemory of_hosts(r.host, where, 0);
  train::DeviceMemory memory(r.group, where, 32 * kKiB);
  EXPECT_EQ(memory.peak(), std::nullopt) << "begin() was not called";
  { const auto before = kibibytes(512, where); }
  memory.begin();
  EXPECT_EQ(memory.peak(), 32 * kKiB);
  const auto kept = kibibytes(48, where);
  { const auto freed = kibibytes(64, where); }
  EXPECT_EQ(memory.peak(), (32 + 48 + 64) * kKiB);

  auto buffer = r.group.allocate(16 * kKiB);
  EXPECT_EQ(memory.peak(), (32 + 48 + 64) * kKiB + taken);
  comm::Group* const part = r.group.split(0);
  const auto of_part = part->allocate(16 * kKiB);
  EXPECT_EQ(memory.peak(), (32 + 48 + 64) * kKiB + 2 * taken);
  EXPECT_EQ(comm::device_memory_of(r.host), 0U);
}

// Groups of NCCL take memory in pieces, here of 1 MiB, and keep it.
TEST_F(MemoryOfTheDevice, CountsTensorsAtTheirPeakAndThePiecesOfNccl) {
  EXPECT_EQ(comm::test::run_gpu_ranks(2, [](const GpuRank& r) { expect_peak(r, 1024 * kKiB); }),
            kNoErrors);
}

TEST_F(MemoryOfTheDevice, CountsTensorsAtTheirPeakAndTheBuffersOfMpi) {
  EXPECT_EQ(comm::test::run_staged_ranks(2,
                                         [](const GpuRank& r) {
                                           expect_peak(r, 16 * kKiB);
                                           auto buffer = r.group.allocate(8 * kKiB);
                                           const auto with = comm::device_memory_of(r.group);
                                           buffer.reset();
                                           EXPECT_EQ(with - comm::device_memory_of(r.group),
                                                     8 * kKiB);
                                         }),
            kNoErrors);
}

}  // namespace
}  // namespace ddp::fake_device
