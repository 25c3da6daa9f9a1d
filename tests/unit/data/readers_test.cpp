// SPDX-License-Identifier: Apache-2.0
// The readers on the real digits and on IDX files, intact and with every known kind of damage.
#include "ddp_runtime/data/readers.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <fstream>

#include "base/errors.h"
#include "ddp_runtime/data/open_data.h"
#include "tests/unit/error_of.h"
#include "tests/unit/temporary_directory.h"

namespace ddp::data {
namespace {

using test::TemporaryDirectory;
using test::write;

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

const fs::path kDigits = fs::path(SLURM_DDP_SOURCE_DIR) / "datasets/digits/digits.csv.gz";

void write_gzipped(const fs::path& file, const std::string& bytes) {
  const gzFile stream = gzopen(file.c_str(), "wb");
  gzwrite(stream, bytes.data(), static_cast<unsigned>(bytes.size()));
  gzclose(stream);
}

std::string big_endian(std::uint32_t value) {
  return {static_cast<char>(value >> 24U), static_cast<char>(value >> 16U),
          static_cast<char>(value >> 8U), static_cast<char>(value)};
}

std::string images(std::uint32_t n) {
  std::string bytes = big_endian(0x00000803) + big_endian(n) + big_endian(2) + big_endian(3);
  for (std::uint32_t i = 0; i < n * 6; ++i) bytes += static_cast<char>(i % 256);
  return bytes;
}

// A file of 30 images of 2 x 3 pixels whose header says something else.
std::string with_sizes(std::uint32_t n, std::uint32_t rows, std::uint32_t columns) {
  auto bytes = images(30);
  bytes.replace(4, 12, big_endian(n) + big_endian(rows) + big_endian(columns));
  return bytes;
}

std::string labels(std::uint32_t n) {
  std::string bytes = big_endian(0x00000801) + big_endian(n);
  for (std::uint32_t i = 0; i < n; ++i) bytes += static_cast<char>(i % 10);
  return bytes;
}

void write_mnist(const fs::path& directory) {
  write(directory / "train-images-idx3-ubyte", images(30));
  write(directory / "train-labels-idx1-ubyte", labels(30));
  write_gzipped(directory / "t10k-images-idx3-ubyte.gz", images(10));
  write_gzipped(directory / "t10k-labels-idx1-ubyte.gz", labels(10));
}

TEST(Digits, AreCompleteAndATenthIsHeldOut) {
  const auto data = read_digits(kDigits);
  EXPECT_EQ(data.train->size(), 1618);
  EXPECT_EQ(data.evaluation->size(), 179);
  EXPECT_EQ(data.train->shape().input, (std::vector<std::int64_t>{1, 8, 8}));
  EXPECT_EQ(data.train->shape().classes, 10);
  // The first line of the file is the digit zero; its first row is 0 0 5 13 9 1 0 0.
  const auto first = data.train->get(std::vector<std::int64_t>{0});
  EXPECT_EQ(first.targets.item<std::int64_t>(), 0);
  EXPECT_FLOAT_EQ(first.inputs[0][0][0][3].item<float>(), 13.0F / 16);
  // Line 10 (the digit 9) is the first held-out line.
  EXPECT_EQ(data.evaluation->get(std::vector<std::int64_t>{0}).targets.item<std::int64_t>(), 9);
}

TEST(Digits, DamagedFilesAreNamed) {
  const TemporaryDirectory directory;
  const auto file = directory.path() / "digits.csv.gz";
  std::ifstream stream(kDigits, std::ios::binary);
  const std::string good((std::istreambuf_iterator<char>(stream)), {});
  for (const std::size_t kept : {good.size() / 2, good.size() - 1, std::size_t{15}}) {
    write(file, good.substr(0, kept));
    EXPECT_THAT(error_of([&] { read_digits(file); }),
                AllOf(HasSubstr(file.string()), HasSubstr("damaged or truncated")));
  }
  std::string flipped = good;
  flipped[good.size() / 2] = static_cast<char>(flipped[good.size() / 2] ^ 1);
  write(file, flipped);
  EXPECT_THAT(error_of([&] { read_digits(file); }), HasSubstr(file.string()));
  write(file, "1,2,3\n");
  EXPECT_THAT(error_of([&] { read_digits(file); }), HasSubstr("line 1"));
  std::string bright(64 * 3, ' ');
  bright.clear();
  for (int i = 0; i < 64; ++i) bright += "17,";
  write(file, bright + "1\n");
  EXPECT_THAT(error_of([&] { read_digits(file); }), HasSubstr("0 to 16"));
  write(file, "");
  EXPECT_THAT(error_of([&] { read_digits(file); }), HasSubstr("holds only 0 digits"));
}

TEST(Mnist, ReadsPlainAndGzippedFilesUnderBothSpellings) {
  const TemporaryDirectory directory;
  write_mnist(directory.path());
  fs::rename(directory.path() / "train-labels-idx1-ubyte",
             directory.path() / "train-labels.idx1-ubyte");
  const auto data = read_mnist(directory.path());
  EXPECT_EQ(data.train->size(), 30);
  EXPECT_EQ(data.evaluation->size(), 10);
  EXPECT_EQ(data.train->shape().input, (std::vector<std::int64_t>{1, 2, 3}));
  const auto batch = data.train->get(std::vector<std::int64_t>{13, 2});
  EXPECT_EQ(batch.targets[0].item<std::int64_t>(), 3);
  EXPECT_FLOAT_EQ(batch.inputs[1][0][1][2].item<float>(), 17.0F / 255);
}

TEST(Mnist, DamageIsNamed) {
  const TemporaryDirectory directory;
  const auto image_file = directory.path() / "train-images-idx3-ubyte";
  const auto label_file = directory.path() / "train-labels-idx1-ubyte";
  const auto error = [&] { return error_of([&] { read_mnist(directory.path()); }); };
  const auto damage = [&](const fs::path& file, const std::string& bytes) {
    write_mnist(directory.path());
    write(file, bytes);
    return error();
  };
  EXPECT_THAT(damage(image_file, images(30).substr(0, 100)),
              AllOf(HasSubstr("train-images"), HasSubstr("truncated"),
                    HasSubstr("announces 30 x 2 x 3 elements, but it holds 84")));
  EXPECT_THAT(damage(image_file, images(30) + "x"), HasSubstr("too long"));
  EXPECT_THAT(damage(image_file, images(30).substr(0, 9)), HasSubstr("less than a header"));
  EXPECT_THAT(damage(image_file, labels(30)), HasSubstr("magic number is 00000801"));
  EXPECT_THAT(damage(image_file, "GIF89a" + images(30)), HasSubstr("not an IDX file"));
  EXPECT_THAT(damage(image_file, images(29)),
              AllOf(HasSubstr("29 images"), HasSubstr("30 labels")));
  constexpr std::uint32_t kHuge = 0xffffffff;
  EXPECT_THAT(
      damage(image_file, with_sizes(kHuge, kHuge, kHuge)),
      HasSubstr("announces 4294967295 x 4294967295 x 4294967295 elements, but it holds 180"));
  auto wrong = labels(30);
  wrong.back() = 11;
  EXPECT_THAT(damage(label_file, wrong), AllOf(HasSubstr("train-labels"), HasSubstr("label 11")));
  write_mnist(directory.path());
  fs::remove(directory.path() / "t10k-labels-idx1-ubyte.gz");
  EXPECT_THAT(error(),
              AllOf(HasSubstr("no t10k-labels-idx1-ubyte"), HasSubstr(directory.path().string())));
  EXPECT_THAT(error_of([] { read_mnist("/nonexistent"); }), HasSubstr("is not a directory"));
}

// Whichever dimension is wrong, the message shows all of them and blames no other.
TEST(Mnist, WrongDimensionIsNotBlamedOnAnother) {
  const TemporaryDirectory directory;
  const auto file = directory.path() / "train-images-idx3-ubyte";
  const auto error = [&](const std::string& bytes) {
    write_mnist(directory.path());
    write(file, bytes);
    return error_of([&] { read_mnist(directory.path()); });
  };
  for (const std::uint32_t wrong : {7U, 0x10000000U, 0xffffffffU}) {
    const auto holds = [&](const std::string& sizes) {
      return HasSubstr(
          fmt::format("{} is damaged, truncated or too long: its header announces {} "
                      "elements, but it holds 180",
                      file.string(), sizes));
    };
    EXPECT_THAT(error(with_sizes(wrong, 2, 3)), holds(fmt::format("{} x 2 x 3", wrong)));
    EXPECT_THAT(error(with_sizes(30, wrong, 3)), holds(fmt::format("30 x {} x 3", wrong)));
    EXPECT_THAT(error(with_sizes(30, 2, wrong)), holds(fmt::format("30 x 2 x {}", wrong)));
  }
  EXPECT_THAT(error(with_sizes(0, 2, 3)), HasSubstr("dimension 1 of its 3 has the size 0"));
  EXPECT_THAT(error(with_sizes(30, 0, 3)), HasSubstr("dimension 2 of its 3 has the size 0"));
  EXPECT_THAT(error(with_sizes(30, 2, 0)), HasSubstr("dimension 3 of its 3 has the size 0"));
  EXPECT_THAT(error(with_sizes(30, 3, 2)),
              HasSubstr("have 3 x 2 pixels in the train files and 2 x 3 in the t10k files"));
}

TEST(Synthetic, IsReproducibleAndDoesNotAdvanceTheModelsGenerator) {
  torch::manual_seed(1);
  const auto untouched = torch::rand({3});
  torch::manual_seed(1);
  const auto a = make_synthetic({4}, 3, 50, 7);
  EXPECT_TRUE(torch::equal(torch::rand({3}), untouched));
  const auto b = make_synthetic({4}, 3, 50, 7);
  const std::vector<std::int64_t> some{0, 44};
  EXPECT_TRUE(torch::equal(a.train->get(some).inputs, b.train->get(some).inputs));
  EXPECT_TRUE(torch::equal(a.train->get(some).targets, b.train->get(some).targets));
}

TEST(OpenData, ListsValidChoices) {
  const auto error = [](const char* specification) {
    return error_of([&] { open_data(specification); });
  };
  for (const char* bad : {"", "digit", "digits:x", "digits:", "mnist", "mnist:", "cifar10",
                          "text:", "hdf5", "synthetic:3"}) {
    EXPECT_THAT(error(bad), HasSubstr("use digits, mnist:DIR, cifar10:DIR, text:FILE, hdf5:FILE or "
                                      "synthetic"))
        << bad;
  }
  EXPECT_EQ(open_data("digits").train->size(), 1618);
}

}  // namespace
}  // namespace ddp::data
