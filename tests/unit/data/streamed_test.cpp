// SPDX-License-Identifier: Apache-2.0
// The readers that read on demand: CIFAR-10, text and HDF5, intact and with every known kind of
// damage.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hdf5.h>

#include <numeric>
#include <set>

#include "ddp_runtime/data/readers.h"
#include "tests/unit/error_of.h"
#include "tests/unit/temporary_directory.h"

namespace ddp::data {
namespace {

using test::TemporaryDirectory;
using test::write;

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

// Returns images whose label is number % 10. Red, green and blue are filled with number, number + 1
// and number + 2, except for the last blue pixel, which is 255.
std::string cifar_images(int first, int count) {
  std::string bytes;
  for (int number = first; number < first + count; ++number) {
    bytes += static_cast<char>(number % 10);
    for (int channel = 0; channel < 3; ++channel) {
      bytes += std::string(1024, static_cast<char>(number + channel));
    }
    bytes.back() = '\xff';
  }
  return bytes;
}

void write_cifar(const fs::path& directory) {
  for (int i = 1; i <= 5; ++i) {
    write(directory / ("data_batch_" + std::to_string(i) + ".bin"), cifar_images(4 * (i - 1), 4));
  }
  write(directory / "test_batch.bin", cifar_images(40, 3));
}

TEST(Cifar10, ReadsTheFiveFilesAsOne) {
  const TemporaryDirectory directory;
  write_cifar(directory.path());
  const auto data = read_cifar10(directory.path());
  EXPECT_EQ(data.train->size(), 20);
  EXPECT_EQ(data.evaluation->size(), 3);
  EXPECT_EQ(data.train->shape().input, (std::vector<std::int64_t>{3, 32, 32}));
  EXPECT_EQ(data.train->shape().classes, 10);
  const auto batch = data.train->get(std::vector<std::int64_t>{19, 0, 4, 3});
  const std::vector<int> numbers{19, 0, 4, 3};
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto image = batch.inputs[static_cast<std::int64_t>(i)];
    EXPECT_EQ(batch.targets[static_cast<std::int64_t>(i)].item<std::int64_t>(), numbers[i] % 10);
    const auto number = static_cast<float>(numbers[i]);
    EXPECT_NEAR(image[0][31][31].item<float>(), (number / 255 - 0.4914F) / 0.2470F, 1e-5);
    EXPECT_NEAR(image[1][0][0].item<float>(), ((number + 1) / 255 - 0.4822F) / 0.2435F, 1e-5);
    EXPECT_NEAR(image[2][31][31].item<float>(), (1 - 0.4465F) / 0.2616F, 1e-5);
  }
}

TEST(Cifar10, DamageIsNamed) {
  const TemporaryDirectory directory;
  const auto error = [&] { return error_of([&] { read_cifar10(directory.path()); }); };
  const auto damage = [&](const char* name, const std::string& bytes) {
    write_cifar(directory.path());
    write(directory.path() / name, bytes);
    return error();
  };
  const auto cut = damage("data_batch_3.bin", cifar_images(0, 4).substr(0, 5000));
  EXPECT_THAT(cut,
              AllOf(HasSubstr("data_batch_3.bin has 5000 bytes"), HasSubstr("download it again")));
  EXPECT_THAT(damage("test_batch.bin", ""), HasSubstr("test_batch.bin has 0 bytes"));
  auto label = cifar_images(0, 4);
  label[2 * 3073] = 10;
  EXPECT_THAT(damage("data_batch_5.bin", label),
              AllOf(HasSubstr("data_batch_5.bin holds the label 10 (image 2)")));
  write_cifar(directory.path());
  fs::remove(directory.path() / "data_batch_2.bin");
  EXPECT_THAT(error(), AllOf(HasSubstr("no data_batch_2.bin in " + directory.path().string()),
                             HasSubstr("binary version")));
  fs::create_directory(directory.path() / "data_batch_2.bin");
  EXPECT_THAT(error(), HasSubstr("is not a file"));
  EXPECT_THAT(error_of([] { read_cifar10("/nonexistent"); }), HasSubstr("is not a directory"));
}

TEST(Cifar10, FileTruncatedWhileInUseIsAnErrorNotACrash) {
  const TemporaryDirectory directory;
  write_cifar(directory.path());
  const auto data = read_cifar10(directory.path());
  fs::resize_file(directory.path() / "data_batch_5.bin", 2 * 3073 + 10);
  EXPECT_EQ(error_of([&] { data.train->get(std::vector<std::int64_t>{17}); }), "");
  EXPECT_THAT(error_of([&] { data.train->get(std::vector<std::int64_t>{18}); }),
              AllOf(HasSubstr("data_batch_5.bin ends at byte"), HasSubstr("12292")));
}

std::string letters(std::size_t n) {
  std::string text(n, ' ');
  for (std::size_t i = 0; i < n; ++i) text[i] = static_cast<char>('a' + i % 26);
  text[n - 1] = '\xff';
  return text;
}

TEST(Text, UsesEachByteExceptTheFirstAsTargetOnceAndHoldsOutTheLastTenth) {
  const TemporaryDirectory directory;
  const auto file = directory.path() / "text";
  const auto text = letters(1001);
  write(file, text);
  const auto data = read_text(file, 10);
  EXPECT_TRUE(data.train->shape().tokens);
  EXPECT_EQ(data.train->shape().classes, 256);
  EXPECT_EQ(data.train->size(), 90);      // 901 bytes
  EXPECT_EQ(data.evaluation->size(), 9);  // 100 bytes
  for (const auto& [part, first] : {std::pair(data.train, 0), std::pair(data.evaluation, 901)}) {
    std::vector<std::int64_t> all(static_cast<std::size_t>(part->size()));
    std::iota(all.begin(), all.end(), 0);
    const auto batch = part->get(all);
    for (std::int64_t i = 0; i < batch.inputs.numel(); ++i) {
      const auto at = static_cast<std::size_t>(first + i);
      ASSERT_EQ(batch.inputs.flatten()[i].item<std::int64_t>(),
                static_cast<unsigned char>(text[at]));
      ASSERT_EQ(batch.targets.flatten()[i].item<std::int64_t>(),
                static_cast<unsigned char>(text[at + 1]));
    }
  }
}

TEST(Text, TooShortTextIsRefusedWithTheRequiredLength) {
  const TemporaryDirectory directory;
  const auto file = directory.path() / "text";
  const auto error = [&] { return error_of([&] { read_text(file, 16); }); };
  EXPECT_THAT(error(), AllOf(HasSubstr("cannot open"), HasSubstr("No such file")));
  write(file, "");
  EXPECT_THAT(error(), AllOf(HasSubstr("holds 0 bytes"), HasSubstr("needs 170 or more")));
  write(file, letters(169));
  EXPECT_THAT(error(), HasSubstr("smaller --context"));
  write(file, letters(170));
  EXPECT_EQ(error(), "");
  EXPECT_THAT(error_of([&] { read_text(directory.path(), 16); }), HasSubstr("is not a file"));
}

// Writes one dataset with HDF5's own functions; `values` must be of type `memory`.
class Hdf5Writer {
 public:
  explicit Hdf5Writer(const fs::path& file)
      : file_(H5Fcreate(file.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT)) {}
  Hdf5Writer(const Hdf5Writer&) = delete;
  Hdf5Writer& operator=(const Hdf5Writer&) = delete;
  ~Hdf5Writer() { H5Fclose(file_); }

  template <class T>
  void add(const char* name, hid_t in_file, hid_t memory, const std::vector<hsize_t>& dimensions,
           const std::vector<T>& values, hid_t creation = H5P_DEFAULT) const {
    const hid_t space =
        H5Screate_simple(static_cast<int>(dimensions.size()), dimensions.data(), nullptr);
    const hid_t set = H5Dcreate2(file_, name, in_file, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    EXPECT_GE(H5Dwrite(set, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), 0);
    H5Dclose(set);
    H5Sclose(space);
  }
  // Rows 0, 1, 2, ... with 12 values each: 12 x row, ...
  void add_inputs(const char* name = "x", hsize_t rows = 30) const {
    std::vector<float> values(rows * 12);
    std::iota(values.begin(), values.end(), 0.0F);
    add(name, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, {rows, 3, 2, 2}, values);
  }
  void add_classes(const char* name = "y", int last = 2) const {
    std::vector<int> values(30);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int>(i % 3);
    values.back() = last;
    add(name, H5T_STD_I16LE, H5T_NATIVE_INT, {30}, values);
  }
  hid_t id() const { return file_; }

 private:
  hid_t file_;
};

TEST(Hdf5, HoldsOutEveryTenthRowAndReadsTheOthersInAnyOrder) {
  const TemporaryDirectory directory;
  const auto file = directory.path() / "data.h5";
  {
    const Hdf5Writer writer(file);
    writer.add_inputs();
    writer.add_classes();
  }
  const auto data = read_hdf5(file);
  EXPECT_EQ(data.train->size(), 27);
  EXPECT_EQ(data.evaluation->size(), 3);
  EXPECT_EQ(data.train->shape().input, (std::vector<std::int64_t>{3, 2, 2}));
  EXPECT_EQ(data.train->shape().classes, 3);
  std::set<int> rows;
  for (const auto& [part, held_out] :
       {std::pair(data.train, false), std::pair(data.evaluation, true)}) {
    for (std::int64_t i = part->size() - 1; i >= 0; --i) {
      const auto batch = part->get(std::vector<std::int64_t>{i, 0});
      const int row = batch.inputs[0].flatten()[0].item<int>() / 12;
      EXPECT_EQ(batch.inputs[0].flatten()[11].item<int>(), row * 12 + 11);
      EXPECT_EQ(batch.targets[0].item<int>(), row % 3);
      EXPECT_EQ(row % 10 == 9, held_out);
      rows.insert(row);
    }
  }
  EXPECT_EQ(rows.size(), 30U);
}

TEST(Hdf5, ReadsByteImagesAndCompressedChunks) {
  const TemporaryDirectory directory;
  const auto file = directory.path() / "data.h5";
  {
    const Hdf5Writer writer(file);
    const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    const std::array<hsize_t, 3> chunk{7, 2, 2};
    H5Pset_chunk(creation, 3, chunk.data());
    H5Pset_deflate(creation, 6);
    writer.add("x", H5T_STD_U8LE, H5T_NATIVE_UCHAR, {30, 2, 2}, std::vector<unsigned char>(120, 51),
               creation);
    H5Pclose(creation);
    writer.add_classes();
  }
  const auto data = read_hdf5(file);
  EXPECT_EQ(data.train->shape().input, (std::vector<std::int64_t>{1, 2, 2}))
      << "grayscale images must have one channel";
  EXPECT_FLOAT_EQ(data.train->get(std::vector<std::int64_t>{20}).inputs[0][0][1][1].item<float>(),
                  0.2F);
}

std::string hdf5_error(const std::function<void(const Hdf5Writer&)>& fill) {
  const TemporaryDirectory directory;
  const auto file = directory.path() / "data.h5";
  {
    const Hdf5Writer writer(file);
    fill(writer);
  }
  return error_of([&] { read_hdf5(file); });
}

TEST(Hdf5, OtherTypesAndShapesAreRefused) {
  EXPECT_THAT(hdf5_error([](const Hdf5Writer& w) { w.add_inputs(); }), HasSubstr("no dataset 'y'"));
  EXPECT_THAT(hdf5_error([](const Hdf5Writer& w) { w.add_classes(); }),
              HasSubstr("no dataset 'x'"));
  EXPECT_THAT(hdf5_error([](const Hdf5Writer& w) {
                w.add_inputs("x", 29);
                w.add_classes();
              }),
              HasSubstr("29 samples but y holds 30 classes"));
  EXPECT_THAT(hdf5_error([](const Hdf5Writer& w) {
                w.add_inputs();
                w.add_inputs("y");
              }),
              HasSubstr("y in"));
  EXPECT_THAT(hdf5_error([](const Hdf5Writer& w) {
                w.add("x", H5T_STD_I32LE, H5T_NATIVE_INT, {30, 1}, std::vector<int>(30));
                w.add_classes();
              }),
              HasSubstr("convert it to float32"));
  EXPECT_THAT(hdf5_error([](const Hdf5Writer& w) {
                w.add("x", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, {30}, std::vector<float>(30));
                w.add_classes();
              }),
              HasSubstr("1 dimension; it must be [n, features]"));
  EXPECT_THAT(hdf5_error([](const Hdf5Writer& w) {
                w.add_inputs();
                w.add("y", H5T_STD_I32LE, H5T_NATIVE_INT, {30, 1}, std::vector<int>(30));
              }),
              HasSubstr("one class per sample"));
  EXPECT_THAT(hdf5_error([](const Hdf5Writer& w) {
                w.add_inputs();
                w.add_classes("y", -1);
              }),
              HasSubstr("class -1 in row 29"));
  EXPECT_THAT(hdf5_error([](const Hdf5Writer& w) {
                w.add_inputs("x", 9);
                w.add("y", H5T_STD_I32LE, H5T_NATIVE_INT, {9}, std::vector<int>(9));
              }),
              HasSubstr("holds 9 samples; it needs 10"));
  EXPECT_THAT(hdf5_error([](const Hdf5Writer& w) {
                w.add_inputs();
                w.add("y", H5T_STD_I32LE, H5T_NATIVE_INT, {30}, std::vector<int>(30));
              }),
              HasSubstr("nothing to learn"));
  EXPECT_THAT(hdf5_error([](const Hdf5Writer& w) {
                H5Gclose(H5Gcreate2(w.id(), "x", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
                w.add_classes();
              }),
              HasSubstr("open the dataset 'x'"));
}

// An untrusted file could otherwise make this process read any other file.
TEST(Hdf5, DataOutsideTheFileIsNotRead) {
  const TemporaryDirectory directory;
  const auto other = directory.path() / "other.h5";
  {
    const Hdf5Writer writer(other);
    writer.add_inputs();
  }
  EXPECT_THAT(hdf5_error([&](const Hdf5Writer& w) {
                H5Lcreate_external(other.c_str(), "/x", w.id(), "x", H5P_DEFAULT, H5P_DEFAULT);
                w.add_classes();
              }),
              AllOf(HasSubstr("'x' in"), HasSubstr("is a link, and links are not followed")));
  EXPECT_THAT(hdf5_error([&](const Hdf5Writer& w) {
                w.add_inputs("z");
                H5Lcreate_soft("/z", w.id(), "x", H5P_DEFAULT, H5P_DEFAULT);
                w.add_classes();
              }),
              HasSubstr("is a link, and links are not followed"));
  const hid_t external = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_external(external, (directory.path() / "raw").c_str(), 0, 30 * 4 * 4);
  EXPECT_THAT(
      hdf5_error([&](const Hdf5Writer& w) {
        w.add("x", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, {30, 4}, std::vector<float>(120), external);
        w.add_classes();
      }),
      HasSubstr("keeps its data in other files"));
  H5Pclose(external);
}

TEST(Hdf5, InvalidOrTruncatedFileIsNamed) {
  const TemporaryDirectory directory;
  const auto file = directory.path() / "data.h5";
  EXPECT_THAT(error_of([&] { read_hdf5(file); }), HasSubstr("cannot open " + file.string()));
  write(file, "x,y\n1,2\n");
  EXPECT_THAT(
      error_of([&] { read_hdf5(file); }),
      AllOf(HasSubstr(file.string() + " is not a valid HDF5 file"), HasSubstr("write it again")));
  {
    const Hdf5Writer writer(file);
    writer.add_inputs();
    writer.add_classes();
  }
  fs::resize_file(file, fs::file_size(file) - 200);
  EXPECT_THAT(error_of([&] { read_hdf5(file); }), HasSubstr("is not a valid HDF5 file"));
}

}  // namespace
}  // namespace ddp::data
