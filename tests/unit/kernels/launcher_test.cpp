// SPDX-License-Identifier: Apache-2.0
// Loading and launching kernels on the fake, which runs their bodies on the CPU.
#include "ddp_runtime/kernels/launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/errors.h"
#include "tests/unit/comm/device/gpu_kernels.h"
#include "tests/unit/error_of.h"

namespace ddp::kernels {
namespace {

using comm::ElementType;
using comm::test::device_memory;
using testing::ElementsAre;
using testing::HasSubstr;

class Launcher : public comm::test::GpuTest {
 protected:
  static KernelCalls calls() { return load_kernel_calls(SLURM_DDP_FAKE_GPU); }
  void SetUp() override {
    comm::test::GpuTest::SetUp();
    comm::test::device_calls().set_device(0);
    if (!has_kernels()) GTEST_SKIP() << "skipped: no nvcc compiled the kernels of this build";
  }
};

// Device memory that the host of the fake may write before anything runs.
template <class T>
std::shared_ptr<T> on_device(const std::vector<T>& values) {
  auto memory = device_memory(values.size() * sizeof(T));
  std::memcpy(memory.get(), values.data(), values.size() * sizeof(T));
  return {memory, reinterpret_cast<T*>(memory.get())};
}

TEST_F(Launcher, Packs) {
  const KernelLauncher launcher(calls());
  const comm::test::TestStream stream;
  const auto gradient = on_device<float>({1, 2, 3});
  const auto flat = on_device<std::uint16_t>({7, 7, 7, 7});
  std::vector<PackPiece> pieces = {{gradient.get(), 1, 3, 0}};
  const auto tiles = number_tiles(std::span(pieces));
  const auto table = on_device(pieces);
  launcher.pack(ElementType::f32, ElementType::bf16, {table.get(), 1, tiles, flat.get(), 0.5F},
                stream.get());
  stream.finish();
  EXPECT_THAT(std::vector<std::uint16_t>(flat.get(), flat.get() + 4),
              ElementsAre(7, 0x3f00, 0x3f80, 0x3fc0));
}

// The fake finds a reader that does not wait, which shows that the launch is on its stream.
TEST_F(Launcher, LaunchesOnTheStream) {
  const KernelLauncher launcher(calls());
  const comm::test::TestStream stream;
  const comm::test::TestStream other;
  const auto data = on_device<float>({3, 4});
  const auto partials = device_memory(kMaxCheckBlocks * sizeof(double));
  const auto ticket = on_device<std::uint32_t>({0});
  const auto sum = on_device<double>({0});
  const auto found = on_device<float>({0});
  launcher.check(ElementType::f32,
                 {data.get(), 2, reinterpret_cast<double*>(partials.get()), ticket.get(), sum.get(),
                  found.get()},
                 stream.get());
  fake::launch(other.get(), "a hasty reader", {{sum.get(), sizeof(double)}}, {}, [] {});
  EXPECT_THAT(expected_problems(), testing::Contains(HasSubstr("a hasty reader")));
  stream.finish();
  other.finish();
  EXPECT_EQ(*sum, 25);
  EXPECT_EQ(*found, 0);
}

TEST_F(Launcher, UpdatesWithAdamW) {
  const KernelLauncher launcher(calls());
  const comm::test::TestStream stream;
  const auto gradient = on_device<float>({1, -1});
  const auto parameter = on_device<float>({10, 10});
  const auto average = on_device<float>({0, 0});
  const auto square_average = on_device<float>({0, 0});
  const auto step = on_device<float>({1});
  std::vector<AdamWPiece> pieces = {
      {gradient.get(), parameter.get(), average.get(), square_average.get(), nullptr, 2, 0, 0, 0}};
  AdamWArguments arguments;
  arguments.tiles = number_tiles(std::span(pieces));
  const auto table = on_device(pieces);
  arguments.pieces = table.get();
  arguments.count = 1;
  arguments.step = step.get();
  arguments.lr = 0.5F;
  arguments.beta1 = 0.9F;
  arguments.beta2 = 0.999F;
  arguments.eps = 1e-8F;
  launcher.adamw(ElementType::f32, arguments, stream.get());
  stream.finish();
  EXPECT_NEAR(parameter.get()[0], 9.5, 1e-5);  // the first step moves by lr
  EXPECT_NEAR(parameter.get()[1], 10.5, 1e-5);
}

TEST_F(Launcher, NothingToDoLaunchesNothing) {
  const KernelLauncher launcher(calls());
  launcher.pack(ElementType::f32, ElementType::f32, {}, nullptr);
  launcher.adamw(ElementType::bf16, {}, nullptr);
}

TEST_F(Launcher, TypesWithoutKernel) {
  const KernelLauncher launcher(calls());
  EXPECT_THAT([&] { launcher.pack(ElementType::bf16, ElementType::f16, {}, nullptr); },
              testing::ThrowsMessage<std::invalid_argument>(
                  "there is no kernel that packs bfloat16 as float16"));
  EXPECT_THROW(launcher.check(ElementType::i32, {}, nullptr), std::invalid_argument);
  EXPECT_THROW(launcher.adamw(ElementType::f16, {}, nullptr), std::invalid_argument);
}

TEST_F(Launcher, AGpuWithoutCode) {
  fake::reset({.function_error = 209});
  EXPECT_THAT([&] { const KernelLauncher launcher(calls()); },
              testing::ThrowsMessage<UsageError>(HasSubstr("no kernels for this GPU and driver")));
  EXPECT_EQ(fake::leaks(), "");
}

TEST_F(Launcher, ADriverThatFails) {
  fake::reset({.library_error = 999});
  EXPECT_THAT(
      [&] { const KernelLauncher launcher(calls()); },
      testing::ThrowsMessage<RuntimeError>("the GPU cannot load kernels: fake trouble (999)"));
}

TEST(KernelCallTable, ALibraryThatIsNotTheDriver) {
  EXPECT_THAT([] { load_kernel_calls("libdl.so.2"); },
              testing::ThrowsMessage<UsageError>(HasSubstr("does not contain cuInit")));
}

TEST(KernelCallTable, ABuildWithoutKernels) {
  if (has_kernels()) GTEST_SKIP() << "this build has kernels";
  EXPECT_THAT([] { const KernelLauncher launcher(load_kernel_calls(SLURM_DDP_FAKE_GPU)); },
              testing::ThrowsMessage<UsageError>(HasSubstr("-DSLURM_DDP_CUDA_KERNELS=ON")));
}

}  // namespace
}  // namespace ddp::kernels
