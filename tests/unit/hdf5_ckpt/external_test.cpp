// SPDX-License-Identifier: Apache-2.0
// Files of other programs with random changes. Each is either read, without an access outside of
// the file, or rejected.

#include <gtest/gtest.h>

#include <random>

#include "fault_matrix.h"
#include "hdf5_ckpt/convert/external.h"
#include "hdf5_ckpt/convert/file_kind.h"
#include "hdf5_ckpt/error.h"
#include "support.h"

namespace ddp::ckpt {
namespace {

using test::TempDirectory;

std::vector<std::byte> written(const char* name,
                               void (*write)(const std::filesystem::path&,
                                             std::span<const ArrayHeader>, const GiveBytes&)) {
  const TempDirectory directory(test::On::memory);
  test::ArraySet set;
  set.add("a", DType::float32, {2, 3});
  set.add("b.weight", DType::bfloat16, {5});
  set.add("c", DType::int64, {});
  set.add("d", DType::boolean, {0, 4});
  const auto views = set.views();
  std::vector<ArrayHeader> headers;
  for (const ArrayView& view : views) headers.push_back({view.name, view.dtype, view.shape});
  write(directory / name, headers,
        [&](std::size_t index, const TakeBytes& take) { take(views[index].bytes); });
  return test::file_bytes(directory / name);
}

// Makes one to four random changes: changes a byte, or removes, repeats or overwrites a piece.
std::vector<std::byte> mutated(std::vector<std::byte> bytes, std::mt19937& random) {
  for (unsigned i = 0; i <= random() % 4 && bytes.size() > 16; ++i) {
    const auto at = static_cast<std::ptrdiff_t>(random() % (bytes.size() - 8));
    const auto length = static_cast<std::ptrdiff_t>(1 + random() % 8);
    const auto begin = bytes.begin() + at;
    switch (random() % 5) {
      case 0:
        *begin ^= std::byte(1U << (random() % 8));
        break;
      case 1:
        std::fill_n(begin, length, static_cast<std::byte>(random() % 2 * 255));
        break;
      case 2:
        bytes.erase(begin, begin + length);
        break;
      case 3: {
        const std::vector<std::byte> piece(begin, begin + length);
        bytes.insert(begin, piece.begin(), piece.end());
        break;
      }
      default:
        bytes.resize(bytes.size() - random() % 8);
    }
  }
  return bytes;
}

template <typename Parse>
void fuzz(const std::string& format, const std::vector<std::byte>& original, const Parse& parse) {
  std::mt19937 random(5);
  const std::size_t cases = test::long_tests() ? 2000000 : 100000;
  std::size_t refused = 0;
  for (std::size_t i = 0; i < cases; ++i) {
    const std::vector<std::byte> bytes = mutated(original, random);
    try {
      for (const ExternalArray& array : parse(bytes)) {
        std::vector<std::byte> copy(byte_count(array.dtype, array.shape).value());
        copy_elements(bytes, array, 0, copy);
      }
    } catch (const DamagedError&) {
      ++refused;
    } catch (const UnsupportedError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, cases / 2);
  EXPECT_LT(refused, cases) << "every file was rejected, perhaps also the original";
  test::expect_in_fault_matrix(format + " file with bytes changed at random", cases);
}

TEST(External, MutatedSafetensorsAreReadOrRejected) {
  const auto parse = [](const std::vector<std::byte>& bytes) {
    return parse_safetensors(bytes, bytes.size()).arrays;
  };
  fuzz("safetensors", written("x.safetensors", write_safetensors), parse);
}

TEST(External, MutatedTorchFilesAreReadOrRejected) {
  const auto parse = [](const std::vector<std::byte>& bytes) {
    return parse_torch_file(bytes).arrays;
  };
  fuzz("torch.save", written("x.pt", write_torch_file), parse);
}

}  // namespace
}  // namespace ddp::ckpt
