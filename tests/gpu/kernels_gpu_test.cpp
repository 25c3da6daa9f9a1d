// SPDX-License-Identifier: Apache-2.0
// The kernels on a GPU, compared with values in double and with the bits that their bodies give on
// the CPU. Without a GPU, or in a build without nvcc, each case is skipped, with the reason.
//
// Inputs are random, at all alignments, and surrounded by poisoned bytes that must not change.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>

#include "ddp_runtime/kernels/launcher.h"
#include "tests/gpu/kernel_memory.h"
#include "tests/unit/kernels/cpu_grid.h"
#include "tests/unit/kernels/values.h"

namespace ddp::kernels::gpu {
namespace {

using comm::ElementType;
using test::Array;

class KernelsOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!machine().missing.empty()) GTEST_SKIP() << machine().missing;
    comm::check_device(calls(), calls().set_device(0), "be used by this thread");
    stream_.emplace();
    launcher_.emplace(machine().driver);
  }
  const KernelLauncher& launcher() const { return *launcher_; }
  comm::DeviceStream stream() const { return stream_->get(); }
  // Copies to the GPU, with the same offset from a multiple of 64 bytes and the poison around it.
  template <class Element>
  Mirror<Element> mirror(const Array<Element>& array) const {
    return Mirror<Element>(array, *stream_);
  }
  template <class T>
  Memory upload(const std::vector<T>& values) const {
    return {values.data(), values.size() * sizeof(T), *stream_};
  }
  const Stream& on() const { return *stream_; }

 private:
  std::optional<Stream> stream_;
  std::optional<KernelLauncher> launcher_;
};

template <class Element>
std::size_t differences(const Array<Element>& actual, const Array<Element>& expected) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    count += test::same<Element>(actual.data()[i], expected.data()[i]) ? 0 : 1;
  }
  return count;
}

// ---- pack

struct Shape {
  std::size_t count;
  std::size_t offset;
};

template <class From, class To>
struct PackCase {
  std::vector<Array<From>> gradients;
  std::vector<PackPiece> pieces;
  std::size_t elements = 0;

  explicit PackCase(const std::vector<Shape>& shapes) {
    for (const auto& [count, offset] : shapes) {
      auto& gradient = gradients.emplace_back(count, offset);
      gradient.randomize(static_cast<unsigned>(pieces.size()), 100);
      if (count > 5) gradient.set(count / 2, NAN);
      if (count > 9) gradient.set(count / 3, std::numeric_limits<float>::infinity());
      pieces.push_back({gradient.data(), elements, count, 0});
      elements += count;
    }
  }
};

template <class From, class To>
class PackOnGpu : public KernelsOnGpu {
 protected:
  void expect_like_cpu(ElementType from, ElementType to, const std::vector<Shape>& shapes,
                       std::size_t flat_offset) {
    PackCase<From, To> c(shapes);
    Array<To> expected(c.elements, flat_offset);
    expected.randomize(99);
    auto on_gpu = mirror(expected);
    const auto tiles = number_tiles(std::span(c.pieces));
    cpu::run_pack<From, To>({c.pieces.data(), c.pieces.size(), tiles, expected.data(), 0.3F}, 2);
    std::vector<Mirror<From>> mirrors;
    for (std::size_t i = 0; i < c.pieces.size(); ++i) {
      c.pieces[i].from = mirrors.emplace_back(mirror(c.gradients[i])).data();
    }
    const Memory table = upload(c.pieces);
    launcher().pack(from, to, {table.as<PackPiece>(), c.pieces.size(), tiles, on_gpu.data(), 0.3F},
                    stream());
    Array<To> actual(c.elements, flat_offset);
    on_gpu.read(actual, on());
    EXPECT_EQ(differences(actual, expected), 0U);
    EXPECT_TRUE(actual.guards_intact());
    for (std::size_t i = 0; i < mirrors.size(); ++i) {
      Array<From> left(c.gradients[i].size(), shapes[i].offset);
      mirrors[i].read(left, on());
      EXPECT_EQ(differences(left, c.gradients[i]), 0U) << "the gradient was written";
    }
  }
  void expect_all_like_cpu(ElementType from, ElementType to) {
    for (std::size_t offset = 0; offset < 9; ++offset) {
      expect_like_cpu(from, to,
                      {{1, 0}, {100, offset}, {0, 0}, {8193, 0}, {37, 3}, {20000, offset}}, 0);
      expect_like_cpu(from, to, {{10000, offset}, {64, 0}}, offset % 4);
    }
    std::vector<Shape> many;
    for (std::size_t i = 0; i < 300; ++i) many.push_back({i * 31 % 97, i % 5});
    expect_like_cpu(from, to, many, 0);
  }
};

using PackF32F32 = PackOnGpu<F32, F32>;
using PackF32Bf16 = PackOnGpu<F32, Bf16>;
using PackF32F16 = PackOnGpu<F32, F16>;
using PackBf16F32 = PackOnGpu<Bf16, F32>;
using PackBf16Bf16 = PackOnGpu<Bf16, Bf16>;
using PackF16F32 = PackOnGpu<F16, F32>;
using PackF16F16 = PackOnGpu<F16, F16>;
TEST_F(PackF32F32, LikeCpu) {
  expect_all_like_cpu(ElementType::f32, ElementType::f32);
}
TEST_F(PackF32Bf16, LikeCpu) {
  expect_all_like_cpu(ElementType::f32, ElementType::bf16);
}
TEST_F(PackF32F16, LikeCpu) {
  expect_all_like_cpu(ElementType::f32, ElementType::f16);
}
TEST_F(PackBf16F32, LikeCpu) {
  expect_all_like_cpu(ElementType::bf16, ElementType::f32);
}
TEST_F(PackBf16Bf16, LikeCpu) {
  expect_all_like_cpu(ElementType::bf16, ElementType::bf16);
}
TEST_F(PackF16F32, LikeCpu) {
  expect_all_like_cpu(ElementType::f16, ElementType::f32);
}
TEST_F(PackF16F16, LikeCpu) {
  expect_all_like_cpu(ElementType::f16, ElementType::f16);
}

// ---- check

struct CheckResult {
  double sum = 0;
  float found_inf = 0;
};

template <class Element>
class CheckOnGpu : public KernelsOnGpu {
 protected:
  CheckResult on_cpu(const Array<Element>& data) {
    std::vector<double> partials(kMaxCheckBlocks);
    std::uint32_t ticket = 0;
    CheckResult result;
    cpu::run_check<Element>(
        {data.data(), data.size(), partials.data(), &ticket, &result.sum, &result.found_inf},
        check_blocks(data.size()));
    return result;
  }
  void expect_like_cpu(ElementType type) {
    const Memory partials = upload(std::vector<double>(kMaxCheckBlocks, NAN));
    const Memory ticket = upload<std::uint32_t>({0});
    for (const std::size_t count : {0, 1, 9, 5001, 70001, 3000000}) {
      for (const std::size_t offset : {0, 1, 6}) {
        Array<Element> data(count, offset);
        data.randomize(static_cast<unsigned>(count));
        for (const bool bad : {false, true}) {
          if (bad && count > 0) data.set(count - 1, NAN);
          const auto there = mirror(data);
          const CheckResult expected = on_cpu(data);
          for (int again = 0; again < 3; ++again) {  // the ticket must begin at 0 each time
            const Memory sum = upload<double>({-1});
            const Memory found = upload<float>({0});
            launcher().check(type,
                             {there.data(), count, partials.as<double>(),
                              ticket.as<std::uint32_t>(), sum.as<double>(), found.as<float>()},
                             stream());
            const auto actual = sum.read<double>(on());
            EXPECT_TRUE(actual == expected.sum || (std::isnan(actual) && std::isnan(expected.sum)))
                << actual << " instead of " << expected.sum << " for " << count << " at " << offset;
            EXPECT_EQ(found.read<float>(on()), expected.found_inf);
          }
        }
      }
    }
  }
};

using CheckF32 = CheckOnGpu<F32>;
using CheckBf16 = CheckOnGpu<Bf16>;
using CheckF16 = CheckOnGpu<F16>;
TEST_F(CheckF32, SameBitsAsCpu) {
  expect_like_cpu(ElementType::f32);
}
TEST_F(CheckBf16, SameBitsAsCpu) {
  expect_like_cpu(ElementType::bf16);
}
TEST_F(CheckF16, SameBitsAsCpu) {
  expect_like_cpu(ElementType::f16);
}

// ---- AdamW

template <class Gradient>
class AdamWOnGpu : public KernelsOnGpu {
 protected:
  void expect_like_cpu(ElementType type, std::size_t count, std::size_t gradient_offset,
                       std::size_t offset, bool skips) {
    Array<Gradient> gradient(count, gradient_offset);
    std::vector<Array<F32>> state;  // parameter, average, average of squares
    gradient.randomize(1, 3);
    for (unsigned i = 0; i < 3; ++i) state.emplace_back(count, offset).randomize(i + 2);
    for (std::size_t i = 0; i < count; ++i) state[2].set(i, std::abs(state[2].get(i)));
    Array<Bf16> weight(count, offset);
    weight.randomize(9);
    std::vector<float> before;
    for (std::size_t i = 0; i < count; ++i) before.push_back(state[0].get(i));
    const auto gradient_there = mirror(gradient);
    std::vector<Mirror<F32>> there;
    for (const auto& array : state) there.push_back(mirror(array));
    const auto weight_there = mirror(weight);
    const std::vector<float> scalars = {7, 64, 0.5F, skips ? 1.0F : 0.0F};
    const Memory scalars_there = upload(scalars);

    const auto run = [&](const void* g, float* p, float* m, float* v, std::uint16_t* w,
                         const float* values, const auto& launch) {
      std::vector<AdamWPiece> pieces = {{g, p, m, v, w, count, 0, 0.1F, 0}};
      AdamWArguments a;
      a.tiles = number_tiles(std::span(pieces));
      a.count = 1;
      a.step = values;
      a.loss_scale = values + 1;
      a.clip_factor = values + 2;
      a.skip = values + 3;
      a.lr = 1e-2F;
      a.beta1 = 0.9F;
      a.beta2 = 0.999F;
      a.eps = 1e-8F;
      launch(a, pieces);
    };
    run(gradient_there.data(), there[0].data(), there[1].data(), there[2].data(),
        weight_there.data(), scalars_there.as<float>(), [&](AdamWArguments a, const auto& pieces) {
          const Memory table = upload(pieces);
          a.pieces = table.template as<AdamWPiece>();
          launcher().adamw(type, a, stream());
          on().finish();
        });
    run(gradient.data(), state[0].data(), state[1].data(), state[2].data(), weight.data(),
        scalars.data(), [&](AdamWArguments a, const auto& pieces) {
          a.pieces = pieces.data();
          cpu::run_adamw<Gradient>(a, 1);
        });
    compare(before, state, there, weight, weight_there, offset, skips);
  }

 private:
  // The averages must have the bits of the CPU. powf of CUDA and of the C library differ in the
  // last bits, and so may the change of the parameter.
  void compare(const std::vector<float>& before, const std::vector<Array<F32>>& state,
               const std::vector<Mirror<F32>>& there, const Array<Bf16>& weight,
               const Mirror<Bf16>& weight_there, std::size_t offset, bool skips) {
    const std::size_t count = before.size();
    for (std::size_t k = 0; k < 3; ++k) {
      Array<F32> actual(count, offset);
      there[k].read(actual, on());
      EXPECT_TRUE(actual.guards_intact());
      if (k > 0) {
        EXPECT_EQ(differences(actual, state[k]), 0U) << "average " << k;
        continue;
      }
      Array<Bf16> weights(count, offset);
      weight_there.read(weights, on());
      EXPECT_TRUE(weights.guards_intact());
      for (std::size_t i = 0; i < count; ++i) {
        const float expected = state[0].get(i);
        ASSERT_NEAR(actual.get(i), expected, 1e-6F + 1e-4F * std::abs(expected - before[i])) << i;
        ASSERT_EQ(weights.data()[i], skips ? weight.data()[i] : Bf16::from_float(actual.get(i)))
            << i;
      }
    }
  }

 public:
  void expect_all_like_cpu(ElementType type) {
    for (const std::size_t count : {0, 1, 7, 8193, 100001}) {
      for (std::size_t offset = 0; offset < 5; ++offset) {
        expect_like_cpu(type, count, offset, offset, false);
        expect_like_cpu(type, count, 0, offset, false);
      }
    }
    expect_like_cpu(type, 1000, 0, 0, true);
  }
};

using AdamWF32 = AdamWOnGpu<F32>;
using AdamWBf16 = AdamWOnGpu<Bf16>;
TEST_F(AdamWF32, LikeCpu) {
  expect_all_like_cpu(ElementType::f32);
}
TEST_F(AdamWBf16, LikeCpu) {
  expect_all_like_cpu(ElementType::bf16);
}

}  // namespace
}  // namespace ddp::kernels::gpu
