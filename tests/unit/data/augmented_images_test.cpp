// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/data/augmented_images.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "ddp_runtime/data/tensor_dataset.h"
#include "tests/unit/error_of.h"
#include "tests/unit/temporary_directory.h"

namespace ddp::data {
namespace {

using test::TemporaryDirectory;
using test::write;

using testing::HasSubstr;

// Returns `n` images with two channels; all pixels of all images have different values, and none is
// 0.
std::shared_ptr<const TensorDataset> numbered_images(std::int64_t n, std::int64_t height,
                                                     std::int64_t width) {
  return std::make_shared<const TensorDataset>(
      torch::arange(1, 1 + n * 2 * height * width).to(torch::kFloat32).view({n, 2, height, width}),
      torch::arange(n), n);
}

// Defines a placement in terms of the tensor library: pad, crop, flip.
torch::Tensor moved(const torch::Tensor& image, const Placement& place, std::int64_t padding) {
  const auto source = place.flipped ? image.flip(2) : image;
  const auto padded = torch::constant_pad_nd(source, {padding, padding, padding, padding});
  return padded.slice(1, padding - place.down, padding - place.down + image.size(1))
      .slice(2, padding - place.right, padding - place.right + image.size(2));
}

TEST(AugmentedImages, ArePaddedCroppedAndFlipped) {
  const auto images = numbered_images(60, 5, 7);
  const Augmentation augmentation{4, true};
  const AugmentedImages augmented(images, augmentation, 3);
  std::vector<std::int64_t> all(60);
  std::iota(all.rbegin(), all.rend(), 0);
  const auto plain = images->get(all);
  const auto batch = augmented.draw(all, 2);
  EXPECT_TRUE(torch::equal(batch.targets, plain.targets));
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto place = placement_of(augmentation, 3, 2, all[i]);
    const auto at = static_cast<std::int64_t>(i);
    EXPECT_TRUE(torch::equal(batch.inputs[at], moved(plain.inputs[at], place, 4)))
        << place.down << " " << place.right << " " << place.flipped;
  }
}

TEST(AugmentedImages, AreUnchangedForEvaluation) {
  const auto images = numbered_images(3, 8, 8);
  const AugmentedImages augmented(images, {4, true}, 3);
  const std::vector<std::int64_t> all{0, 1, 2};
  EXPECT_TRUE(torch::equal(augmented.get(all).inputs, images->get(all).inputs));
}

TEST(AugmentedImages, DependOnlyOnSeedEpochAndSample) {
  const AugmentedImages augmented(numbered_images(20, 8, 8), {4, true}, 3);
  const auto together = augmented.draw(std::vector<std::int64_t>{4, 9, 17}, 1).inputs;
  const auto alone = augmented.draw(std::vector<std::int64_t>{9}, 1).inputs;
  EXPECT_TRUE(torch::equal(together[1], alone[0])) << "rank and batch size must have no effect";
  const AugmentedImages other_seed(numbered_images(20, 8, 8), {4, true}, 4);
  const std::vector<std::int64_t> all{0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_FALSE(torch::equal(augmented.draw(all, 1).inputs, augmented.draw(all, 2).inputs));
  EXPECT_FALSE(torch::equal(augmented.draw(all, 1).inputs, other_seed.draw(all, 1).inputs));
}

// 81 positions, each flipped or not, are equally likely: each occurs about 100 times in 16,200
// draws.
TEST(Placement, IsUniform) {
  std::map<std::tuple<std::int64_t, std::int64_t, bool>, int> seen;
  for (std::int64_t i = 0; i < 16200; ++i) {
    const auto place = placement_of({4, true}, 1, i / 1000, i % 1000);
    ++seen[{place.down, place.right, place.flipped}];
  }
  EXPECT_EQ(seen.size(), 162U);
  for (const auto& [place, count] : seen) {
    EXPECT_LE(std::abs(std::get<0>(place)), 4);
    EXPECT_NEAR(count, 100, 50);
  }
  for (std::int64_t i = 0; i < 100; ++i) {
    EXPECT_FALSE(placement_of({4, false}, 1, 0, i).flipped);
    EXPECT_EQ(placement_of({0, true}, 1, 0, i).down, 0);
  }
}

TEST(Augmentation, RefusesInvalidRequests) {
  EXPECT_EQ(parse_augmentation("crop+flip").padding, 4);
  EXPECT_TRUE(parse_augmentation("flip").any());
  EXPECT_FALSE(parse_augmentation("none").any());
  EXPECT_THAT(error_of([] { parse_augmentation("rotate"); }), HasSubstr("use none, crop, flip"));
  const auto numbers = std::make_shared<const TensorDataset>(torch::zeros({5, 9}),
                                                             torch::zeros({5}, torch::kInt64), 2);
  EXPECT_THAT(error_of([&] {
                AugmentedImages(numbers, {0, true}, 1);
              }),
              HasSubstr("samples of shape [9]; use --augment none"));
  EXPECT_THAT(error_of([] {
                AugmentedImages(numbered_images(1, 4, 9), {4, false}, 1);
              }),
              HasSubstr("too small to be shifted by 4"));
}

}  // namespace
}  // namespace ddp::data
