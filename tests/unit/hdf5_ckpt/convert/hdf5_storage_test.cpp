// SPDX-License-Identifier: Apache-2.0
// HDF5 files of other programs: the values are those that libhdf5 reads, however a dataset is
// stored, and also where nothing was written.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <optional>

#include "base/file_descriptor.h"
#include "hdf5_ckpt/convert/external.h"
#include "hdf5_ckpt/convert/external_hdf5.h"
#include "hdf5_ckpt/core/hdf5_handle.h"
#include "tests/unit/hdf5_ckpt/support.h"

namespace ddp::ckpt {
namespace {

namespace fs = std::filesystem;
using test::TempDirectory;
using testing::ElementsAre;
using testing::Pair;

constexpr hsize_t kElements = 6;

struct Storage {
  H5D_layout_t layout = H5D_CONTIGUOUS;
  std::optional<float> fill = {};
  H5D_fill_time_t when = H5D_FILL_TIME_IFSET;
  hid_t type = H5T_IEEE_F32LE;
};

Hdf5Properties properties_of(const Storage& storage) {
  Hdf5Properties how(H5Pcreate(H5P_DATASET_CREATE), "create");
  const std::array<hsize_t, 1> chunk = {2};
  hdf5_check(H5Pset_layout(how.get(), storage.layout), "create");
  if (storage.layout == H5D_CHUNKED) hdf5_check(H5Pset_chunk(how.get(), 1, chunk.data()), "create");
  if (storage.fill)
    hdf5_check(H5Pset_fill_value(how.get(), H5T_NATIVE_FLOAT, &*storage.fill), "create");
  hdf5_check(H5Pset_fill_time(how.get(), storage.when), "create");
  return how;
}

// Adds a dataset of kElements numbers of which `count` are written, from number `first` on: 1, 2...
void add(hid_t file, const char* name, const Storage& storage, hsize_t first = 0,
         hsize_t count = 0) {
  const Hdf5Space space(H5Screate_simple(1, &kElements, nullptr), "create");
  const Hdf5Dataset dataset(H5Dcreate2(file, name, storage.type, space.get(), H5P_DEFAULT,
                                       properties_of(storage).get(), H5P_DEFAULT),
                            "create");
  if (count == 0) return;
  const std::array<float, kElements> values = {1, 2, 3, 4, 5, 6};
  const Hdf5Space memory(H5Screate_simple(1, &count, nullptr), "write");
  hdf5_check(H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, &first, nullptr, &count, nullptr),
             "write");
  hdf5_check(H5Dwrite(dataset.get(), H5T_NATIVE_FLOAT, memory.get(), space.get(), H5P_DEFAULT,
                      values.data()),
             "write");
}

Hdf5File new_file(const fs::path& path, hsize_t user_block) {
  const Hdf5Properties how(H5Pcreate(H5P_FILE_CREATE), "create");
  hdf5_check(H5Pset_userblock(how.get(), user_block), "create");
  return {H5Fcreate(path.c_str(), H5F_ACC_TRUNC, how.get(), H5P_DEFAULT), "create"};
}

std::map<std::string, std::vector<float>> values_in(const fs::path& path) {
  const auto bytes = test::file_bytes(path);
  const fs::path decoded = path.string() + ".decoded";
  const FileDescriptor to(::open(decoded.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  std::map<std::string, std::vector<float>> values;
  for (const ExternalArray& array : parse_hdf5(path, bytes.size()).arrays) {
    std::vector<float>& mine = values[array.name];
    mine.resize(byte_count(array.dtype, array.shape).value() / sizeof(float));
    const auto place = std::as_writable_bytes(std::span(mine));
    if (!array.encoded) {
      copy_elements(bytes, array, 0, place);
      continue;
    }
    const Decoding decoding{&array, 0};
    decode_hdf5(path, {&decoding, 1}, to.get());
    EXPECT_EQ(::pread(to.get(), place.data(), place.size(), 0), static_cast<ssize_t>(place.size()));
  }
  return values;
}

TEST(Hdf5External, WhatWasNeverWrittenHasTheFillValue) {
  const TempDirectory directory(test::On::memory);
  for (const hsize_t user_block : {hsize_t{0}, hsize_t{512}}) {
    const fs::path path = directory / "x.h5";
    {
      const Hdf5Session session;
      const Hdf5File file = new_file(path, user_block);
      add(file.get(), "a", {}, 0, kElements);
      add(file.get(), "b", {});
      add(file.get(), "c", {.fill = 2.5F});
      add(file.get(), "d", {.layout = H5D_CHUNKED});
      add(file.get(), "e", {.layout = H5D_CHUNKED, .fill = 7.0F}, 2, 2);
      add(file.get(), "f", {.layout = H5D_COMPACT}, 0, 2);
      add(file.get(), "g", {.fill = 1.5F, .type = H5T_IEEE_F32BE});
      add(file.get(), "h", {.type = H5T_IEEE_F32BE}, 0, kElements);
    }
    EXPECT_THAT(values_in(path), ElementsAre(Pair("a", ElementsAre(1, 2, 3, 4, 5, 6)),
                                             Pair("b", ElementsAre(0, 0, 0, 0, 0, 0)),
                                             Pair("c", ElementsAre(2.5, 2.5, 2.5, 2.5, 2.5, 2.5)),
                                             Pair("d", ElementsAre(0, 0, 0, 0, 0, 0)),
                                             Pair("e", ElementsAre(7, 7, 1, 2, 7, 7)),
                                             Pair("f", ElementsAre(1, 2, 0, 0, 0, 0)),
                                             Pair("g", ElementsAre(1.5, 1.5, 1.5, 1.5, 1.5, 1.5)),
                                             Pair("h", ElementsAre(1, 2, 3, 4, 5, 6))))
        << "behind a user block of " << user_block << " bytes";
  }
}

// libhdf5 would leave these elements as they are in the memory that it reads into.
TEST(Hdf5External, WhatHasNoFillValueIsNamedUnlessAllOfItWasWritten) {
  const TempDirectory directory(test::On::memory);
  const fs::path path = directory / "x.h5";
  {
    const Hdf5Session session;
    const Hdf5File file = new_file(path, 512);
    const Storage whole{.when = H5D_FILL_TIME_NEVER};
    const Storage chunked{.layout = H5D_CHUNKED, .when = H5D_FILL_TIME_NEVER};
    add(file.get(), "a", whole, 0, kElements);
    add(file.get(), "b", whole);
    add(file.get(), "c", chunked, 0, kElements);
    add(file.get(), "d", chunked, 2, 4);
    add(file.get(), "e", chunked);
  }
  EXPECT_THAT(values_in(path), ElementsAre(Pair("a", ElementsAre(1, 2, 3, 4, 5, 6)),
                                           Pair("c", ElementsAre(1, 2, 3, 4, 5, 6))));
  std::vector<std::string> unreadable;
  for (const Omission& one : parse_hdf5(path, test::file_bytes(path).size()).unreadable) {
    EXPECT_EQ(one.reason, "parts of it were never written and have no fill value");
    unreadable.push_back(one.name);
  }
  EXPECT_THAT(unreadable, ElementsAre("b", "d", "e"));
}

}  // namespace
}  // namespace ddp::ckpt
