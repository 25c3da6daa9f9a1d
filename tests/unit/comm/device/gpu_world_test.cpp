// SPDX-License-Identifier: Apache-2.0
// The group that a world of one rank opens on a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/errors.h"
#include "ddp_runtime/comm/world.h"
#include "tests/unit/comm/device/gpu_kernels.h"
#include "tests/unit/error_of.h"

namespace ddp::comm::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class GpuWorldTest : public GpuTest {
 protected:
  WorldOptions options(Backend backend) {
    WorldOptions options;
    options.backend = backend;
    options.gpus = true;
    options.nccl.cuda_library = SLURM_DDP_FAKE_GPU;
    options.nccl.nccl_library = SLURM_DDP_FAKE_GPU;
    options.group.announce = [this](const std::string& line) { lines_.push_back(line); };
    return options;
  }

  std::vector<std::string> lines_;
};

void reduce_on_gpu(World& world) {
  const TestStream stream;
  const auto memory = world.group().allocate(16);
  const Buffer data = on_stream(memory.get(), 4, ElementType::f32, stream);
  write(data, std::vector<float>(4, 7));
  world.group().all_reduce(data, ReduceOp::sum).wait();
  EXPECT_THAT(read<float>(data, stream), testing::Each(7));
}

TEST_F(GpuWorldTest, MpiSendsGpuMemory) {
  World world(options(Backend::mpi));
  EXPECT_NE(world.group().backend(), "nccl");
  EXPECT_EQ(world.device(), 0);
  reduce_on_gpu(world);
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(GpuWorldTest, AutomaticIsNccl) {
  World world(options(Backend::automatic));
  EXPECT_EQ(world.group().backend(), "nccl");
  EXPECT_EQ(world.device(), 0);
  reduce_on_gpu(world);
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(GpuWorldTest, AutomaticIsMpiInRankOrder) {
  WorldOptions wanted = options(Backend::automatic);
  wanted.group.in_rank_order = true;
  World world(wanted);
  EXPECT_NE(world.group().backend(), "nccl");
  EXPECT_EQ(world.device(), 0);
  EXPECT_THAT(lines_, ElementsAre("NCCL does not add in rank order, so GPU memory is sent by MPI "
                                  "through the host"));
}

TEST_F(GpuWorldTest, NcclAloneImpliesGpus) {
  WorldOptions wanted = options(Backend::nccl);
  wanted.gpus = false;
  EXPECT_EQ(World(wanted).device(), 0);
  wanted.group.in_rank_order = true;
  EXPECT_THAT(error_of([&] { World world(wanted); }), HasSubstr("use --backend mpi"));
}

TEST_F(GpuWorldTest, NoGpusWithoutTheOption) {
  WorldOptions wanted = options(Backend::automatic);
  wanted.gpus = false;
  World world(wanted);
  EXPECT_EQ(world.device(), std::nullopt);
}

TEST_F(GpuWorldTest, SaysWhatIsMissing) {
  fake::reset({.driver_version = 0});
  EXPECT_THAT(error_of([&] { World world(options(Backend::mpi)); }),
              HasSubstr("the MPI backend cannot use GPUs (rank 0 on "));
  EXPECT_THAT(error_of([&] { World world(options(Backend::automatic)); }),
              HasSubstr("the NCCL backend cannot start (rank 0 on "));
}

}  // namespace
}  // namespace ddp::comm::test
