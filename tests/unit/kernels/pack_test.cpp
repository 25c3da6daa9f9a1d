// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/kernels/pack.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/unit/kernels/cpu_grid.h"
#include "tests/unit/kernels/values.h"

namespace ddp::kernels {
namespace {

using test::Array;

template <class FromType, class ToType>
struct Types {
  using From = FromType;
  using To = ToType;
};

// The gradient at `offset` elements of its allocation, followed by `gap` elements of the flat array
// that belong to no gradient.
struct Shape {
  std::size_t count;
  std::size_t offset = 0;
  std::size_t gap = 0;
};

template <class T>
class Pack : public testing::Test {
 protected:
  using From = typename T::From;
  using To = typename T::To;

  void expect_packed(const std::vector<Shape>& shapes, float scale, std::size_t flat_offset = 0,
                     std::uint64_t blocks = 3) {
    std::vector<Array<From>> gradients;
    std::vector<PackPiece> pieces;
    std::size_t end = 0;
    for (const auto& [count, offset, gap] : shapes) {
      auto& gradient = gradients.emplace_back(count, offset);
      gradient.randomize(static_cast<unsigned>(pieces.size()), 100);
      const void* const from = count == 0 ? nullptr : gradient.data();
      pieces.push_back({from, end, count, 0});
      end += count + gap;
    }
    Array<To> flat(end, flat_offset);
    std::fill_n(reinterpret_cast<unsigned char*>(flat.data()), end * sizeof(typename To::Bits),
                test::kPoison);
    typename To::Bits poison;
    std::memset(&poison, test::kPoison, sizeof(poison));
    const auto tiles = number_tiles(std::span(pieces));
    cpu::run_pack<From, To>({pieces.data(), pieces.size(), tiles, flat.data(), scale}, blocks);

    std::size_t wrong = 0;
    for (std::size_t p = 0; p < pieces.size(); ++p) {
      for (std::size_t i = 0; i < shapes[p].count; ++i) {
        const double exact = static_cast<double>(gradients[p].get(i)) * scale;
        const auto expected = To::from_float(static_cast<float>(exact));
        wrong += test::same<To>(flat.data()[pieces[p].to + i], expected) ? 0 : 1;
      }
      for (std::size_t i = 0; i < shapes[p].gap; ++i) {
        const auto value = flat.data()[pieces[p].to + shapes[p].count + i];
        wrong += std::memcmp(&value, &poison, sizeof(value)) == 0 ? 0 : 1;
      }
    }
    EXPECT_EQ(wrong, 0U);
    EXPECT_TRUE(flat.guards_intact());
  }
};

using AllTypes =
    testing::Types<Types<F32, F32>, Types<F32, Bf16>, Types<F32, F16>, Types<Bf16, F32>,
                   Types<Bf16, Bf16>, Types<F16, F32>, Types<F16, F16>>;
TYPED_TEST_SUITE(Pack, AllTypes);

TYPED_TEST(Pack, ScalesAndConverts) {
  this->expect_packed({{10000}, {8192}, {4096}, {16}}, 0.125F);
  this->expect_packed({{10000}}, 1);
  this->expect_packed({{5000}}, 1.0F / 3);
}

TYPED_TEST(Pack, OddLengthsAndEmptyPieces) {
  this->expect_packed({{1}, {0}, {3}, {8193}, {0}, {7}, {15}, {0}, {17}}, 0.5F);
  this->expect_packed({{0}, {0}}, 1);
  this->expect_packed({}, 1);
}

TYPED_TEST(Pack, AnyAlignment) {
  for (std::size_t from = 0; from < 9; ++from) {
    for (std::size_t to = 0; to < 9; ++to) {
      this->expect_packed({{100, from, 3}, {37, from}}, 2, to);
    }
  }
}

TYPED_TEST(Pack, ManyPieces) {
  std::vector<Shape> shapes;
  for (std::size_t i = 0; i < 4096; ++i) shapes.push_back({i * 31 % 97, i % 5, i % 3});
  this->expect_packed(shapes, 0.25F, 0, 2);
}

TYPED_TEST(Pack, TheNumberOfBlocksDoesNotMatter) {
  for (const std::uint64_t blocks : {1, 2, 5, 64}) {
    this->expect_packed({{20000, 1}, {3}, {9000}}, 0.5F, 1, blocks);
  }
}

TEST(PackValues, NotFiniteAndRounded) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {kInfinity, -kInfinity, NAN,   1e38F,       -1e38F,      1e-40F,
                                     -0.0F,     65520,      65519, 1.00390625F, 1.01171875F, 3};
  Array<F32> gradient(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) gradient.set(i, values[i]);
  std::vector<PackPiece> pieces = {{gradient.data(), 0, values.size(), 0}};
  const auto tiles = number_tiles(std::span(pieces));
  Array<Bf16> bf16(values.size());
  cpu::run_pack<F32, Bf16>({pieces.data(), 1, tiles, bf16.data(), 1}, 1);
  EXPECT_EQ(bf16.get(0), kInfinity);
  EXPECT_EQ(bf16.get(1), -kInfinity);
  EXPECT_TRUE(std::isnan(bf16.get(2)));
  EXPECT_EQ(bf16.data()[6], 0x8000);   // minus zero
  EXPECT_EQ(bf16.get(9), 1.0F);        // ties to even, down
  EXPECT_EQ(bf16.get(10), 1.015625F);  // and up
  Array<F16> f16(values.size());
  cpu::run_pack<F32, F16>({pieces.data(), 1, tiles, f16.data(), 1}, 1);
  EXPECT_EQ(f16.get(3), kInfinity);
  EXPECT_EQ(f16.get(7), kInfinity);  // the smallest that overflows
  EXPECT_EQ(f16.get(8), 65504);
  EXPECT_TRUE(std::isnan(f16.get(2)));
  EXPECT_EQ(f16.get(5), 0);
}

}  // namespace
}  // namespace ddp::kernels
