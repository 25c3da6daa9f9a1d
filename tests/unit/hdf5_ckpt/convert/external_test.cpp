// SPDX-License-Identifier: Apache-2.0
// Files of other programs with random changes. Each is either read, without an access outside of
// the file, or rejected.

#include <fcntl.h>
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <map>
#include <random>
#include <tuple>

#include "base/file_descriptor.h"
#include "hdf5_ckpt/convert/external.h"
#include "hdf5_ckpt/convert/external_hdf5.h"
#include "hdf5_ckpt/convert/file_kind.h"
#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/core/hdf5_handle.h"
#include "tests/unit/error_of.h"
#include "tests/unit/hdf5_ckpt/convert/torch_files.h"
#include "tests/unit/hdf5_ckpt/fault_matrix.h"
#include "tests/unit/hdf5_ckpt/support.h"

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

using Values = std::map<std::string, std::tuple<DType, Shape, std::vector<std::byte>>>;

template <typename Parse>
Values values_in(const std::vector<std::byte>& bytes, const Parse& parse) {
  Values values;
  for (const ExternalArray& array : parse(bytes)) {
    std::vector<std::byte> copy(byte_count(array.dtype, array.shape).value());
    copy_elements(bytes, array, 0, copy);
    values[array.name] = {array.dtype, array.shape, std::move(copy)};
  }
  return values;
}

// With checksums, an array that is read has its values.
enum class Checksums : std::uint8_t { absent, present };

template <typename Parse>
void fuzz(const std::string& format, const std::vector<std::byte>& original, const Parse& parse,
          Checksums checksums) {
  std::mt19937 random(5);
  const std::size_t cases = test::long_tests() ? 2000000 : 100000;
  const Values expected = values_in(original, parse);
  std::size_t refused = 0;
  for (std::size_t i = 0; i < cases; ++i) {
    const std::vector<std::byte> bytes = mutated(original, random);
    try {
      for (const auto& [name, value] : values_in(bytes, parse)) {
        const bool right = expected.contains(name) && expected.at(name) == value;
        ASSERT_TRUE(right || checksums == Checksums::absent) << name << " of file " << i;
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
  fuzz("safetensors", written("x.safetensors", write_safetensors), parse, Checksums::absent);
}

std::vector<ExternalArray> arrays_of_torch(const std::vector<std::byte>& bytes) {
  return parse_torch_file(bytes).arrays;
}

// Objects of many kinds beside a tensor.
std::string objects() {
  return test::dict(test::pickled("w") + test::tensor("FloatStorage", 3) + test::pickled("view") +
                    test::tensor("FloatStorage", 2, "_rebuild_tensor_v2",
                                 test::dict(test::pickled("neg") + "\x88")) +
                    test::pickled("sched") + test::global("collections", "Counter") +
                    test::dict(test::number(3) + test::number(1)) + "\x85R" +
                    test::pickled("args") + test::global("argparse", "Namespace") + ")\x81" +
                    test::dict(test::pickled("lr") + test::number(1)) + "b" + test::pickled("set") +
                    "\x8f(K\x01K\x02\x90" + test::pickled("seed") + "\x8a\x09" +
                    test::little(5, 8) + "\xff");
}

TEST(External, MutatedTorchFilesAreReadOrRejected) {
  const std::string content = test::raw<float>({1, 2, 3});
  fuzz("torch.save", written("x.pt", write_torch_file), arrays_of_torch, Checksums::present);
  fuzz("torch.save with objects", test::bytes_of(test::torch_file(objects(), content, "big")),
       arrays_of_torch, Checksums::present);
  fuzz("torch.save without checksums",
       test::bytes_of(test::torch_file(objects(), content, "big", false)), arrays_of_torch,
       Checksums::absent);
  fuzz("torch.save before 1.6", test::bytes_of(test::old_torch_file(objects(), 3, content)),
       arrays_of_torch, Checksums::absent);
}

TEST(External, SafetensorsWithANameTwiceAreRejected) {
  const auto message = [](const std::string& header) {
    const auto file = test::bytes_of(test::little(header.size(), 8) + header + "01234567");
    return error_of([&] { parse_safetensors(file, file.size()); });
  };
  const std::string two = R"({"dtype": "F32", "shape": [2], "data_offsets": [0, 8]})";
  EXPECT_EQ(message(R"({"a": )" + two + "}"), "");
  EXPECT_EQ(message(R"({"a": )" + two + R"(, "a": )" + two + "}"),
            "its JSON has the name 'a' twice");
  EXPECT_EQ(message(R"({"a": {"shape": [2], )" + two.substr(1) + "}"),
            "its JSON has the name 'shape' twice");
  EXPECT_EQ(message(R"({"a": )" + two + R"(, "b": {"shape": [0], "dtype": "F32", )" +
                    R"("data_offsets": [8, 8]}, "__metadata__": null})"),
            "");
  const std::string text = message("{\"a\xff\x1b\": 1}");
  EXPECT_EQ(text.find_first_of("\xff\x1b"), text.npos) << "a terminal shows it";
}

// A dataset as it is, one in compressed chunks with checksums, and one of the other byte order.
std::vector<std::byte> written_hdf5(const std::filesystem::path& path) {
  const Hdf5Session session;
  {
    const Hdf5File file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), "create");
    const std::array<hsize_t, 1> extent = {300};
    const std::array<hsize_t, 1> chunk = {100};
    const Hdf5Space space(H5Screate_simple(1, extent.data(), nullptr), "create");
    const Hdf5Properties chunked(H5Pcreate(H5P_DATASET_CREATE), "create");
    hdf5_check(H5Pset_chunk(chunked.get(), 1, chunk.data()), "create");
    hdf5_check(H5Pset_deflate(chunked.get(), 4), "create");
    hdf5_check(H5Pset_fletcher32(chunked.get()), "create");
    std::vector<float> values(300, 1.5F);
    for (const auto& [name, type, how] :
         {std::tuple("plain", H5T_IEEE_F32LE, static_cast<hid_t>(H5P_DEFAULT)),
          std::tuple("chunked", H5T_IEEE_F32LE, chunked.get()),
          std::tuple("big", H5T_IEEE_F32BE, static_cast<hid_t>(H5P_DEFAULT))}) {
      const Hdf5Dataset dataset(
          H5Dcreate2(file.get(), name, type, space.get(), H5P_DEFAULT, how, H5P_DEFAULT), "create");
      hdf5_check(
          H5Dwrite(dataset.get(), H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()),
          "write");
    }
  }
  return test::file_bytes(path);
}

// Decodes the encoded arrays of the file into another one.
std::size_t decoded_bytes(const std::filesystem::path& path, std::uint64_t size, int to) {
  const FileContents contents = parse_hdf5(path, size, {256ULL << 20U, 5, 0});
  std::vector<Decoding> decodings;
  std::uint64_t bytes = 0;
  for (const ExternalArray& array : contents.arrays) {
    if (!array.encoded) continue;
    decodings.push_back({&array, bytes});
    bytes += byte_count(array.dtype, array.shape).value();
  }
  if (!decodings.empty()) decode_hdf5(path, decodings, to);
  return decodings.size();
}

TEST(External, MutatedHdf5FilesAreReadOrRejected) {
  const TempDirectory directory(test::On::memory);
  const auto original = written_hdf5(directory / "x.h5");
  const FileDescriptor to(::open((directory / "out").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(decoded_bytes(directory / "x.h5", original.size(), to.get()), 2U);
  std::mt19937 random(6);
  const std::size_t cases = test::long_tests() ? 20000 : 300;
  std::size_t refused = 0;
  for (std::size_t i = 0; i < cases; ++i) {
    const std::vector<std::byte> bytes = mutated(original, random);
    std::ofstream(directory / "x.h5", std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    try {
      decoded_bytes(directory / "x.h5", bytes.size(), to.get());
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, cases / 10);
  EXPECT_LT(refused, cases);
  test::expect_in_fault_matrix("HDF5 file with bytes changed at random", cases);
}

}  // namespace
}  // namespace ddp::ckpt
