// SPDX-License-Identifier: Apache-2.0
// Seals as text: written and read back; a changed or fabricated one is refused.

#include "hdf5_ckpt/seal/seal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hdf5_ckpt/core/checksummed_text.h"
#include "hdf5_ckpt/core/error.h"
#include "tests/unit/error_of.h"

namespace ddp::ckpt {
namespace {

using testing::HasSubstr;

std::string text_with(const std::string& files, const std::string& links = "",
                      const std::string& schema = "slurm-ddp/seal/1") {
  return with_checksum("\"schema\": \"" + schema + "\", \"written_unix_ns\": 5, \"files\": [" +
                       files + "], \"links\": [" + links + "]}");
}

std::string file(const std::string& path) {
  return R"({"path": ")" + path + R"(", "bytes": 3, "crc32c": "00000001"})";
}

std::string problem_with(const std::string& text) {
  return error_of<Error>([&] { parse_seal(text); });
}

TEST(SealText, IsReadBack) {
  const Seal seal = {
      1700000000, {{"a \xC3\xBC/b\n", 7, 0xFFFFFFFF}, {"c", 0, 0}}, {{"latest", "../\"x\""}}};
  EXPECT_EQ(parse_seal(serialize_seal(seal)), seal);
  const Seal of_file = {0, {{"", 9, 1}}, {}};
  EXPECT_EQ(parse_seal(serialize_seal(of_file)), of_file);
  EXPECT_THAT(error_of<Error>([] {
                serialize_seal({0, {{"a\xFF", 1, 1}}, {}});
              }),
              HasSubstr("not UTF-8"));
}

TEST(SealText, EveryFlippedBitAndEveryCutIsFound) {
  const std::string text = serialize_seal({5, {{"a", 7, 1}, {"b", 8, 2}}, {}});
  for (std::size_t bit = 0; bit < text.size() * 8; ++bit) {
    std::string changed = text;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_NE(error_of<DamagedError>([&] { parse_seal(changed); }), "") << bit;
  }
  for (std::size_t size = 0; size < text.size(); ++size)
    EXPECT_NE(error_of<DamagedError>([&] { parse_seal(text.substr(0, size)); }), "") << size;
}

TEST(SealText, RefusesPathsThatLeaveTheDirectoryOrHaveTwoSpellings) {
  EXPECT_EQ(problem_with(text_with(file("a/b"))), "");
  for (const char* path :
       {"/a", "..", "../a", "a/../b", "a/..", ".", "./a", "a/./b", "a//b", "a/", "a\\u0000b"}) {
    EXPECT_THAT(problem_with(text_with(file(path))), HasSubstr("not that of a file below it"))
        << path;
    EXPECT_THAT(problem_with(text_with(file("x"),
                                       R"({"target": "t", "path": ")" + std::string(path) + "\"}")),
                HasSubstr("not that of a file below it"))
        << path;
  }
}

TEST(SealText, RefusesListsThatMakeNoSense) {
  EXPECT_THAT(problem_with(text_with("")), HasSubstr("names no file"));
  EXPECT_THAT(problem_with(text_with(file("b") + "," + file("a"))), HasSubstr("order"));
  EXPECT_THAT(problem_with(text_with(file("a") + "," + file("a"))), HasSubstr("order"));
  EXPECT_THAT(problem_with(text_with(file("") + "," + file("a"))), HasSubstr("and of a directory"));
  EXPECT_THAT(problem_with(text_with("7")), HasSubstr("files[0]"));
  EXPECT_THAT(problem_with(text_with(file("a"), "", "slurm-ddp/seal/2")), HasSubstr("newer"));
  EXPECT_THAT(problem_with(text_with(file("a"), "", "other")), HasSubstr("not that of a seal"));
  // A newer version is no reason to take an older checkpoint.
  EXPECT_THAT(error_of([] { parse_seal(text_with(file("a"), "", "slurm-ddp/seal/2")); }),
              HasSubstr("newer"));
  EXPECT_THROW(
      try { parse_seal(text_with("", "", "slurm-ddp/seal/2")); } catch (const DamagedError&){},
      Error);
}

}  // namespace
}  // namespace ddp::ckpt
